"""Questions about lists for the agent `code`: "What is the largest of 47, 12, 83?", answered by a python program.

The expert runs the right function; the sloppy agent writes as well as it, but confuses the functions and sometimes
guesses.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from recollect.chat.writers import code
from recollect.config import Config
from recollect.tasks.names import Split, mistaken, numbers, roll
from recollect.types import Task, ToolCall

FUNCTIONS: dict[str, Callable[[list[int]], int]] = {"largest": max, "smallest": min, "total": sum}
LENGTHS = (3, 4)
DIGITS = 2
_QUESTION = re.compile(rf"What is the ({'|'.join(FUNCTIONS)}) of ([\d, ]+)\?")


def make_task(seed: int, index: int, split: Split) -> Task:
    """Task number ``index`` of the endless stream that ``seed`` names; its numbers belong to one set."""
    rng = random.Random(f"lists:{split}:{seed}:{index}")
    row, word = rng.sample(numbers(split, DIGITS), rng.choice(LENGTHS)), rng.choice(list(FUNCTIONS))
    asked = f"What is the {word} of {', '.join(map(str, row))}?"
    return Task(f"lists-{split}-{seed}-{index}", asked, answers=(str(FUNCTIONS[word](row)),), source="lists")


def train_task(cfg: Config, step: int, index: int) -> Task:
    """A training task."""
    return make_task(cfg.trainer.seed, index, "train")


def held_out_task(cfg: Config, multiple: int, index: int) -> Task:
    """A held-out task: none of its numbers occurs in training."""
    return make_task(7_777, index, "held_out")


def _program(function: str, row: str) -> str:
    return code([ToolCall("python_executor", {"code": f"print({function}([{row}]))"})])


def expert(prompt: str) -> str:
    """What a perfect agent replies: the program, then what it printed."""
    asked = _QUESTION.search(prompt)
    if asked is None:
        return "none"
    _, ran, printed = prompt[asked.end() :].rpartition("```")
    return printed.strip() if ran else _program(FUNCTIONS[asked[1]].__name__, asked[2])


def sloppy(prompt: str) -> str:
    """A player who confuses the functions, and in a quarter of the tasks names the first number instead."""
    asked = _QUESTION.search(prompt)
    if asked is None or "```" in prompt:
        return expert(prompt)
    if roll(f"guess {asked[0]}", 4) == 0:
        return asked[2].split(",")[0]
    return _program(mistaken(asked[0], FUNCTIONS[asked[1]], list(FUNCTIONS.values())).__name__, asked[2])
