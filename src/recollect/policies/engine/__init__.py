"""The in-process engine: continuous batching over any decoder-only transformers model."""

from recollect.policies.engine.engine import Engine

__all__ = ["Engine"]
