"""Stored trajectories as a source of tasks: RL on the tasks that were solved well enough.

It reads run directories, their `.jsonl.zst` files, and files of trajectories, unified or in any form that
`recollect convert` reads (one object, a list, or one in each line). Several attempts at a task give one task, if the
best of them reached the reward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from recollect.images.content import PLACEHOLDER
from recollect.rewards.trajectory_total import reward_of
from recollect.runtime.error_text import listed
from recollect.trajectories.codec import Row, has_outcome, source_of, task_id_of
from recollect.trajectories.stored_images import read_images
from recollect.trajectories.stored_rows import is_trajectory, trajectory_rows
from recollect.types import IMAGE_MARK, BadInput


def create_rl_dataset(
    paths: Sequence[str | Path] | str | Path, min_reward: float = 0.0, say: Callable[[str], None] = lambda text: None
) -> list[Row]:
    """The tasks of stored trajectories whose best attempt reached a reward, as rows that `data.train_files` may hold.

    A row has id, question, answer (the accepted ones; else the final answer of a successful attempt), data_source,
    reward (of the best attempt; calculated where none is recorded) and what the trajectory keeps of its task, such as
    its context.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    found: dict[tuple[str, str], Row] = {}
    for place, row in trajectory_rows([str(p) for p in given]):
        if not is_trajectory(row):
            raise BadInput(f"{place}: not a trajectory: it has {listed(row) or 'nothing'}")
        if row.get("question") == "":
            say(f"{place}: left out, it does not say what was asked")
            continue
        reward = reward_of(row, place) if has_outcome(row) else None
        if reward is None or not reward >= min_reward:
            continue
        if not isinstance(row.get("question"), str):
            raise BadInput(f"{place}: a trajectory has a question, which is a text; it has {listed(row)}")
        if not row["question"].strip():  # nobody says what the task was
            continue
        seed = {**_seed(row, reward), **_shown(row, place)}
        key = (str(seed["data_source"]), str(seed["id"]))
        if key not in found or found[key]["reward"] < reward:
            found[key] = seed
    return list(found.values())


def _seed(row: Row, reward: float) -> Row:
    """The task behind an attempt."""
    about = row.get("metadata") if isinstance(row.get("metadata"), Mapping) else {}
    assert isinstance(about, Mapping)
    kept = about.get("task") if isinstance(about.get("task"), Mapping) else about
    assert isinstance(kept, Mapping)
    answers = row.get("answers") or kept.get("answers") or kept.get("golden_answers") or kept.get("answer")
    if not answers and row.get("success"):
        answers = row.get("final_answer")
    return {
        **{k: v for k, v in kept.items() if k not in ("answers", "golden_answers")},
        "id": task_id_of(row),
        "question": row["question"],
        "answer": list(answers) if isinstance(answers, list | tuple) else [answers] if answers else [],
        "data_source": source_of(row),
        "reward": reward,
    }


def _shown(row: Row, place: str) -> Row:
    """The question of an attempt that was shown images with it: the images, and marks as data files have them."""
    count = row["question"].count(IMAGE_MARK)
    if not count:
        return {}
    turns = row.get("turns")
    first = turns[0].get("images") if isinstance(turns, list) and turns and isinstance(turns[0], Mapping) else None
    held = read_images(row, place)
    found = [held.get(str(about["image"])) for about in first or ()][:count]
    if len(found) < count or None in found:
        raise BadInput(f"{place}: the question shows {count} images, and the trajectory does not hold them")
    return {"question": row["question"].replace(IMAGE_MARK, PLACEHOLDER), "images": [i.data for i in found if i]}
