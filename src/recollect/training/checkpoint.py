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

import torch

from recollect.files.output import unwritten, writing
from recollect.models.checkpoints import names
from recollect.models.checksums import verify_checksums, write_checksums
from recollect.models.lora import ADAPTER, BASE, is_adapted, plain_copy
from recollect.runs.directory import remove_tree
from recollect.training.learner.critic import Critic
from recollect.training.learner.learner import Learner
from recollect.training.learner.weight_files import read_weights, write_weights
from recollect.types import BadInput

STATE = "trainer_state.json"
OPTIMIZER = "optimizer.pt"
CRITIC = "critic"
NEEDED = "metrics_size", "batches", "held_out", "trained_tokens"  # in the state of a checkpoint of RL


def save(
    folder: Path,
    name: str,
    learner: Learner,
    tokenizer: Any,
    state: dict[str, Any],
    critic: Critic | None = None,
) -> Path:
    """Write ``folder/name`` and return it. What a full disk left of it is removed."""
    final, temporary = folder / name, folder / f".{name}.writing"
    try:
        _write(temporary, final, learner, tokenizer, state, critic)
    except Exception as error:  # torch's own writer raises a RuntimeError for a full disk
        shutil.rmtree(temporary, ignore_errors=True)
        raise unwritten(final, error, "the checkpoint ") from error
    return final


def _write(
    temporary: Path, final: Path, learner: Learner, tokenizer: Any, state: dict[str, Any], critic: Critic | None
) -> None:
    base = _keep_base(final.parent, learner.model)
    remove_tree(temporary)
    temporary.mkdir(parents=True)
    whole = learner.model if learner.masters is None else learner.plain(torch.float32)
    write_weights(whole, temporary, base)
    tokenizer.save_pretrained(temporary)
    torch.save(learner.state(), temporary / OPTIMIZER)
    if critic is not None:
        (temporary / CRITIC).mkdir()
        critic.save_weights(temporary / CRITIC)
        torch.save(critic.learner.state(), temporary / CRITIC / OPTIMIZER)
    (temporary / STATE).write_text(json.dumps(state))
    write_checksums(temporary)
    _replace(temporary, final)


def _keep_base(folder: Path, model: Any) -> str | None:
    """Store the model under an adapter if it cannot be loaded from elsewhere; returns where it is then."""
    if not is_adapted(model) or model.peft_config[ADAPTER].base_model_name_or_path:
        return None
    if not (folder / BASE).is_dir():
        temporary = folder / f".{BASE}.writing"
        remove_tree(temporary)
        plain_copy(model, torch.float32, adapters=False).save_pretrained(temporary)
        _replace(temporary, folder / BASE)
    return str((folder / BASE).absolute())


def _replace(temporary: Path, final: Path) -> None:
    for path in temporary.rglob("*"):
        _sync(path)
    _sync(temporary)
    remove_tree(final)
    os.replace(temporary, final)
    _sync(final.parent)


def prune(folder: Path, kind: str, keep: int | None, spare: tuple[str, ...] = ()) -> None:
    """Delete all but the newest ``keep`` checkpoints of a kind (None: none), and those to spare."""
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
    critic: Critic | None = None,
    needed: Sequence[str] = (),
) -> dict[str, Any] | None:
    """Put the newest readable checkpoint into the learner and return its state, which has the ``needed`` keys.

    None when there is none.
    """
    for name in reversed(names(folder, kind)):
        try:
            return load(folder / name, learner, critic, needed)
        except Exception as error:
            warn(f"checkpoint {name} cannot be read ({type(error).__name__}: {error}); trying the one before")
    return None


def load(path: Path, learner: Learner, critic: Critic | None = None, needed: Sequence[str] = ()) -> dict[str, Any]:
    """Put one checkpoint into the learner, and the critic if there is one, and return its state."""
    verify_checksums(path)
    state = checked_state(path, needed)
    saved = torch.load(path / OPTIMIZER, weights_only=True, map_location=learner.device)
    load_weights(path, learner)
    learner.load_state(saved)
    if critic is not None:
        saved = torch.load(path / CRITIC / OPTIMIZER, weights_only=True, map_location=learner.device)
        critic.load_weights(path / CRITIC)
        critic.learner.load_state(saved)
    return state


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


def load_weights(path: Path, learner: Learner) -> None:
    """Put a checkpoint's weights into a learner's model."""
    read_weights(path, learner.model, learner.masters)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def link(source: Path, target: Path) -> None:
    """Give a checkpoint a second name that outlives the first: hard links, or copies where there can be none."""
    temporary = target.with_name(f".{target.name}.writing")
    remove_tree(temporary)
    try:
        with writing(target):
            _link_all(source, temporary)
            _replace(temporary, target)
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
