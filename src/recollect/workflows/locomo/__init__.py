"""`recollect locomo`: train on LoCoMo, evaluate what was trained, and the baselines beside it."""
