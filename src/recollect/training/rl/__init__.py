"""Reinforcement learning: one file for each part of a step."""
