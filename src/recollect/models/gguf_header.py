"""Read the header of a GGUF file: what model it holds, of which types, and whether it is whole. No weights are read.

Every size is checked against the file and a bound before it is believed, so a header cannot make us read or hold more.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from recollect.files.reading import MB, open_file
from recollect.types import BadInput

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_KEYS, MOST_TENSORS, MOST_ITEMS = 10_000, 100_000, 10_000_000  # of metadata, of tensors, of one list
MOST_NAME, MOST_STRING, MOST_HEADER = 1 << 16, 16 * MB, 512 * MB  # bytes
MOST_DIMENSIONS = 4
LARGEST = 1 << 40  # numbers of a tensor
ALIGNMENT = 32  # bytes, unless the file says otherwise
STRING, LIST = 8, 9
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


@dataclass(frozen=True)
class StoredTensor:
    """A tensor's place in the file, as its header has it."""

    name: str
    shape: tuple[int, ...]
    kind: int  # its type by number, such as 3 for Q4_1
    offset: int  # from the first byte of the weights

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class GGUFHeader:
    """What a GGUF file says about itself."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: tuple[StoredTensor, ...]
    start: int  # of the weights in the file

    @property
    def architecture(self) -> str:
        return str(self.metadata["general.architecture"])

    @property
    def parameters(self) -> int:
        return sum(t.numel for t in self.tensors)

    def kinds(self) -> Counter[int]:
        """How many tensors there are of each type."""
        return Counter(t.kind for t in self.tensors)

    def about(self, key: str, default: Any = None) -> Any:
        """A value of the architecture's own, such as ``block_count``."""
        return self.metadata.get(f"{self.architecture}.{key}", default)


def is_gguf(path: str) -> bool:
    """True for a file that is one by its name or its first bytes."""
    file = Path(path).expanduser()
    try:
        if file.is_dir():
            return False
        if file.suffix.lower() == ".gguf":
            return True
        if not file.is_file():
            return False
        with file.open("rb") as opened:
            return opened.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def read_header(path: Path) -> GGUFHeader:
    """The header of a file; refuses one that is no GGUF, damaged, or split into several files."""
    with open_file(path, "GGUF file") as file:
        try:
            found = _header(path, Reader(file, path.stat().st_size))
        except (_Wrong, UnicodeDecodeError, struct.error) as error:
            raise BadInput(f"{path} is not a GGUF file that can be read: {_why(error)}") from None
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
    if (parts := found.metadata.get("split.count", 0)) not in (0, 1):
        raise BadInput(f"{path} is one of {parts} parts of a model; join them into one file first")
    _refuse_claims(found)
    return found


class _Wrong(Exception):
    """What is wrong with a file."""


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, _Wrong) else "its metadata is damaged"


class Reader:
    """Numbers and texts from a file, none larger than what is left of it."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.size, self.at = file, size, 0

    def take(self, count: int, what: str) -> bytes:
        if self.at + count > self.size:
            raise _Wrong(f"it ends in the middle of its {what} (it is cut off or damaged)")
        if self.at + count > MOST_HEADER:
            raise _Wrong(f"its metadata is larger than {MOST_HEADER // MB} MB")
        self.at += count
        return self.file.read(count)

    def number(self, kind: str, what: str = "metadata") -> Any:
        return struct.unpack(f"<{kind}", self.take(struct.calcsize(f"<{kind}"), what))[0]

    def count(self, most: int, what: str, kind: str = "Q") -> int:
        if (found := int(self.number(kind))) > most:
            raise _Wrong(f"it claims {found:,} {what}, and at most {most:,} are read")
        return found

    def text(self, most: int = MOST_NAME, what: str = "bytes of a name") -> str:
        return self.take(self.count(most, what), "metadata").decode()

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.text(MOST_STRING, "bytes of a text")
        if kind == LIST:
            return self.list()
        if kind not in NUMBERS:
            raise _Wrong(f"its metadata has a value of the unknown type {kind}")
        return self.number(NUMBERS[kind])

    def list(self) -> list[Any]:
        kind = int(self.number("I"))
        count = self.count(MOST_ITEMS, "items of a list")
        if kind == STRING:
            return [self.text(MOST_STRING, "bytes of a text") for _ in range(count)]
        if kind not in NUMBERS:
            raise _Wrong(f"its metadata has a list of the unknown type {kind}")
        width = struct.calcsize(f"<{NUMBERS[kind]}")
        return list(struct.unpack(f"<{count}{NUMBERS[kind]}", self.take(count * width, "metadata")))


def _header(path: Path, read: Reader) -> GGUFHeader:
    if read.size < 24 or read.take(len(MAGIC), "first bytes") != MAGIC:
        raise _Wrong("it does not begin as GGUF files do")
    version = int(read.number("I"))
    if version not in VERSIONS:
        raise _Wrong(f"it is of version {version}, and {' and '.join(map(str, VERSIONS))} are read (little-endian)")
    tensors = read.count(MOST_TENSORS, "tensors")
    metadata = _metadata(read, read.count(MOST_KEYS, "keys of metadata"))
    table = tuple(_tensor(read) for _ in range(tensors))
    if not table:
        raise _Wrong("it holds no weights")
    if twice := [name for name, times in Counter(t.name for t in table).items() if times > 1]:
        raise _Wrong(f"it has two tensors of the name {twice[0]}")
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if type(alignment) is not int or not 1 <= alignment <= MB:
        raise _Wrong(f"general.alignment is {alignment!r}")
    return GGUFHeader(path, metadata, table, -(-read.at // alignment) * alignment)


def _metadata(read: Reader, count: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(count):
        key = read.text()
        found[key] = read.value(int(read.number("I")))
    if not isinstance(found.get("general.architecture"), str):
        raise _Wrong("it does not say its architecture (general.architecture)")
    return found


def _tensor(read: Reader) -> StoredTensor:
    name = read.text()
    dimensions = read.count(MOST_DIMENSIONS, f"dimensions of {name[:80]}", "I")
    shape = tuple(int(read.number("Q", "list of tensors")) for _ in range(dimensions))
    if 0 in shape or math.prod(shape) > LARGEST:
        raise _Wrong(f"the tensor {name[:80]} has the shape {shape}")
    return StoredTensor(name, shape, int(read.number("I")), int(read.number("Q", "list of tensors")))


def check_whole(header: GGUFHeader, bytes_of: Callable[[StoredTensor], int]) -> None:
    """Refuse a file that ends before its last tensor does."""
    size = header.path.stat().st_size
    end = max(header.start + t.offset + bytes_of(t) for t in header.tensors)
    if end > size:
        raise BadInput(f"{header.path} is cut off: it has {size:,} bytes, and its weights end at {end:,}")


COUNTS = ("block_count",)  # each needs tensors of its own
SIZES = (  # each is a dimension of some tensor, or less
    *("embedding_length", "feed_forward_length", "expert_feed_forward_length", "vocab_size"),
    *("attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length"),
    *("rope.dimension_count", "ssm.inner_size", "ssm.state_size", "ssm.conv_kernel", "ssm.time_step_rank"),
)
EXPERTS = ("expert_count", "expert_used_count")


def _refuse_claims(header: GGUFHeader) -> None:
    """Refuse metadata that claims a larger model than there are weights for, which would take hours to build."""
    largest = max(size for t in header.tensors for size in t.shape or (1,))
    many = len(header.tensors)
    for names, most in ((COUNTS, many), (SIZES, max(many, largest)), (EXPERTS, header.parameters)):
        for name in names:
            given = header.about(name, 0)
            for value in given if isinstance(given, list) else [given]:
                if not isinstance(value, int | float) or not 0 <= value <= most:
                    raise BadInput(
                        f"{header.path} says {header.architecture}.{name}={str(value)[:40]}, "
                        f"and its weights have at most {most:,}"
                    )
