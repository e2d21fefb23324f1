"""Values as bytes, for messages between the driver and its ranks: JSON, and the bytes of arrays behind it.

Nothing in a message is executed when it is read. What can be written: what JSON has, tuples, paths, arrays, tensors, and
the data classes of this package.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

OURS = "recollect."  # data classes of other packages are not made
_HEAD = struct.Struct("<Q")  # bytes of the JSON part, which comes first
_ALIGN = 16


class _Arrays:
    """The arrays of a message, one after the other."""

    def __init__(self) -> None:
        self.found: list[np.ndarray] = []
        self.size = 0

    def add(self, array: np.ndarray) -> int:
        """Keep an array; returns where its bytes will be."""
        start = self.size
        self.found.append(np.ascontiguousarray(array))
        self.size += array.nbytes + (-array.nbytes % _ALIGN)
        return start


def encode(value: Any) -> bytes:
    """The bytes of a value."""
    arrays = _Arrays()
    text = json.dumps(_plain(value, arrays)).encode()
    text += b" " * (-(_HEAD.size + len(text)) % _ALIGN)
    parts: list[bytes | memoryview] = [_HEAD.pack(len(text)), text]
    for array in arrays.found:
        parts += [array.reshape(-1).view(np.uint8).data, b"\0" * (-array.nbytes % _ALIGN)]
    return b"".join(parts)


def decode(data: bytes | bytearray | memoryview) -> Any:
    """The value of some bytes; its arrays may be written to."""
    view = memoryview(data)
    (size,) = _HEAD.unpack_from(view)
    start = _HEAD.size + size
    return _value(json.loads(bytes(view[_HEAD.size : start])), view[start:])


def _plain(value: Any, arrays: _Arrays) -> Any:
    """What JSON can hold; everything else is an object with one key that says what it is."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return {"path": str(value)}
    if isinstance(value, np.ndarray):
        return {"array": [value.dtype.str, list(value.shape), arrays.add(value)]}
    if is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        named = {f.name: _plain(getattr(value, f.name), arrays) for f in fields(value) if f.init}
        return {"class": [kind.__module__, kind.__qualname__, named]}
    if isinstance(value, dict):
        return {"dict": [[_plain(k, arrays), _plain(v, arrays)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_plain(item, arrays) for item in value]}
    if isinstance(value, Sequence):
        return [_plain(item, arrays) for item in value]
    return {"tensor": _tensor(value, arrays)}


def _tensor(value: Any, arrays: _Arrays) -> list[Any]:
    import torch

    if not isinstance(value, torch.Tensor):
        raise TypeError(f"a {type(value).__name__} cannot be sent to ranks")
    flat = value.detach().cpu().contiguous()
    kind = str(flat.dtype).removeprefix("torch.")
    raw = flat.reshape(-1).view(torch.uint8).numpy() if flat.numel() else np.zeros(0, np.uint8)
    return [kind, list(flat.shape), arrays.add(raw)]


def _value(found: Any, data: memoryview) -> Any:
    if isinstance(found, list):
        return [_value(item, data) for item in found]
    if not isinstance(found, dict):
        return found
    ((kind, about),) = found.items()
    if kind == "path":
        return Path(about)
    if kind == "tuple":
        return tuple(_value(item, data) for item in about)
    if kind == "dict":
        return {_value(k, data): _value(v, data) for k, v in about}
    if kind == "array":
        name, shape, start = about
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(data, np.dtype(name), count, start).reshape(shape).copy()
    if kind == "tensor":
        return _made_tensor(about, data)
    if kind == "class":
        module, name, named = about
        return _class_of(module, name)(**{k: _value(v, data) for k, v in named.items()})
    raise ValueError(f"a message holds an unknown kind of value ({kind})")


def _made_tensor(about: list[Any], data: memoryview) -> Any:
    import torch

    name, shape, start = about
    kind = getattr(torch, name)
    count = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    raw = np.frombuffer(data, np.uint8, count, start).copy()
    return torch.from_numpy(raw).view(kind).reshape(shape) if count else torch.empty(shape, dtype=kind)


def _class_of(module: str, name: str) -> Any:
    if not module.startswith(OURS) or module.rpartition(".")[2].startswith("__"):
        raise ValueError(f"a message holds a {module}.{name}, which is not of this package")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not is_dataclass(found):
        raise ValueError(f"a message holds a {module}.{name}, which is no data class")
    return found
