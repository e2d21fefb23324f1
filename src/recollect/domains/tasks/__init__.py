"""Made-up tasks of each domain: endless, each the same for ever, held-out names never seen in training."""
