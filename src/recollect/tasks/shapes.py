"""Pictures with a question for the agent `chat`: how many circles, squares or triangles there are.

Colours of held-out pictures never occur in training.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from recollect.config import Config
from recollect.images.image_files import drawn, pillow
from recollect.tasks.family import HELD_OUT_SEED
from recollect.tasks.names import Split
from recollect.tasks.screens import colours
from recollect.types import IMAGE_MARK, Image, Task, Trajectory

KINDS = ("circles", "squares", "triangles")
GRID, CELL = 4, 16  # cells of a side, and their pixels
MOST = 5  # shapes of a kind
UNDERSTOOD = 0.4  # the share of questions in which the sloppy counter counts what was asked for
Corners = tuple[int, int, int, int]


def _triangle(pen: Any, box: Corners, colour: tuple[int, int, int]) -> None:
    left, top, right, bottom = box
    pen.polygon([(left, bottom), (right, bottom), ((left + right) // 2, top)], fill=colour)


PENS: dict[str, Callable[[Any, Corners, tuple[int, int, int]], None]] = {
    "circles": lambda pen, box, colour: pen.ellipse(box, fill=colour),
    "squares": lambda pen, box, colour: pen.rectangle(box, fill=colour),
    "triangles": _triangle,
}


def draw_shapes(shapes: Sequence[tuple[str, int, tuple[int, int, int]]]) -> Image:
    """A white picture with a shape (kind, cell, colour) in some cells of a grid."""
    from PIL import ImageDraw

    picture = pillow().new("RGB", (GRID * CELL, GRID * CELL), "white")
    pen = ImageDraw.Draw(picture)
    for kind, place, colour in shapes:
        x, y = place % GRID * CELL, place // GRID * CELL
        PENS[kind](pen, (x + 2, y + 2, x + CELL - 3, y + CELL - 3), colour)
    return drawn(picture)


def make_task(seed: int, index: int, split: Split) -> Task:
    """Task number ``index`` of the endless stream that ``seed`` names."""
    rng = random.Random(f"shapes:{split}:{seed}:{index}")
    asked = rng.choice(KINDS)
    counts = {kind: rng.randint(0, MOST) for kind in KINDS}
    places = rng.sample(range(GRID * GRID), sum(counts.values()))
    every = [kind for kind in KINDS for _ in range(counts[kind])]
    image = draw_shapes([(kind, place, rng.choice(colours(split))) for kind, place in zip(every, places, strict=True)])
    name, question = f"shapes-{split}-{seed}-{index}", f"{IMAGE_MARK}How many {asked} are there?"
    fields = {"asked": asked, "counts": counts}
    return Task(name, question, answers=(str(counts[asked]),), source="shapes", fields=fields, images=(image,))


def train_task(cfg: Config, step: int, index: int) -> Task:
    """A training task."""
    return make_task(cfg.trainer.seed, index, "train")


def held_out_task(cfg: Config, multiple: int, index: int) -> Task:
    """A held-out task: none of its colours occurs in training."""
    return make_task(HELD_OUT_SEED, index, "held_out")


def counter(task: Task, trajectory: Trajectory) -> str:
    """What a perfect agent says: what it counts, and how many there are."""
    return _counted(task, task.fields["asked"])


def sloppy_counter(task: Task, trajectory: Trajectory) -> str:
    """What an agent says that counts well, but mostly mixes up the kind that was asked for with the next one."""
    asked = task.fields["asked"]
    taken_for = KINDS[(KINDS.index(asked) + 1) % len(KINDS)]
    understood = random.Random(f"sloppy:{task.id}").random() < UNDERSTOOD
    return _counted(task, asked if understood else taken_for)


def _counted(task: Task, kind: str) -> str:
    return f"{kind} {task.fields['counts'][kind]}"
