"""Texts that a client reads as the same, and those that it does not."""

from __future__ import annotations

import pytest

from recollect.serve.arbor.same_fields import saying
from tests.waiting import cost

SAME = [
    ("x", " x\n"),
    ("[[ ## a ## ]]\nx\n\n[[ ## completed ## ]]\n", "[[ ## a ## ]] x"),
    (
        "[[ ## a ## ]]\nx\n[[ ## b ## ]]\n[1, 2]",
        "so\n[[ ## b ## ]]\n[1,2]\n[[ ## a ## ]]\nx\n[[ ## completed ## ]] .",
    ),
    ('{"a": "x", "b": 7}', 'Here: {"b": 7,\n "a": "x"}'),
    ("<a>\nx\n</a>\n<b>True</b>", "<a>x</a> <b>true</b>"),
    ("[[ ## a ## ]]\nTrue", "[[ ## a ## ]]\ntrue"),
]
OTHER = [
    ("x", "X"),
    ("x y", "x  y"),
    ("[[ ## a ## ]]\nx", "[[ ## b ## ]]\nx"),
    ("[[ ## a ## ]]\nx", "x"),
    ('{"a": 7}', '{"a": 7.5}'),
    ("<a>x</a>", "<a>y</a>"),
    ("{ 472}", "{472}"),
    ("", "[[ ## a ## ]]"),
]


@pytest.mark.parametrize(("one", "two"), SAME)
def test_the_same(one: str, two: str) -> None:
    assert saying(one) == saying(two)


@pytest.mark.parametrize(("one", "two"), OTHER)
def test_not_the_same(one: str, two: str) -> None:
    assert saying(one) != saying(two)


@pytest.mark.parametrize("text", ["<a>", "</a>", "<a></b>", "[[ ## a ## ]]\n", "{", '{"a":', "[[ ##", "<a>x</a>"])
def test_the_time_grows_with_the_length(text: str) -> None:
    short, long = (text * (n // len(text)) for n in (20_000, 200_000))
    assert cost(lambda: saying(long)) < 60 * cost(lambda: saying(short)) + 0.02
