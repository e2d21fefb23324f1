"""`recollect data`: data sets and made-up tasks as task files."""
