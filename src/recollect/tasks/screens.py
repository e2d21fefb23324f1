"""Made-up screens for the agent `gui`: press a button, tick a box, fill a field, pick a line of a list.

Labels are two letters, and which of them are held out is decided by a hash for ever; so are the colours. The layout
is drawn anew for every task.
"""

from __future__ import annotations

import random
from functools import cache
from itertools import islice
from typing import Any

from recollect.config import Config
from recollect.gui.screen import Goal, Screen, Widget, WidgetKind
from recollect.tasks.family import HELD_OUT_SEED
from recollect.tasks.names import Split, split_of
from recollect.types import Task

LETTERS = "ACEHKLOTXZ"  # of labels
FEW = 3  # first letters of labels that are easily mixed up
GOALS: dict[str, WidgetKind] = {"press": "button", "tick": "box", "fill": "field", "pick": "list"}
LIGHTEST, DARKEST = 250, 150  # of a widget's colour, so that black letters can be read on it
SHADE = 10  # steps between colours
LINES, SHOWN = 4, 2  # of a list


@cache
def labels(split: Split) -> tuple[str, ...]:
    """All labels of one set."""
    spelt = (a + b for a in LETTERS for b in LETTERS)
    return tuple(label for label in spelt if split_of(label) == split)


@cache
def colours(split: Split) -> tuple[tuple[int, int, int], ...]:
    """All colours of one set."""
    shades = range(DARKEST, LIGHTEST + 1, SHADE)
    every = ((r, g, b) for r in shades for g in shades for b in shades)
    return tuple(c for c in every if split_of(f"{c[0]}-{c[1]}-{c[2]}") == split)


def draw_labels(rng: random.Random, split: Split, count: int) -> list[str]:
    """So many labels; in training every second time of few first letters, so that the second one counts."""
    every = labels(split)
    if split == "train" and rng.random() < 0.5:
        first = rng.sample(LETTERS, FEW)
        alike = [label for label in every if label[0] in first]
        every = tuple(alike) if len(alike) >= count else every
    return rng.sample(every, count)


def make_screen(rng: random.Random, split: Split, cfg: Config) -> Screen:
    """A screen with a goal."""
    shape = cfg.data.screen
    wanted = GOALS[rng.choice(shape.goals)]
    others = (wanted if rng.random() < shape.alike else GOALS[rng.choice(shape.goals)] for _ in range(shape.widgets))
    kinds = [wanted, *islice(others, rng.randint(1, shape.widgets - 1))]
    names = draw_labels(rng, split, len(kinds) + LINES + 1)
    widgets: list[Widget] = []
    free = {(r, c) for r in range(shape.rows) for c in range(shape.columns)}
    for kind in kinds:
        shown = SHOWN if kind == "list" else 1
        if kind == "list" and any(w.kind == "list" for w in widgets):
            continue  # one list on a screen
        places = sorted((r, c) for r, c in free if all((r + i, c) in free for i in range(shown)))
        if not places:
            continue
        row, column = rng.choice(places)
        free -= {(row + i, column) for i in range(shown)}
        lines = rng.sample(names[len(kinds) : len(kinds) + LINES], LINES) if kind == "list" else []
        label = names[len(widgets)]
        widgets.append(Widget(kind, label, row, column, rng.choice(colours(split)), lines=lines, shown=shown))
    first = widgets[0]
    text = {"field": names[-1], "list": rng.choice(first.lines) if first.lines else ""}.get(first.kind, "")
    goal = Goal(first.kind, first.label, text)
    rng.shuffle(widgets)
    return Screen(shape.rows, shape.columns, widgets, goal, rng.choice(colours(split)), shape.scale)


def instruction(goal: Goal) -> str:
    """What the agent is asked."""
    if goal.kind is None:
        return "Read"
    if goal.kind == "field":
        return f"Write {goal.text} into {goal.label}"
    if goal.kind == "list":
        return f"Pick {goal.text}"
    return f"{'Press' if goal.kind == 'button' else 'Tick'} {goal.label}"


def make_task(cfg: Config, seed: int, index: int, split: Split) -> Task:
    """Task number ``index`` of the endless stream that ``seed`` names."""
    screen = make_screen(random.Random(f"screen:{split}:{seed}:{index}"), split, cfg)
    fields: dict[str, Any] = {"screen": screen.row()}
    return Task(f"screen-{split}-{seed}-{index}", instruction(screen.goal), source="screen", fields=fields)


def train_task(cfg: Config, step: int, index: int) -> Task:
    """A training task."""
    return make_task(cfg, cfg.trainer.seed, index, "train")


def held_out_task(cfg: Config, multiple: int, index: int) -> Task:
    """A held-out task: none of its labels and colours occurs in training."""
    return make_task(cfg, HELD_OUT_SEED, index, "held_out")


def imitated_task(cfg: Config, update: int, index: int) -> Task:
    """A task that a clicker shows when it is imitated: a training task, or to read a screen aloud."""
    rng = random.Random(f"read:{cfg.trainer.seed}:{index}")
    if rng.random() >= cfg.data.screen.reading:
        return train_task(cfg, update, index)
    screen = make_screen(rng, "train", cfg)
    screen.goal = Goal(None, "")
    fields: dict[str, Any] = {"screen": screen.row()}
    return Task(f"read-{cfg.trainer.seed}-{index}", instruction(screen.goal), source="screen", fields=fields)
