"""What every part needs of the machine and the process: the console, threads, deadlines, secrets, plugins."""
