"""`recollect rollout`: run the agents of a domain and write unified trajectories, resumable.

Attempts are stored as soon as they are done, in a hidden file beside the output. The same command goes on from there.
The output appears when all attempts are done.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from recollect.agents.progress import shown
from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.config import Config
from recollect.config.amounts import too_many
from recollect.config.prompt_file import prompts_hash
from recollect.files.half_characters import made_whole
from recollect.files.locks import lock_file
from recollect.files.output import refuse_output, write_atomic, writing
from recollect.policies.endpoint import EndpointGone
from recollect.registries import DOMAINS
from recollect.rewards.before_run import check_reward
from recollect.runtime.console import Console
from recollect.trajectories.codec import SPECIAL, encode
from recollect.types import BadInput, Sampling, Task, Trajectory
from recollect.workflows.rollout.players import EXPERT, players, settings_of
from recollect.workflows.rollout.tasks import RolloutTasks, answered_from, tasks_of
from recollect.workflows.trajectories.convert import check_domain
from recollect.workflows.trajectories.sft_data import folder_of as safe_name

AT_ONCE = 64  # tasks under way, each with all of its attempts
AGAIN = ("policy", "endpoint", "timeout")  # failures that are not kept, so that the next run tries again
FIELDS_KEPT = 1 << 16  # characters of a task's document that a trajectory keeps


class Store:
    """The attempts so far, in a file beside the output; its first line says what they are attempts at."""

    def __init__(self, out: Path, plan: str) -> None:
        self.out, self.path = out, out.with_name(f".{out.name}.part.jsonl")
        self.rows: dict[tuple[str, int], bytes] = {}
        if self.path.is_file():
            self._read(plan)
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self.path, to_json({"plan": plan}) + b"\n")
        self.file = self.path.open("ab")

    def _read(self, plan: str) -> None:
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        head, *lines = whole.splitlines() or [b"{}"]
        if from_json(head).get("plan") != plan:
            raise BadInput(f"{self.path} holds attempts of another command; delete it, or name another --out")
        for line in lines:
            about = from_json(line)["metadata"]
            self.rows[about["task_id"], about["sample"]] = line
        if whole != data:  # the last line was cut by a kill
            self.path.write_bytes(whole)

    def add(self, task: str, sample: int, record: dict[str, Any]) -> None:
        """Keep an attempt."""
        line = _line(record)
        self.rows[task, sample] = line
        with writing(self.path):
            self.file.write(line + b"\n")
            self.file.flush()

    def finish(self, order: Sequence[tuple[str, int]]) -> list[Path]:
        """Put the output in its place: one object, a list or lines in a file, or a file for each attempt."""
        rows = [self.rows[key] for key in order]
        if self.out.suffix in (".jsonl", ".ndjson"):
            written = {self.out: b"".join(row + b"\n" for row in rows)}
        elif self.out.suffix:
            written = {self.out: (rows[0] if len(rows) == 1 else b"[\n" + b",\n".join(rows) + b"\n]") + b"\n"}
        else:
            names = apart([safe_name(task) + (f"-{sample}" if sample else "") for task, sample in order])
            written = {self.out / f"{n}.traj.json": row + b"\n" for n, row in zip(names, rows, strict=True)}
        for path, data in written.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, data)
        self.file.close()
        self.path.unlink()
        return list(written)


def _line(record: dict[str, Any]) -> bytes:
    """A record as JSON, with question marks for half characters, which a model can write into a call."""
    try:
        return to_json(record, inf_nan_mode="constants", serialize_unknown=True)
    except PydanticSerializationError:
        return to_json(made_whole(record), inf_nan_mode="constants", serialize_unknown=True)


def apart(names: Sequence[str]) -> list[str]:
    """Distinct file names, also where case does not count: a name that is taken gets a number."""
    taken: set[str] = set()
    made = []
    for name in names:
        number = 1
        free = name
        while free.lower() in taken:
            number += 1
            free = f"{name}.{number}"
        taken.add(free.lower())
        made.append(free)
    return made


def record_of(task: Task, made: Trajectory, domain: str, policy: str, alone: bool) -> dict[str, Any]:
    """An attempt in unified form; its metadata holds the task and every turn with its ids."""
    asked = DOMAINS[domain].ask(task)
    document = task.context if isinstance(task.context, str) and len(task.context) <= FIELDS_KEPT else None
    about = {k: v for k, v in {"context": document, "answers": list(task.answers), **task.fields}.items() if v}
    row = encode(task, made)
    kept = ("task_id", "sample", "stop", "parts", "failure", "answers", *SPECIAL, "turns")
    metadata: dict[str, Any] = {"policy": policy, "task": about, **{name: row[name] for name in kept if name in row}}
    if asked != task.question:
        metadata["asked"] = asked
    return {
        "task_id": task.id if alone else f"{task.id}#{made.sample}",
        "domain": domain,
        "question": task.question,
        "actions": [
            {"step": i, "tool": a.tool or "unknown", "input": _plain(a.input), "output": a.output}
            for i, a in enumerate(made.actions, 1)
        ],
        "final_answer": made.answer or None,
        "success": False if made.failure else made.success,
        "reward": row["reward"],
        "metadata": metadata,
    }


def _plain(given: Any) -> Any:
    """A call's arguments; a single text as it is."""
    if isinstance(given, dict) and len(given) == 1:
        (only,) = given.values()
        return only if isinstance(only, str) else given
    return "" if given == {} else given


@dataclass(frozen=True)
class RolloutRequest:
    """What `recollect rollout` is asked for."""

    asked: RolloutTasks
    policy: str
    out: Path
    n: int = 1
    temperature: float = 1.0
    seed: int = 0
    user: str | None = None  # who plays the user of a domain that has one; None: the task's script
    shown: Path | None = None  # the file to name when all is done, if it is not the one that is written


def plan_of(cfg: Config, request: RolloutRequest, tasks: Sequence[Task], sampling: Sampling) -> str:
    """A digest of what is attempted, by whom and how."""
    settings = [cfg.agent.agent_type, cfg.agent.system_prompt, cfg.agent.max_turns, cfg.agent.reward_name]
    settings += [prompts_hash(cfg)] if cfg.agent.prompts else []
    settings += [request.policy, request.user, request.n, repr(sampling), cfg.search.corpus, cfg.search.endpoint]
    digest = hashlib.blake2b(json.dumps(settings).encode(), digest_size=12)
    for task in tasks:
        text = task.context if isinstance(task.context, str) else None
        digest.update(json.dumps([task.id, task.question, list(task.answers), text]).encode())
    return digest.hexdigest()


def run(request: RolloutRequest, settings: Sequence[str], console: Console) -> int:
    """Attempt everything; returns how many attempts have to be tried again."""
    check_domain(request.asked.domain)
    _check_user(request.user, request.asked.domain)
    if request.n < 1 or request.temperature < 0:
        raise BadInput(f"-n {request.n} must be positive and --temperature {request.temperature} not negative")
    count = request.n * max(1, request.asked.made_up)
    if said := too_many(f"-n {request.n} × --tasks {max(1, request.asked.made_up)}", count):
        raise BadInput(said)
    out = request.out.expanduser()
    refuse_output(out, f"--out {request.out}")
    with lock_file(out, f"--out {request.out}"):
        refuse_finished(out)
        return _run(request, settings, console)


def _check_user(user: str | None, domain: str) -> None:
    """Refuse somebody who plays the user of a domain that has none."""
    if user is not None and "user" not in DOMAINS[domain].roles:
        those = " or ".join(name for name, spec in DOMAINS.items() if "user" in spec.roles)
        raise BadInput(f"--user {user} plays the user of {those}; --domain {domain} has none")


def _run(request: RolloutRequest, settings: Sequence[str], console: Console) -> int:
    """Find the tasks and who plays, and attempt everything."""
    cfg = settings_of(request.policy, request.asked.domain, settings)
    tasks = tasks_of(request.asked, cfg)
    check_reward(cfg, tasks, console.say)
    if request.asked.question is not None or request.asked.questions:
        place = answered_from(request.asked, cfg)
        who = f"the scripted expert of {request.asked.domain}" if request.policy == EXPERT else request.policy
        console.say(f"{who} answers" + (f" from {place}" if place else ""))
    limit = cfg.agent.max_tokens_per_turn or cfg.actor_rollout_ref.rollout.response_length
    sampling = Sampling(request.temperature, max_tokens=limit or cfg.data.max_response_length, seed=request.seed)
    with players(cfg, request.policy, request.user, tasks) as roles:
        return attempt(cfg, request, roles, tasks, sampling, console)


def attempt(
    cfg: Config,
    request: RolloutRequest,
    roles: dict[str, Binding],
    tasks: Sequence[Task],
    sampling: Sampling,
    console: Console,
) -> int:
    """``n`` attempts at every task; returns how many have to be tried again."""
    domain, policy, n, out = cfg.agent.agent_type, request.policy, request.n, request.out.expanduser()
    attempts = [(task.id, i) for task in tasks for i in range(n)]
    store = Store(out, plan_of(cfg, request, tasks, sampling))
    lost: list[str] = []
    by_id = {task.id: task for task in tasks}
    with console.progress(f"{domain} attempts", len(attempts), len(store.rows)) as advance:

        def done(made: Trajectory) -> None:
            if (made.task_id, made.sample) in store.rows:
                return
            if made.failure is not None and made.failure.kind in AGAIN:
                lost.append(f"{made.failure.kind}: {made.failure.message}")
                return
            store.add(made.task_id, made.sample, record_of(by_id[made.task_id], made, domain, policy, n == 1))
            advance("")

        left = [task for task in tasks if _open(task, n, store)]
        collector = Collector(cfg, roles, done)
        try:
            with shown(collector, advance):
                asyncio.run(_attempt_all(collector, left, n, sampling))
        except EndpointGone as error:
            lost.append(str(error))
    if lost:
        console.warn(f"{len(lost)} attempts failed ({lost[0]}); the same command tries them again")
        return len(lost)
    written = store.finish(attempts)
    rows = [from_json(store.rows[key]) for key in attempts]
    good, checked = sum(r["success"] is True for r in rows), sum(r["success"] is not None for r in rows)
    place = request.shown or (written[0] if len(written) == 1 else out)
    told = f", {good} of {checked} succeeded" if checked else ", nothing to check them against"
    console.say(f"{len(rows)} trajectories in {place}{told}")
    return 0


def _open(task: Task, n: int, store: Store) -> bool:
    return any((task.id, i) not in store.rows for i in range(n))


async def _attempt_all(collector: Collector, tasks: Sequence[Task], n: int, sampling: Sampling) -> None:
    try:
        for start in range(0, len(tasks), AT_ONCE):
            await collector.collect(tasks[start : start + AT_ONCE], n, sampling, "rollout")
    finally:
        await collector.close()


def refuse_finished(out: Path) -> None:
    """Refuse to overwrite an output."""
    part = out.with_name(f".{out.name}.part.jsonl")
    if out.exists() and not part.is_file() and (not out.is_dir() or any(out.glob("*.traj.json"))):
        raise BadInput(f"{out} is there already; name another --out")
