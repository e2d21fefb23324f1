"""`recollect rollout`: run the agents of a domain and write unified trajectories."""
