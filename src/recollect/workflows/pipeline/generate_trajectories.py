"""Trajectories of a domain, as `recollect rollout` makes them, each with the system message of its agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from recollect.agents.first_prompt import given_system
from recollect.chat.schemas import as_list
from recollect.config import Config
from recollect.config.compose import flatten
from recollect.domains.registry import tools_of
from recollect.files.output import write_atomic
from recollect.registries import DOMAINS
from recollect.runtime.console import Console
from recollect.tools import Toolbox
from recollect.workflows.pipeline.pipeline_plan import Plan
from recollect.workflows.rollout.generate import RolloutRequest, run
from recollect.workflows.rollout.tasks import RolloutTasks

GENERATED = "traj_"  # how the files of generated trajectories begin


def generate(plan: Plan, domain: str, out: Path, console: Console) -> int:
    """Write the trajectories of a domain, one in each line of a file or a file for each; returns how many."""
    tasks, n, most = _tasks_and_counts(plan, domain)
    cfg = plan.config({})
    temperature = cfg.actor_rollout_ref.rollout.temperature if n > 1 else 0.0
    raw = out.with_name(f"{out.stem}.attempts.jsonl")
    raw.unlink(missing_ok=True)
    given = flatten(plan.settings)
    if plan.weights is not None:  # what min_reward and rl_min_reward compare is weighted as the plan says
        given.setdefault("agent.reward_name", f"trajectory(weights={plan.weights})")
    settings = [f"{key}={json.dumps(value)}" for key, value in given.items()]
    request = RolloutRequest(tasks, plan.policy, raw, n, temperature, cfg.trainer.seed, shown=out)
    if run(request, settings, console):
        raise RuntimeError(f"attempts of {domain} have failed; the same command tries them again")
    rows = [json.loads(line) for line in raw.read_text().splitlines()]
    if most is not None and most < len(rows):
        rows = sorted(rows, key=lambda row: row["metadata"]["sample"])[:most]
        console.say(f"{most} of them are kept: num_trajectories={most}")
    for row in rows:
        row["metadata"]["system"] = system_prompt(cfg, domain)
    _write(out, rows)
    raw.unlink(missing_ok=True)
    return len(rows)


def _tasks_and_counts(plan: Plan, domain: str) -> tuple[RolloutTasks, int, int | None]:
    """(the tasks of a domain, attempts at each, trajectories in all if that is given)."""
    row = plan.agents[domain]
    if isinstance(row.questions, str):
        return RolloutTasks(domain, data=row.questions), plan.samples, None
    if isinstance(row.questions, int):
        return RolloutTasks(domain, made_up=row.questions), plan.samples, None
    most = row.num_trajectories
    texts = tuple(row.questions if most is None else row.questions[:most])
    context = None if row.context is None else Path(row.context)
    n = plan.samples if most is None else -(-most // len(texts))
    return RolloutTasks(domain, questions=texts, context=context), n, most


def _write(out: Path, rows: list[dict[str, Any]]) -> None:
    """One trajectory in each line, or, in a folder, in a file of its own; those of an earlier time go."""
    if out.suffix:
        write_atomic(out, "".join(json.dumps(row) + "\n" for row in rows))
        return
    out.mkdir(parents=True, exist_ok=True)
    for path in out.glob(f"{GENERATED}*.traj.json"):
        path.unlink()
    for number, row in enumerate(rows, 1):
        write_atomic(out / f"{GENERATED}{number:03d}.traj.json", json.dumps(row, indent=2) + "\n")


def is_generated(path: Path) -> bool:
    """Whether a file is a trajectory that a pipeline has written."""
    try:
        return "system" in json.loads(path.read_text())["metadata"]
    except (OSError, ValueError, KeyError, TypeError):
        return False


def system_prompt(cfg: Config, domain: str) -> str:
    """The first message of an agent of the domain."""
    given = given_system(cfg)
    text = DOMAINS[domain].prompt if given is None else given
    return text.replace("{tools}", as_list(Toolbox(tools_of(cfg, domain), cfg).schemas))
