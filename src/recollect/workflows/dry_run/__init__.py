"""`--dry-run`: check everything that a run needs, and predict its tokens and memory."""
