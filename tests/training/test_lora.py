"""LoRA: the sampled, the trained, the reference and the stored policy are the ones they should be."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from recollect.config import Config, Optim
from recollect.config.compose import compose
from recollect.engine import Engine
from recollect.models.load import load_config, load_model, load_tokenizer
from recollect.models.lora import adapters_off, add_adapter, copy_weights, is_adapted, plain_copy
from recollect.packing.batch import Batch
from recollect.packing.micro_batch import Packed
from recollect.training import checkpoint
from recollect.training.learner.forward import check_head, logprobs_and_entropy
from recollect.training.learner.trained_model import TrainedModel, reference_of
from recollect.training.setup import build
from recollect.types import BadInput
from tests import commands
from tests.conftest import ARCHITECTURES, make_pair
from tests.engine.test_batching import CASES, run
from tests.packing.test_loss_invariance import samples
from tests.training.test_resume import command, rows


def adapted(kind: str = "Qwen3", dropout: float = 0.0, targets: list[str] | None = None, seed: int = 0) -> Any:
    """A model with an adapter that has an effect."""
    model = add_adapter(make_pair(kind)[1], 4, 8.0, targets or ["all-linear"], dropout, "somewhere", seed)
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.normal_(0, 0.1)
    return model.eval()


def learner_of(model: Any, lr: float = 1e-2) -> TrainedModel:
    return TrainedModel(model, Optim(lr=lr), 10, torch.float32, seed=3)


def batch_and_packs() -> tuple[Batch, list[Packed]]:
    batch = Batch.of(samples(3))
    return batch, batch.packs(range(len(batch.sequences)), 10_000)


def negative_logprob(packed: Packed, logp: torch.Tensor, entropy: torch.Tensor) -> torch.Tensor:
    return -(logp * (1 + packed.entry % 3)).sum() / 100


def updated(learner: TrainedModel) -> dict[str, torch.Tensor]:
    learner.backward(batch_and_packs()[1], negative_logprob)
    learner.step()
    return {n: p.detach().clone() for n, p in learner.model.named_parameters()}


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_an_adapted_model_computes_what_its_merged_weights_compute(kind: str) -> None:
    model = adapted(kind)
    check_head(model)
    batch, packs = batch_and_packs()
    merged = make_pair(kind, 7)[1]  # other weights, all of which have to be replaced
    copy_weights(model, merged)
    learner = learner_of(model)
    with_adapter = learner.logprobs(packs, batch.entries)
    torch.testing.assert_close(with_adapter, learner_of(merged).logprobs(packs, batch.entries), atol=1e-4, rtol=1e-5)
    base = make_pair(kind)[1]
    without = learner_of(base).logprobs(packs, batch.entries)
    assert (with_adapter - without).abs().max() > 0.1
    torch.testing.assert_close(reference_of(learner).logprobs(packs, batch.entries), without, atol=1e-5, rtol=0)
    assert torch.equal(learner.logprobs(packs, batch.entries), with_adapter)


@pytest.mark.parametrize("case", CASES)
def test_the_engine_samples_the_adapted_policy(case: str) -> None:
    model, prompts = adapted(), CASES[case]()
    merged = plain_copy(model, torch.float32)
    found = run(Engine(model, decode=str, max_batched_tokens=128), prompts, seed=5)
    expected = run(Engine(merged, decode=str, max_batched_tokens=128), prompts, seed=5)
    for a, b in zip(found, expected, strict=True):
        assert a.ids == b.ids
        torch.testing.assert_close(torch.tensor(a.logprobs), torch.tensor(b.logprobs), atol=1e-4, rtol=0)


def test_only_the_adapter_is_trained() -> None:
    model = adapted()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    after = updated(learner_of(model))
    changed = {n for n in before if not torch.equal(before[n], after[n])}
    assert changed == {n for n in before if "lora_" in n}
    assert all(before[n].dtype == torch.float32 for n in changed)


def test_the_gradient_is_that_of_the_merged_weights() -> None:
    """d loss / d B = scale · (d loss / d W) · Aᵀ, with W's gradient from a plain model."""
    model = adapted(targets=["q_proj", "down_proj"])
    plain = plain_copy(model, torch.float32)
    packs = batch_and_packs()[1]
    for m in (model, plain):
        learner_of(m).backward(packs, negative_logprob)
    for place in ("model.layers.0.self_attn.q_proj", "model.layers.2.mlp.down_proj"):
        layer = model.get_submodule(place)
        expected = 2.0 * plain.get_submodule(place).weight.grad @ layer.lora_A["default"].weight.T
        found = layer.lora_B["default"].weight.grad
        assert (found - expected).norm() <= 1e-4 * expected.norm()


def test_gradient_checkpointing_gives_the_same_update() -> None:
    plain = updated(learner_of(adapted(dropout=0.3)))
    model = adapted(dropout=0.3)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    found = updated(learner_of(model))
    assert all(torch.allclose(plain[n], found[n], atol=1e-6) for n in plain)


def test_dropout_is_for_updates_only_and_repeats_with_the_seed() -> None:
    batch, packs = batch_and_packs()
    assert torch.equal(
        learner_of(adapted()).logprobs(packs, batch.entries),
        learner_of(adapted(dropout=0.5)).logprobs(packs, batch.entries),
    )
    one = updated(learner_of(adapted(dropout=0.5)))
    torch.rand(5)  # global random state has no part in it
    two = updated(learner_of(adapted(dropout=0.5)))
    none = updated(learner_of(adapted()))
    assert all(torch.equal(one[n], two[n]) for n in one)
    assert any(not torch.equal(one[n], none[n]) for n in one)


def test_the_reference_leaves_dropout_and_gradients_as_they_are() -> None:
    model = adapted(dropout=0.5)
    learner = learner_of(model)
    reference = reference_of(learner)
    packs = batch_and_packs()[1]

    def loss(packed: Packed, logp: torch.Tensor, entropy: torch.Tensor, kl: torch.Tensor) -> torch.Tensor:
        assert (kl >= -1e-5).all()
        return kl.sum()

    assert learner.backward(packs, loss, reference=reference) > 0.1
    grads = [p.grad for n, p in model.named_parameters() if "lora_" in n]
    assert all(g is not None and g.abs().sum() > 0 for g in grads)
    with adapters_off(model):
        pass
    assert all(p.requires_grad == ("lora_" in n) for n, p in model.named_parameters())


def test_the_adapter_starts_without_effect_and_the_same_each_time() -> None:
    packs = batch_and_packs()[1]
    models = [add_adapter(make_pair("Qwen3")[1], 4, 8.0, ["all-linear"], 0.0, "x", 1) for _ in range(2)]
    plain = make_pair("Qwen3")[1]
    assert torch.equal(logprobs_and_entropy(models[0], packs[0])[0], logprobs_and_entropy(plain, packs[0])[0])
    for (n, a), (_, b) in zip(models[0].named_parameters(), models[1].named_parameters(), strict=True):
        assert torch.equal(a, b), n


@pytest.mark.parametrize("targets", [["nothing_like_it"], ["lm_head"], ["embed_tokens"]])
def test_modules_that_cannot_have_an_adapter_are_refused(targets: list[str]) -> None:
    from transformers import AutoModelForCausalLM, Qwen3Config

    from tests.conftest import SHAPE

    model = AutoModelForCausalLM.from_config(Qwen3Config(**SHAPE, head_dim=16, tie_word_embeddings=True))
    with pytest.raises(BadInput, match="target_modules"):
        add_adapter(model, 4, 8.0, targets, 0.0, "x", 0)


def test_without_peft_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(BadInput, match=r"pip install 'recollect-rl\[lora\]'"):
        add_adapter(make_pair("Qwen3")[1], 4, 8.0, ["all-linear"], 0.0, "x", 0)


# ---- whole configurations ----


def config(path: str, *more: str) -> Config:
    lora = ["lora_rank=4", "lora_alpha=8", "lora_dropout=0.1"]
    keys = [f"actor_rollout_ref.model.{k}" for k in (f"path={path}", *lora)]
    types = ["actor_rollout_ref.actor.dtype=float32", "actor_rollout_ref.rollout.dtype=float32"]
    return compose("needle", [*keys, "trainer.device=cpu", *types, *more])


def test_a_sampler_of_another_type_gets_merged_weights(small_model: Path) -> None:
    parts = build(config(str(small_model), "actor_rollout_ref.rollout.dtype=bfloat16"), Optim(lr=1e-2), 10)
    base = {n: p.clone() for n, p in parts.learner.trained.model.named_parameters() if "lora_" not in n}
    updated(parts.learner.trained)
    updated(parts.learner.trained)
    parts.sync(1)
    assert not any("lora" in n for n, _ in parts.sampler.model.named_parameters())
    expected = plain_copy(parts.learner.trained.model, torch.bfloat16)
    for (n, a), (_, b) in zip(parts.sampler.model.named_parameters(), expected.named_parameters(), strict=True):
        assert torch.equal(a, b), n
    mine = dict(parts.learner.trained.model.named_parameters())
    assert all(torch.equal(p, mine[n]) for n, p in base.items())
    moved = parts.sampler.model.get_submodule("model.layers.0.mlp.up_proj").weight
    assert not torch.equal(moved, base["model.layers.0.mlp.up_proj.base_layer.weight"].bfloat16())


def test_in_bfloat16_the_base_takes_half_the_memory_and_the_adapter_stays_exact(small_model: Path) -> None:
    kinds = [f"actor_rollout_ref.{part}.dtype=bfloat16" for part in ("actor", "rollout")]
    parts = build(config(str(small_model), *kinds), Optim(lr=1e-2), 10)
    exact = build(config(str(small_model)), Optim(lr=1e-2), 10)
    for name, p in parts.learner.trained.model.named_parameters():
        assert p.dtype == (torch.float32 if "lora_" in name else torch.bfloat16), name
    gradients = []
    for learner in (parts.learner.trained, exact.learner.trained):
        learner.backward(batch_and_packs()[1], negative_logprob)
        trained = [p.grad.flatten() for n, p in learner.model.named_parameters() if "lora_B" in n]
        gradients.append(torch.cat(trained))
    assert gradients[0].dtype == torch.float32
    assert (gradients[0] - gradients[1]).norm() < 0.05 * gradients[1].norm()
    base = {n: p.clone() for n, p in parts.learner.trained.model.named_parameters() if "lora_" not in n}
    updated(parts.learner.trained)
    mine = dict(parts.learner.trained.model.named_parameters())
    assert all(torch.equal(p, mine[n]) for n, p in base.items())
    parts.sync(1)
    expected = plain_copy(parts.learner.trained.model, torch.bfloat16)
    for (n, a), (_, b) in zip(parts.sampler.model.named_parameters(), expected.named_parameters(), strict=True):
        assert torch.equal(a, b), n


def test_checkpoints_hold_the_adapter_resume_exactly_and_load_in_peft(tmp_path: Path, small_model: Path) -> None:
    import peft
    from transformers import AutoModelForCausalLM

    make = lambda: build(config(str(small_model)), Optim(lr=1e-2, lr_warmup_steps=5), 10)
    parts = make()
    assert parts.sampler.model is parts.learner.trained.model
    updated(parts.learner.trained)
    saved = checkpoint.save(tmp_path, "step-1", parts.learner, parts.renderer, {"step": 1})
    files = {p.name for p in saved.iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json"} <= files
    assert not {"model.safetensors", "config.json"} & files
    size = sum(t.numel() for t in load_file(saved / "adapter_model.safetensors").values())
    assert size == sum(p.numel() for p in parts.learner.trained.model.parameters() if p.requires_grad)

    again = make()
    assert checkpoint.load(saved, again.learner) == {"step": 1}
    one, two = updated(parts.learner.trained), updated(again.learner.trained)
    assert all(torch.equal(one[n], two[n]) for n in one)

    checkpoint.load(saved, again.learner)
    ids = torch.arange(3, 40)[None]
    base = AutoModelForCausalLM.from_pretrained(small_model, dtype=torch.float32)
    theirs = peft.PeftModel.from_pretrained(base, str(saved)).eval()
    mine = AutoModelForCausalLM.from_pretrained(small_model, dtype=torch.float32)
    copy_weights(again.learner.trained.model, mine)
    torch.testing.assert_close(theirs(ids).logits, mine.eval()(ids).logits, atol=1e-5, rtol=1e-5)

    loaded = load_model(str(saved), torch.float32)
    assert not is_adapted(loaded)
    for (n, a), (_, b) in zip(loaded.named_parameters(), mine.named_parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6, msg=n)
    assert load_config(str(saved)).hidden_size == 32
    assert load_tokenizer(str(saved)).chat_template == parts.renderer.tokenizer.chat_template


def test_a_base_that_is_nowhere_else_is_stored_once(tmp_path: Path) -> None:
    parts = build(config("scratch_small"), Optim(lr=1e-2), 10)
    updated(parts.learner.trained)
    first = checkpoint.save(tmp_path, "step-1", parts.learner, parts.renderer, {"step": 1})
    stamp = (tmp_path / "base" / "model.safetensors").stat().st_mtime_ns
    updated(parts.learner.trained)
    second = checkpoint.save(tmp_path, "step-2", parts.learner, parts.renderer, {"step": 2})
    assert (tmp_path / "base" / "model.safetensors").stat().st_mtime_ns == stamp
    assert json.loads((first / "adapter_config.json").read_text())["base_model_name_or_path"] == str(tmp_path / "base")
    moved = tmp_path.with_name(tmp_path.name + "-moved")
    tmp_path.rename(moved)
    expected = plain_copy(parts.learner.trained.model, torch.float32)
    found = load_model(str(moved / second.name), torch.float32)
    for (n, a), (_, b) in zip(found.named_parameters(), expected.named_parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6, msg=n)
    checkpoint.prune(moved, "step", 1)
    assert sorted(p.name for p in moved.iterdir()) == ["base", "step-2"]


def test_an_adapter_of_another_shape_is_refused(tmp_path: Path, small_model: Path) -> None:
    parts = build(config(str(small_model)), Optim(), 10)
    saved = checkpoint.save(tmp_path, "step-1", parts.learner, parts.renderer, {"step": 1})
    other = build(config(str(small_model), "actor_rollout_ref.model.lora_rank=2"), Optim(), 10)
    before = copy.deepcopy(other.learner.trained.model.state_dict())
    with pytest.raises(ValueError, match="another"):
        checkpoint.load(saved, other.learner)
    assert all(torch.equal(v, before[k]) for k, v in other.learner.trained.model.state_dict().items())


def test_a_folder_with_an_adapter_but_no_base_is_refused(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(BadInput, match="base_model_name_or_path"):
        load_model(str(tmp_path), torch.float32)


def test_a_run_with_lora_resumes_exactly_and_is_evaluated(tmp_path: Path, small_model: Path) -> None:
    more = ["actor_rollout_ref.model.lora_rank=4", "actor_rollout_ref.model.lora_dropout=0.2"]
    more += ["actor_rollout_ref.actor.use_kl_loss=true", "actor_rollout_ref.actor.optim.lr=1e-2"]
    more += ["actor_rollout_ref.actor.optim.lr_scheduler_type=constant"]
    for out, steps in (("whole", 4), ("parts", 2), ("parts", 4)):
        done = commands.run(*command(tmp_path / out, small_model, *more, f"trainer.total_training_steps={steps}"))
        assert done.returncode == 0, done.stderr
    ends = [load_file(tmp_path / out / "checkpoints/step-4/adapter_model.safetensors") for out in ("whole", "parts")]
    assert all(torch.equal(v, ends[1][k]) for k, v in ends[0].items())
    assert rows(tmp_path / "whole")[-1] == rows(tmp_path / "parts")[-1]
    assert json.loads((tmp_path / "whole" / "fidelity.json").read_text())["fidelity"] == 1.0
    done = commands.run("eval", str(tmp_path / "whole"), "-q")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["checkpoint"].endswith("step-4")
