"""Training: the learner that owns weights and optimizer, and the loops that feed it."""
