"""What an attempt did wrong, in words, for optimizers that read: what the memory lost, and which evidence."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.data.questions import questions_of
from recollect.types import Task, Trajectory

SHOWN = 300  # characters of a text


def feedback(task: Task, trajectory: Trajectory) -> str:
    """The reward, the expected answer, and where it was lost."""
    if trajectory.failure is not None:
        return f"The attempt failed: {trajectory.failure.message}"
    reward = trajectory.reward if trajectory.valid else 0.0
    said = f"Reward {reward:.3g}. The answer was {_cut(trajectory.answer)!r}"
    answers = [answer for question in questions_of(task) for answer in question.answers]
    wanted = " or ".join(repr(answer) for answer in answers[:3])
    lines = [f"{said}, expected {wanted}." if wanted else f"{said}."]
    lines += memory_lines(answers, trajectory.notes) if notes_memories(trajectory) else []
    lines += evidence_lines(task, trajectory)
    return " ".join(lines)


def notes_memories(trajectory: Trajectory) -> bool:
    """Whether the notes are memories: one for each turn that read, and no more."""
    return len(trajectory.notes) == sum(turn.role == "memory" for turn in trajectory.turns) > 0


def memory_lines(answers: Sequence[str], memories: Sequence[str]) -> list[str]:
    """Whether the memory ever held an answer, and after which section it lost it."""
    if not answers or not memories:
        return []
    held = [any(answer.lower() in memory.lower() for answer in answers) for memory in memories]
    if held[-1]:
        return ["The last memory holds it."]
    if any(held):
        lost = len(held) - held[::-1].index(True) + 1
        return [f"The memory held it and lost it at section {lost} of {len(held)}: {_cut(memories[lost - 1])!r}."]
    return [f"No memory ever held it; the last memory was {_cut(memories[-1])!r}."]


def evidence_lines(task: Task, trajectory: Trajectory) -> list[str]:
    """Which evidence of its questions a search did not find."""
    found = [name for event in trajectory.events for name in event.get("found") or ()]
    if not any("found" in event for event in trajectory.events):
        return []
    held = {*found, *(f"D{name[1:]}" for name in found if name.startswith("S"))}
    wanted = [name for question in questions_of(task) for name in question.fields.get("evidence") or ()]
    missing = [name for name in wanted if name not in held and name.split(":")[0] not in held]
    return [f"Evidence that was not shown: {', '.join(missing)}."] if missing else []


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
