"""Families of made-up tasks, for runs without data files: any number of tasks, each reproducible.

A family with a scripted expert can also be trained on by imitation (`sft.data=expert`), and so can one with a
sloppy agent (`sft.data=sloppy`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType

from recollect.chat import Renderer
from recollect.config import Config
from recollect.domains.registry import expert_of
from recollect.policies.scripted import Expert, Scripted
from recollect.registries import DOMAINS, FAMILIES
from recollect.tasks import arithmetic, clickers, facts, ledger, lists, needle, screens, shapes
from recollect.tasks.family import Make, Stream
from recollect.types import Task, Trajectory


def no_length(cfg: Config, multiple: int) -> int:
    """Tasks without a document have no sections."""
    return 0


@dataclass(frozen=True)
class Family:
    """How one family is made. Held-out tasks never occur in training."""

    train: Callable[[Config, int, int], Task]  # (configuration, step, index): a training task
    held_out: Callable[[Config, int, int], Task]  # (configuration, multiple of the training length, index)
    expert: Callable[[str], str] | None = None  # what a perfect agent replies to the text of a prompt
    player: Callable[[Task, Trajectory], str] | None = None  # the same from the task and what was done so far
    sections: Callable[[Config, int], int] = no_length  # sections of a held-out document at a multiple
    sloppy: Callable[[str], str] | None = None  # the same of an agent that knows the form but has a poor policy
    sloppy_player: Callable[[Task, Trajectory], str] | None = None  # such an agent that plays from the task
    imitated: Callable[[Config, int, int], Task] | None = None  # (configuration, update, index): if not as in training


def _domain(name: str, make: Make) -> Family:
    stream = Stream(name, make)
    return Family(stream.train, stream.held_out, player=expert_of(name))


def _plain(module: ModuleType) -> Family:
    """A family whose file has everything by the usual names."""
    return Family(module.train_task, module.held_out_task, module.expert, sloppy=module.sloppy)


_FAMILIES = {
    "needle": Family(
        needle.train_task, needle.held_out_task, needle.expert, sections=needle.sections, sloppy=needle.sloppy
    ),
    "ledger": Family(
        ledger.train_task, ledger.held_out_task, ledger.expert, sections=ledger.sections, sloppy=ledger.sloppy
    ),
    **{name: _plain(module) for name, module in (("arithmetic", arithmetic), ("facts", facts), ("lists", lists))},
    "shapes": Family(
        shapes.train_task, shapes.held_out_task, player=shapes.counter, sloppy_player=shapes.sloppy_counter
    ),
    "screen": Family(
        screens.train_task,
        screens.held_out_task,
        player=clickers.clicker,
        sloppy_player=clickers.sloppy_clicker,
        imitated=screens.imitated_task,
    ),
    **{domain.name: _domain(domain.name, domain.tasks) for domain in DOMAINS.values() if domain.tasks},
}


def _mixed(names: Sequence[str]) -> Family:
    """Tasks of several domains in turn; the agent `domain` tells them apart by their source."""
    pick = lambda index: FAMILIES[names[index % len(names)]]
    experts = {name: expert_of(name) for name in names}
    return Family(
        lambda cfg, step, index: pick(index).train(cfg, step, index),
        lambda cfg, multiple, index: pick(index).held_out(cfg, multiple, index // len(names)),
        player=lambda task, trajectory: experts[task.source](task, trajectory),
    )


FAMILIES.update(_FAMILIES)
FAMILIES["domains"] = _mixed([name for name, domain in DOMAINS.items() if domain.mixed])


def expert_policy(family: Family, renderer: Renderer, sloppy: bool = False) -> Scripted | Expert | None:
    """The policy that plays a family's expert, or its sloppy agent; None where it has none."""
    player = family.sloppy_player if sloppy else family.player
    if player is not None:
        return Expert(renderer, player)
    respond = family.sloppy if sloppy else family.expert
    return Scripted(renderer, respond) if respond is not None else None


def made_up(cfg: Config) -> Family:
    """The family that the configuration names."""
    return FAMILIES[cfg.data.made_up]


def has_lengths(cfg: Config) -> bool:
    """True when held-out tasks are made-up documents, which can be made at any length."""
    return not (cfg.data.val_files or cfg.data.train_files) and made_up(cfg).sections(cfg, 1) > 0


def planned_turns(cfg: Config) -> int:
    """Turns that an evaluation by length takes: one for each section and one for the answer."""
    plan = zip(cfg.evaluation.lengths, cfg.evaluation.tasks, strict=True)
    return sum(n * (made_up(cfg).sections(cfg, m) + 1) for m, n in plan)
