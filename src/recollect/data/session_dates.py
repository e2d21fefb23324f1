"""Dates of sessions, and what "yesterday" or "last week" means in one: the date it was said on decides."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta

from recollect.types import BadInput

FORMS = ("%I:%M %p on %d %B, %Y", "%I:%M %p on %d %B %Y", "%d %B, %Y", "%d %B %Y", "%Y-%m-%d", "%Y-%m-%dT%H:%M:%S")
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7}
NEAR = {"yesterday": -1, "last night": -1, "today": 0, "tonight": 0, "this morning": 0, "tomorrow": 1}
_COUNT = r"(?P<count>\d{1,3}|" + "|".join(NUMBERS) + r")"
_UNIT = r"(?P<unit>day|week|month|year)s?"
_PERIOD = r"week(?:end)?|month|year|" + "|".join(DAYS)
_RELATIVE = re.compile(
    rf"\b(?:(?P<near>{'|'.join(NEAR)})|{_COUNT} {_UNIT} ago|(?P<side>last|next|this) (?P<period>{_PERIOD}))\b",
    re.IGNORECASE,
)


def read_date(text: object, place: str) -> date:
    """The day of a session; a date in another form is refused."""
    said = " ".join(str(text).split()) if isinstance(text, str) else ""
    for form in FORMS:
        try:
            return datetime.strptime(said, form).date()
        except ValueError:
            continue
    raise BadInput(f"{place}: the date {text!r} cannot be read; expected one like '1:56 pm on 8 May, 2023'")


def in_words(day: date) -> str:
    """A day as LoCoMo's answers write it: 7 May 2023."""
    return f"{day.day} {day:%B %Y}"


def resolved(text: str, day: date) -> str:
    """A text in which every relative date is followed by what it means in a session of that day, in brackets."""

    def with_date(found: re.Match[str]) -> str:
        meant = _meaning(found, day)
        return f"{found[0]} [{meant}]" if meant else found[0]

    return _RELATIVE.sub(with_date, text)


def _meaning(found: re.Match[str], day: date) -> str:
    try:
        if found["near"]:
            return in_words(day + timedelta(NEAR[found["near"].lower()]))
        if found["unit"]:
            count = NUMBERS.get(found["count"].lower()) or int(found["count"])
            return AGO[found["unit"].lower()](day, -count)
        side = {"last": -1, "this": 0, "next": 1}[found["side"].lower()]
        period = found["period"].lower()
        if period in DAYS:
            return _weekday(day, DAYS.index(period), side)
        return PERIODS[period](day, side)
    except (OverflowError, ValueError):  # before the first year, or after the last
        return ""


def _week(day: date, weeks: int) -> str:
    """The week that is so many weeks away, by its Monday."""
    return f"the week of {in_words(day - timedelta(day.weekday()) + timedelta(weeks=weeks))}"


def _weekend(day: date, weeks: int) -> str:
    saturday = day - timedelta(day.weekday()) + timedelta(5, weeks=weeks)
    return f"{in_words(saturday)} to {in_words(saturday + timedelta(1))}"


def _month(day: date, months: int) -> str:
    count = day.year * 12 + day.month - 1 + months
    return f"{date(count // 12, count % 12 + 1, 1):%B %Y}"


def _year(day: date, years: int) -> str:
    return str(date(day.year + years, 1, 1).year)


def _weekday(day: date, number: int, side: int) -> str:
    """The last one before the day, the next one after it, or that of its own week."""
    away = number - day.weekday()
    if side:
        away = away - 7 if side < 0 and away >= 0 else away + 7 if side > 0 and away <= 0 else away
    return in_words(day + timedelta(away))


Meaning = Callable[[date, int], str]
PERIODS: dict[str, Meaning] = {"week": _week, "weekend": _weekend, "month": _month, "year": _year}
AGO: dict[str, Meaning] = {
    "day": lambda day, count: in_words(day + timedelta(count)),
    "week": lambda day, count: f"about {in_words(day + timedelta(weeks=count))}",
    "month": _month,
    "year": _year,
}
