"""Training of several roles, one stage after another."""
