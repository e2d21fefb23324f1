"""Images in conversations: reading them, and the ids that stand for them in a prompt."""
