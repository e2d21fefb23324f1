"""The results of an evaluation, item by item, in a growing file: a killed evaluation goes on with what is missing."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from recollect.config import Config
from recollect.config.compose import flatten
from recollect.data.questions import questions_of
from recollect.eval.by_category import question_scores
from recollect.eval.card import file_hash
from recollect.eval.length import length_of
from recollect.files.output import writing
from recollect.retrieval.corpus import fingerprint as corpus_state
from recollect.rewards.memory_qa import part_of
from recollect.rewards.text import qa_em, qa_f1_reward, sub_em
from recollect.types import BadInput, Task, Trajectory

METRICS = {"em": qa_em, "f1": qa_f1_reward, "sub_em": sub_em}
FILES = (".py", ".json", ".yaml", ".yml", ".txt")
ANYWAY = (  # settings that change no item: how many there are, and what is written where
    *("evaluation.lengths", "evaluation.tasks", "data.val_max_samples", "data.val_batch_size"),
    *("trainer.default_local_dir", "trainer.logger"),
)


@dataclass(frozen=True)
class Item:
    """One attempt at one task. A failed one scores 0 everywhere."""

    id: str
    sample: int
    source: str
    length: int
    answer: str
    reward: float
    scores: dict[str, float] = field(default_factory=dict)  # em, f1, sub_em: means over the task's questions
    failure: str = ""
    task: str = ""  # `digest` of the task that was attempted
    questions: list[dict[str, Any]] = field(default_factory=list)  # those that have a category: see by_category.py


def item_of(task: Task, trajectory: Trajectory) -> Item:
    """What is kept of an attempt."""
    failure = f"{trajectory.failure.kind}: {trajectory.failure.message}" if trajectory.failure else ""
    reward = trajectory.reward if trajectory.valid else 0.0
    scores = scores_of(task, trajectory) if trajectory.valid else dict.fromkeys(METRICS, 0.0)
    about = task.id, trajectory.sample, task.source, length_of(task)
    return Item(*about, trajectory.answer, reward, scores, failure, digest(task), question_scores(task, trajectory))


def digest(task: Task) -> str:
    """A digest of everything in a task, its document included."""
    made = hashlib.blake2b(repr((task.question, task.answers, task.source)).encode(), digest_size=8)
    made.update(json.dumps(task.fields, default=_plain, sort_keys=True).encode())
    for piece in task.context.pieces() if hasattr(task.context, "pieces") else [task.context]:
        made.update((piece if isinstance(piece, str) else repr(piece)).encode(errors="surrogatepass"))
    return made.hexdigest()


def scores_of(task: Task, trajectory: Trajectory) -> dict[str, float]:
    """EM, F1 and sub-EM of the answer, or their means over the answers to several questions."""
    questions = questions_of(task)
    said = trajectory.answers or [trajectory.answer]
    parts = [part_of(trajectory, i, a) for i, a in enumerate(said, 1)]
    pairs = list(zip(parts, questions, strict=True))
    return {name: sum(score(p.answer, q.task(task)) for p, q in pairs) / len(pairs) for name, score in METRICS.items()}


def deciding(cfg: Config) -> list[str]:
    """The settings that an item's outcome may depend on."""
    return [f"{key}={value}" for key, value in flatten(OmegaConf.structured(cfg)).items() if key not in ANYWAY]


def fingerprint(cfg: Config, players: Mapping[str, str]) -> str:
    """A digest of what decides an item's outcome: settings, the files they name, and who plays which role.

    For weights and a corpus it uses the time when they were written. Data is left out: an item has its task's digest.
    """
    made = hashlib.blake2b("\n".join(deciding(cfg)).encode(), digest_size=8)
    for path in _named_files(cfg):
        made.update(f"{path}:{file_hash(path)}\n".encode())
    if cfg.search.corpus:
        made.update(corpus_state(cfg.search.corpus).encode())
    for role, where in sorted(players.items()):
        files = sorted(Path(where).expanduser().glob("*.safetensors"))
        weights = [f"{path.name}:{path.stat().st_size}:{path.stat().st_mtime_ns}" for path in files]
        made.update(f"{role}={' '.join(weights) or where}\n".encode())
    return made.hexdigest()


def _named_files(cfg: Config) -> list[Path]:
    """The files that settings name for agents, tools and rewards, also inside brackets."""
    said = [str(value) for key, value in flatten(OmegaConf.structured(cfg)).items() if not key.startswith("data.")]
    parts = {part.strip() for text in said for part in re.split(r"[\[\](),*=:'\"]", text)}
    paths = (Path(part).expanduser() for part in sorted(parts) if part.endswith(FILES))
    return [path for path in paths if path.is_file()]


class ItemLog:
    """The items of one agent. Items of other settings or weights are ignored."""

    def __init__(self, path: Path | None, stamp: str) -> None:
        self.path = path
        self.items: dict[tuple[str, int], Item] = {}
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_bytes().split(b"\n") if path.exists() else []
        rows = [_read(line) for line in lines[:-1]]  # what a kill cut has no line break
        if not rows or rows[0] != {"evaluation": stamp}:
            path.write_text(json.dumps({"evaluation": stamp}) + "\n")
            return
        os.truncate(path, sum(len(line) + 1 for line in lines[:-1]))
        found = [Item(**row) for row in rows[1:] if row is not None]
        self.items = {(item.id, item.sample): item for item in found}

    def add(self, item: Item) -> None:
        """Keep an item; it is on disk when this returns."""
        self.items[item.id, item.sample] = item
        if self.path is not None:
            with writing(self.path), self.path.open("a", encoding="utf-8", errors="replace") as file:
                file.write(json.dumps(asdict(item), ensure_ascii=False) + "\n")
                file.flush()
                os.fsync(file.fileno())

    def missing(self, tasks: Iterable[Task], n: int) -> list[Task]:
        """The tasks that lack an attempt, including tasks that have changed since."""
        out = []
        for task in tasks:
            kept = [self.items.get((task.id, i)) for i in range(n)]
            if {item.task if item else "" for item in kept} != {digest(task)}:
                out.append(task)
        return out

    def of(self, tasks: Sequence[Task], n: int) -> list[list[Item]]:
        """The attempts at each task."""
        return [[self.items[t.id, i] for i in range(n)] for t in tasks]


def items_file(folder: Path, agent: str) -> Path:
    """Where the items of an agent are kept."""
    named = re.sub(r"[^\w-]", "_", agent)
    return folder / f"{named}.jsonl"


def read_items(folder: Path, agent: str) -> list[Item]:
    """All items of an agent; of an attempt that was made again the newest."""
    path = items_file(folder, agent)
    if not path.is_file():
        raise BadInput(f"no items of the agent {agent} at {path}; evaluate again")
    rows = [row for line in path.read_bytes().split(b"\n") if (row := _read(line)) is not None and "id" in row]
    try:
        found = [Item(**row) for row in rows]
    except TypeError as error:
        raise BadInput(f"{path} holds no items of an evaluation: {error}") from None
    if wrong := [item for item in found if not _is_whole(item)]:
        raise BadInput(f"{path}: the item {str(wrong[0].id)[:60]!r} is damaged; evaluate again")
    return list({(item.id, item.sample): item for item in found}.values())


def _is_whole(item: Item) -> bool:
    """Whether the values of an item are of the types that they have when they are written."""
    texts = (item.id, item.source, item.answer, item.failure, item.task)
    scores = item.scores.values() if isinstance(item.scores, dict) else [None]
    numbers = (item.sample, item.length, item.reward, *scores)
    questions = item.questions if isinstance(item.questions, list) else [None]
    return (
        all(map(_is_question, questions)) and all(isinstance(t, str) for t in texts) and all(map(_is_number, numbers))
    )


def _is_question(row: Any) -> bool:
    """Whether an item's row of a question has its category and scores; see by_category.py."""
    scores = row.get("scores") if isinstance(row, dict) else None
    return isinstance(scores, dict) and _is_number(row.get("category")) and all(map(_is_number, scores.values()))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _plain(value: Any) -> Any:
    """An array's numbers; of what is no data its kind."""
    return value.tolist() if hasattr(value, "tolist") else type(value).__qualname__


def _read(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None
