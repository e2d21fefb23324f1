"""The trainer asks samplers and learners for what their protocols say, and for nothing else.

A sampler and a learner of plain Python, without a model, take part in a whole RL step here.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recollect
from recollect.agents.rollout import Collector
from recollect.chat import Renderer
from recollect.config import Config, Optim
from recollect.config.compose import compose
from recollect.engine import EngineLoop
from recollect.packing.batch import Batch
from recollect.packing.micro_batch import Packed
from recollect.runs.directory import RunDirectory
from recollect.samplers.sampler import NamedWeights, Sampler
from recollect.sources.task_stream import TaskStream
from recollect.training import checkpoint
from recollect.training.learner.critic import LocalCritic
from recollect.training.learner.learner import (
    Learner,
    ModelFacts,
    PolicyTargets,
    ReferencePolicy,
    ValueLearner,
    Watcher,
)
from recollect.training.learner.local_learner import LocalLearner, LocalPolicy
from recollect.training.rl.gather import Gatherer
from recollect.training.rl.step import Progress, Reinforce
from recollect.training.setup import TrainedPolicy
from recollect.types import Completion, Sample, Sampling

ROOT = Path(recollect.__file__).parent
OWNERS = ("engine/", "models/", "training/learner/")  # where samplers and learners of this process are made
CONCRETE = {
    *("recollect.engine.batching", "recollect.engine.library", "recollect.engine.loop"),
    *("recollect.training.learner.trained_model", "recollect.training.learner.local_learner"),
    *("recollect.training.learner.critic", "recollect.training.learner.policy_update"),
}


# ---- stand-ins ----


class Statistics:
    steps = prompt_tokens = computed_prompt_tokens = sampled_tokens = peak_rows = decoding = waiting = 0
    prefill_seconds = decode_seconds = 0.0
    outside, gpu_seconds = False, None


class FakeSampler:
    """Says a word that depends on the request's key; every call is noted."""

    window, vocabulary = 4096, 1000

    def __init__(self, renderer: Renderer, log: list[str]) -> None:
        self.renderer, self.log, self.version, self.weights = renderer, log, 0, [("w", 0.0)]

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, watch: Callable[[list[int]], None] | None = None
    ) -> Completion:
        self.log.append("generate")
        text = "yes" if sampling.noise_seed % 2 else "no"
        ids = (*self.renderer.encode(text), self.renderer.end_id)
        return Completion(ids, (-0.5,) * len(ids), "stop", self.version, text)

    def take_weights(self, version: int, weights: NamedWeights | None) -> None:
        self.log.append(f"take_weights {version}")
        self.version, self.weights = version, [] if weights is None else list(weights)  # type: ignore[arg-type]

    def free(self) -> None:
        self.log.append("free")

    def restore(self) -> None:
        self.log.append("restore")

    def statistics(self) -> Statistics:
        return Statistics()

    def weights_digest(self) -> str:
        return repr(self.weights)

    def close(self) -> None:
        self.log.append("close")


class FakeReference:
    """A policy that is sure of nothing."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.watcher: Watcher | None = None

    def logprobs(self, batch: Batch) -> np.ndarray:
        self.log.append(f"{type(self).__name__}.logprobs")
        if self.watcher is not None:
            self.watcher(1, 1)
        return np.full(batch.entries, -0.7, np.float32)

    def load_weights(self, folder: Path) -> None:
        self.log.append(f"load_weights {folder.name}")

    def watch(self, watcher: Watcher | None) -> None:
        self.watcher = watcher


class FakeLearner(FakeReference):
    """One number that goes up with every update."""

    facts = ModelFacts(window=4096, vocabulary=1000, trained=1)

    def __init__(self, log: list[str]) -> None:
        super().__init__(log)
        self.weight, self.seen = 0.0, []  # type: ignore[var-annotated]

    def divergence(self, batch: Batch, reference: ReferencePolicy) -> np.ndarray:
        return np.zeros(batch.entries, np.float32)

    def update(
        self,
        batch: Batch,
        targets: PolicyTargets,
        reference: ReferencePolicy | None = None,
        seed: Sequence[int] = (0,),
        place: int | None = None,
    ) -> dict[str, float]:
        self.log.append("update")
        self.seen.append((batch, targets, seed, place))
        self.weight += 1.0
        return {"updates": 1.0, "policy_loss": 0.25, "grad_norm": 1.0, "lr": 0.1, "skipped_updates": 0.0}

    def imitate(self, item: Sequence[Sample] | Packed) -> dict[str, float]:
        raise NotImplementedError

    def imitation_scores(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError

    def keep_reference(self) -> FakeReference:
        return FakeReference(self.log)

    def make_critic(self, updates: int) -> FakeCritic:
        return FakeCritic(self.log)

    def with_optimizer(self, optim: Optim, updates: int) -> FakeLearner:
        return self

    def set_schedule(self, updates: int) -> None:
        raise NotImplementedError

    def short_of_memory(self) -> bool:
        return True

    def save(self, folder: Path, bases: Path) -> None:
        (folder / "weight").write_text(str(self.weight))

    def keep(self, folder: Path) -> None:
        self.log.append(f"keep {folder.name}")

    def load(self, folder: Path) -> None:
        self.weight = float((folder / "weight").read_text())

    def export(self, folder: Path, dtype: str) -> None:
        raise NotImplementedError

    def sync(self, sampler: Sampler, version: int) -> None:
        sampler.take_weights(version, [("w", self.weight)])  # type: ignore[list-item]

    def close(self) -> None:
        self.log.append("close")


class FakeCritic:
    """Expects nothing."""

    def __init__(self, log: list[str]) -> None:
        self.log, self.weight = log, 0.0

    def values(self, batch: Batch) -> np.ndarray:
        self.log.append("values")
        return np.zeros(batch.entries, np.float32)

    def updates(self, batch: Batch) -> int:
        return 1

    def update(
        self,
        batch: Batch,
        returns: np.ndarray,
        old_values: np.ndarray,
        seed: Sequence[int] = (0,),
        head_only: bool = False,
        place: int | None = None,
    ) -> dict[str, float]:
        self.log.append("critic update")
        assert returns.shape == old_values.shape == (batch.entries,)
        self.weight -= 1.0
        return {"value_loss": 0.5}

    def watch(self, watcher: Watcher | None) -> None: ...

    def save(self, folder: Path) -> None:
        (folder / "weight").write_text(str(self.weight))

    def load(self, folder: Path) -> None:
        self.weight = float((folder / "weight").read_text())


# ---- a whole step ----


REWARD = '''
def says_yes(answer):
    """1 for yes."""
    return float("yes" in answer)
'''


def config(tmp_path: Path, *more: str) -> Config:
    (tmp_path / "reward.py").write_text(REWARD)
    settings = ["data.train_batch_size=3", "actor_rollout_ref.rollout.n=4", "data.needle.chunks=2"]
    settings += [
        f"agent.reward_name={tmp_path / 'reward.py'}:says_yes",
        f"trainer.default_local_dir={tmp_path / 'run'}",
    ]
    return compose("needle", [*settings, *more])


class Standing:
    """A step of a run whose sampler and learners are stand-ins."""

    def __init__(self, cfg: Config, renderer: Renderer) -> None:
        self.log: list[str] = []
        self.sampler, self.learner = FakeSampler(renderer, self.log), FakeLearner(self.log)
        policy = TrainedPolicy(renderer, self.learner, self.sampler)  # type: ignore[arg-type]
        gatherer = Gatherer(cfg, TaskStream(cfg), Collector(cfg, policy.roles()))
        critic = self.learner.make_critic(1) if cfg.algorithm.adv_estimator == "gae" else None
        self.run = RunDirectory.start(cfg)
        self.rl = Reinforce(cfg, self.run, policy, gatherer, Progress(), critic)

    def said(self) -> list[str]:
        """What happened, samples once."""
        return [name for i, name in enumerate(self.log) if self.log[i - 1 : i] != [name]]


def test_a_whole_step_with_a_sampler_and_a_learner_of_plain_python(tmp_path: Path, renderer: Renderer) -> None:
    work = Standing(config(tmp_path), renderer)
    row = work.rl.step()
    assert work.said() == ["generate", "free", "update", "restore", "take_weights 1"]
    assert work.sampler.version == 1
    assert work.sampler.weights == [("w", 1.0)]
    (batch, targets, seed, place) = work.learner.seen[0]
    assert isinstance(targets.advantages, np.ndarray)
    assert targets.advantages.any()
    assert (targets.old, targets.reference, seed, place) == (None, None, (work.rl.cfg.trainer.seed, 0), 0)
    assert row["actor/policy_loss"] == 0.25
    progress = work.rl.progress
    assert (progress.step, progress.trained_tokens) == (1, batch.entries)
    assert progress.sampled_tokens == progress.trained_tokens > 0  # every trained token is one that was sampled
    assert [r["step"] for r in work.run.metrics()] == [1]
    assert list((work.run.path / "trajectories").iterdir())
    work.rl.step()
    assert work.sampler.version == 2
    assert progress.sampled_tokens == progress.trained_tokens


def test_a_step_asks_the_reference_and_the_critic(tmp_path: Path, renderer: Renderer) -> None:
    kl = ["algorithm.adv_estimator=gae", "algorithm.use_kl_in_reward=true", "algorithm.kl_penalty=kl"]
    work = Standing(config(tmp_path, *kl, "actor_rollout_ref.actor.use_kl_loss=true"), renderer)
    work.rl.reference = work.learner.keep_reference()
    shown: list[str] = []
    work.rl.show = shown.append
    row = work.rl.step()
    asked = ["generate", "free", "FakeLearner.logprobs", "FakeReference.logprobs", "values", "critic update", "update"]
    assert work.said() == [*asked, "restore", "take_weights 1"]
    _, targets, _, _ = work.learner.seen[0]
    assert targets.old.tolist() == targets.reference.tolist()
    assert row["critic/value_loss"] == 0.5
    assert row["actor/reward_kl"] == 0.0
    assert any(text.startswith("log-probabilities") for text in shown)
    assert work.learner.watcher is None


def test_samplers_keep_their_memory_where_there_is_enough(
    tmp_path: Path, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Standing(config(tmp_path), renderer)
    monkeypatch.setattr(work.learner, "short_of_memory", lambda: False)
    work.rl.step()
    assert work.said() == ["generate", "update", "take_weights 1"]
    work = Standing(config(tmp_path / "run", "actor_rollout_ref.rollout.free_cache_engine=false"), renderer)
    work.rl.step()
    assert "free" not in work.log


def test_a_checkpoint_is_written_and_read_by_those_who_learn(tmp_path: Path, renderer: Renderer) -> None:
    log: list[str] = []
    learner, critic = FakeLearner(log), FakeCritic(log)
    learner.weight, critic.weight = 3.0, 4.0
    saved = checkpoint.save(tmp_path, "step-1", learner, renderer, {"step": 1}, critic)  # type: ignore[arg-type]
    assert (saved / "tokenizer.json").is_file()
    learner.weight = critic.weight = 0.0
    assert checkpoint.load(saved, learner, critic) == {"step": 1}  # type: ignore[arg-type]
    assert (learner.weight, critic.weight) == (3.0, 4.0)


# ---- nobody reaches behind the seams ----


def members(protocol: type) -> set[str]:
    """What a protocol says."""
    return {name for kind in protocol.__mro__ for name in vars(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("kind", "protocol"),
    [
        *((EngineLoop, Sampler), (FakeSampler, Sampler), (LocalLearner, Learner), (FakeLearner, Learner)),
        *((LocalPolicy, ReferencePolicy), (LocalCritic, ValueLearner), (FakeCritic, ValueLearner)),
    ],
)
def test_all_that_a_protocol_asks_for_is_there(kind: type, protocol: type) -> None:
    own = members(kind) | {"version", "window"}  # which instances have
    assert members(protocol) - own == set()
    assert len(members(protocol)) >= 3


ASKED = {
    "learner": members(Learner),
    "sampler": members(Sampler),
    "engine": members(Sampler),
    "reference": members(ReferencePolicy),
    "critic": members(ValueLearner),
}


def last_name(node: ast.expr) -> str:
    """`learner` of `learner`, of `self.learner` and of `self.policy.learner`; empty for settings and for others."""
    if isinstance(node, ast.Attribute):
        return "" if last_name(node.value) == "cfg" else node.attr
    return node.id if isinstance(node, ast.Name) else ""


def reaching(tree: ast.AST, asked: dict[str, set[str]] = ASKED) -> Iterator[str]:
    """Attributes of samplers and learners that their protocols do not have."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            name = last_name(node.value)
            if name in asked and node.attr not in asked[name]:
                yield f"{name}.{node.attr} in line {node.lineno}"


def concrete(tree: ast.AST) -> Iterator[str]:
    """Imports of classes behind the protocols."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in CONCRETE:
            yield str(node.module)
        if isinstance(node, ast.ImportFrom) and node.module == "recollect.engine":
            yield from (a.name for a in node.names if a.name in ("Engine", "EngineLoop"))
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name in CONCRETE)


OUTSIDE = [p for p in sorted(ROOT.rglob("*.py")) if not str(p.relative_to(ROOT)).startswith(OWNERS)]
SETTINGS = ("config/", "workflows/dry_run/")  # a critic there is a section of the configuration


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda p: str(p.relative_to(ROOT)))
def test_nobody_reaches_behind_the_seams(path: Path) -> None:
    tree = ast.parse(path.read_text())
    settings = str(path.relative_to(ROOT)).startswith(SETTINGS)
    asked = {name: known for name, known in ASKED.items() if name != "critic" or not settings}
    assert list(reaching(tree, asked)) == []
    assert list(concrete(tree)) == []


@pytest.mark.parametrize(
    "text",
    [
        "learner.model.config",
        "self.policy.learner.trained",
        "len(self.engine.state.requests)",
        "sampler.threads = 2",
        "found.sampler.model.state_dict()",
        "self.critic.learner.optimizer",
        "reference.model",
    ],
)
def test_the_reader_of_sources_sees_who_reaches(text: str) -> None:
    assert list(reaching(ast.parse(text)))


def test_it_leaves_the_rest_alone() -> None:
    fine = "learner.update(b)\nself.sampler.free()\ncfg.critic.model.share_actor\nself.cfg.critic.optim\ncfg.model.path"
    assert list(reaching(ast.parse(fine))) == []
    assert list(concrete(ast.parse("from recollect.engine import EngineLoop\nimport recollect.engine.loop"))) != []
    assert list(concrete(ast.parse("from recollect.engine import load_fitted, make_engine"))) == []


def test_the_carriers_of_the_seams_hold_no_tensors() -> None:
    """A learner may be many processes: what goes in and out is numbers and arrays."""
    text = (ROOT / "training/learner/learner.py").read_text()
    named = {a.name for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom | ast.Import) for a in n.names}
    assert not named & {"torch", "Tensor", "Module"}
    annotations: dict[str, Any] = {**PolicyTargets.__annotations__, **ModelFacts.__annotations__}
    assert set(annotations.values()) == {"np.ndarray", "np.ndarray | None", "int", "str"}
