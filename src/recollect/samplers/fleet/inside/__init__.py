"""What runs in a server's own Python, which may have no recollect: its keeper, and the extension of vLLM's workers."""
