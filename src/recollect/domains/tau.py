"""Requests of a customer: a policy, a small database of orders and reservations, a user who answers questions."""

from __future__ import annotations

import copy
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.config import Config
from recollect.domains.built_in_world import with_records
from recollect.domains.domain import SYNTAX, Domain, Provision, finalize, reason
from recollect.domains.expert_texts import GIVE_UP, sentences, shortened, supported
from recollect.domains.given_context import given_text
from recollect.domains.verify import says
from recollect.files.reading import parse_json
from recollect.retrieval.bm25 import words_of
from recollect.rewards.domain_scoring import DomainScoring
from recollect.rewards.parts import JudgedTrajectory
from recollect.runtime.error_text import listed
from recollect.tasks.names import Split, names, values
from recollect.tools.tool_definition import Tool, tool
from recollect.types import Action, BadInput, Message, Task, Trajectory

if TYPE_CHECKING:
    from recollect.agents.session import Session

PROMPT = f"""You serve the customers of a company. Do what the user asks as far as the policy allows it, and no more. \
{SYNTAX}
Look at a record before you change it. Ask the user with respond if something is missing. When everything is done, or \
must be refused, finalize."""

Tables = dict[str, dict[str, dict[str, Any]]]


@dataclass
class ServiceTables:
    """What the tools of one attempt act on."""

    tables: Tables
    user: Callable[[str], Awaitable[str]]

    def record(self, key: str) -> dict[str, Any]:
        """A record by its id, whatever table holds it."""
        for rows in self.tables.values():
            if key in rows:
                return rows[key]
        raise KeyError(f"there is no record {key}")


def tables_of(trajectory: Trajectory) -> ServiceTables:
    """The tables that the tools of an attempt act on."""
    if not isinstance(trajectory.world, ServiceTables):
        raise RuntimeError("this task has no database")
    return trajectory.world


def shown(key: str, record: dict[str, Any]) -> str:
    """A record in one line."""
    return f"{key}: " + ", ".join(f"{name} {value}" for name, value in record.items())


@tool
async def get_record(id: str, trajectory: Trajectory) -> str:
    """Look at an order or a reservation.

    Args:
        id: Its number.
    """
    return shown(id, tables_of(trajectory).record(id.strip()))


@tool
async def find_records(owner: str, trajectory: Trajectory) -> str:
    """List the orders and reservations of somebody.

    Args:
        owner: The name of the owner.
    """
    rows = [
        (k, r) for table in tables_of(trajectory).tables.values() for k, r in table.items() if r.get("owner") == owner
    ]
    return "\n".join(shown(k, r) for k, r in rows) or f"There are no records of {owner}."


@tool
async def cancel_record(id: str, trajectory: Trajectory) -> str:
    """Cancel an order or a reservation.

    Args:
        id: Its number.
    """
    record = tables_of(trajectory).record(id.strip())
    record["status"] = "cancelled"
    return shown(id, record)


@tool
async def change_record(id: str, field: str, value: str, trajectory: Trajectory) -> str:
    """Change one field of an order or a reservation.

    Args:
        id: Its number.
        field: The field to change.
        value: Its new value.
    """
    record = tables_of(trajectory).record(id.strip())
    if field not in record:
        raise KeyError(f"the record has no field {field}; it has {listed(record)}")
    record[field] = value
    return shown(id, record)


@tool(timeout=None)
async def respond(text: str, trajectory: Trajectory) -> str:
    """Say something to the user and hear the reply.

    Args:
        text: What to say.
    """
    return await tables_of(trajectory).user(text)


def tools(cfg: Config) -> list[str | Tool]:
    """What the agent may call."""
    return [get_record, find_records, cancel_record, change_record, respond, reason, finalize]


def asked(task: Task) -> str:
    """The user's request, after the policy where the task has one."""
    policy = task.fields.get("policy")
    return f"Policy: {policy}\n{task.question}" if policy else task.question


async def prepare(task: Task, session: Session) -> None:
    """A database of this attempt's own, and a user: the model that is bound to the role, or the task's script."""
    script = task.fields.get("user") or {}

    async def scripted(text: str) -> str:
        said = words_of(text)
        replies = script.get("replies") or {}
        return next((reply for word, reply in replies.items() if word.lower() in said), script.get("else") or "ok")

    heard = [Message("system", _USER.format(request=task.question, known=script.get("knows") or script.get("replies")))]

    async def model(text: str) -> str:
        heard.append(Message("user", text))
        reply = (await session.generate(heard, role="user")).text.strip()
        heard.append(Message("assistant", reply))
        return reply

    user = model if "user" in session.roles else scripted
    session.trajectory.world = ServiceTables(copy.deepcopy(task.fields.get("database") or {}), user)


_USER = """You are a customer who has asked for this: {request}
You know: {known}. Answer what you are asked in one short sentence and say nothing else."""


async def verify(task: Task, session: Session, answer: str) -> bool | None:
    """Whether the database is as it should be, and the accepted answer was given where there is one."""
    if "goal" not in task.fields:
        return says(task, answer)
    same = tables_of(session.trajectory).tables == task.fields["goal"]
    return same and says(task, answer) is not False


def missing(task: Task, cfg: Config) -> str:
    """What a data row lacks."""
    held = isinstance(task.fields.get("database"), dict)
    return "" if held else "a tau task needs `database`, an object of tables"


# ---- the scripted expert ----


def tau_expert(task: Task, actions: list[Action]) -> str:
    """Ask the user if the request is incomplete, look at each record concerned, change it, and report."""
    plan = list(_plan(task))
    return plan[min(len(actions), len(plan) - 1)]


def _unplanned(task: Task) -> Iterator[str]:
    """Without a goal: look at the records that are named, and say what the policy says about the request."""
    tables = (task.fields.get("database") or {}).values()
    named = {key: row for rows in tables for key, row in rows.items() if key.lower() in words_of(task.question)}
    for key in named or task.fields.get("about") or ():
        yield f"get_record: {key}"
    request = " ".join([task.question, *(str(row.get("status", "")) for row in named.values())])
    said = supported(request, sentences(str(task.fields.get("policy") or "")))
    yield f"finalize: {shortened(said) if said else GIVE_UP}"


def _plan(task: Task) -> Iterator[str]:
    if task.fields.get("goal") is None:  # nobody says what the database should become
        yield from _unplanned(task)
        return
    start, goal = task.fields.get("database") or {}, task.fields["goal"]
    replies = (task.fields.get("user") or {}).get("replies") or {}
    for word in replies:
        yield f"respond: which {word}"
    changed = [
        (key, record, goal.get(table, {}).get(key))
        for table, rows in start.items()
        for key, record in rows.items()
        if goal.get(table, {}).get(key) != record
    ]
    looked_at = [key for key, _, _ in changed] or list(task.fields.get("about") or [])
    for key in looked_at:
        yield f"get_record: {key}"
    for key, record, wanted in changed:
        yield from _steps(key, record, wanted or {})
    yield "finalize: done" if changed else "finalize: refused"


def _steps(key: str, record: dict[str, Any], wanted: dict[str, Any]) -> Iterator[str]:
    for name, value in wanted.items():
        if record.get(name) != value and name == "status" and value == "cancelled":
            yield f"cancel_record: {key}"
        elif record.get(name) != value:
            yield f'change_record: {{"id": "{key}", "field": "{name}", "value": "{value}"}}'


# ---- made-up tasks ----


POLICY = "cancel and change only what is open, for its owner."
TABLES = {"orders": "order", "reservations": "reservation"}


def make_task(rng: random.Random, split: Split) -> Task:
    """Cancel or change one of three orders, if the policy allows it: only what is open, and only for its owner."""
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


OWN = Provision("the policy and the few records that come with recollect", with_records)
SERVICE = frozenset({"get_record", "find_records", "cancel_record", "change_record", "respond"})


def with_service(task: Task, path: Path, cfg: Config) -> Task:
    """The task with the database, and what else of a service the file holds."""
    fields = parse_json(given_text(task, path), f"--context {path}")
    if not isinstance(fields, dict) or not isinstance(fields.get("database"), dict):
        raise BadInput(
            f"--context {path}: an object with `database`, and with `policy`, `goal` and `user` if it has them"
        )
    return replace(task, fields={**task.fields, **fields})


def signs(reading: JudgedTrajectory, spoken: Sequence[str]) -> list[float]:
    """A look at a record before it is changed."""
    tools = [a["tool"] for a in reading.actions]
    looked = next((i for i, t in enumerate(tools) if t.startswith(("get", "find", "search", "list"))), None)
    changed = next((i for i, t in enumerate(tools) if t.startswith(("cancel", "change", "update", "modify"))), None)
    return [float(looked is not None and (changed is None or looked < changed))]


TAU = Domain(
    *("tau", PROMPT, tools, verify, tau_expert, make_task),
    prepare=prepare,
    ask=asked,
    missing=missing,
    roles=("agent", "user"),
    provision=OWN,
    context=with_service,
    scoring=DomainScoring(SERVICE, signs, gold_decides=False),
)
