"""LoRA through peft: adapters are put into a model in place, so it stays the transformers model that it was.

Everything that works with a plain model (engine, learner, head check) therefore works with an adapted one. An adapted
model's weights are read in two ways: with adapters, merged (`plain_weights`), and without, as the base
(`adapters_off`). A model without adapters passes through all of these functions unchanged.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from recollect.files.reading import read_json
from recollect.models.kind_check import sees
from recollect.models.vision import freeze_tower
from recollect.models.weights_check import check_finite
from recollect.types import BadInput

ADAPTER = "default"
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
PREFIX = "base_model.model."  # how peft's files write the model that an adapter is for
BASE = "base"  # a folder of this name beside an adapter's folder holds the model that it is for


def _peft() -> Any:
    try:
        import peft
    except ImportError:
        raise BadInput("LoRA needs peft, which is not installed; run: pip install 'recollect-rl[lora]'") from None
    return peft


def add_adapter(
    model: Any,
    rank: int,
    alpha: float,
    targets: Sequence[str],
    dropout: float,
    base: str,
    seed: int,
    tower: bool = False,
) -> Any:
    """Put a new adapter into a model and freeze everything else; it starts without effect.

    ``base`` is what the adapter's file will say it is for; empty: a folder beside it (see `BASE`). A vision tower gets
    one only if ``tower`` says so.
    """
    peft = _peft()
    every = list(targets) == ["all-linear"]
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=alpha,
        target_modules="all-linear" if every else list(targets),
        exclude_modules=r".*\bvisual\b.*" if sees(model.config) and not tower else None,
        lora_dropout=dropout,
        task_type="CAUSAL_LM" if model.get_output_embeddings() is not None else None,
    )
    _refuse_tied(model, [] if every else targets)
    model.requires_grad_(False)
    if not tower:
        freeze_tower(model)
    devices = [p.device for p in model.parameters() if p.device.type == "cuda"][:1]
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        try:
            peft.inject_adapter_in_model(config, model, ADAPTER)
        except ValueError as error:
            raise BadInput(f"target_modules={list(targets)}: {' '.join(str(error).split())}") from None
    model.peft_config[ADAPTER].base_model_name_or_path = base
    return model


def halve_base(model: nn.Module) -> None:
    """Keep what is not trained in bfloat16, half the memory; the adapter's weights stay float32."""
    for name, parameter in model.named_parameters():
        if not _is_adapter(name):
            parameter.data = parameter.data.to(torch.bfloat16)


def _refuse_tied(model: Any, targets: Sequence[str]) -> None:
    head, words = model.get_output_embeddings(), model.get_input_embeddings()
    if head is None or head.weight is not words.weight:
        return
    for name, module in model.named_modules():
        if module in (head, words) and any(name == t or name.endswith(f".{t}") for t in targets):
            raise BadInput(f"target_modules: {name} shares its weights with another module; it cannot have an adapter")


def is_adapted(model: Any) -> bool:
    """True for a model with an adapter inside."""
    return bool(getattr(model, "peft_config", None))


def _layers(model: nn.Module) -> Iterator[Any]:
    if is_adapted(model):
        from peft.tuners.tuners_utils import BaseTunerLayer

        yield from (m for m in model.modules() if isinstance(m, BaseTunerLayer))


@contextmanager
def adapters_off(model: nn.Module) -> Iterator[None]:
    """The base model: adapters have no effect."""
    layers = list(_layers(model))
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


@torch.no_grad()
def plain_weights(model: nn.Module, adapters: bool = True) -> Iterator[tuple[str, Tensor]]:
    """The names and weights of the plain model that computes what this one does (or its base), one at a time."""
    adapted = {id(layer.base_layer.weight): layer for layer in _layers(model)}
    for name, weight in model.named_parameters():
        if adapted and _is_adapter(name):
            continue
        layer = adapted.get(id(weight)) if adapters else None
        merged = weight if layer is None else weight + layer.get_delta_weight(ADAPTER)
        yield name.replace(".base_layer.", "."), merged


@torch.no_grad()
def copy_weights(model: nn.Module, plain: nn.Module, adapters: bool = True) -> None:
    """Give a plain model of the same shape, of any type and device, what a model (or its base) computes with."""
    fill_weights(plain, plain_weights(model, adapters))


@torch.no_grad()
def fill_weights(plain: nn.Module, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Copy weights into a plain model, of any type and device, every one of it by name."""
    theirs = dict(plain.named_parameters())
    for name, weight in weights:
        theirs.pop(name).copy_(weight)
    assert not theirs, f"weights without a source: {', '.join(theirs)}"


def plain_copy(model: Any, dtype: torch.dtype, adapters: bool = True) -> Any:
    """A model of its own in host memory without adapters inside: their effect is merged in, or left out."""
    if not is_adapted(model):
        return copy.deepcopy(model).to("cpu", dtype)
    plain = type(model)(model.config).float()
    plain.generation_config = model.generation_config
    copy_weights(model, plain, adapters)
    buffers = dict(plain.named_buffers())
    for name, buffer in model.named_buffers():
        buffers[name.replace(".base_layer.", ".")].copy_(buffer)
    return plain.to(dtype)


def _is_adapter(name: str) -> bool:
    return ".lora_" in name


def adapter_weights(model: nn.Module) -> dict[str, Tensor]:
    """An adapter's weights under the names of peft's files."""
    mine = ((n, p.detach()) for n, p in model.named_parameters() if _is_adapter(n))
    return {PREFIX + n.replace(f".{ADAPTER}", ""): p for n, p in mine}


def save_adapter(
    model: Any, folder: Path, base: str | None = None, weights: Mapping[str, Tensor] | None = None
) -> None:
    """Write an adapter in peft's own format; ``base`` replaces the name of the model that it is for.

    ``weights`` are the adapter's where the model holds only a part of them.
    """
    from safetensors.torch import save_file

    config = model.peft_config[ADAPTER].to_dict()
    config = {k: sorted(v) if isinstance(v, set) else v for k, v in config.items()}
    config |= {"inference_mode": True} | ({} if base is None else {"base_model_name_or_path": base})
    (folder / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True, default=str) + "\n")
    found = adapter_weights(model) if weights is None else weights
    save_file(
        {name: weight.cpu().contiguous() for name, weight in found.items()}, folder / WEIGHTS, metadata={"format": "pt"}
    )


@torch.no_grad()
def load_adapter(model: nn.Module, folder: Path) -> None:
    """Put a stored adapter's weights into a model that has an adapter of the same shape."""
    from safetensors.torch import load_file

    stored, mine = load_file(folder / WEIGHTS), adapter_weights(model)
    other = stored.keys() ^ mine.keys() or {n for n in mine if mine[n].shape != stored[n].shape}
    if other:
        raise ValueError(f"its adapter is for another model or of another shape ({min(other)})")
    check_finite(stored.items(), str(folder))
    for name, weight in mine.items():
        weight.copy_(stored[name])


def adapter_base(folder: str) -> str | None:
    """The model that the adapter in a folder is for; None where there is no adapter, or a whole model."""
    path = Path(folder).expanduser()
    if not (path / CONFIG).is_file() or (path / "config.json").is_file():
        return None
    if (path.parent / BASE / "config.json").is_file():
        return str(path.parent / BASE)
    found = read_json(path / CONFIG, what="configuration of an adapter")
    base = found.get("base_model_name_or_path") if isinstance(found, dict) else None
    if not isinstance(base, str) or not base:
        raise BadInput(f"{path / CONFIG} does not say which model the adapter is for (base_model_name_or_path)")
    return str(base)


def merge_adapter(model: Any, folder: str) -> Any:
    """The plain model that a base model and the adapter in a folder make together; all of it can be trained."""
    peft = _peft()
    merged = peft.PeftModel.from_pretrained(model, str(Path(folder).expanduser())).merge_and_unload()
    return merged.requires_grad_(True)
