"""Check a model's configuration against its weights: one that claims far more than they hold takes hours to build."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from recollect.files.reading import read_json
from recollect.models.checkpoints import tensors_of
from recollect.types import BadInput

COUNTS = ("num_hidden_layers", "num_layers", "n_layer")  # each needs tensors of its own
SIZES = (  # each is a dimension of some tensor, or less
    *("vocab_size", "hidden_size", "intermediate_size", "moe_intermediate_size", "head_dim", "n_embd", "n_inner"),
    *("num_attention_heads", "num_key_value_heads", "n_head"),
)
MASKS = ("BOOL", "U8", "I64")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")  # of models without any, a number that means nothing


def refuse_implausible(folder: Path) -> None:
    """Refuse a config.json that claims more than the weights beside it hold; without weights nothing is checked."""
    if not (folder / "config.json").is_file():
        return
    config = read_json(folder / "config.json", what="configuration of a model")
    if (key := _not_finite(config)) is not None:
        raise BadInput(f"{folder / 'config.json'}: {key} is not a finite number")
    named = [item for path in folder.glob("*.safetensors") for item in (tensors_of(path) or {}).items()]
    for name, about in named:
        if _is_no_weight(name, str(about.get("dtype"))):
            raise BadInput(f"{folder}: the tensor {name} is of the type {about['dtype']}; weights are floating-point")
    tensors = [about for _, about in named]
    if not tensors:
        return
    largest = max((size for about in tensors for size in about["shape"]), default=1)
    weights = sum(math.prod(about["shape"]) for about in tensors)
    for names, most in ((COUNTS, len(tensors)), (SIZES, max(len(tensors), largest)), (EXPERTS, weights)):
        for name in names:
            if isinstance(value := config.get(name), int | float) and value > most:
                raise BadInput(f"{folder / 'config.json'} says {name}={value}, and the weights have at most {most}")


def _is_no_weight(name: str, dtype: str) -> bool:
    """True for a type that no weight has; masks and positions of older models are whole numbers, under other names."""
    return not dtype.startswith(("F", "BF")) and (dtype not in MASKS or name.endswith(".weight"))


def _not_finite(value: Any, key: str = "") -> str | None:
    """The name of a number that is NaN, or infinite outside of a list, where it is the end of a range."""
    if isinstance(value, dict):
        inner = (_not_finite(v, f"{key}.{k}" if key else str(k)) for k, v in value.items())
        return next((found for found in inner if found is not None), None)
    for number in value if isinstance(value, list) else [value]:
        if isinstance(number, float) and (math.isnan(number) or (math.isinf(number) and number is value)):
            return key
    return None
