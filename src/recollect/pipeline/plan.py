"""What a pipeline is asked to do: one YAML file, checked before anything runs. `example.yaml` is the embedded one."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from recollect.compose import compose
from recollect.config import Config
from recollect.data.yaml_files import read_mapping
from recollect.domains import DOMAIN_NAMES
from recollect.rewards.weights import Weights
from recollect.trajectories.templates import load
from recollect.types import BadInput

EXAMPLE = "example"
MODES = ("sft", "rl", "both")


@dataclass
class Questions:
    """The tasks of one domain: how many made-up ones, or a data file."""

    questions: int | str = 100  # to generate trajectories with, and to reinforce on
    test: int | str = 64  # held out, to evaluate on


@dataclass
class Plan:
    """The settings of a pipeline. ``settings`` are keys of recollect for all stages; `sft` and `rl` add their own."""

    out: str = "runs/recollect/pipeline"  # the folder that everything is written to
    model: str = "tiny"  # the model to start from
    agents: dict[str, Questions] = field(default_factory=dict)  # domain → its tasks
    policy: str = "expert"  # who generates: expert (scripted), or a model
    samples: int = 1  # trajectories for each question
    weights: str | None = None  # a file of reward weights
    templates: str | None = None  # a file of sft-data's templates
    min_reward: float = 0.0  # trajectories to imitate: those of at least this reward
    val_ratio: float = 0.05  # share of tasks whose conversations measure SFT
    rl_min_reward: float = 0.0  # tasks to reinforce: those with a trajectory of at least this reward
    settings: dict[str, Any] = field(default_factory=dict)
    sft: dict[str, Any] = field(default_factory=dict)
    rl: dict[str, Any] = field(default_factory=dict)

    def config(self, stage: dict[str, Any], *overrides: str, where: str = "the pipeline") -> Config:
        """The configuration of a stage; ``where`` it is written is for messages."""
        tree = _merged(_merged({"agent": {"agent_type": "domain", "reward_name": "success"}}, self.settings), stage)
        cfg = compose(None, [f"actor_rollout_ref.model.path={self.model}", *overrides], base=tree, where=where)
        if cfg.trainer.save_freq < 0:
            raise BadInput(f"{where}: trainer.save_freq=-1 saves no model to measure; 0 saves at the end alone")
        return cfg


def read_plan(name: str | None) -> Plan:
    """The plan of a YAML file, or the embedded example."""
    embedded = name is None or name == EXAMPLE
    place = EXAMPLE if embedded else str(name)
    tree = read_mapping(Path(__file__).with_name("example.yaml") if embedded else Path(place).expanduser(), "pipeline")
    tree.pop("description", None)
    return _checked(tree, place)


def _checked(tree: dict[str, Any], place: str) -> Plan:
    known = [f.name for f in fields(Plan)]
    for key in tree:
        if key not in known:
            raise BadInput(f"{place}: {key} is unknown; known: {', '.join(known)}")
    agents = tree.get("agents")
    if not isinstance(agents, dict) or not agents:
        raise BadInput(f"{place}: agents names the domains and their questions, for example agents: {{mhqa: {{}}}}")
    made = {}
    for domain, row in agents.items():
        if domain not in DOMAIN_NAMES:
            raise BadInput(f"{place}: agents.{domain} is no domain; known: {', '.join(DOMAIN_NAMES)}")
        made[domain] = _questions(row or {}, f"{place}: agents.{domain}")
    for name in ("settings", "sft", "rl"):
        if not isinstance(tree.get(name) or {}, dict):
            raise BadInput(f"{place}: {name} is a mapping of recollect's keys")
        tree[name] = tree.get(name) or {}
    plan = Plan(**{**tree, "agents": made})
    _check_values(plan, place)
    for name, stage in (("settings", {}), ("sft", plan.sft), ("rl", plan.rl)):
        plan.config(stage, where=f"{place}: {name}")  # a key that does not exist is refused now, not after an hour
    return plan


def _check_values(plan: Plan, place: str) -> None:
    """Refuse what would stop a later stage."""
    for name in ("out", "model", "policy"):
        if not isinstance(getattr(plan, name), str):
            raise BadInput(f"{place}: {name} has to be a text")
    for name in ("min_reward", "rl_min_reward", "val_ratio"):
        value = getattr(plan, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadInput(f"{place}: {name}={value} has to be a number")
    if not 0 <= plan.val_ratio < 1:
        raise BadInput(f"{place}: val_ratio={plan.val_ratio} must be at least 0 and less than 1")
    if isinstance(plan.samples, bool) or not isinstance(plan.samples, int) or plan.samples < 1:
        raise BadInput(f"{place}: samples={plan.samples} has to be a positive whole number")
    Weights.load(plan.weights)
    load(plan.templates)


def _questions(row: Any, place: str) -> Questions:
    if not isinstance(row, dict) or not row.keys() <= {"questions", "test"}:
        raise BadInput(f"{place} has questions and test: a number of made-up tasks, or a data file")
    found = Questions(**row)
    for value in (found.questions, found.test):
        if isinstance(value, bool) or not isinstance(value, int | str) or (isinstance(value, int) and value < 1):
            raise BadInput(f"{place}: {value} is neither a positive number of tasks nor a file")
    return found


def _merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Two trees; the second has the last word."""
    out = dict(base)
    for key, value in more.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = _merged(out[key], value) if both else value
    return out
