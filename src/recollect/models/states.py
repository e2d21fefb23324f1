"""What a body hands to what comes after it."""

from __future__ import annotations

from transformers.modeling_outputs import BaseModelOutputWithPast


class States(BaseModelOutputWithPast):
    """Hidden states as a body returns them, and nothing else that a model may ask for."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)
