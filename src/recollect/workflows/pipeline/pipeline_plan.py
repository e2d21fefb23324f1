"""The plan of a pipeline: one YAML file, checked before anything runs. `example.yaml` is the embedded one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from fnmatch import fnmatch
from glob import has_magic
from itertools import takewhile
from pathlib import Path
from typing import Any

from recollect.config import Config
from recollect.config.compose import compose
from recollect.config.translate.trl.training_config import METRICS, is_training_config, plan_tree
from recollect.files.yaml import read_mapping
from recollect.registries import DOMAINS
from recollect.rewards.weights import Weights
from recollect.trajectories.row_templates import load
from recollect.types import BadInput

EXAMPLE = "example"
FOLDERS = ("sft_models_dir", "rl_models_dir", "evaluation_dir")
MODES = ("sft", "rl", "both")


@dataclass
class Questions:
    """The tasks of one domain: how many made-up ones, a data file, or the questions themselves."""

    questions: int | str | list[str] = 100  # to generate trajectories with, and to reinforce on
    test: int | str = 64  # held out, to evaluate on
    num_trajectories: int | None = None  # of questions that are given as texts: in all, the questions in turns
    context: str | None = None  # of questions that are given as texts: what --context of `recollect rollout` is


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
    max_examples: int = -1  # tasks to reinforce, drawn by the seed; -1: all
    tools: list[str] = field(default_factory=list)  # one SFT model for each; none: one of whole conversations
    raw_glob: str | None = None  # trajectories to convert, a file each, generated ones among them; None: out/raw
    unified_dir: str | None = None  # None: out/unified
    sft_data_dir: str | None = None  # None: out/sft_data
    rewards_file: str | None = None  # None: out/rewards.json
    sft_models_dir: str | None = None  # None: out/sft; of a tool: a folder below it
    rl_models_dir: str | None = None  # None: out/rl
    test_files: list[str] = field(default_factory=list)  # held-out tasks that name their domain, instead of `test`
    metrics: list[str] = field(default_factory=lambda: ["accuracy"])  # of an evaluation; reward and efficiency, too
    evaluation_dir: str | None = None  # where evaluation.json goes, beside the report
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


def read_plan(name: str | None, say: Callable[[str], None] = lambda text: None) -> Plan:
    """The plan of a YAML file, recollect's own or a training_config.yaml, or the embedded example."""
    embedded = name is None or name == EXAMPLE
    place = EXAMPLE if embedded else str(name)
    tree = read_mapping(Path(__file__).with_name("example.yaml") if embedded else Path(place).expanduser(), "pipeline")
    tree.pop("description", None)
    if is_training_config(tree):
        tree, notes = plan_tree(tree, place, {f.name for f in fields(Plan)})
        for line in notes:
            say(line)
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
        if domain not in DOMAINS:
            raise BadInput(f"{place}: agents.{domain} is no domain; known: {', '.join(DOMAINS)}")
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
    """Refuse values that would stop a later stage."""
    for name in ("out", "model", "policy"):
        if not isinstance(getattr(plan, name), str):
            raise BadInput(f"{place}: {name} has to be a text")
    for name in ("raw_glob", "unified_dir", "sft_data_dir", "rewards_file", *FOLDERS):
        if not isinstance(getattr(plan, name), str | None):
            raise BadInput(f"{place}: {name} has to be a text")
    for name in ("tools", "test_files", "metrics"):
        value = getattr(plan, name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise BadInput(f"{place}: {name} has to be a list of texts")
    for name in (name for name in plan.metrics if name not in METRICS):
        raise BadInput(f"{place}: metrics: {name} is unknown; known: {', '.join(METRICS)}")
    if isinstance(plan.max_examples, bool) or not isinstance(plan.max_examples, int) or plan.max_examples in (0, -2):
        raise BadInput(f"{place}: max_examples={plan.max_examples} has to be a positive whole number")
    _check_raw(plan, place)
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


def _check_raw(plan: Plan, place: str) -> None:
    """Check that generated trajectories are among those that are converted."""
    if plan.raw_glob is None:
        return
    made = f"{raw_folder(plan.raw_glob)}/mhqa/traj_001.traj.json"
    parts, wanted = Path(made).parts, Path(plan.raw_glob).parts
    fits = len(parts) == len(wanted) and all(map(fnmatch, parts, wanted))
    if not fits and "**" not in wanted:
        raise BadInput(f"{place}: raw_glob={plan.raw_glob} does not match {made}, as generated files are called")


def raw_folder(pattern: str) -> str:
    """The folder that a pattern of files begins with."""
    parts = Path(pattern).parts
    plain = list(takewhile(lambda part: not has_magic(part), parts[:-1]))
    return str(Path(*plain)) if plain else "."


def _questions(row: Any, place: str) -> Questions:
    if not isinstance(row, dict) or not row.keys() <= {f.name for f in fields(Questions)}:
        raise BadInput(f"{place} has questions and test: a number of made-up tasks, a data file, or a list of texts")
    found = Questions(**row)
    inline = isinstance(found.questions, list)
    if inline and not (found.questions and all(isinstance(q, str) and q.strip() for q in found.questions)):  # type: ignore[union-attr]
        raise BadInput(f"{place}: questions is a list of texts")
    for value in (*([] if inline else [found.questions]), found.test):
        if isinstance(value, bool) or not isinstance(value, int | str) or (isinstance(value, int) and value < 1):
            raise BadInput(f"{place}: {value} is neither a positive number of tasks nor a file")
    most = found.num_trajectories
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise BadInput(f"{place}: num_trajectories={most} has to be a positive whole number")
    if not inline and (most is not None or found.context is not None):
        raise BadInput(f"{place}: num_trajectories and context are for questions that are given as a list of texts")
    if found.context is not None and not Path(str(found.context)).expanduser().exists():
        raise BadInput(f"{place}: there is no file or folder {found.context}")
    return found


def _merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Two trees of settings; the second overrides the first."""
    out = dict(base)
    for key, value in more.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = _merged(out[key], value) if both else value
    return out
