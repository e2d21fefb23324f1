"""recollect trains language-model agents that remember and use tools."""

import os

__version__ = "0.1.0"

# read by torch's libraries when they are first used
os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # threads that wait do so briefly: others may need the core
# CPU kernels kept for shapes seen before: the 1024 of these libraries hold hundreds of MiB, and are no faster
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
os.environ.setdefault("LRU_CACHE_CAPACITY", "64")
