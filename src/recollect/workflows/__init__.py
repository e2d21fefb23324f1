"""What a command does from beginning to end, where it uses several of the parts before it."""
