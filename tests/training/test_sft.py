"""Supervised training: packed and plain losses agree, batches cover the data, and `recollect sft` does it all."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from recollect.chat import Renderer
from recollect.config.compose import compose
from recollect.runs.directory import RunDirectory
from recollect.runtime.console import Console
from recollect.training.learner.imitation_loss import token_losses
from recollect.training.learner.local_learner import packed
from recollect.training.learner.trained_model import TrainedModel
from recollect.training.sft.batches import StoredBatches
from recollect.training.sft.sequences import SequenceLimits, read_samples
from recollect.training.sft.sft_run import settle, supervise
from recollect.types import BadInput, Sample
from tests.conftest import make_pair
from tests.training import killing


def sequences(seed: int, count: int = 9) -> list[Sample]:
    """Sequences of several lengths, some with a long common beginning, trained on in stretches."""
    rng = random.Random(seed)
    system = [rng.randrange(3, 96) for _ in range(30)]
    out = []
    for i in range(count):
        ids = (system if i % 2 else []) + [rng.randrange(3, 96) for _ in range(rng.randrange(4, 60))]
        mask = [j > 0 and rng.random() < 0.4 for j in range(len(ids))]
        mask[-1] = True
        out.append(Sample(np.array(ids), np.array(mask), np.zeros(len(ids), np.float32), i, 0))
    return out


def plain_loss(model: Any, samples: list[Sample]) -> torch.Tensor:
    """The mean loss over trained tokens, one sequence at a time, by the library's own model."""
    total, count = torch.zeros(()), 0
    for s in samples:
        logits = model(torch.from_numpy(s.ids)[None].long()).logits[0, :-1]
        losses = torch.nn.functional.cross_entropy(logits, torch.tensor(s.ids[1:]), reduction="none")
        kept = torch.tensor(s.mask[1:])
        total, count = total + losses[kept].sum(), count + int(kept.sum())
    return total / count


@pytest.mark.parametrize("kind", ["Qwen2", "Qwen3", "Llama", "Gemma2"])
@pytest.mark.parametrize(("budget", "chunk"), [(10_000, None), (64, None), (10_000, 7)])
def test_packed_is_unpacked(kind: str, budget: int, chunk: int | None) -> None:
    samples = sequences(1)
    plain, ours = make_pair(kind)
    expected = plain_loss(plain, samples)
    expected.backward()
    packs = packed(samples, budget)
    count = sum(len(p.entry) for p in packs)
    assert count == sum(sum(s.mask) for s in samples)
    total = 0.0
    learner = TrainedModel(ours, compose("needle", []).sft.optim, 1, torch.float32)
    right = []

    def loss(model: Any, part: Any) -> torch.Tensor:
        losses, found = token_losses(model, part, chunk)
        right.append(float(found[part.entry_target].sum()))
        return losses[part.entry_target].sum() / count

    total = learner.accumulate(packs, loss)
    assert total == pytest.approx(float(expected.detach()), rel=1e-5)
    theirs = dict(plain.named_parameters())
    for name, p in ours.named_parameters():
        assert p.grad is not None
        assert torch.allclose(p.grad, theirs[name].grad, atol=2e-5, rtol=1e-3), name
    best = 0
    for s in samples:
        logits = plain(torch.from_numpy(s.ids)[None].long()).logits[0, :-1]
        best += int((logits.argmax(-1) == torch.tensor(s.ids[1:]))[torch.tensor(s.mask[1:])].sum())
    assert sum(right) == best


def test_batches_cover_everything_once_an_epoch() -> None:
    samples = sequences(2, 10)
    batches = StoredBatches(samples, 4, 0)
    assert batches.per_epoch == 3
    for epoch in range(3):
        seen = [s.trajectory for b in range(3) for s in batches[epoch * 3 + b]]
        assert sorted(seen) == list(range(10))
    assert [s.trajectory for s in batches[0]] != [s.trajectory for s in batches[3]]


def chats(path: Path, count: int, answer: str = "yes") -> Path:
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"say {answer} {i}"},
                {"role": "assistant", "content": f"{answer} {i}"},
                {"role": "user", "content": "and again"},
                {"role": "assistant", "content": answer},
            ]
        }
        for i in range(count)
    ]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def test_overlong_conversations(tmp_path: Path, renderer: Renderer) -> None:
    file = str(chats(tmp_path / "a.jsonl", 3))
    whole = read_samples([file], renderer, SequenceLimits())
    length = max(len(s.ids) for s in whole.samples)
    cut = read_samples([file], renderer, SequenceLimits(max_length=length - 2))
    assert cut.cut == 3
    assert all(len(s.ids) == length - 2 == len(s.mask) for s in cut.samples)
    none = read_samples([file], renderer, SequenceLimits(max_length=3))
    assert (len(none.samples), none.dropped) == (0, 3)
    dropped = read_samples([file], renderer, SequenceLimits(max_length=length - 1, overlong="drop"))
    assert (len(dropped.samples), dropped.dropped) == (0, 3)
    with pytest.raises(BadInput, match=r"line 1: \d+ tokens, more than"):
        read_samples([file], renderer, SequenceLimits(max_length=length - 1, overlong="error"))


def settings(tmp_path: Path, model: Path, *more: str) -> list[str]:
    train, val = chats(tmp_path / "train.jsonl", 20), chats(tmp_path / "val.jsonl", 5)
    base = [f"data.train_files={train}", f"data.val_files={val}", f"actor_rollout_ref.model.path={model}"]
    return [*base, "sft.batch_size=6", "trainer.threads=1", *more]


BROKEN = {
    "a response that is a number": ({"prompt": "x", "response": 5}, "a response is a text or a list of messages"),
    "a prompt that is a number": ({"prompt": 5, "response": "x"}, "a prompt is a text or a list of messages; found 5"),
    "tool calls that are none": (
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": 5}]},
        "`tool_calls` is a list",
    ),
    "a reward in words": (
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}], "reward": "high"},
        "reward has to be a number or null, not 'high'",
    ),
    "no domain": ({"question": "x", "actions": [], "final_answer": "B"}, "add it to the record as `domain`"),
    "an unknown domain": (
        {"question": "x", "actions": [], "final_answer": "B", "domain": "zzz"},
        "the domain 'zzz' is unknown",
    ),
    "actions that are none": ({"question": "x", "actions": 5, "domain": "math"}, "actions is no list"),
    "a stored run without ids": ({"turns": [{"ids": [1]}], "task_id": "1", "reward": 1}, "lacks prompt_ids"),
    "a stored run without a task": ({"turns": [], "reward": 1}, "lacks task_id"),
    "a stored run of odd turns": (
        {"turns": [{"role": "qa", "ids": 5, "prompt_ids": [1]}], "task_id": "1", "reward": 1},
        "not a trajectory as a run stores it",
    ),
}


@pytest.mark.parametrize(("row", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_row_is_refused_with_file_and_line(
    tmp_path: Path, renderer: Renderer, row: dict[str, Any], words: str
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"prompt": "q", "response": "a"}) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(BadInput) as caught:
        read_samples([str(file)], renderer, SequenceLimits())
    assert str(caught.value).startswith(f"{file}, line 2: ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["actor_rollout_ref.model.lora_rank=4"],
        ["actor_rollout_ref.model.enable_gradient_checkpointing=false", "actor_rollout_ref.actor.dtype=bfloat16"],
        ["actor_rollout_ref.model.use_remove_padding=false", "sft.optim.name=muon", "sft.test_freq=2"],
    ],
)
def test_files_are_learnt_in_epochs(tmp_path: Path, small_model: Path, more: list[str]) -> None:
    out = tmp_path / "run"
    given = settings(tmp_path, small_model, "trainer.total_epochs=3", f"trainer.default_local_dir={out}", *more)
    report = supervise(compose(None, [*given, "sft.optim.lr=1e-2", "sft.optim.lr_warmup_steps=2"]), Console(True))
    assert report["steps"] == 12
    assert report["after"]["loss"] < report["before"]["loss"]
    assert report["after"]["token_accuracy"] >= report["before"]["token_accuracy"]
    assert (out / "model" / "model.safetensors").is_file()
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [r["step"] for r in rows if "val/loss" in r]
    assert steps == ([0, 2, 4, 6, 8, 10, 12] if "sft.test_freq=2" in more else [0, 12])
    rates = [r["sft/lr"] for r in rows if "sft/lr" in r]
    assert rates[0] == pytest.approx(5e-3)
    assert rates[-1] < rates[2]  # warm-up, then cosine


def test_a_killed_run_ends_as_one_left_alone(tmp_path: Path, small_model: Path) -> None:
    more = ["trainer.total_epochs=4", "sft.save_freq=3", "sft.test_freq=5"]
    make = lambda out: ["sft", *settings(tmp_path, small_model, f"trainer.default_local_dir={out}", *more)]
    log, rng = tmp_path / "whole.log", random.Random(3)
    assert killing.run(make(tmp_path / "whole"), log) == 0, log.read_text()
    counts = killing.moments(log)
    died = 0
    for i, kind in enumerate(["update", "row", "sync", "rename"]):
        at = rng.randint(1, max(1, int(counts[kind] * 0.3)))
        died += killing.run(make(tmp_path / "killed"), tmp_path / f"{i}.log", kind, at) == -signal.SIGKILL
    assert died >= 3
    assert killing.run(make(tmp_path / "killed"), tmp_path / "last.log") == 0, (tmp_path / "last.log").read_text()
    one, two = (load_file(tmp_path / n / "model" / "model.safetensors") for n in ("whole", "killed"))
    assert all(torch.equal(one[k], two[k]) for k in one)
    timed = ("time/", "tokens_per_second")
    rows = [
        [
            {k: v for k, v in json.loads(line).items() if not k.startswith(timed)}
            for line in (tmp_path / n / "metrics.jsonl").read_text().splitlines()
        ]
        for n in ("whole", "killed")
    ]
    assert rows[0] == rows[1]
    assert json.loads((tmp_path / "whole" / "sft.json").read_text()) == json.loads(
        (tmp_path / "killed" / "sft.json").read_text()
    )


def test_tools_have_data_of_their_own(tmp_path: Path) -> None:
    for tool in ("reason", "conversations"):
        (tmp_path / "sft" / tool).mkdir(parents=True)
        chats(tmp_path / "sft" / tool / "train.jsonl", 3)
    chats(tmp_path / "sft" / "reason" / "val.jsonl", 2)
    cfg = compose(None, [f"data.train_files={tmp_path / 'sft'}"])
    settle(cfg, "reason")
    assert cfg.data.train_files == [str(tmp_path / "sft/reason/train.jsonl")]
    assert cfg.data.val_files == [str(tmp_path / "sft/reason/val.jsonl")]
    assert cfg.trainer.experiment_name.endswith("reason-sft")
    cfg = compose(None, [f"data.train_files={tmp_path / 'sft'}"])
    settle(cfg, None)
    assert cfg.data.train_files == [str(tmp_path / "sft/conversations/train.jsonl")]
    assert cfg.data.val_files == []
    with pytest.raises(BadInput, match="no data of the tool bash; it has conversations, reason"):
        settle(compose(None, [f"data.train_files={tmp_path / 'sft'}"]), "bash")
    with pytest.raises(BadInput, match="--tool reason takes a folder"):
        settle(compose("needle", []), "reason")


def test_short_name_of_the_reward_limit() -> None:
    assert compose(None, ["data.train_files=x", "min_reward=0.8"]).sft.min_reward == 0.8


def test_losses_do_not_depend_on_who_shares_a_batch() -> None:
    _, ours = make_pair("Qwen2")
    samples = sequences(4)
    alone = []
    for s in samples:
        (part,) = packed([s], 10_000)
        alone.append(token_losses(ours, part)[0][part.entry_target].detach().numpy())
    (together,) = packed(samples, 10_000)
    assert np.allclose(
        token_losses(ours, together)[0][together.entry_target].detach().numpy()[np.argsort(together.entry)],
        np.concatenate(alone),
        atol=1e-4,
    )


@pytest.mark.parametrize("page", ["docs/training.md", "docs/sft.md"])
def test_the_commands_of_the_guides_have_directories_of_their_own(page: str, tmp_path: Path) -> None:
    """So that one can be run after the other."""
    text = (Path(__file__).parents[2] / page).read_text()
    lines = [line.partition("#")[0].split() for line in text.splitlines() if line.startswith("recollect sft ")]
    runs = []
    for words in (line[2:] for line in lines if "--tool" not in line):
        cfg = compose(words[0] if "=" not in words[0] else None, [w for w in words if "=" in w and w[:3] != "min"])
        settle(cfg, None)
        runs.append(RunDirectory.of(cfg).path)
    assert len(runs) >= 3
    assert len(set(runs)) == len(runs)
