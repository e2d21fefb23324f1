"""The in-process engine: continuous batching over any decoder-only transformers model."""

from recollect.policies.engine.engine import Engine
from recollect.policies.engine.fit import load_fitted
from recollect.policies.engine.loop import Loop
from recollect.policies.engine.make import make_engine

__all__ = ["Engine", "Loop", "load_fitted", "make_engine"]
