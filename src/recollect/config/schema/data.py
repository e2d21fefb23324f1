"""Tasks: files and made-up ones."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Needle:
    """The made-up documents of the recipe `needle` (used when data.train_files is empty)."""

    chunks: int = 4  # document length of training tasks, in sections
    facts_per_chunk: int = 6  # facts in a section
    hops: int = 1  # facts needed: 1, or 2 chained
    similar: float = 0.35  # share of training distractors one syllable away from the needed name
    val_similar: float = 0.15  # the same share in held-out documents
    start_chunks: int = 4  # documents grow from this many sections …
    grow_steps: int = 0  # … to `chunks` over this many steps (0: no curriculum)
    drill: int = 0  # first updates of sft.data=skill that are look-up exercises, for models made from nothing
    recall: float = 0.0  # share of the skill teacher's examples that repeat a whole section in another order
    chained: float = 0.25  # share of the skill teacher's other examples about two chained facts
    memory_first: float = 0.2  # share of the skill teacher's examples in the layout memory_first


@dataclass
class Ledger:
    """The made-up account books of the recipe `ledger` (data.made_up=ledger)."""

    sessions: int = 4  # dated sessions of a training task
    entries: int = 1  # entries of a session after the first, which opens all accounts
    accounts: int = 3  # most accounts of a book; it has at least 2
    questions: int = 4  # questions about it
    hard: float = 0.3  # share of questions about several accounts: who holds more, what is the sum, how many are there
    early: float = 0.25  # share of questions that are asked after an earlier session


@dataclass
class Data:
    """Tasks."""

    train_files: list[str] = field(default_factory=list)  # json, jsonl, parquet, trajectories; empty: made-up documents
    val_files: list[str] = field(default_factory=list)  # held-out tasks; empty with made-up documents: made up too
    min_reward: float | None = None  # train_files are trajectories: take tasks whose best attempt reached this reward
    offline_files: list[str] = field(default_factory=list)  # trajectories to learn from in one epoch, without sampling
    made_up: str = "needle"  # the made-up tasks that a run without train_files takes
    train_batch_size: int = 16  # tasks per step
    train_max_samples: int = -1  # training tasks, drawn by data.seed (data.shuffle=False: the first ones); -1: all
    val_batch_size: int | None = None  # validation tasks attempted side by side; default: all of them
    val_max_samples: int = -1  # validation tasks; -1: all of the files, or evaluation.tasks made-up ones (else 256)
    prompt_key: str = "question"  # field with the question; its default also finds `prompt`
    context_key: str = "context"  # field with the document
    answer_key: str = "answer"  # field with the accepted answer or answers
    shuffle: bool = True  # new seeded order each epoch
    seed: int | None = None  # of the order of tasks, and of train_max_samples; default trainer.seed
    max_prompt_length: int = 8192  # longest first prompt, in tokens; recurrent agents have limits of their own
    filter_overlong_prompts: bool = False  # leave out training tasks with a longer prompt
    truncation: str = "error"  # a longer prompt otherwise: error, or cut on the left, right or in the center (middle)
    max_response_length: int = 1024  # longest completion outside the recurrent agent
    needle: Needle = field(default_factory=Needle)
    ledger: Ledger = field(default_factory=Ledger)
