"""What `recollect optimize` is asked for, and what is refused before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from recollect.config import Config
from recollect.config.prompt_file import given_entries, prompt_specs
from recollect.config.roles import roles_of
from recollect.data.questions import questions_of
from recollect.models.checkpoints import find_checkpoint
from recollect.registries import AGENTS
from recollect.runtime.address import is_address
from recollect.samplers.checkpoint_roles import NamedModels, role_settings
from recollect.sources.task_stream import TaskStream
from recollect.types import BadInput, Task

NAMES = ("miprov2", "simba", "gepa")
PACKAGES = {"miprov2": ("dspy", "optuna"), "simba": ("dspy",), "gepa": ("dspy", "gepa")}


@dataclass(frozen=True)
class OptimizeRequest:
    """The options of the command."""

    optimizer: str
    calls: int
    out: Path
    num_train: int = 16
    num_val: int = 16
    seed: int = 0
    threads: int = 8
    prompt_model: str | None = None  # a folder or an address; None: the policy itself

    def stamp(self) -> dict[str, Any]:
        """What must be the same when an optimisation goes on."""
        same = ("optimizer", "num_train", "num_val", "seed", "prompt_model")
        return {name: getattr(self, name) for name in same}


def refuse_request(asked: OptimizeRequest, cfg: Config) -> None:
    """Refuse what cannot work."""
    if asked.optimizer not in NAMES:
        raise BadInput(f"--optimizer {asked.optimizer} is unknown; known: {', '.join(NAMES)}")
    for package in PACKAGES[asked.optimizer]:
        if find_spec(package) is None:
            raise BadInput(f"--optimizer {asked.optimizer} needs {package}: pip install 'recollect-rl[dspy]'")
    for name in ("calls", "num_train", "num_val", "threads"):
        if getattr(asked, name) < 1:
            raise BadInput(f"--{name.replace('_', '-')} {getattr(asked, name)} must be positive")
    if not can_optimize(cfg):
        able = [name for name in AGENTS if AGENTS[name].prompts and all(p.demonstrations for p in AGENTS[name].prompts)]
        raise BadInput(
            f"agent.agent_type={cfg.agent.agent_type}: its prompts cannot be optimised; those of {', '.join(able)} can"
        )
    for name, given in given_entries(cfg).items():
        if isinstance(given, str) and prompt_specs(cfg)[name].frame is not None:
            raise BadInput(
                f"agent.prompts={cfg.agent.prompts}: {name} is a template; give its instruction to start from"
            )


def acting_models(model: str | None, given: Sequence[str], cfg: Config) -> NamedModels:
    """Who plays the agent. An address plays every role; where all roles are given, no other model is loaded.

    Tokens of models behind addresses are counted with the tokenizer of actor_rollout_ref.model.path.
    """
    cfg.roles = {}
    known, places = roles_of(cfg), dict(role_settings(given))
    if model is not None and is_address(model):
        places = {**dict.fromkeys(known or ("*",), model), **places}
        return NamedModels(None, None, places, cfg)
    if model is None and known and set(known) <= set(places):
        return NamedModels(None, None, places, cfg)
    return NamedModels(find_checkpoint(model or cfg.actor_rollout_ref.model.path)[0], None, places, cfg)


def can_optimize(cfg: Config) -> bool:
    """True for agents whose turns are asked one by one with prompts of their own."""
    specs = prompt_specs(cfg)
    notes = cfg.agent.agent_type == "conversation_qa" and cfg.conversation.memory == "notes"
    return bool(specs) and all(spec.demonstrations for spec in specs.values()) and not notes


def optimized_tasks(cfg: Config, asked: OptimizeRequest) -> tuple[list[Task], list[Task]]:
    """Training tasks to learn from and others to choose by; held-out tasks are never among them."""
    stream, wanted = TaskStream(cfg), asked.num_train + asked.num_val
    tasks: dict[str, Task] = {}
    for step in range(max(1, wanted)):
        for task in (one for whole in stream.take(step) for one in single_questions(whole)):
            tasks.setdefault(task.id, task)
        if len(tasks) >= wanted or (stream.rows and step >= len(stream.rows)):
            break
    if len(tasks) < wanted:
        raise BadInput(
            f"--num-train {asked.num_train} and --num-val {asked.num_val} are more than the {len(tasks)} training "
            "questions there are"
        )
    chosen = list(tasks.values())[:wanted]
    return chosen[: asked.num_train], chosen[asked.num_train :]


def single_questions(task: Task) -> Sequence[Task]:
    """A task for each question; the document is the same."""
    rows = task.fields.get("questions")
    if not rows or len(rows) < 2:
        return [task]
    return [
        replace(
            task, id=f"{task.id}#{i}", question=q.text, answers=q.answers, fields={**task.fields, "questions": [row]}
        )
        for i, (row, q) in enumerate(zip(rows, questions_of(task), strict=True), 1)
    ]
