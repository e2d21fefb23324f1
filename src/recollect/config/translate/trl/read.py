"""From the keys of a file to settings of recollect; unsupported values are refused with a reason."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from recollect.config import Config
from recollect.config.translate.trl.keys import RL, RL_ALWAYS, SFT, Settings, TRLKey, Values
from recollect.runtime.error_text import listed
from recollect.types import BadInput

COMMANDS: Mapping[str, Sequence[TRLKey]] = {"sft": SFT, "train": RL}
OWN = {*(f.name for f in fields(Config)), "description", "variants", "stages", "end_to_end"}  # keys of a recipe
WHOLE = ("agents", "raw_glob", "sft_models_dir", "rl_models_dir", "unified_dir")  # only in training_config.yaml
UNFIT = "()[],*"  # cannot stand in an option of a reward


@dataclass(frozen=True)
class TRLSettings:
    """What a file says in recollect's keys, and what there is to say about it."""

    settings: Settings
    notes: tuple[str, ...] = ()


def is_trl(tree: Mapping[str, Any]) -> bool:
    """Whether a file has TRL's keys and none of a recipe."""
    names = {key.name for keys in COMMANDS.values() for key in keys}
    return bool(tree.keys() & names) and not tree.keys() & OWN


def names_of(command: str) -> set[str]:
    """The keys that a command may be given as options, too."""
    return {key.name for key in COMMANDS.get(command, ())}


def translate(command: str, tree: Mapping[str, Any], where: str, options: Mapping[str, Any]) -> TRLSettings:
    """The settings of a file with options over it; a key that neither names has VideoMultiAgents' own value."""
    keys = COMMANDS[command]
    given = {**checked(keys, tree, where), **checked(keys, options, "the command line")}
    values = {**defaults(keys), **given}
    found = dict(RL_ALWAYS) if command == "train" else {}
    for key in keys:
        if key.name in values:
            found |= key.settings(values)
    if "domain_weights" in tree:
        found["agent.reward_name"] = weighted(where)
    return TRLSettings({**found, **_files(command, given, values)}, tuple(_notes(keys, given)))


def options_alone(command: str, options: Mapping[str, Any]) -> Settings:
    """The settings of options without a file: nothing but what they name."""
    keys = COMMANDS[command]
    given = checked(keys, options, "the command line")
    values = {**defaults(keys), **given}
    found: Settings = {}
    for key in keys:
        found |= key.settings(values) if key.name in given else {}
    return {**found, **_files(command, given, values)}


def defaults(keys: Sequence[TRLKey]) -> Settings:
    """What keys mean that are left out."""
    return {key.name: key.default for key in keys if key.default is not None}


def weighted(file: str) -> str:
    """The reward of trajectories with the weights of a file."""
    if set(file) & set(UNFIT):
        raise BadInput(f"{file}: domain_weights are read from the file again; its path must not hold any of {UNFIT}")
    return f"trajectory(weights={file})"


def checked(keys: Sequence[TRLKey], given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values of a file, read; those that are null are left out."""
    known = {key.name: key for key in keys}
    found = {}
    for name, value in given.items():
        if name not in known:
            raise BadInput(f"{where}: {_unknown(name, known)}")
        if value is None or value == "null":
            continue
        try:
            found[name] = known[name].read(value)
        except ValueError as error:
            raise BadInput(f"{where}: {name}={value} has to be {error}") from None
        refuse = known[name].refuse
        if refuse is not None and (reason := refuse(found[name])):
            raise BadInput(f"{where}: {name}={value}: {reason}")
    return found


def _unknown(name: str, known: Mapping[str, TRLKey]) -> str:
    if name in WHOLE:
        return f"{name} is of a whole pipeline: `recollect pipeline FILE`"
    for command, keys in COMMANDS.items():
        if name in {key.name for key in keys}:
            return f"{name} is a key of `recollect {command}`, not of this command"
    near = difflib.get_close_matches(name, known, 1)
    return f"unknown key {name}" + (f"; did you mean {near[0]}?" if near else "; see docs/from-videomultiagents.md")


def _notes(keys: Sequence[TRLKey], given: Values) -> Iterator[str]:
    for key in keys:
        if key.name in given and not key.becomes and key.refuse is None:
            yield f"{key.name}={given[key.name]}: {key.how}"


def _files(command: str, given: Values, values: Values) -> Settings:
    """The data that the keys of `recollect sft` name: those of a tool, or whole conversations."""
    if command != "sft" or "data_root" not in given:
        return {}
    root, tool = Path(given["data_root"]).expanduser(), given.get("tool")
    if tool is None:
        return {"data.train_files": [given["data_root"]]}
    train, val = (root / tool / values[name] for name in ("train_file", "val_file"))
    if not train.is_file():
        there = sorted(p.parent.name for p in root.glob(f"*/{values['train_file']}"))
        raise BadInput(f"no data of the tool {tool} at {train}; {root} has {listed(there) or 'none'}")
    held_out = [str(val)] if val.is_file() and val.stat().st_size else []
    return {"data.train_files": [str(train)], "data.val_files": held_out}
