"""The commands `eval` and `ask`: run a trained policy, without a learner."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any

from recollect.agents.progress import shown
from recollect.agents.rollout import Collector
from recollect.agents.session import Binding, Session
from recollect.config import Config
from recollect.data.documents import length_of, open_document, pieces
from recollect.domains.families import has_lengths, made_up
from recollect.eval.evaluate import evaluate, val_sampling
from recollect.eval.items import Item, ItemLog, fingerprint, item_of, items_file
from recollect.eval.output_folder import STAMP, place_name, refuse_others, stamp_of
from recollect.eval.plots import length_curves
from recollect.eval.results import markdown, tables
from recollect.eval.summary import length_table
from recollect.files.locks import lock_file
from recollect.files.output import refuse_output, write_atomic
from recollect.registries import AGENTS
from recollect.rewards.before_run import check_reward
from recollect.rewards.text import last_boxed
from recollect.runtime.console import Console
from recollect.samplers.bindings import RolePolicies
from recollect.samplers.checkpoint_roles import NamedModels
from recollect.sources.task_stream import held_out
from recollect.types import BadInput, Sampling, Task, Trajectory

FRAME = 256  # tokens of a prompt besides document and question, at most
CHARACTERS = 2  # of a token, at least: more of them are certain to fit


def run_evaluation(
    who: NamedModels,
    console: Console,
    out: Path | None = None,
    baselines: Sequence[str] = (),
    loaded: RolePolicies | None = None,
) -> dict[str, Any]:
    """`recollect eval`: print and store success rates, of the agent and of baselines on the same tasks.

    With a run, or ``out``, every attempt is stored as soon as it is done, and a killed evaluation goes on from there.
    Models that are ``loaded`` already are used, and left open.
    """
    place = out if out is not None else who.run / "eval" / place_name(who) if who.run is not None else None
    if place is not None:
        refuse_output(place, "the results" if out is None else f"--out {out}")
    with nullcontext() if place is None else lock_file(place, f"the place of the results, {place},"):
        result = _evaluated(who, console, place, baselines, loaded)
    if place is not None:
        console.say(f"results: {place}.json, {place}.md" + (f", {place}.png" if "plot" in result else ""))
    return result


def _evaluated(
    who: NamedModels, console: Console, place: Path | None, baselines: Sequence[str], loaded: RolePolicies | None
) -> dict[str, Any]:
    """Check what can be checked before, then measure and store the results."""
    cfg, tasks = who.cfg, evaluation_tasks(who.cfg)
    for agent in baselines:
        agent_config(cfg, agent)  # refuses an unknown one before anything is measured
    check_reward(cfg, tasks, console.say)
    stamp = stamp_of(cfg, who.players)
    if place is not None:
        refuse_others(place.with_name(f"{place.name}.json"), stamp, who.path)
    policies = who.policies(max((t.question for t in tasks), key=len)) if loaded is None else loaded
    try:
        result = {**_measure(cfg, policies, tasks, who, place, console, baselines), STAMP: stamp}
    finally:
        if loaded is None:
            policies.close()
    if place is not None:
        store(place, result, trained_length(cfg))
    return result


def _measure(
    cfg: Config,
    policies: RolePolicies,
    tasks: list[Task],
    who: NamedModels,
    place: Path | None,
    console: Console,
    baselines: Sequence[str],
) -> dict[str, Any]:
    began, roles = time.monotonic(), policies.bindings
    result: dict[str, Any] = {"checkpoint": who.path, "roles": who.roles, "agents": {}, "length_of": length_name(cfg)}
    for agent in dict.fromkeys([cfg.agent.agent_type, *baselines]):
        found = attempt_all(agent_config(cfg, agent), roles, tasks, who.players, place, console)
        result["agents"][agent] = tables(found, trained_length(cfg))
        _say(agent, result["agents"][agent], console, bool(baselines))
    own = result["agents"][cfg.agent.agent_type]
    result |= {"accuracy": own["all"]["accuracy"], "failures": own["all"]["failures"], "by_length": own["by_length"]}
    result["sources"] = {source: made["accuracy"] for source, made in own["sources"].items()}
    result["seconds"] = round(time.monotonic() - began, 2)
    return result


def evaluation_tasks(cfg: Config) -> list[Task]:
    """What is evaluated on: held-out files, or made-up tasks, of several lengths where they have one."""
    if not has_lengths(cfg):
        tasks = held_out(cfg)
    else:
        plan = zip(cfg.evaluation.lengths, cfg.evaluation.tasks, strict=True)
        tasks = [task for multiple, count in plan for task in held_out(cfg, multiple, count)]
    if not tasks:
        raise BadInput("nothing to evaluate on: set data.val_files")
    return tasks


def agent_config(cfg: Config, agent: str) -> Config:
    """The same settings for another agent."""
    if agent == cfg.agent.agent_type:
        return cfg
    if not AGENTS.knows(agent, "baseline"):
        known = sorted(AGENTS.those("baseline"), key=lambda name: (not AGENTS[name].reads_document, name))
        raise BadInput(f"--baseline {agent} is unknown; known: {', '.join(known)}")
    cfg = deepcopy(cfg)
    cfg.agent.agent_type, cfg.agent.tools, cfg.recurrent.enable = agent, [], None
    cfg.agent.prompts = None  # those of the other agent
    return cfg


def attempt_all(
    cfg: Config,
    roles: dict[str, Binding],
    tasks: list[Task],
    players: Mapping[str, str],
    place: Path | None,
    console: Console,
) -> list[list[Item]]:
    """All attempts at all tasks; those on disk are not made again."""
    n, agent = cfg.actor_rollout_ref.rollout.val_kwargs.n, cfg.agent.agent_type
    file = None if place is None else items_file(place.with_name(f"{place.name}.items"), agent)
    log = ItemLog(file, fingerprint(cfg, players))
    left = log.missing(tasks, n)
    if len(left) < len(tasks):
        console.say(f"{len(tasks) - len(left)} of {len(tasks)} tasks are done already")
    by_id = {task.id: task for task in left}
    collector = Collector(cfg, roles)
    collector.warn = console.warn
    with console.progress(f"held-out tasks, {agent}", len(left) * n) as advance:

        def done(trajectory: Trajectory) -> None:
            log.add(item_of(by_id[trajectory.task_id], trajectory))
            lost = [e for e in trajectory.events if not e.get("question") and (e.get("refused") or e.get("left_out"))]
            for event in lost if trajectory.sample == 0 else ():
                console.say(f"{trajectory.task_id}: {event['title']}")
            advance("", 1)

        collector.on_done = done
        try:
            if left:
                with shown(collector, advance):
                    evaluate(collector, left, "val")
        finally:
            asyncio.run(collector.close())
    return log.of(tasks, n)


def trained_length(cfg: Config) -> int:
    """The length of training documents, where it is known."""
    return made_up(cfg).sections(cfg, 1) if has_lengths(cfg) else 0


def length_name(cfg: Config) -> str:
    """What lengths are counted in."""
    return "sections" if has_lengths(cfg) else "length (documents, chunks or characters)"


def store(place: Path, result: dict[str, Any], trained: int) -> None:
    """Write PLACE.json, PLACE.md and, with several lengths, PLACE.png."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if len(result["by_length"]) > 1:
        curves = {agent: found["by_length"] for agent, found in result["agents"].items()}
        length_curves(place.with_name(f"{place.name}.png"), curves, trained, result["length_of"])
        result["plot"] = f"{place.name}.png"
    write_atomic(place.with_name(f"{place.name}.json"), json.dumps(result, indent=2) + "\n")
    write_atomic(place.with_name(f"{place.name}.md"), markdown(result))


def _say(agent: str, found: dict[str, Any], console: Console, several: bool) -> None:
    if several:
        console.say(f"agent {agent}")
    if len(found["by_length"]) > 1 and "multiple" in found["by_length"][0]:
        console.show(length_table(found["by_length"]))
    for source, made in found["sources"].items():
        for metric in ("accuracy", "em", "f1", "sub_em"):
            row = made[metric]
            console.say(
                f"{source}: {metric} {row['accuracy']:.3f} (95 % {row['low']:.3f}–{row['high']:.3f}, n = {row['n']})"
            )
    for category, metrics in found.get("categories", {}).items():
        said = ", ".join(
            f"{name} {row['accuracy']:.3f} ({row['low']:.3f}–{row['high']:.3f})" for name, row in metrics.items()
        )
        console.say(f"category {category}: {said}, n = {metrics['locomo_f1']['n']}")
    if found["all"]["failures"]:
        console.say(f"{found['all']['failures']} attempts failed and count as 0")


def answer_question(who: NamedModels, document: Path, question: str, console: Console) -> str:
    """`recollect ask`: read a document and answer a question about it."""
    task = question_task(document, question)
    policies = who.policies(question)
    try:
        return answer_with(policies, reader(who, task, console.say), task, console)
    finally:
        policies.close()


def reader(who: NamedModels, task: Task, say: Callable[[str], None]) -> Config:
    """How a document is read: at once by a model that was never taught to keep a memory, if it fits its window."""
    length = length_of(task.context)
    room = (who.window or 0) - who.cfg.recurrent.memory.config.max_final_response_length - FRAME
    if length is None or length + len(task.question) > CHARACTERS * room or not "".join(pieces(task.context)).strip():
        return who.cfg
    say(f"the document is read at once, as {who.path} has not been trained to keep a memory (agent.agent_type=concat)")
    return agent_config(who.cfg, "concat")


def question_task(document: str | Path, question: str) -> Task:
    """A question about a document: a file, or its text."""
    if not question.strip():
        raise BadInput("the question is empty")
    text = isinstance(document, str) and not _is_file(document)
    return Task("ask", question, document if text else open_document(Path(document)), place=str(document)[:200])


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a path
        return False


def answer_with(policies: RolePolicies, cfg: Config, task: Task, console: Console) -> str:
    """The answer of models that are loaded."""
    reader = AskSession(task, policies.bindings, val_sampling(cfg))
    size = len(task.context) if isinstance(task.context, str) else Path(task.place).stat().st_size
    about = size // (cfg.recurrent.memory.config.chunk_size * 3)
    with console.progress("sections read, about", max(1, about)) as advance:
        reader.advance = advance
        answer = asyncio.run(_answer(Collector(cfg, policies.bindings), task, reader))
    if not reader.sections_read and AGENTS.knows(cfg.agent.agent_type, "notes_sections"):
        raise BadInput(f"the document {task.place} holds no text")
    for section, memory in reader.changes:
        console.say(f"memory after section {section}: {memory}")
    boxed = last_boxed(answer)
    return boxed if boxed is not None else answer.strip()


class AskSession(Session):
    """A session that keeps only the last few memories, so that a document of any length fits."""

    def __init__(self, task: Task, roles: dict[str, Binding], sampling: Sampling) -> None:
        super().__init__(task, Trajectory(task.id, 0), roles, sampling, "ask")
        self.advance: Callable[..., None] = lambda text="", count=1: None
        self.changes: deque[tuple[int, str]] = deque(maxlen=8)
        self.sections_read = 0

    def note(self, text: str) -> None:
        self.sections_read += 1
        self.trajectory.turns.clear()
        if not self.changes or self.changes[-1][1] != text:
            self.changes.append((self.sections_read, text))
        self.advance()


async def _answer(collector: Collector, task: Task, session: Session) -> str:
    return await collector.agent(task, session, collector.cfg)
