"""Tasks: files and made-up ones."""

from __future__ import annotations

from dataclasses import dataclass, field

from recollect.config.schema.bounds import (
    choice,
    filled,
    from_minus_one,
    limited,
    must,
    not_negative,
    positive,
    positive_by_any_name,
    share,
)
from recollect.registries import FAMILIES


@dataclass
class Needle:
    """The made-up documents of the recipe `needle` (used when data.train_files is empty)."""

    chunks: int = positive(4)  # document length of training tasks, in sections
    facts_per_chunk: int = 6  # facts in a section
    hops: int = must(1, lambda n: n in (1, 2), " must be 1 or 2")  # facts needed: 1, or 2 chained
    similar: float = share(0.35)  # share of training distractors one syllable away from the needed name
    val_similar: float = share(0.15)  # the same share in held-out documents
    start_chunks: int = positive(4)  # documents grow from this many sections …
    grow_steps: int = 0  # … to `chunks` over this many steps (0: no curriculum)
    # first updates of sft.data=skill that are look-up exercises, for models made from nothing
    drill: int = not_negative(0)
    recall: float = share(0.0)  # share of the skill teacher's examples that repeat a whole section in another order
    chained: float = share(0.25)  # share of the skill teacher's other examples about two chained facts
    memory_first: float = share(0.2)  # share of the skill teacher's examples in the layout memory_first


@dataclass
class Ledger:
    """The made-up account books of the recipe `ledger` (data.made_up=ledger)."""

    sessions: int = positive(4)  # dated sessions of a training task
    entries: int = positive(1)  # entries of a session after the first, which opens all accounts
    accounts: int = must(3, lambda n: n >= 2, ": a book has at least 2")  # most accounts of a book
    questions: int = positive(4)  # questions about it
    # share of questions about several accounts: who holds more, what is the sum, how many are there
    hard: float = share(0.3)
    early: float = share(0.25)  # share of questions that are asked after an earlier session


SCREEN_CELL = 16  # pixels of a cell's side on a made-up screen of scale 1


def _screen_goals(goals: list[str]) -> bool:
    return bool(goals) and set(goals) <= {"press", "tick", "fill", "pick"}


@dataclass
class ScreenTasks:
    """The made-up screens of the agent `gui` (data.made_up=screen)."""

    rows: int = must(4, lambda n: 2 <= n <= 60, " must be between 2 and 60")  # cells from top to bottom
    columns: int = must(4, lambda n: 2 <= n <= 60, " must be between 2 and 60")  # cells from left to right
    widgets: int = must(4, lambda n: 2 <= n <= 32, " must be between 2 and 32")  # at most; each has a label of its own
    alike: float = share(0.0)  # share of the other widgets that are of the asked kind whatever goals says
    # what is asked: press a button, tick a box, fill a field, pick a line of a list
    goals: list[str] = must(["press", "tick", "fill"], _screen_goals, " must be among press, tick, fill and pick")
    # share of the tasks of sft.data=expert in which the clicker reads a screen aloud, for models made from nothing
    reading: float = share(0.0)
    scale: int = must(1, lambda n: 1 <= n <= 16, " must be between 1 and 16")  # a cell has 16 × 16 pixels times this


def _samples_rule(key: str, value: int) -> str:
    if value == 0:
        return f"{key}=0 leaves nothing to train on; -1 takes all"
    return "" if value >= -1 else f"{key}={value} must be -1 or more"


@dataclass
class Data:
    """Tasks."""

    train_files: list[str] = field(default_factory=list)  # json, jsonl, parquet, trajectories; empty: made-up documents
    val_files: list[str] = field(default_factory=list)  # held-out tasks; empty with made-up documents: made up too
    min_reward: float | None = None  # train_files are trajectories: take tasks whose best attempt reached this reward
    offline_files: list[str] = field(default_factory=list)  # trajectories to learn from in one epoch, without sampling
    made_up: str = choice(of=FAMILIES, default="needle")  # the made-up tasks that a run without train_files takes
    train_batch_size: int = positive(16)  # tasks per step
    # training tasks, drawn by data.seed (data.shuffle=False: the first ones); -1: all
    train_max_samples: int = limited(-1, _samples_rule)
    val_batch_size: int | None = positive(None)  # validation tasks attempted side by side; default: all of them
    # validation tasks; -1: all of the files, or evaluation.tasks made-up ones (else 256)
    val_max_samples: int = from_minus_one(-1)
    prompt_key: str = filled("question", "name the field")  # field with the question; its default also finds `prompt`
    context_key: str = filled("context", "name the field")  # field with the document
    answer_key: str = filled("answer", "name the field")  # field with the accepted answer or answers
    shuffle: bool = True  # new seeded order each epoch
    seed: int | None = not_negative(None)  # of the order of tasks, and of train_max_samples; default trainer.seed
    # longest first prompt, in tokens; recurrent agents have limits of their own
    max_prompt_length: int = positive(8192)
    filter_overlong_prompts: bool = False  # leave out training tasks with a longer prompt
    # a longer prompt otherwise is an error, or is cut on that side (center is also called middle)
    truncation: str = choice("error", "left", "right", "center")
    # longest completion outside the recurrent agent
    max_response_length: int = positive_by_any_name(
        1024, "agent.max_tokens_per_turn", "actor_rollout_ref.rollout.response_length"
    )
    needle: Needle = field(default_factory=Needle)
    ledger: Ledger = field(default_factory=Ledger)
    screen: ScreenTasks = field(default_factory=ScreenTasks)
