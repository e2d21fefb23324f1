"""Where the results of an evaluation go: those of another model, other data or other settings are never lost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recollect.config import Config
from recollect.eval.card import model_hash
from recollect.eval.items import deciding
from recollect.files.rows import expand
from recollect.samplers.checkpoint_roles import NamedModels, config_of
from recollect.types import BadInput

STAMP = "evaluation"  # the key under which results say what they are of


def stamp_of(cfg: Config, players: Mapping[str, str], more: Sequence[Any] = ()) -> str:
    """A digest of what is measured: settings, files and who plays, without the number of tasks or the place."""
    files = [str(Path(path).expanduser().absolute()) for path in expand(cfg.data.val_files)]
    who = {role: where if "://" in where else _absolute(where) for role, where in players.items()}
    text = json.dumps([deciding(cfg), files, sorted(who.items()), *more])
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()


def place_name(who: NamedModels) -> str:
    """The name of results within a run: the checkpoint's, and a mark for settings that differ from the run's."""
    first = who.cfg.evaluation.first
    parts = [Path(who.path or "roles").name, *sorted(who.roles), *([f"first-{first}"] if first else [])]
    if who.run is not None and (mine := stamp_of(who.cfg, who.players)) != _own_stamp(who, first):
        parts.append(mine)
    return "+".join(parts)


def _own_stamp(who: NamedModels, first: int) -> str:
    """The digest of an evaluation of the run with its own settings."""
    assert who.run is not None
    cfg = config_of(who.run, [])
    cfg.roles, cfg.evaluation.first = {}, first
    return stamp_of(cfg, {"*": who.path} if who.path else {})


def file_place(path: str, run: Path | None, data: Sequence[str], stamp: str) -> Path:
    """Where the results of a model on files go by default."""
    model = f"{run.resolve().name}-{Path(path).name}" if run is not None else Path(path).name
    return Path("runs") / "eval" / f"{model}-{Path(data[0]).stem}-{stamp}"


def file_stamp(cfg: Config, path: str, seeds: Sequence[int]) -> str:
    """A digest of a model's weights, its data files and the seeds."""
    return stamp_of(cfg, {"*": path}, [model_hash(path), list(seeds)])


def refuse_others(file: Path, stamp: str, model: str | None) -> None:
    """Refuse to overwrite results of another model, other data or other settings."""
    try:
        there = json.loads(file.read_text())
    except FileNotFoundError:
        return
    except (OSError, ValueError):
        raise BadInput(f"{file} is there and holds no results; name another --out") from None
    kept = there if isinstance(there, dict) else {}
    theirs = kept.get("model", kept.get("checkpoint"))
    if kept.get(STAMP) == stamp or (STAMP not in kept and theirs == model and theirs is not None):
        return
    what = f"the results of {theirs}" if theirs != model else "results of other data, settings or weights"
    raise BadInput(f"{file} holds {what}; name another --out, or move it away")


def _absolute(where: str) -> str:
    folder = Path(where).expanduser()
    return str(folder.resolve()) if folder.exists() else where
