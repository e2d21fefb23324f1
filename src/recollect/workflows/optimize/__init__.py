"""`recollect optimize`: better prompts for the same weights."""
