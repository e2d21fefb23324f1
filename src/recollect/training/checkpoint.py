"""Checkpoints: plain Hugging Face folders that transformers and vLLM load, with the trainer's state beside.

With LoRA the folder holds the adapter as peft writes it. A model that was made for this run, and is nowhere else to
load from, is stored once as ``base``. A critic has a folder of its own inside.

A checkpoint is written next to its place, synced and renamed in; one that cannot be read is passed over for the one
before it, saying so.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from recollect.chat import Renderer
from recollect.files.output import unwritten, writing
from recollect.models.checkpoints import names
from recollect.models.checksums import CHECKED, STATE, file_names, verify_checksums, write_checksums
from recollect.runs.directory import remove_tree, replace_tree
from recollect.runtime.error_text import named_error, shortened
from recollect.training.learner.learner import Learner, ValueLearner
from recollect.types import BadInput

CRITIC = "critic"
NEEDED = "metrics_size", "batches", "held_out", "trained_tokens"  # in the state of a checkpoint of RL


def save(
    folder: Path,
    name: str,
    learner: Learner,
    renderer: Renderer,
    state: dict[str, Any],
    critic: ValueLearner | None = None,
    more: Callable[[Path], None] = lambda folder: None,
) -> Path:
    """Write ``folder/name`` and return it; ``more`` writes what else belongs into it.

    What a full disk left of it is removed.
    """
    final, temporary = folder / name, folder / f".{name}.writing"
    try:
        _write(temporary, final, learner, renderer, state, critic, more)
    except Exception as error:  # torch's own writer raises a RuntimeError for a full disk
        shutil.rmtree(temporary, ignore_errors=True)
        raise unwritten(final, error, "the checkpoint ") from error
    learner.keep(final)
    return final


def _write(
    temporary: Path,
    final: Path,
    learner: Learner,
    renderer: Renderer,
    state: dict[str, Any],
    critic: ValueLearner | None,
    more: Callable[[Path], None],
) -> None:
    remove_tree(temporary)
    temporary.mkdir(parents=True)
    learner.save(temporary, final.parent)
    renderer.save(temporary)
    if critic is not None:
        (temporary / CRITIC).mkdir()
        critic.save(temporary / CRITIC)
    more(temporary)
    (temporary / STATE).write_text(json.dumps({**state, CHECKED: [*file_names(temporary), STATE]}))
    write_checksums(temporary)
    replace_tree(temporary, final)


def prune(folder: Path, kind: str, keep: int | None, spare: tuple[str, ...] = ()) -> None:
    """Delete all checkpoints of a kind except the newest ``keep`` (None: delete none) and those to spare."""
    found = names(folder, kind) if keep is not None else []
    keep = keep or 0
    for name in found[: max(0, len(found) - keep)]:
        if name not in spare:
            remove_tree(folder / name)


def drop_after(folder: Path, step: int) -> None:
    """Delete the checkpoints of later steps."""
    for name in names(folder, "step"):
        if int(name.removeprefix("step-")) > step:
            remove_tree(folder / name)


def load_newest(
    folder: Path,
    kind: str,
    learner: Learner,
    warn: Callable[[str], None],
    critic: ValueLearner | None = None,
    needed: Sequence[str] = (),
) -> dict[str, Any] | None:
    """Put the newest readable checkpoint into the learner and return its state, which has the ``needed`` keys.

    None when there is none.
    """
    for name in reversed(names(folder, kind)):
        try:
            return load(folder / name, learner, critic, needed)
        except Exception as error:
            warn(f"checkpoint {name} cannot be read ({shortened(named_error(error))}); trying the one before")
    return None


def load(
    path: Path, learner: Learner, critic: ValueLearner | None = None, needed: Sequence[str] = ()
) -> dict[str, Any]:
    """Put one checkpoint into the learner, and the critic if there is one, and return its state."""
    verify_checksums(path)
    state = checked_state(path, needed)
    learner.load(path)
    if critic is not None:
        critic.load(path / CRITIC)
    return {key: value for key, value in state.items() if key != CHECKED}


def checked_state(path: Path, needed: Sequence[str] = ()) -> dict[str, Any]:
    """The state in a checkpoint, if it can be that of this checkpoint and has the ``needed`` keys."""
    state = json.loads((path / STATE).read_text())
    if not isinstance(state, dict) or type(state.get("step")) is not int or state["step"] < 0:
        raise ValueError(f"{path / STATE} is not the state of a checkpoint")
    if missing := [name for name in needed if name not in state]:
        raise ValueError(f"{path / STATE} has no {missing[0]}")
    named = re.fullmatch(r"(?:step|sft)-(\d+)", path.name)
    if named and int(named[1]) != state["step"]:
        raise ValueError(f"{path / STATE} is of step {state['step']}, not of {path.name}")
    return state


def link(source: Path, target: Path) -> None:
    """Give a checkpoint a second name that outlives the first: hard links, or copies where there can be none."""
    temporary = target.with_name(f".{target.name}.writing")
    remove_tree(temporary)
    try:
        with writing(target):
            _link_all(source, temporary)
            replace_tree(temporary, target)
    except BadInput:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _link_all(source: Path, temporary: Path) -> None:
    temporary.mkdir(parents=True)
    for path in sorted(source.rglob("*")):
        copy = temporary / path.relative_to(source)
        if path.is_dir():
            copy.mkdir()
            continue
        try:
            os.link(path, copy)
        except OSError:
            shutil.copyfile(path, copy)


def read_state(path: Path) -> dict[str, Any]:
    """What a checkpoint says about its run; empty when it cannot be read."""
    try:
        return dict(json.loads((path / STATE).read_text()))
    except (OSError, ValueError):
        return {}
