"""Several ranks give the numbers of one process, and go on from each other's checkpoints."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from recollect.config import Config
from recollect.config.compose import compose
from recollect.dist.place import RankPlace
from recollect.packing.batch import Batch
from recollect.training.learner import from_config
from recollect.training.learner.from_config import make_learner
from recollect.training.learner.learner import PolicyTargets
from recollect.training.learner.trained_model import TrainedModel
from recollect.types import BadInput, Sample
from tests.conftest import make_config
from tests.dist.forked import forking

NEAR = {"rtol": 1e-5, "atol": 1e-5}
KL = ("actor_rollout_ref.actor.use_kl_loss=true", "actor_rollout_ref.actor.kl_loss_coef=0.1")
CRITIC = "algorithm.adv_estimator=gae", "critic.fsdp_config.fsdp_size=1"  # spread otherwise than the actor
CASES = {
    "sharded": ("Qwen3", [*KL, "actor_rollout_ref.actor.kl_loss_type=full", *CRITIC]),
    "untied": (
        "Qwen2",
        ["actor_rollout_ref.actor.entropy_coeff=0.01", "actor_rollout_ref.actor.ppo_mini_batch_size=4"],
    ),
    "replicas": ("Qwen3", ["actor_rollout_ref.actor.fsdp_config.fsdp_size=1", *KL]),
    "adapter": ("Qwen3", [*KL, "actor_rollout_ref.actor.kl_loss_type=full", "actor_rollout_ref.model.lora_rank=4"]),
    "shared": ("Qwen3", ["algorithm.adv_estimator=gae", "critic.model.share_actor=true"]),
    "rows": ("Qwen2", ["actor_rollout_ref.model.use_remove_padding=false"]),
    "small": ("Qwen3", ["actor_rollout_ref.actor.ppo_max_token_len_per_gpu=128", "sft.steps=1"]),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models of two architectures; the second has a head of its own."""
    from transformers import AutoModelForCausalLM

    found = {}
    for kind in ("Qwen3", "Qwen2"):
        config = make_config(kind)
        config.tie_word_embeddings = kind == "Qwen3"
        torch.manual_seed(1)
        found[kind] = tmp_path_factory.mktemp(kind)
        AutoModelForCausalLM.from_config(config).float().save_pretrained(found[kind])
    return found


def config(folder: Path, ranks: int, *more: str) -> Config:
    settings = [f"actor_rollout_ref.model.path={folder}", f"trainer.n_gpus_per_node={ranks}", "trainer.device=cpu"]
    settings += ["actor_rollout_ref.actor.dtype=float32", "actor_rollout_ref.actor.optim.lr=1e-3", "trainer.threads=1"]
    settings += ["critic.optim.lr=1e-3", "actor_rollout_ref.rollout.dtype=float32"]
    return compose("needle", [*settings, *more])


def batch(seed: int, groups: int = 5, samples: int = 4) -> Batch:
    """Attempts that share prompts, of different lengths."""
    return Batch.of(list(sequences(seed, groups, samples)))


def sequences(seed: int, groups: int = 5, samples: int = 4) -> Iterator[Sample]:
    rng = np.random.default_rng(seed)
    for group in range(groups):
        prompt = rng.integers(3, 90, rng.integers(30, 60))
        for number in range(samples):
            ids = np.concatenate([prompt, rng.integers(3, 90, rng.integers(4, 20))])
            mask = np.arange(len(ids)) >= len(prompt)
            yield Sample(ids, mask, np.where(mask, -4.0, 0).astype(np.float32), group * samples + number, group)


class Trained:
    """A learner with a reference and a critic, and everything that it said."""

    def __init__(self, cfg: Config, path: Path) -> None:
        self.learner = make_learner(cfg, str(path), cfg.actor_rollout_ref.actor.optim, 10)
        self.critic = self.learner.make_critic(10) if cfg.algorithm.adv_estimator == "gae" else None
        self.reference = self.learner.keep_reference() if cfg.actor_rollout_ref.actor.use_kl_loss else None
        self.cfg, self.said = cfg, []  # type: ignore[var-annotated]

    def step(self, number: int) -> None:
        made, rng = batch(number), np.random.default_rng(number)
        old, still = self.learner.logprobs(made), None
        advantages = rng.normal(size=made.entries).astype(np.float32)
        self.said.append(old)
        if self.reference is not None:
            still = self.reference.logprobs(made)
            self.said += [still, self.learner.divergence(made, self.reference)]
        if self.critic is not None:
            values = self.critic.values(made)
            returns = rng.normal(size=made.entries).astype(np.float32)
            row = self.critic.update(made, returns, values, (0, number), place=number)
            self.said += [values, numbers(row)]
        row = self.learner.update(made, PolicyTargets(advantages, old, still), self.reference, (0, number), number)
        self.said.append(numbers(row))

    def imitate(self, number: int) -> None:
        row = self.learner.imitate(list(sequences(number)))
        scores = self.learner.imitation_scores(batch(number))
        self.said += [numbers(row), *scores]

    def save(self, folder: Path) -> Path:
        folder.mkdir()
        self.learner.save(folder, folder.parent)
        if self.critic is not None:
            (folder / "critic").mkdir()
            self.critic.save(folder / "critic")
        return folder


def numbers(row: dict[str, float]) -> np.ndarray:
    """Metrics, but for the tokens that are computed: what ranks share is computed by each."""
    return np.array([value for name, value in row.items() if name != "tokens_computed"])


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """All weights in a folder."""
    files = [p for p in sorted(folder.rglob("*.safetensors")) if p.parent.name != "optimizer"]
    return {f"{p.relative_to(folder)}:{name}": t for p in files for name, t in load_file(p).items()}


def same_numbers(mine: Trained, theirs: Trained) -> None:
    assert len(mine.said) == len(theirs.said) >= 2
    for a, b in zip(mine.said, theirs.said, strict=True):
        np.testing.assert_allclose(a, b, **NEAR)


def compare(case: str, ranks: int, folders: dict[str, Path], tmp_path: Path) -> None:
    kind, settings = CASES[case]
    runs = [Trained(config(folders[kind], n, *settings), folders[kind]) for n in (1, ranks)]
    for run in runs:
        for number in range(3):
            run.imitate(number) if run.cfg.sft.steps else run.step(number)
    same_numbers(*runs)
    alone, together = (weights(run.save(tmp_path / name)) for name, run in zip(("alone", "ranks"), runs, strict=True))
    runs[1].learner.close()
    assert set(alone) == set(together)
    started = load_file(folders[kind] / "model.safetensors")
    assert any(not torch.equal(t, started.get(n.split(":")[1], t * 0)) for n, t in together.items())
    for name, tensor in alone.items():
        torch.testing.assert_close(together[name], tensor, **NEAR)


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_give_the_numbers_of_one_process(
    case: str, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forking(monkeypatch)
    compare(case, 2, folders, tmp_path)


def test_one_rank_gives_them_too(folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where one GPU trains and another samples (models/gpu_plan.py)."""
    forking(monkeypatch)
    kind, settings = CASES["adapter"]
    runs = [Trained(config(folders[kind], 1, *settings), folders[kind])]
    monkeypatch.setattr(from_config, "place_of", lambda cfg: RankPlace(0, 1, 0, "cpu", 1, 1, "", 60.0))
    runs.append(Trained(config(folders[kind], 1, *settings), folders[kind]))
    assert hasattr(runs[1].learner, "ranks")
    for run in runs:
        run.step(0)
        run.step(1)
    same_numbers(*runs)
    alone, rank = (weights(run.save(tmp_path / name)) for name, run in zip(("alone", "rank"), runs, strict=True))
    runs[1].learner.close()
    torch.testing.assert_close(rank, alone, **NEAR)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["rows", "adapter"])
def test_in_bfloat16_weights_and_moments_stay_float32(
    case: str, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is learnt is what one process learns in bfloat16, and steps too small for bfloat16 add up."""
    forking(monkeypatch)
    kind, settings = CASES[case]
    half = [*settings, "actor_rollout_ref.actor.dtype=bfloat16", "actor_rollout_ref.actor.optim.lr=1e-5"]
    runs = [Trained(config(folders[kind], n, *half), folders[kind]) for n in (1, 2)]
    first = weights(runs[1].save(tmp_path / "first"))
    for run in runs:
        for number in range(3):
            run.step(number)
    np.testing.assert_allclose(runs[1].said[0], runs[0].said[0], atol=0.05)
    alone, together = (weights(run.save(tmp_path / name)) for name, run in zip(("alone", "ranks"), runs, strict=True))
    runs[1].learner.close()
    assert {t.dtype for t in together.values()} == {torch.float32}
    assert {t.dtype for t in moments(tmp_path / "ranks").values()} <= {torch.float32, torch.int64}
    change = lambda found: torch.cat([(t - first[name]).flatten() for name, t in found.items()])
    mine, theirs = change(together), change(alone)
    assert 0 < float(mine.abs().max()) < 1e-4  # far below what bfloat16 can tell apart at 1
    assert float(torch.nn.functional.cosine_similarity(mine, theirs, dim=0)) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("case", [*CASES, "mixed"])
def test_four_ranks_give_the_numbers_of_one_process(
    case: str, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forking(monkeypatch)
    monkeypatch.setitem(CASES, "mixed", ("Qwen3", ["actor_rollout_ref.actor.fsdp_config.fsdp_size=2", *KL]))
    compare(case, 4, folders, tmp_path)


# ---- checkpoints ----


def moments(folder: Path) -> dict[str, torch.Tensor]:
    """The optimizer's state in a folder, put together."""
    import torch.distributed.checkpoint as dcp

    reader = dcp.HuggingFaceStorageReader(str(folder / "optimizer"))
    found = {name: torch.zeros(tuple(about.size)) for name, about in reader.read_metadata().state_dict_metadata.items()}
    dcp.load(found, storage_reader=reader, no_dist=True)
    return found


def restored(cfg: Config, path: Path, folder: Path) -> Trained:
    run = Trained(cfg, path)
    run.learner.load(folder)
    if run.critic is not None:
        run.critic.load(folder / "critic")
    return run


@pytest.mark.parametrize(
    ("case", "others"),
    [
        ("sharded", (1, 2)),
        pytest.param("adapter", (1, 3, 2), marks=pytest.mark.slow),
        pytest.param("untied", (1, 4, 2), marks=pytest.mark.slow),
    ],
)
def test_a_checkpoint_is_the_same_for_any_number_of_ranks(
    case: str, others: Sequence[int], folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forking(monkeypatch)
    kind, settings = CASES[case]
    run = Trained(config(folders[kind], 2, *settings), folders[kind])
    run.step(0)
    saved = first = run.save(tmp_path / "first")
    run.learner.close()
    for ranks in others:
        run = restored(config(folders[kind], ranks, *settings), folders[kind], saved)
        saved = run.save(tmp_path / f"by-{ranks}-ranks")
        run.step(1)
        run.learner.close()
    torch.testing.assert_close(weights(saved), weights(first), rtol=0, atol=0)
    torch.testing.assert_close(moments(saved), moments(first), rtol=0, atol=0)
    assert float(moments(saved)["updates"]) == (2 if case == "untied" else 1)  # that one has two mini-batches


def test_what_is_exported_is_a_plain_model(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForCausalLM

    forking(monkeypatch)
    kind, settings = CASES["adapter"]
    runs = [Trained(config(folders[kind], n, *settings), folders[kind]) for n in (1, 2)]
    models = []
    for number, run in enumerate(runs):
        run.step(0)
        run.learner.export(tmp_path / str(number), "float32")
        models.append(AutoModelForCausalLM.from_pretrained(tmp_path / str(number)))
    given: dict[str, torch.Tensor] = {}
    sampler: Any = type("Sampler", (), {"take_weights": lambda self, version, weights: given.update(weights)})()
    runs[1].learner.sync(sampler, 1)
    runs[1].learner.close()
    for (name, mine), theirs in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(theirs, mine, **NEAR)
        torch.testing.assert_close(given.pop(name), theirs.detach(), rtol=0, atol=0)
    assert not given


# ---- ranks that are lost ----


def lose(learner: Any, number: int = 1) -> None:
    os.kill(learner.ranks.ranks.members[number].process.pid, signal.SIGKILL)


class Killing:
    """A watcher that kills the first rank, once."""

    def __init__(self, learner: Any) -> None:
        self.learner, self.done = learner, False

    def __call__(self, done: int, count: int) -> None:
        if not self.done:
            self.done = True
            lose(self.learner, 0)


@pytest.mark.parametrize("case", ["sharded", pytest.param("adapter", marks=pytest.mark.slow)])
def test_lost_ranks_start_again_and_end_with_the_same_weights(
    case: str, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forking(monkeypatch)
    kind, settings = CASES[case]
    cfg = config(folders[kind], 2, *settings)
    quiet, troubled = Trained(cfg, folders[kind]), Trained(cfg, folders[kind])
    warned: list[str] = []
    troubled.learner.ranks.warn = warned.append  # type: ignore[attr-defined]
    for run in (quiet, troubled):
        run.step(0)
        if run is troubled:
            lose(run.learner)  # before anything was saved
        run.step(1)
        run.learner.keep(run.save(tmp_path / f"{len(warned)}"))
        run.step(2)
        if run is troubled:
            run.learner.watch(Killing(run.learner))  # in the middle of what comes next
        run.step(3)
        run.learner.watch(None)
    assert len(warned) == 2
    assert "start again from the beginning" in warned[0]
    assert f"start again from {len(warned) - 1}" in warned[1]
    assert "killed by signal 9" in warned[0]
    for a, b in zip(quiet.said, troubled.said, strict=True):
        np.testing.assert_array_equal(a, b)
    saved = [weights(run.save(tmp_path / name)) for name, run in (("quiet", quiet), ("troubled", troubled))]
    torch.testing.assert_close(*saved, rtol=0, atol=0)
    for run in (quiet, troubled):
        run.learner.close()


def test_a_rank_without_memory_lets_all_start_again_with_smaller_passes(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(place: RankPlace) -> None:
        plain = TrainedModel.accumulate

        def accumulate(self: TrainedModel, packs: Any, *given: Any) -> float:
            if place.rank == 1 and any(len(p.tokens) > 300 for p in packs):
                raise torch.OutOfMemoryError("out of memory\nand more")
            return plain(self, packs, *given)

        TrainedModel.accumulate = accumulate  # type: ignore[method-assign]

    forking(monkeypatch, short)
    cfg = config(folders["Qwen3"], 2, "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=1024")
    run, alone = Trained(cfg, folders["Qwen3"]), Trained(config(folders["Qwen3"], 1), folders["Qwen3"])
    warned: list[str] = []
    run.learner.ranks.warn = warned.append  # type: ignore[attr-defined]
    for each in (run, alone):
        made = batch(0, 12, 8)
        advantages = np.random.default_rng(0).normal(size=made.entries).astype(np.float32)
        each.said.append(numbers(each.learner.update(made, PolicyTargets(advantages), seed=(0, 0), place=0)))
    run.learner.close()
    assert [text.split(": ")[-1] for text in warned] == [
        "out of memory; all ranks start again from the beginning, with half as many tokens in a pass"
    ] * len(warned)
    assert 1 <= len(warned) <= 2
    np.testing.assert_allclose(run.said[0], alone.said[0], **NEAR)


def test_a_rank_that_is_lost_again_and_again_ends_the_run(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(place: RankPlace) -> None:
        TrainedModel.accumulate = lambda *given: os._exit(7)  # type: ignore[assignment,method-assign]

    forking(monkeypatch, dying)
    run = Trained(config(folders["Qwen3"], 2), folders["Qwen3"])
    with pytest.raises(
        BadInput, match=r"rank \d .process \d+. ended in update .exit 7.*, for the 4th time in one call"
    ):
        run.step(0)
    run.learner.close()


def test_what_ranks_cannot_do_is_refused_before_they_start(folders: dict[str, Path]) -> None:
    for settings, said in (
        (["actor_rollout_ref.actor.optim.name=muon"], "optim.name=muon needs whole matrices"),
        (["sft.steps=3", "sft.optim.name=muon"], "sft.optim.name=muon needs whole matrices; use sft.optim.name=adamw"),
        (["actor_rollout_ref.actor.fsdp_config.fsdp_size=2"], "3 ranks cannot be divided into sets of 2"),
        (["critic.fsdp_config.fsdp_size=2", "algorithm.adv_estimator=gae"], "critic.*3 ranks cannot be divided"),
        (["critic.optim.name=muon", "algorithm.adv_estimator=gae"], "critic.optim.name=muon needs whole matrices"),
    ):
        with pytest.raises(BadInput, match=said):
            Trained(config(folders["Qwen3"], 3, *settings), folders["Qwen3"])
