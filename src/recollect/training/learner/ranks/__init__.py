"""One learner on several ranks: FSDP2 spreads its weights, every rank computes its part of each batch."""
