"""Any known record → a unified one, checked against the schema."""

from __future__ import annotations

from typing import Any

from recollect.chat.media import media_of
from recollect.trajectories.entities import resolved
from recollect.trajectories.field_names import NotATrajectory
from recollect.trajectories.formats import actions, steps, stored
from recollect.trajectories.formats import conversations as chat
from recollect.trajectories.lost import with_lost
from recollect.trajectories.question import find_question
from recollect.trajectories.schema import FIELDS, Record, kind, problem

RESOLVED = "html_entities"  # in the metadata: the entities of a record's texts are resolved, and not once more


def unify(row: Any, domain: str | None = None, name: str = "") -> Record:
    """The unified form of a record. ``domain`` goes before its own, ``name`` is its id if it has none."""
    if not isinstance(row, dict):
        raise NotATrajectory(f"a record is an object, not {kind(row)}")
    if (found := media_of(row, ("messages", "conversations", "trajectory", "prompt", "question"))) is not None:
        raise NotATrajectory(f"{found}; a unified trajectory holds text alone")
    if stored.fits(row):
        made = stored.read(row)
    elif chat.is_own(row):
        made = chat.read(row)
    else:
        made = _foreign(row)
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


def _foreign(source: Record) -> Record:
    """A record that another system may have written: entities are resolved, a question is looked for, all is kept."""
    about = source.get("metadata")
    done = isinstance(about, dict) and (RESOLVED in about or isinstance(about.get("turns"), list))
    row = source if done else resolved(source)
    if row.keys() == set(FIELDS) and problem(row) is None:
        made = dict(row)
    else:
        made = with_lost(row, _read(row))
    if not made["question"].strip():
        made["question"] = find_question(row, made["actions"]) or made["question"]
    return made if row is source else {**made, "metadata": {**made["metadata"], RESOLVED: "resolved"}}


def _read(row: Record) -> Record:
    if steps.list_of(row) is not None:
        return steps.read(row)
    return chat.read(row) if chat.fits(row) else actions.read(row)
