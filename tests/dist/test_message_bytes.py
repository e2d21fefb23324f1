"""Messages come out as they went in, and nothing else can be made by them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from recollect.config.compose import compose
from recollect.dist.message_bytes import decode, encode
from recollect.packing.micro_batch import pack
from recollect.packing.tree import build_tree
from recollect.types import Sample

KINDS = st.sampled_from([np.float32, np.int64, np.bool_, np.uint8])
PLAIN = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    PLAIN | arrays.arrays(KINDS, arrays.array_shapes(min_dims=0, min_side=0)),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and [*a] == [*b] and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


@given(VALUES)
def test_values_come_back(value: Any) -> None:
    assert same(value, decode(encode(value)))


def test_carriers_and_settings_come_back() -> None:
    cfg = compose("needle", [])
    assert decode(encode({"cfg": cfg, "at": Path("x/y")})) == {"cfg": cfg, "at": Path("x/y")}
    sample = Sample(np.arange(5), np.arange(5) > 2, np.zeros(5, np.float32), 1, 2, roles=[("memory", 2)])
    back = decode(encode([sample]))[0]
    assert back.roles == [("memory", 2)]
    assert back.mask.tolist() == sample.mask.tolist()
    packed = pack([build_tree([0], [np.arange(9)])], [np.arange(9) > 3], [0])
    torch.testing.assert_close(decode(encode(packed)).plan.buckets[0].keys, packed.plan.buckets[0].keys)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(), (0,), (3, 2)])
def test_tensors_come_back(kind: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape).to(kind)
    torch.testing.assert_close(decode(encode((tensor, tensor)))[1], tensor)


@pytest.mark.parametrize(
    "found",
    [
        {"class": ["os", "system", {}]},
        {"class": ["recollect.types", "BadInput", {}]},
        {"class": ["subprocess", "Popen", {"args": ["true"]}]},
        {"pickle": "gASVAA=="},
    ],
)
def test_other_things_are_not_made(found: Any) -> None:
    text = json.dumps(found).encode()
    with pytest.raises(ValueError, match="a message holds"):
        decode(struct.pack("<Q", len(text)) + text)


def test_what_cannot_be_sent_is_an_error() -> None:
    with pytest.raises(TypeError, match="function cannot be sent"):
        encode(same)
