"""Sums for the agent `hf` and the tool `calculator`: "What is 472 times 315?".

A scripted player reads the text of a prompt, in which the call and the tool's result follow the question. The expert
always calls the tool with the right sign; the sloppy agent confuses the signs, and sometimes guesses.
"""

from __future__ import annotations

import random
import re

from recollect.chat.writers import hermes
from recollect.config import Config
from recollect.tasks.names import Split, mistaken, numbers, roll
from recollect.types import Task, ToolCall

SIGNS = {"plus": "+", "minus": "-", "times": "*"}
DIGITS = 3
_QUESTION = re.compile(rf"What is (\d+) ({'|'.join(SIGNS)}) (\d+)\?")


def make_task(seed: int, index: int, split: Split) -> Task:
    """Task number ``index`` of the endless stream that ``seed`` names; its numbers belong to one set."""
    rng = random.Random(f"arithmetic:{split}:{seed}:{index}")
    a, b, word = rng.choice(numbers(split, DIGITS)), rng.choice(numbers(split, DIGITS)), rng.choice(list(SIGNS))
    value = {"+": a + b, "-": a - b, "*": a * b}[SIGNS[word]]
    return Task(
        f"arithmetic-{split}-{seed}-{index}", f"What is {a} {word} {b}?", answers=(str(value),), source="arithmetic"
    )


def train_task(cfg: Config, step: int, index: int) -> Task:
    """A training task."""
    return make_task(cfg.trainer.seed, index, "train")


def held_out_task(cfg: Config, multiple: int, index: int) -> Task:
    """A held-out task: neither of its numbers occurs in training."""
    return make_task(7_777, index, "held_out")


def _call(a: str, sign: str, b: str) -> str:
    return hermes([ToolCall("calculator", {"expression": f"{a}{sign}{b}"})]).replace("\n", "")


def expert(prompt: str) -> str:
    """What a perfect agent replies: the call, then what the tool said."""
    asked = _QUESTION.search(prompt)
    if asked is None:
        return "none"
    a, word, b = asked.groups()
    _, called, result = prompt[asked.end() :].rpartition("</tool_call>")
    return result.strip() if called else _call(a, SIGNS[word], b)


def sloppy(prompt: str) -> str:
    """A player with the right format who confuses the signs, and in a quarter of the tasks guesses a number instead."""
    asked = _QUESTION.search(prompt)
    if asked is None or "</tool_call>" in prompt:
        return expert(prompt)
    a, word, b = asked.groups()
    if roll(f"guess {asked[0]}", 4) == 0:
        return str(roll(asked[0], 1000))
    return _call(a, mistaken(asked[0], SIGNS[word], list(SIGNS.values())), b)
