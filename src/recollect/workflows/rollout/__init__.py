"""`recollect rollout`: agents at work, their trajectories in unified form."""
