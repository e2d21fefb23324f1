"""Dates of sessions, and relative dates in them."""

from __future__ import annotations

from datetime import date

import pytest

from recollect.data.session_dates import read_date, resolved
from recollect.types import BadInput

MONDAY = date(2023, 5, 8)


@pytest.mark.parametrize("text", ["1:56 pm on 8 May, 2023", "8 May 2023", "2023-05-08", "12:01 am on 8 May, 2023"])
def test_dates_are_read(text: str) -> None:
    assert read_date(text, "here") == MONDAY


@pytest.mark.parametrize("text", ["", "soon", None, 8, "31:00 pm on 8 May, 2023", "1:56 pm on 40 May, 2023"])
def test_dates_that_cannot_be_read_are_refused(text: object) -> None:
    with pytest.raises(BadInput, match=r"here: the date .* cannot be read"):
        read_date(text, "here")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("I went yesterday.", "I went yesterday [7 May 2023]."),
        ("See you Tomorrow!", "See you Tomorrow [9 May 2023]!"),
        ("two days ago", "two days ago [6 May 2023]"),
        ("3 weeks ago", "3 weeks ago [about 17 April 2023]"),
        ("a year ago", "a year ago [2022]"),
        ("six months ago", "six months ago [November 2022]"),
        ("last month", "last month [April 2023]"),
        ("next month", "next month [June 2023]"),
        ("last year", "last year [2022]"),
        ("last week", "last week [the week of 1 May 2023]"),
        ("last weekend", "last weekend [6 May 2023 to 7 May 2023]"),
        ("this weekend", "this weekend [13 May 2023 to 14 May 2023]"),
        ("last Friday", "last Friday [5 May 2023]"),
        ("last Monday", "last Monday [1 May 2023]"),
        ("next Monday", "next Monday [15 May 2023]"),
        ("next Friday", "next Friday [12 May 2023]"),
        ("the daylight and 2022", "the daylight and 2022"),
        ("999 years ago", "999 years ago [1024]"),
        ("I have seen it at last", "I have seen it at last"),
    ],
)
def test_relative_dates_are_resolved(said: str, meant: str) -> None:
    assert resolved(said, MONDAY) == meant


def test_a_date_before_all_dates_is_left_alone() -> None:
    assert resolved("100 years ago", date(50, 1, 1)) == "100 years ago"
    assert resolved("yesterday", date.min) == "yesterday"


def test_months_cross_a_year() -> None:
    assert resolved("last month", date(2023, 1, 5)) == "last month [December 2022]"
    assert resolved("next month", date(2023, 12, 5)) == "next month [January 2024]"
