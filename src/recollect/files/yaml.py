"""Read YAML that a user gave: errors are one line, and aliases that grow without end are refused first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from recollect.files.reading import MB, read_text
from recollect.types import BadInput

MOST_BYTES = MB
MOST_NODES = 100_000  # values, with every alias written out
MOST_DEPTH = 100
MOST_BITS = 4096  # of a whole number
LOADER: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


def read_mapping(path: Path, what: str) -> dict[str, Any]:
    """The mapping in a file; ``what`` names its kind in messages."""
    value = parse_yaml(read_yaml(path, what), str(path))
    if not isinstance(value, dict):
        raise BadInput(f"{path}: a {what} is a mapping of keys")
    return value


def read_yaml(path: Path, what: str = "YAML file") -> str:
    """The text of a file that is safe to compose."""
    text = read_text(path, MOST_BYTES, what)
    refuse_endless(text, str(path))
    return text


def parse_yaml(text: str, place: str) -> Any:
    """The value of a text that is safe to compose."""
    try:
        value = yaml.load(text, Loader=LOADER)
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise _broken(place, error) from None
    if _has_huge_number(value):
        raise BadInput(f"{place}: a number has thousands of digits")
    return value


def _has_huge_number(value: Any) -> bool:
    """True for a value with whole numbers that Python does not write out: 0xfff…, 59:59:59:…"""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, int) and one.bit_length() > MOST_BITS:
            return True
        left += [*one.keys(), *one.values()] if isinstance(one, dict) else one if isinstance(one, list | tuple) else ()
    return False


def _broken(place: str, error: Exception) -> BadInput:
    return BadInput(f"{place} is not YAML: {' '.join(str(error).split())[:300]}")


def refuse_endless(text: str, place: str) -> None:
    """Refuse aliases that grow without end and values that are nested too deep. Nothing is composed here."""
    sizes: dict[str, tuple[int, int]] = {}  # anchor → values below it, and how deep they go
    open_nodes: list[tuple[str | None, int, int]] = []  # (anchor, values so far, depth so far)
    try:
        for event in yaml.parse(text, Loader=LOADER):
            anchor = getattr(event, "anchor", None)
            if isinstance(event, yaml.CollectionStartEvent):
                if anchor:
                    sizes.pop(anchor, None)  # until it ends, an alias to it would stand inside itself
                open_nodes.append((anchor, 1, 1))
                count, depth = 0, 0
            elif isinstance(event, yaml.CollectionEndEvent):
                anchor, count, depth = open_nodes.pop()
            elif isinstance(event, yaml.AliasEvent):
                if anchor not in sizes:
                    raise BadInput(f"{place} is not YAML: the alias *{anchor} has no value before it")
                count, depth = sizes[str(anchor)]
            elif isinstance(event, yaml.ScalarEvent):
                count, depth = 1, 0
            else:
                continue
            if anchor and not isinstance(event, yaml.CollectionStartEvent | yaml.AliasEvent):
                sizes[anchor] = count, depth
            if open_nodes:
                name, so_far, deepest = open_nodes[-1]
                open_nodes[-1] = name, so_far + count, max(deepest, depth + 1)
                _refuse_large(open_nodes[-1][1], max(open_nodes[-1][2], len(open_nodes)), place)
    except yaml.YAMLError as error:
        raise _broken(place, error) from None


def _refuse_large(count: int, depth: int, place: str) -> None:
    if count > MOST_NODES:
        raise BadInput(f"{place} stands for more than {MOST_NODES:,} values; it is too large for a file of settings")
    if depth > MOST_DEPTH:
        raise BadInput(f"{place} is nested more than {MOST_DEPTH} deep")
