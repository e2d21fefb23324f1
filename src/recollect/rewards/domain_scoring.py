"""What the trajectory reward asks of a domain. Each domain says it in its spec; unknown names count as mhqa."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recollect.registries import DOMAINS
from recollect.rewards.text import sub_em
from recollect.rewards.weights import FALLBACK
from recollect.types import Task

if TYPE_CHECKING:
    from recollect.rewards.parts import JudgedTrajectory


def no_signs(reading: JudgedTrajectory, spoken: Sequence[str]) -> list[float]:
    """Quality is then indicator words and grounding alone."""
    return []


def same_words(answer: str, task: Task) -> bool:
    """Whether a text gives an accepted answer, in a few words."""
    return bool(sub_em(answer, task))


@dataclass(frozen=True)
class DomainScoring:
    """How the trajectories of a domain are scored; the weights and indicator words are in ``weights.yaml``."""

    tools: frozenset[str] | None = None  # those that tool_selection counts; None: all
    signs: Callable[[JudgedTrajectory, Sequence[str]], list[float]] = no_signs  # of quality, each from 0 to 1
    gold_decides: bool = True  # an accepted answer goes before the recorded verdict
    same: Callable[[str, Task], float] = same_words  # whether an answer is an accepted one


def scoring_of(domain: str) -> DomainScoring:
    """What a domain says about its scoring."""
    return (DOMAINS.get(domain) or DOMAINS[FALLBACK]).scoring
