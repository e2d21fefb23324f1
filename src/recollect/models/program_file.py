"""A program: prompts, settings of the memory, and where the weights are. `eval`, `ask` and `serve` take it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.files.output import write_atomic
from recollect.files.reading import MB, read_json
from recollect.types import BadInput

KIND = "conversation_qa"


@dataclass(frozen=True)
class ProgramFile:
    """What a file of a program says. Its paths are absolute here, and relative to the file's folder in it."""

    merged: Path  # a plain model folder
    adapter: Path | None  # the LoRA adapter alone
    run: Path  # the run whose settings are meant
    prompts: Mapping[str, Any]  # as a file of agent.prompts has them
    memory: Mapping[str, Any]  # settings of the memory, for people; the run's own count


def is_program(name: str) -> bool:
    """True for the name of a JSON file."""
    return name.endswith(".json") and Path(name).expanduser().is_file()


def read_program(name: str) -> ProgramFile:
    """The program in a file whose weights are there."""
    path = Path(name).expanduser()
    found = read_json(path, 16 * MB, "program")
    weights = found.get("weights") if isinstance(found, Mapping) else None
    if not isinstance(weights, Mapping) or found.get("program") != KIND or not isinstance(found.get("run"), str):
        raise BadInput(f"{name} is no program: expected what `recollect locomo --mode train` wrote")
    place = lambda text: (path.parent / str(text)).resolve()
    merged, run = place(weights.get("merged")), place(found["run"])
    for what, folder, mark in (("merged weights", merged, "config.json"), ("run", run, "config.yaml")):
        if not (folder / mark).is_file():
            raise BadInput(f"{name}: its {what} are not at {folder}; train again, or put them there")
    adapter = weights.get("adapter")
    about = found.get("prompts") or {}, found.get("memory") or {}
    return ProgramFile(merged, None if adapter is None else place(adapter), run, *about)


def write_program(path: Path, program: ProgramFile) -> None:
    """Write a program; it replaces an earlier one."""
    folder = path.expanduser().resolve().parent
    inside = lambda place: None if place is None else os.path.relpath(place, folder)
    weights = {"merged": inside(program.merged), "adapter": inside(program.adapter)}
    row = {"program": KIND, "prompts": dict(program.prompts), "memory": dict(program.memory)}
    folder.mkdir(parents=True, exist_ok=True)
    whole = {**row, "weights": weights, "run": inside(program.run)}
    write_atomic(path.expanduser(), json.dumps(whole, indent=2, ensure_ascii=False) + "\n")


def program_settings(name: str | None, given: Sequence[Any]) -> list[Any]:
    """Settings, with the prompts of a program before them unless they name others."""
    own = is_program(name) if name else False
    if not own or any(str(word).startswith("agent.prompts=") for word in given):
        return list(given)
    return [f"agent.prompts={json.dumps(str(Path(str(name)).expanduser().resolve()))}", *given]
