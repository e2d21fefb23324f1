"""From trajectories to what a model computes: sequences, prefix trees, micro-batches, and attention over them."""
