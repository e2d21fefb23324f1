"""What the agents with a memory share: prompts, the tools of each phase, how large prompts can get."""
