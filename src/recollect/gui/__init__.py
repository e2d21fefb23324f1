"""Graphical screens as environments: what an agent sees of them, and the actions that it may take."""
