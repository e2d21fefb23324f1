"""A small random model of the same kind as another: fewer and narrower layers, one of each type among them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch

from recollect.types import BadInput

VOCABULARY, WIDTH, INNER, EXPERTS, LAYERS, MOST_LAYERS = 128, 64, 64, 8, 4, 12
WINDOW = 8  # tokens that local layers look back, so that short rows are longer
LARGEST = 100_000_000  # parameters that are still small
_INNER = (
    *("intermediate_size", "moe_intermediate_size", "shared_intermediate_size", "ffn_hidden_size", "ffn_dim"),
    *("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "intermediate_size_mlp", "n_inner"),
)
_MOST = {
    **dict.fromkeys(_INNER, INNER),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), EXPERTS),
    **dict.fromkeys(("sliding_window", "attention_chunk_size", "local_attention", "attention_window_size"), WINDOW),
    **dict.fromkeys(("keep_window_size", "window_size"), WINDOW),
    **dict.fromkeys(("mamba_d_state", "ssm_state_size", "state_size", "mamba_chunk_size", "chunk_size"), 16),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 2),
    **dict.fromkeys(("num_experts_per_tok", "top_k_experts", "n_group"), 2),
    **dict.fromkeys(("topk_group", "first_k_dense_replace", "num_dense_layers", "n_shared_experts"), 1),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 32),
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), VOCABULARY),
}
_PERIODS = ("attn_layer_period", "expert_layer_period", "full_attention_interval", "sliding_window_pattern")


def token_shape(config: Any) -> tuple[int, int, int]:
    """Layers, key heads and their width as a configuration has them: about what a token's keys and values are."""
    config = config.get_text_config(decoder=True)
    heads = _number(config, "num_attention_heads")
    dim = _number(config, "head_dim") or (_number(config, "hidden_size") // heads if heads else 0)
    return _number(config, "num_hidden_layers"), _number(config, "num_key_value_heads") or heads, dim


def _number(config: Any, key: str) -> int:
    try:
        return int(getattr(config, key, None) or 0)
    except Exception:  # a configuration may have one for each layer, and refuses to name one
        return 0


def small_configs(config: Any) -> Iterator[Any]:
    """Configurations of small models of a kind, the smallest first; some kinds cannot be made narrower."""
    text = config.get_text_config(decoder=True)
    for make in (lambda: _limited(text) | _narrow(text), lambda: _limited(text), text.to_dict):
        try:
            yield type(text).from_dict(make())
        except Exception:  # a kind may not allow it
            continue


def small_model(config: Any, attention: str | None, seed: int = 0) -> Any:
    """A model in float32 with weights large enough for every part to matter; the same for the same seed."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        size = sum(p.numel() for p in AutoModelForCausalLM.from_config(copy.deepcopy(config)).parameters())
    if size > LARGEST:
        raise BadInput(f"{config.model_type}: its layers are too large to be tried at small size")
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(
            copy.deepcopy(config), attn_implementation=attention, dtype=torch.float32
        )
        for p in model.parameters():
            if p.ndim > 1:
                p.mul_(max(1.0, p.shape[-1] ** -0.5 / max(1e-6, float(p.std()))))
    return model.eval()


def _limited(text: Any) -> dict[str, Any]:
    """Values with fewer layers, ids and experts, and with short windows."""
    values, name = text.to_dict(), text.attribute_map.get("num_hidden_layers", "num_hidden_layers")
    layers = getattr(text, "num_hidden_layers", 0)
    for key, most in _MOST.items():
        key = text.attribute_map.get(key, key)
        if isinstance(values.get(key), int) and not isinstance(values[key], bool) and values[key] > most:
            values[key] = most
    for key, value in values.items():
        if key.endswith("_token_id"):
            values[key] = _inside(value, values.get("vocab_size", VOCABULARY))
    lists = {k: v for k, v in values.items() if isinstance(v, list) and len(v) == layers}
    count = max([LAYERS, *(_covering(v) for v in lists.values()), *(values.get(k) or 0 for k in _PERIODS)])
    return _shortened(values, name, layers, min(layers, count, MOST_LAYERS))


def with_layers(text: Any, most: int) -> dict[str, Any]:
    """The values of a configuration with at most so many layers, all else as it is."""
    layers = getattr(text, "num_hidden_layers", 0)
    name = text.attribute_map.get("num_hidden_layers", "num_hidden_layers")
    return _shortened(text.to_dict(), name, layers, min(layers, most))


def _shortened(values: dict[str, Any], name: str, layers: int, count: int) -> dict[str, Any]:
    """The first layers alone; what is a list over layers is cut."""
    lists = {k: v[:count] for k, v in values.items() if isinstance(v, list) and len(v) == layers}
    return values | ({name: count} if name in values else {}) | lists


def _inside(ids: Any, vocabulary: int) -> Any:
    if isinstance(ids, list):
        return [_inside(i, vocabulary) for i in ids]
    return 0 if isinstance(ids, int) and ids >= vocabulary else ids


def _covering(kinds: list[Any]) -> int:
    """How many of the first layers have one of each kind."""
    return 1 + max(kinds.index(kind) for kind in kinds)


def _narrow(text: Any) -> dict[str, Any]:
    """Fewer heads of the same width, and hidden states to match."""
    named = lambda key: text.attribute_map.get(key, key)
    heads, width = getattr(text, "num_attention_heads", None), getattr(text, "hidden_size", None)
    if not isinstance(width, int) or (heads or width // WIDTH) <= 4:
        return {}
    if heads is None:
        return _narrow_states(text)
    values, keys = text.to_dict(), getattr(text, "num_key_value_heads", None)
    explicit = isinstance(values.get("head_dim"), int) or "kv_lora_rank" in values
    made = {named("num_attention_heads"): 4, named("hidden_size"): WIDTH if explicit else 4 * (width // heads)}
    if isinstance(keys, int) and named("num_key_value_heads") in values:
        made[named("num_key_value_heads")] = 4 if keys == heads else min(keys, 2)
    inner = int(values.get("mamba_expand") or 2) * made[named("hidden_size")]
    if "mamba_n_heads" in values and "mamba_d_head" in values:
        made["mamba_n_heads"], made["mamba_n_groups"] = inner // values["mamba_d_head"], 1
        made |= {"mamba_d_ssm": inner} if values.get("mamba_d_ssm") else {}
    return made


def _narrow_states(text: Any) -> dict[str, Any]:
    """The same for models without attention."""
    values, width = text.to_dict(), 2 * WIDTH
    made = {k: width for k in ("hidden_size", "attention_hidden_size") if k in values}
    made |= {k: 2 * width for k in ("intermediate_size",) if values.get(k)}
    if "num_heads" in values and isinstance(values.get("head_dim"), int):
        made["num_heads"], made["n_groups"] = int(values.get("expand") or 2) * width // values["head_dim"], 1
    return made
