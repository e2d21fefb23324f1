"""One reader for each format that trajectories come in."""
