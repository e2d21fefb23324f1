"""recollect trains language-model agents that remember and use tools."""

__version__ = "0.1.0"
