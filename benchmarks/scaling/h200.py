"""One H200 as `benchmarks/gpu` measured it (benchmarks/README.md), and what is fitted to that."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scaling.model_shape import SHAPES, ModelShape

COPY = 4.24e12  # bytes per second that a large copy reads and writes
MATMUL = 795e12  # operations per second of a large bfloat16 product
UPDATE = 0.65  # share of that in an update (1.5B, `gpu/update.py`), and taken for prefill too


@dataclass(frozen=True)
class DecodePoint:
    """A measured step of decoding."""

    model: str
    rows: int
    shared: int  # tokens of distinct prompts
    new: int  # tokens that a row samples
    seconds: float

    @property
    def read(self) -> float:
        """Tokens whose keys and values the step reads, late in the completion."""
        return self.shared + 0.75 * self.rows * self.new


DECODE = (  # `gpu/decode.py`
    DecodePoint("0.5B", 64, 64 * 1024, 128, 1.17e-3),
    DecodePoint("0.5B", 256, 256 * 1024, 128, 2.33e-3),
    DecodePoint("7B", 64, 64 * 1024, 128, 5.62e-3),
    DecodePoint("1.5B", 128, 8 * 5000, 256, 2.85e-3),
)
STEP = (6.5, 11.2)  # `gpu/step.py`, 1.5B: rollout, update; nothing below is fitted to it


@dataclass(frozen=True)
class Pace:
    """How fast one GPU is."""

    layer: float  # seconds of a decoding step that each layer takes, whatever it reads
    byte: float  # seconds of a byte that a decoding step reads
    operation: float  # seconds of an operation of prefill and update

    def decode(self, shape: ModelShape, rows: float, read: float, parts: int = 1) -> float:
        """A decoding step; weights, keys and values are spread over so many GPUs."""
        bytes_read = (shape.weight_bytes + shape.token_bytes * read) / parts
        computed = shape.forward(rows, read, rows) * self.operation / parts
        return shape.layers * self.layer + max(bytes_read * self.byte, computed)


def fitted() -> Pace:
    """The least squares of relative errors over the measured points."""
    rows = [(SHAPES[p.model], p) for p in DECODE]
    terms = np.array([[s.layers, s.weight_bytes + s.token_bytes * p.read] for s, p in rows])
    seconds = np.array([p.seconds for p in DECODE])
    layer, byte = np.linalg.lstsq(terms / seconds[:, None], np.ones(len(seconds)), rcond=None)[0]
    return Pace(float(layer), float(byte), 1 / (UPDATE * MATMUL))


def errors(pace: Pace) -> list[float]:
    """Of each measured point: what the fit says, divided by what was measured."""
    return [pace.decode(SHAPES[p.model], p.rows, p.read) / p.seconds for p in DECODE]
