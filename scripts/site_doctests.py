"""An extension of griffe, which reads docstrings for mkdocs: examples that doctest runs are shown as code."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)


class Doctests(griffe.Extension):
    """Puts a fence around every example of a docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each function, class and module."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
