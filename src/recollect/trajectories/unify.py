"""Any known record → a unified one, checked against the schema."""

from __future__ import annotations

from typing import Any

from recollect.trajectories.formats import actions, chat, steps, stored
from recollect.trajectories.keys import NotATrajectory
from recollect.trajectories.schema import FIELDS, Record, kind, problem


def unify(row: Any, domain: str | None = None, name: str = "") -> Record:
    """The unified form of a record. ``domain`` goes before its own, ``name`` is its id if it has none."""
    if not isinstance(row, dict):
        raise NotATrajectory(f"a record is an object, not {kind(row)}")
    if row.keys() == set(FIELDS) and problem(row) is None:
        made = dict(row)
    elif stored.fits(row):
        made = stored.read(row)
    elif steps.fits(row):
        made = steps.read(row)
    elif chat.fits(row):
        made = chat.read(row)
    else:
        made = actions.read(row)
    if not made["task_id"]:
        made["task_id"] = name or "trajectory"
    if domain is not None and made["domain"] != domain:
        if made["domain"] is not None:
            made["metadata"] = {**made["metadata"], "source_domain": made["domain"]}
        made["domain"] = domain
    if made["domain"] is None:
        raise NotATrajectory(
            "it names no domain: add it to the record as `domain`, or give --domain to convert, reward or sft-data"
        )
    if (wrong := problem(made)) is not None:
        raise NotATrajectory(wrong)
    return made
