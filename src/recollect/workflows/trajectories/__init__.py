"""`recollect convert`, `recollect reward` and `recollect sft-data`."""
