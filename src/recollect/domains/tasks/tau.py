"""Cancel or change an order, if the policy allows it: only what is open, and only for its owner."""

from __future__ import annotations

import copy
import random

from recollect.tasks.family import Stream
from recollect.tasks.names import Split, names, values
from recollect.types import Task

POLICY = "cancel and change only what is open, for its owner."
TABLES = {"orders": "order", "reservations": "reservation"}


def make(rng: random.Random, split: Split) -> Task:
    """A task with three records, of which the request concerns one."""
    user, other, place, new = rng.sample(names(split), 4)
    keys = rng.sample(values(split), 3)
    table = rng.choice(sorted(TABLES))
    database: dict[str, dict[str, dict[str, str]]] = {name: {} for name in TABLES}
    for key in keys:
        owner, status = rng.choice([user, user, other]), rng.choice(["open", "open", "sent"])
        database[table][key] = {"owner": owner, "status": status, "place": place}
    key = rng.choice(keys)
    record, change = database[table][key], rng.random() < 0.3
    goal = copy.deepcopy(database)
    if record["owner"] == user and record["status"] == "open":
        goal[table][key]["place" if change else "status"] = new if change else "cancelled"
    named = rng.random() < 0.7
    what = f"{TABLES[table]} {key}" if named else f"one {TABLES[table]}"
    asked = f"I am {user}. " + (f"Send {what} to {new}." if change else f"Cancel {what}.")
    user_script = {"replies": {} if named else {TABLES[table]: key}, "else": "ok"}
    fields = {"policy": POLICY, "database": database, "goal": goal, "user": user_script, "about": [key]}
    return Task("", asked, None, (), fields=fields)


TASKS = Stream("tau", make)
