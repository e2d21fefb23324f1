"""The in-process engine: continuous batching over any decoder-only transformers model."""

from recollect.policies.engine.engine import Engine
from recollect.policies.engine.make import make_engine

__all__ = ["Engine", "make_engine"]
