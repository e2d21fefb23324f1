"""Finding passages: a corpus, its index on disk, and ways to rank what is in it."""
