"""A conversation in the pieces that are remembered: turns, sessions or observations, with their dates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from recollect.data.questions import DATES, chunk_text
from recollect.data.session_dates import in_words, read_date, resolved
from recollect.types import BadInput, Task


@dataclass(frozen=True)
class Unit:
    """One thing that can be remembered."""

    text: str
    names: tuple[str, ...]  # ids of the turns in it, as D3:5, or S3 for a whole session
    session: int  # its place among the sessions, from 1


def units(task: Task, kind: str, dates: bool) -> list[list[Unit]]:
    """The units of each session, in order. ``dates``: relative ones are followed by what they mean."""
    sessions = list(task.context)
    if kind == "observations":
        return list(_observations(task, sessions, dates))
    made = []
    for i, (session, text) in enumerate(zip(sessions, dated_sessions(sessions, dates), strict=True), 1):
        own = _turns(session, i, dates) if kind == "turns" else []
        made.append(own or [Unit(text, (f"S{_number(session, i)}",), i)])
    return made


def dated_sessions(sessions: Sequence[Any], dates: bool) -> list[str]:
    """Each session as one text, its date first."""
    return [_meant(chunk_text(session), session, dates) for session in sessions]


def _turns(session: Any, place: int, dates: bool) -> list[Unit]:
    """The turns of a session that has them, each with the date on which it was said."""
    turns = session.get("turns") if isinstance(session, Mapping) else None
    if not isinstance(turns, Sequence) or isinstance(turns, str):
        return []
    day, made = _day(session), []
    when = in_words(day) if day else next((str(session[name]) for name in DATES if session.get(name)), "")
    for i, turn in enumerate(turns, 1):
        said = chunk_text({"turns": [turn]})
        text = _meant(f"{when}: {said}" if when else said, session, dates)
        name = turn.get("id") if isinstance(turn, Mapping) else None
        made.append(Unit(text, (str(name or f"D{_number(session, place)}:{i}"),), place))
    return made


def _observations(task: Task, sessions: Sequence[Any], dates: bool) -> Iterator[list[Unit]]:
    given = task.fields.get("observations")
    if not given:
        raise BadInput(f"{task.place or task.id}: conversation.memory=observations, and the data has no `observations`")
    for place, session in enumerate(sessions, 1):
        day, number = _day(session), _number(session, place)
        own = [row for row in given if row.get("session") == number]
        head = f"{in_words(day)}: " if day else ""
        yield [
            Unit(_meant(f"{head}{row['text']}", session, dates), tuple(map(str, row.get("evidence") or ())), place)
            for row in own
        ]


def _number(session: Any, place: int) -> int:
    given = session.get("number") if isinstance(session, Mapping) else None
    return given if isinstance(given, int) else place


def _day(session: Any) -> date | None:
    """The day of a session; None where it has none, or one in words such as "day 3"."""
    given = next((session[name] for name in DATES if session.get(name)), None) if isinstance(session, Mapping) else None
    try:
        return None if given is None else read_date(given, "")
    except BadInput:
        return None


def _meant(text: str, session: Any, dates: bool) -> str:
    day = _day(session) if dates else None
    return resolved(text, day) if day else text
