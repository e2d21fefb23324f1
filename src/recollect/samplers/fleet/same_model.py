"""Whether a server computes the policy's model, as far as a configuration can say: weights are sent to it anyway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TELLING = (  # what makes a model another model
    *("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("intermediate_size", "vocab_size", "tie_word_embeddings"),
    *("hidden_act", "rms_norm_eps", "layer_norm_eps", "rope_parameters"),
)
REWRITTEN = "type", "partial_rotary_factor", "attention_factor"  # of rope_parameters, by vLLM
LEGACY = "su", "mrope", "telechat3-yarn"  # values of rope_type that vLLM rewrites


def facts_of(config: Any) -> dict[str, Any]:
    """What has to be the same in a server."""
    return {key: getattr(config, key, None) for key in TELLING}


def other_model(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """What makes a server's model another one than the policy's; empty: nothing.

    What one of them does not say is no difference.
    """
    for key, value in wanted.items():
        if differs(found.get(key), value):
            return f"its {key} is {found[key]}, and that of the policy is {value}"
    return ""


def differs(one: Any, other: Any) -> bool:
    """Whether two values contradict each other; of two objects what both of them have."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        both = {key for key in one if key in other and key not in REWRITTEN}
        return any(differs(one[key], other[key]) for key in both)
    if one is None or other is None or one in LEGACY or other in LEGACY:
        return False
    return bool(one != other)
