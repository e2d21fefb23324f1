"""The in-process engine: continuous batching over any decoder-only transformers model."""

from recollect.engine.attention_check import load_fitted
from recollect.engine.batching import Engine
from recollect.engine.loop import EngineLoop
from recollect.engine.make_engine import make_engine

__all__ = ["Engine", "EngineLoop", "load_fitted", "make_engine"]
