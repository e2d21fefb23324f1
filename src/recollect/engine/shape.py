"""What a model's layers ask of our attention, found by asking: what they keep of a token, and that all of them ask."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn

from recollect.models.attention import RecordingPlan, is_ours, using
from recollect.models.text_config import text_config
from recollect.models.vision import text_body
from recollect.types import BadInput


class AttentionShape(NamedTuple):
    """What a model keeps of every token."""

    layers: int
    heads: int  # of keys and values
    dim: int
    queries: int  # heads that ask

    @property
    def cached(self) -> tuple[int, int, int]:
        """Layers, key heads and their width."""
        return self[:3]


def attention_shape(model: Any) -> AttentionShape:
    """The shape of a model whose every layer attends by way of our plans, once; any other is refused."""
    known = vars(model).get("recollect_shape")
    if known is None:
        known = model.recollect_shape = _measured(model)
    return known


@torch.no_grad()
def _measured(model: Any) -> AttentionShape:
    require_ours(model)
    seen, ids = RecordingPlan(2), torch.tensor([[1, 2]], device=next(model.parameters()).device)
    training = model.training
    with using(seen):
        model.eval()(input_ids=ids, position_ids=torch.arange(2, device=ids.device)[None], use_cache=False)
    model.train(training)
    asked, layers = [layer for layer, _ in seen.calls], layers_of(model)
    for number in range(len(layers) or int(text_config(model).num_hidden_layers)):
        if asked.count(number) != 1:
            how = "does not attend" if number not in asked else "attends several times"
            raise BadInput(f"{layer_name(model, number)} {how} by way of recollect's attention")
    queries, keys = ([tuple(x.shape) for x in seen.inputs[i::3]] for i in (0, 1))
    odd = [i for i in asked if keys[i] != keys[0] or queries[i] != queries[0]]
    if odd:
        raise BadInput(f"{layer_name(model, odd[0])} has heads of another shape than the layers before it")
    return AttentionShape(len(asked), keys[0][0], keys[0][2], queries[0][0])


def require_ours(model: Any) -> None:
    """Refuse a model that attends in the library's way, where a plan would have no effect."""
    if not is_ours(model):
        raise BadInput(
            f"this {model.config.model_type} model was not loaded with recollect's attention; load it with "
            "recollect.engine.load_fitted, or pass attn_implementation=recollect.models.attention.register()"
        )


def layers_of(model: Any) -> list[nn.Module]:
    """A model's layers, in order; empty where they are not in one list."""
    count = getattr(text_config(model), "num_hidden_layers", 0)
    found = [m for m in text_body(model).modules() if isinstance(m, nn.ModuleList) and len(m) == count]
    return list(found[0]) if found else []


def layer_name(model: Any, number: int) -> str:
    """A layer for people: its number, and the kind of what mixes tokens in it."""
    layers = layers_of(model)
    if number >= len(layers):
        return f"layer {number}"
    kinds = [type(m).__name__ for m in layers[number].children()]
    mixing = [k for k in kinds if not k.lower().endswith(("norm", "mlp", "moe", "moeblock", "dropout", "experts"))]
    return f"layer {number} ({(mixing or [type(layers[number]).__name__])[0]})"
