"""Trajectories of a domain, as `recollect rollout` makes them, each with the system message of its agent."""

from __future__ import annotations

import json
from pathlib import Path

from recollect.chat.schemas import as_list
from recollect.compose import flatten
from recollect.config import Config
from recollect.console import Console
from recollect.domains.registry import DOMAINS, tools_of
from recollect.pipeline.plan import Plan
from recollect.run import write_atomic
from recollect.tools import Toolbox
from recollect.trajectories.asked import Asked
from recollect.trajectories.generate import Request, run


def generate(plan: Plan, domain: str, out: Path, console: Console) -> int:
    """Write the trajectories of a domain, one in each line; returns how many."""
    what, cfg = plan.agents[domain].questions, plan.config({})
    asked = Asked(domain, data=what) if isinstance(what, str) else Asked(domain, made_up=what)
    heat = cfg.actor_rollout_ref.rollout.temperature if plan.samples > 1 else 0.0
    raw = out.with_name(f"{out.stem}.attempts.jsonl")
    raw.unlink(missing_ok=True)
    given = flatten(plan.settings)
    if plan.weights is not None:  # what min_reward and rl_min_reward compare is weighted as the plan says
        given.setdefault("agent.reward_name", f"trajectory(weights={plan.weights})")
    settings = [f"{key}={json.dumps(value)}" for key, value in given.items()]
    request = Request(asked, plan.policy, raw, plan.samples, heat, cfg.trainer.seed, shown=out)
    if run(request, settings, console):
        raise RuntimeError(f"attempts of {domain} have failed; the same command tries them again")
    rows = [json.loads(line) for line in raw.read_text().splitlines()]
    for row in rows:
        row["metadata"]["system"] = system_prompt(cfg, domain)
    write_atomic(out, "".join(json.dumps(row) + "\n" for row in rows))
    raw.unlink()
    return len(rows)


def system_prompt(cfg: Config, domain: str) -> str:
    """The first message of an agent of the domain."""
    given = cfg.agent.system_prompt
    text = DOMAINS[domain].prompt if given is None else given
    return text.replace("{tools}", as_list(Toolbox(tools_of(cfg, domain), cfg).schemas))
