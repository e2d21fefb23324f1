"""Runs as models: which checkpoint is meant, and whether it is whole. Nothing is loaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from recollect.config import Config
from recollect.files.reading import MB, open_file, parse_json, read_json
from recollect.models.checksums import Damaged, verify_checksums
from recollect.models.program_file import is_program, read_program
from recollect.models.scratch_models import SCRATCH
from recollect.runtime.error_text import listed
from recollect.types import BadInput

EMBEDDED = "tiny"  # the name of the embedded model wherever a path is expected
SMOLLM2 = "smollm2"  # the name of the model of models/smollm2.py; a model folder of this name goes before it
CHECKPOINTS, EXPORTED = "checkpoints", "model"  # folders of a run: what it saved on the way, and what `sft` leaves
KINDS = ("step", "sft")  # of checkpoints: those of RL go before those of the warm start
MOST_HEADER = 100 * MB  # of a file of weights
WEIGHTS = (".safetensors", ".bin")


def names(folder: Path, kind: str) -> list[str]:
    """Checkpoints of one kind (``step`` or ``sft``), oldest first."""
    pattern = re.compile(rf"{kind}-(\d+)$")
    found = [(int(m.group(1)), p.name) for p in folder.glob(f"{kind}-*") if (m := pattern.match(p.name))]
    return [name for _, name in sorted(found)]


def find_checkpoint(name: str) -> tuple[str, Path | None]:
    """The model folder behind a name (of a run: its newest checkpoint), and the run that it belongs to, if any."""
    if not name.strip():
        raise BadInput("the checkpoint's name is empty; name a run, a checkpoint, a model folder, a GGUF file or tiny")
    if is_program(name):
        program = read_program(name)
        return str(program.merged), program.run
    path = Path(name).expanduser()
    if name == EMBEDDED or name in SCRATCH or not path.is_dir():
        return name, None
    if path.name == CHECKPOINTS and (path.parent / "config.yaml").is_file():
        path = path.parent
    if path.parent.name == CHECKPOINTS and (path.parent.parent / "config.yaml").is_file():
        if wrong := problem(path):
            raise BadInput(f"{name} is not a whole checkpoint: {wrong}")
        return str(path), path.parent.parent
    if is_model(path):
        return name, None
    if (path / CHECKPOINTS).is_dir() or (path / EXPORTED).is_dir():
        return str(_newest(path, name)), path
    if inside := sorted(p.parent.name for p in path.glob("*/config.yaml")):
        raise BadInput(f"{name} holds several runs; name one of them: {listed(inside)}")
    if (path / "config.yaml").is_file():
        raise BadInput(f"{name} is a run without a checkpoint yet")
    return name, None


def _newest(run: Path, name: str) -> Path:
    """The newest whole checkpoint of a run, or the model that supervised training left."""
    folder, wrong = run / CHECKPOINTS, ""
    kept = [folder / found for kind in KINDS for found in reversed(names(folder, kind))]
    exported = [run / EXPORTED] if (run / EXPORTED).is_dir() else []
    steps = [path for path in kept if path.name.startswith(KINDS[0])]
    for path in [*steps, *exported, *(path for path in kept if path not in steps)]:
        if not (found := problem(path)):
            return path
        wrong = wrong or f"{path.name} is not whole: {found}"
    raise BadInput(f"{name} is a run without a checkpoint " + (f"that can be read ({wrong})" if wrong else "yet"))


def problem(folder: Path) -> str:
    """What a model folder lacks; empty for one that is whole."""
    if not is_model(folder):
        return "it has no config.json"
    for index in folder.glob("*.index.json"):
        try:
            shards = {str(shard) for shard in read_json(index, MOST_HEADER)["weight_map"].values()}
        except (BadInput, KeyError, AttributeError, TypeError):
            return f"{index.name} is damaged"
        if missing := sorted(shard for shard in shards if not (folder / shard).is_file()):
            return f"{missing[0]} is missing"
    weights = [path for path in folder.iterdir() if path.suffix in WEIGHTS]
    if not weights:
        return "it holds no weights"
    return next((f"{path.name} is cut off or damaged" for path in weights if _cut_off(path)), "")


def damage(folder: Path) -> str:
    """What is wrong with a checkpoint, every byte of it compared with what was written; empty for one that is whole."""
    try:
        verify_checksums(folder)
    except (Damaged, OSError) as error:
        return str(error)
    return problem(folder)


def is_model(folder: Path) -> bool:
    """True for a folder with a model or an adapter in it."""
    return any((folder / name).is_file() for name in ("config.json", "adapter_config.json"))


def _cut_off(path: Path) -> bool:
    """True for a file of weights that ends before its last tensor does, or does not say where that is."""
    if path.suffix != ".safetensors":
        return path.stat().st_size == 0
    return tensors_of(path) is None


def tensors_of(path: Path) -> dict[str, Any] | None:
    """Name → dtype, shape and place of the tensors in a .safetensors file; None for one that is cut off or damaged."""
    try:
        size = path.stat().st_size
        with open_file(path) as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 + length or length > MOST_HEADER:
                return None
            header = parse_json(file.read(length), str(path))
        found = {name: about for name, about in header.items() if name != "__metadata__"}
        if size < 8 + length + max((int(about["data_offsets"][1]) for about in found.values()), default=0):
            return None
        return found if all(type(s) is int for about in found.values() for s in about["shape"]) else None
    except (BadInput, OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def pin_models(cfg: Config, say: Callable[[str], None] = lambda text: None) -> None:
    """Replace every run that the settings name by the checkpoint that is meant, and say which it is.

    So a resumed run starts from the same weights, whatever the other run does meanwhile.
    """
    for key, found in [*_models(cfg), *_roles(cfg)]:
        say(f"{key} is {found}")


def _models(cfg: Config) -> Iterator[tuple[str, str]]:
    model, critic = cfg.actor_rollout_ref.model, cfg.critic.model
    given = model.path
    model.path = find_checkpoint(given)[0]
    if cfg.agent.model_name_or_path == given:
        cfg.agent.model_name_or_path = model.path
    if model.path != given:
        yield f"actor_rollout_ref.model.path={given}", model.path
    if critic.path:
        own, critic.path = critic.path, find_checkpoint(str(critic.path))[0]
        if critic.path != own and own != given:
            yield f"critic.model.path={own}", critic.path


def _roles(cfg: Config) -> Iterator[tuple[str, str]]:
    for role, text in list(cfg.roles.items()):
        kind, _, where = text.partition(":")
        if kind not in ("frozen", "serve") or (found := find_checkpoint(where)[0]) == where:
            continue
        cfg.roles[role] = f"{kind}:{found}"
        yield f"roles.{role}={text}", found
