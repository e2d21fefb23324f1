"""Refuse models that are not causal language models, before their weights are read."""

from __future__ import annotations

from typing import Any

from recollect.types import BadInput

OTHER_HEADS = ("Classification", "QuestionAnswering")  # how the names of such classes end
SEEING = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")  # types of models that read images too and are known to do so rightly
MEDIA = {"vision_config": "images", "audio_config": "sound", "thinker_config": "images and sound"}


def refuse_other_kinds(config: Any, path: str) -> None:
    """Refuse the configuration of a model that does not continue text, or reads more than text."""
    if (what := _other_kind(config)) is not None:
        raise BadInput(
            f"{path} is {what} ({config.model_type}); models here are causal language models, and of those that see "
            f"{', '.join(SEEING)}"
        )


def _other_kind(config: Any) -> str | None:
    """What a model is instead; None for a causal language model."""
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )

    kind, made = config.model_type, str(next(iter(config.architectures or ()), ""))
    known = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind)
    if kind in SEEING:
        return None
    if getattr(config, "is_encoder_decoder", False):
        return "an encoder-decoder model"
    if known is None or str(known).endswith("ForConditionalGeneration"):
        reads = next((what for name, what in MEDIA.items() if getattr(config, name, None) is not None), None)
        return f"a model that reads {reads}" if reads else "no causal language model"
    if kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False):
        return "an encoder, which fills gaps and does not continue text"
    return f"a {made}, which has another head" if made.endswith(OTHER_HEADS) else None


def sees(config: Any) -> bool:
    """True for the configuration of a model that reads images too."""
    return config.model_type in SEEING


def refuse_sight_of_ranks(config: Any, path: str) -> None:
    """Refuse a model that reads images where several ranks train it."""
    if sees(config):
        raise BadInput(f"{path} reads images, which ranks are sent none of; set trainer.n_gpus_per_node=1")


def loader_of(config: Any) -> Any:
    """The library's class that makes and loads models of a configuration."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    return AutoModelForImageTextToText if sees(config) else AutoModelForCausalLM


def text_attention(name: str) -> dict[str, str]:
    """What tells the library that the text part of a model attends by this function; a tower keeps its own."""
    return {"": name, "text_config": name, "vision_config": "sdpa"}
