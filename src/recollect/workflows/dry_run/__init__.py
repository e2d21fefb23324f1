"""`--dry-run`: all that a run needs is looked at, and what it will take is predicted."""
