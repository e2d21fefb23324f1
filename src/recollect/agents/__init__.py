"""Agents: the loops, what a loop is handed, and the rollout that runs many of them at once."""
