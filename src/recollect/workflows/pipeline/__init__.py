"""The whole road from one YAML: generate, convert, reward, sft-data, SFT, RL, evaluate, report."""
