"""The algorithms, as pure functions: sequences and prefix trees, advantages, losses, divergences."""
