"""Several trajectories in one object: in a list under a name, or each under its id."""

from __future__ import annotations

from typing import Any

from recollect.trajectories.field_names import ACTIONS, QUESTION
from recollect.trajectories.schema import Record

LISTS = ("trajectories", "episodes", "rollouts", "records", "data")
HELD = "collection"  # in every member's metadata: what else the object says


def members(value: Any) -> list[Record] | None:
    """The trajectories inside an object; None if it is not a collection."""
    if not isinstance(value, dict) or value.keys() & {*ACTIONS, *QUESTION, "messages", "conversations", "turns"}:
        return None
    name = next((n for n in LISTS if is_list_of_them(value.get(n))), None)
    if name is not None:
        around = {k: v for k, v in value.items() if k != name}
        return [_member(item, around) for item in value[name]]
    if value and is_list_of_them(list(value.values())):
        return [item if item.get("task_id") else {**item, "task_id": key} for key, item in value.items()]
    return None


def is_list_of_them(value: Any) -> bool:
    """Whether a value is a list of objects that look like trajectories."""
    looks = {*ACTIONS, "messages", "conversations"}
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(v, dict) for v in value)
        and any(v.keys() & looks for v in value)
    )


def _member(item: Record, around: Record) -> Record:
    """A trajectory of a collection, with the fields that the collection gives for all of them."""
    domain = {"domain": around["domain"]} if around.get("domain") and not item.get("domain") else {}
    return {**item, **domain, **({HELD: around} if around else {})}
