"""`recollect eval` and `recollect ask`."""
