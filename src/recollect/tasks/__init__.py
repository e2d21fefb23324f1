"""Made-up tasks, one file for each family: endless, each the same for ever, held-out names never seen in training."""
