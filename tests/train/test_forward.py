"""Architectures whose logits cannot be computed piecewise are refused rather than trained wrongly."""

from __future__ import annotations

import pytest
import torch

from recollect.models.attention import register
from recollect.train.forward import check_head
from recollect.types import BadInput
from tests.conftest import ARCHITECTURES, SHAPE, make_pair


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_known_architectures_pass(kind: str) -> None:
    check_head(make_pair(kind)[1])


def test_scaled_logits_are_refused() -> None:
    from transformers import AutoModelForCausalLM, GraniteConfig

    torch.manual_seed(0)
    config = GraniteConfig(**SHAPE, logits_scaling=7.0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=register()).float()
    with torch.no_grad():
        model.lm_head.weight.mul_(30)
    with pytest.raises(BadInput, match="granite"):
        check_head(model)
