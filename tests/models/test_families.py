"""Every family of docs/models.md: packed trees, gradients and the engine against the library's own model."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from recollect.config import Optim, Rollout
from recollect.engine import EngineLoop, make_engine
from recollect.engine.attention_check import fit_of
from recollect.models.attention import _attention, register
from recollect.models.plain_rows import be_plain
from recollect.models.small_copy import small_configs, small_model
from recollect.packing.micro_batch import Packed, pack
from recollect.packing.tree import build_tree
from recollect.training.learner.forward import check_head
from recollect.training.learner.trained_model import TrainedModel
from recollect.types import BadInput, Completion, Sampling
from tests.models.families import FAMILIES

DOCS = Path(__file__).parents[2] / "docs" / "models.md"
TABLE = dict(re.findall(r"^\| [^|]+ \| `(\w+)` \| (fast|plain|refused) \|", DOCS.read_text(), re.M))
RIGHT = [name for name, mode in TABLE.items() if mode != "refused"]


def config_of(name: str) -> Any:
    kind = getattr(transformers, f"{name}Config", None)
    if kind is None:
        pytest.skip(f"transformers {transformers.__version__} has no {name}")
    return kind(**FAMILIES[name])


def pair(name: str) -> tuple[Any, Any]:
    """The library's own model with eager attention, and the same as it is computed here."""
    config = config_of(name)
    fast = fit_of(config).fast
    own, ours = small_model(config, "eager"), small_model(config, register() if fast else None)
    if not fast:
        be_plain(ours)
    return own, ours


def rows() -> list[np.ndarray]:
    source = np.random.default_rng(5)
    ids = lambda count: source.integers(3, 96, count)
    common = ids(24)
    return [np.concatenate([common, ids(8)]), np.concatenate([common, ids(5)]), ids(19)]


def packed(some: list[np.ndarray]) -> Packed:
    trees = [build_tree([0, 1], some[:2]), build_tree([2], some[2:])]
    return pack(trees, [np.arange(len(r)) > 0 for r in some], np.cumsum([0, *(len(r) - 1 for r in some)]).tolist())


def logprobs(model: Any, row: np.ndarray) -> Tensor:
    """What the library's own model says of a row's tokens but the first."""
    logits = model(input_ids=torch.from_numpy(row)[None], use_cache=False).logits[0, :-1]
    return logits.float().log_softmax(-1).gather(-1, torch.from_numpy(row[1:, None]))[:, 0]


def completions(engine: EngineLoop, prompts: list[np.ndarray], temperature: float) -> list[Completion]:
    async def go() -> list[Completion]:
        how = [Sampling(temperature, max_tokens=3 + i, key=str(i % 3)) for i in range(len(prompts))]
        return await asyncio.gather(*(engine.generate(p.tolist(), s) for p, s in zip(prompts, how, strict=True)))

    return asyncio.run(go())


def test_the_table_has_every_family() -> None:
    assert sorted(TABLE) == sorted(FAMILIES)


@pytest.mark.parametrize("name", TABLE)
def test_the_verdict_is_the_tables(name: str) -> None:
    config = config_of(name)
    if TABLE[name] == "refused":
        with pytest.raises(BadInput, match="layer 0"):
            fit_of(config)
        return
    found = fit_of(config)
    assert found.fast == (TABLE[name] == "fast"), found.why
    assert found.fast or config.model_type in found.note or "layer" in found.note


@pytest.mark.parametrize("name", RIGHT)
def test_logprobs_and_gradients_of_packed_trees(name: str) -> None:
    own, ours = pair(name)
    some = rows()
    expected = torch.cat([logprobs(own, row) for row in some])
    check_head(ours)
    learner = TrainedModel(ours, Optim(), 1, torch.float32)
    packs = [packed(some)]
    torch.testing.assert_close(learner.logprobs(packs, len(expected)), expected, atol=1e-4, rtol=1e-4)
    weight = torch.linspace(-1, 1, len(expected))
    (weight * expected).sum().backward()
    learner.model.eval()  # the library's own ran without dropout
    ours.train = lambda mode=True: ours
    learner.backward(packs, lambda packed, logprob, entropy: (weight[packed.entry] * logprob).sum())
    mine = dict(ours.named_parameters())
    for key, parameter in own.named_parameters():
        if parameter.grad is not None and mine[key].grad is not None:
            assert (mine[key].grad - parameter.grad).norm() <= 1e-3 * parameter.grad.norm() + 1e-5, key
        else:
            assert (parameter.grad is None) == (mine[key].grad is None), key


@pytest.mark.parametrize("name", RIGHT)
def test_completions(name: str) -> None:
    own, ours = pair(name)
    engine = make_engine(ours, str, Rollout(), own=True)
    prompts = [*rows(), rows()[0], rows()[0][:19]]
    with torch.no_grad():
        for temperature in (0.0, 1.0):
            for prompt, done in zip(prompts, completions(engine, prompts, temperature), strict=True):
                whole = np.concatenate([prompt, done.ids])
                expected = logprobs(own, whole)[len(prompt) - 1 :]
                near = 1e-4 if TABLE[name] == "fast" else 2e-3  # a step of the library's recurrence is not its scan
                torch.testing.assert_close(torch.tensor(done.logprobs), expected, atol=near, rtol=near)
                if temperature == 0:
                    best = own(input_ids=torch.from_numpy(whole)[None], use_cache=False).logits[0].argmax(-1)
                    assert best[len(prompt) - 1 : -1].tolist() == list(done.ids)


@pytest.mark.parametrize("name", ["Qwen3Next", "Llama"])
def test_the_same_keys_give_the_same_ids_whoever_is_beside_them(name: str) -> None:
    _, ours = pair(name)
    alone = [completions(make_engine(ours, str, Rollout(), own=False), [p], 1.0)[0] for p in rows()[:1] * 2]
    together = completions(make_engine(ours, str, Rollout(max_num_seqs=2), own=False), [*rows(), *rows()], 1.0)
    assert alone[0].ids == alone[1].ids == together[0].ids[:3] == together[3].ids[:3]


def test_rows_that_nobody_awaits_any_more_leave_the_plain_engine() -> None:
    engine = make_engine(pair("Qwen3Next")[1], str, Rollout(), own=True)

    async def go() -> Completion:
        task = lambda i, n: asyncio.ensure_future(engine.generate(rows()[i].tolist(), Sampling(max_tokens=n)))
        gone, stays = task(0, 200), task(0, 5)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gone.cancel()
        return await stays

    assert len(asyncio.run(go()).ids) == 5
    engine.new_weights(3)
    assert not engine.busy
    assert engine.version == 3


def test_engines_refuse_models_with_another_attention() -> None:
    own = small_model(config_of("Qwen3"), "eager")
    with pytest.raises(BadInput, match=r"load_fitted"):
        make_engine(own, str, Rollout(), own=True)


def test_engines_refuse_models_that_pass_by_our_attention() -> None:
    for name in ("Qwen3Next", "FalconH1"):
        with pytest.raises(BadInput, match="layer 0"):
            make_engine(small_model(config_of(name), register()), str, Rollout(), own=True)


class Module(torch.nn.Module):
    layer_idx = 3


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"s_aux": torch.ones(2)}, "s_aux"),
        ({"position_bias": torch.ones(2)}, "position_bias"),
        ({"is_causal": False}, "is_causal=False"),
        ({"attention_mask": torch.ones(2)}, "attention_mask"),
    ],
)
def test_arguments_that_change_attention_are_refused(more: dict[str, Any], said: str) -> None:
    heads = torch.zeros(1, 2, 3, 4)
    arguments: dict[str, Any] = {"attention_mask": None, **more}
    with pytest.raises(BadInput, match=f"Module of layer 3 attends with {said}"):
        _attention(Module(), heads, heads, heads, **arguments)


LARGE = {
    "Llama": {"hidden_size": 8192, "num_attention_heads": 64, "num_key_value_heads": 8, "num_hidden_layers": 80},
    "Qwen3Moe": {"hidden_size": 2048, "num_hidden_layers": 48, "num_experts": 128},
    "DeepseekV3": {},
    "GptOss": {},
    "Qwen3Next": {},
    "Gemma3Text": {},
}


@pytest.mark.parametrize("name", LARGE)
def test_large_models_are_tried_at_small_size(name: str) -> None:
    config = getattr(transformers, f"{name}Config")(**LARGE[name])
    small = next(iter(small_configs(config)))
    kinds = lambda c: set(getattr(c, "layer_types", None) or [""])
    assert kinds(small) == kinds(config)
    with torch.device("meta"):
        size = sum(p.numel() for p in transformers.AutoModelForCausalLM.from_config(small).parameters())
    assert size < 20_000_000
    assert fit_of(config).fast == (TABLE[name] == "fast")
