"""What all parts need of the process: console, threads, deadlines, secrets, plugins."""
