"""The part of a model's configuration that is about text: all of it, but for models that see."""

from __future__ import annotations

from typing import Any


def text_config(model: Any) -> Any:
    """The settings of a model's layers and vocabulary."""
    return model.config.get_text_config(decoder=True)
