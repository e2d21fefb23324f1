"""The run directory, and the trackers that follow it."""
