"""Reading a YAML file that a user gave: what is wrong with it is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from recollect.types import BadInput


def read_mapping(path: Path, what: str) -> dict[str, Any]:
    """The mapping that a file holds; ``what`` says what it should be, for messages."""
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"there is no {what} at {path}") from None
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise BadInput(f"{path} cannot be read as YAML: {' '.join(str(error).split())}") from None
    if not isinstance(value, dict):
        raise BadInput(f"{path}: a {what} is a mapping of keys")
    return value
