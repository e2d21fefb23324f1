"""The learner owns weights and optimizer: forward passes, updates, the critic, memory."""
