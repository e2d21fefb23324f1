"""Trajectories as files: one unified format, readers of others, rewards, data to train on."""
