"""The reward of a whole trajectory: completion, efficiency, quality and reasoning, weighted by domain.

Words alone earn little. If the answer fails its check, is missing, or is unchecked and only indicator words, quality
and reasoning hardly count. The total then stays below ``LIMIT`` and below the weight of completion, so it never reaches
a trajectory that passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from recollect.rewards.domain_scoring import scoring_of
from recollect.rewards.parts import JudgedTrajectory, plain_text
from recollect.rewards.weights import FALLBACK, PARTS, Weights
from recollect.trajectories.codec import stored_reward
from recollect.types import BadInput, Task

FAILED_SHARE = 0.15  # of quality and reasoning that counts without completion
LIMIT = 0.29  # of a total without completion
GOLD = ("gold", "gold_answer", "golden_answers", "answers", "ground_truth", "expected_answer", "reference_answer")
ACTION = frozenset(("tool", "input", "output"))
UNCOUNTED = ("reason", "finalize")  # not counted by efficiency


class RewardCalculator:
    """Rewards of unified trajectories. Made to be subclassed: override a part, the bound stays."""

    def __init__(self, weights: str | Path | Mapping[str, Any] | None = None) -> None:
        """``weights``: a YAML file or the same as a dict; what it does not name is as in the package's own."""
        self.weights = Weights.load(weights)
        self._last: tuple[Mapping[str, Any], str, JudgedTrajectory] | None = None

    def calculate_reward(self, trajectory: Mapping[str, Any], domain: str | None = None) -> dict[str, float]:
        """The total and its parts, each from 0 to 1; conciseness and tool_selection stand beside them.

        A trajectory that is not in unified form is read as `recollect convert` reads it.
        """
        domain = domain or str(trajectory.get("domain") or "")
        trajectory = in_form(trajectory)
        found = {
            "completion": self._calculate_completion_reward(trajectory, domain),
            "efficiency": self._calculate_efficiency_reward(trajectory, domain),
            "quality": self._calculate_quality_reward(trajectory, domain),
            "reasoning": self._calculate_reasoning_reward(trajectory, domain),
        }
        parts = {name: min(1.0, max(0.0, float(value))) for name, value in found.items()}
        reading = self._reading(trajectory, domain)
        self._last = None
        beside = {"conciseness": reading.conciseness(), "tool_selection": reading.tool_selection()}
        earned = parts["completion"] == 1 or (parts["completion"] > 0 and not reading.is_stuffed())
        return {"total": self._total(parts, domain, earned), **parts, **beside}

    def _reading(self, trajectory: Mapping[str, Any], domain: str) -> JudgedTrajectory:
        """What a trajectory holds, read once for all of its parts."""
        last = self._last
        if last is None or last[0] is not trajectory or last[1] != domain:
            last = self._last = (trajectory, domain, JudgedTrajectory(trajectory, domain, self.weights))
        return last[2]

    def _total(self, parts: Mapping[str, float], domain: str, earned: bool) -> float:
        weights = self.weights.of(domain)
        if earned:
            return sum(weights[name] * parts[name] for name in PARTS)
        words = FAILED_SHARE * sum(weights[name] * parts[name] for name in ("quality", "reasoning"))
        return min(weights["efficiency"] * parts["efficiency"] + words, LIMIT, 0.95 * weights["completion"])

    def _calculate_completion_reward(self, trajectory: Mapping[str, Any], domain: str) -> float:
        """1 for success against a gold answer or a verifier, 0.5 for an answer that nothing can check, else 0."""
        verdict = self._verdict(trajectory, domain)
        if verdict is not None:
            return float(verdict)
        return 0.5 if self._reading(trajectory, domain).is_answered() else 0.0

    def _verdict(self, trajectory: Mapping[str, Any], domain: str) -> bool | None:
        """Gold answers decide where there are some and the answer is a text to compare; else the recorded verdict."""
        scoring = scoring_of(domain)
        success = trajectory.get("success")
        gold = gold_answers(trajectory) if scoring.gold_decides or success is None else []
        if gold:
            task = Task("", str(trajectory.get("question") or ""), answers=tuple(gold))
            said = plain_text(trajectory.get("final_answer"))
            return bool(scoring.same(said, task))
        return None if success is None else bool(success)

    def _calculate_efficiency_reward(self, trajectory: Mapping[str, Any], domain: str) -> float:
        """By the number of actions that are not thinking: none 0, up to three 1, then 0.2 less for each."""
        n = sum(a["tool"] not in UNCOUNTED for a in trajectory["actions"])
        return 0.0 if n == 0 else min(1.0, max(0, 8 - n) / 5)

    def _calculate_quality_reward(self, trajectory: Mapping[str, Any], domain: str) -> float:
        """The domain's indicators, as far as the answer rests on what the tools said or has passed its check."""
        reading = self._reading(trajectory, domain)
        return reading.quality(checked=self._verdict(trajectory, domain) is True)

    def _calculate_reasoning_reward(self, trajectory: Mapping[str, Any], domain: str) -> float:
        """Thoughts that differ from each other, with words that connect them."""
        return self._reading(trajectory, domain).reasoning()


def in_form(trajectory: Mapping[str, Any]) -> Mapping[str, Any]:
    """The trajectory itself if its actions are as in the unified form, else what `recollect convert` makes of it."""
    actions = trajectory.get("actions")
    if isinstance(actions, list | tuple) and all(isinstance(a, Mapping) and a.keys() >= ACTION for a in actions):
        return trajectory
    from recollect.trajectories.field_names import ACTIONS, QUESTION
    from recollect.trajectories.unify import unify

    given = {k: v for k, v in trajectory.items() if v is not None}
    talk = given.keys() & {"messages", "conversations"}
    missing: dict[str, Any] = {} if talk or given.keys() & set(QUESTION) else {"question": ""}
    missing |= {} if talk or given.keys() & set(ACTIONS) else {"actions": []}
    return unify({**missing, **given}, FALLBACK)


@lru_cache(maxsize=4)
def calculator(weights: str | None = None) -> RewardCalculator:
    """One calculator for everything that a process scores with these weights."""
    return RewardCalculator(weights)


def reward_of(trajectory: Mapping[str, Any], place: str = "the trajectory") -> float:
    """The recorded reward, or where there is none the calculated one; ``place`` is for messages."""
    recorded = stored_reward(trajectory, place)
    if recorded is not None:
        return recorded
    from recollect.trajectories.field_names import NotATrajectory

    try:
        return calculator().calculate_reward(trajectory)["total"]
    except NotATrajectory as error:
        raise BadInput(f"{place}: {error}") from None


def gold_answers(trajectory: Mapping[str, Any]) -> list[str]:
    """The accepted answers that a trajectory or its metadata holds."""
    about = trajectory.get("metadata")
    places = (about if isinstance(about, Mapping) else {}, trajectory)
    value = next((p[name] for p in places for name in GOLD if p.get(name) not in (None, "", [])), None)
    values = value if isinstance(value, list | tuple) else [value]
    return [str(v) for v in values if isinstance(v, str | int | float) and str(v).strip()]
