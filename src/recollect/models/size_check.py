"""Check a model's configuration against its weights: one that claims far more than they hold takes hours to build."""

from __future__ import annotations

import math
from pathlib import Path

from recollect.files.reading import read_json
from recollect.models.checkpoints import tensors_of
from recollect.types import BadInput

COUNTS = ("num_hidden_layers", "num_layers", "n_layer")  # each needs tensors of its own
SIZES = (  # each is a dimension of some tensor, or less
    *("vocab_size", "hidden_size", "intermediate_size", "moe_intermediate_size", "head_dim", "n_embd", "n_inner"),
    *("num_attention_heads", "num_key_value_heads", "n_head"),
)
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")  # of models without any, a number that means nothing


def refuse_implausible(folder: Path) -> None:
    """Refuse a config.json that claims more than the weights beside it hold; without weights nothing is checked."""
    if not (folder / "config.json").is_file():
        return
    config = read_json(folder / "config.json", what="configuration of a model")
    tensors = [about for path in folder.glob("*.safetensors") for about in (tensors_of(path) or {}).values()]
    if not tensors:
        return
    largest = max((size for about in tensors for size in about["shape"]), default=1)
    weights = sum(math.prod(about["shape"]) for about in tensors)
    for names, most in ((COUNTS, len(tensors)), (SIZES, max(len(tensors), largest)), (EXPERTS, weights)):
        for name in names:
            if isinstance(value := config.get(name), int | float) and value > most:
                raise BadInput(f"{folder / 'config.json'} says {name}={value}, and the weights have at most {most}")
