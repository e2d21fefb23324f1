"""Where the tasks of a run come from: files, made-up families, stored trajectories."""
