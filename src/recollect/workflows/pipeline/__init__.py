"""`recollect pipeline`: generate, convert, reward, sft-data, SFT, RL, evaluate and report, from one YAML file."""
