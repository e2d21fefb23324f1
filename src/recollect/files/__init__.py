"""Read users' files within bounds; write files under locks, whole or not at all."""
