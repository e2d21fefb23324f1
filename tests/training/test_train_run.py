"""What a run does besides its steps: validations, the best checkpoint, stopping early, where it starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recollect.config.compose import compose
from recollect.models.tiny import save_scratch
from recollect.runtime.console import Console
from recollect.training.rl.step import Progress
from recollect.training.rl.validate import judge
from recollect.training.train_run import TrainRun
from recollect.types import BadInput
from tests.training.test_resume import command, rows


def fit(out: Path, model: Path, *more: str) -> dict[str, Any]:
    args = command(out, model, "trainer.total_training_steps=4", "trainer.save_freq=2", *more)
    return TrainRun(compose(args[1], args[2:]), Console(quiet=True)).fit()


def checkpoints(out: Path) -> list[str]:
    return sorted(p.name for p in (out / "checkpoints").iterdir())


def names(out: Path) -> list[str]:
    return sorted(str(p.relative_to(out)) for p in out.rglob("*")) if out.exists() else []


# ---- when it validates and saves ----


@pytest.mark.parametrize(("every", "kept"), [(-1, []), (0, ["step-4"]), (2, ["step-0", "step-2", "step-4"])])
def test_save_freq(every: int, kept: list[str], tmp_path: Path, small_model: Path) -> None:
    fit(tmp_path / "run", small_model, f"trainer.save_freq={every}")
    assert checkpoints(tmp_path / "run") == kept


def test_when_it_validates(tmp_path: Path, small_model: Path) -> None:
    fit(tmp_path / "a", small_model, "trainer.val_before_train=false", "trainer.test_freq=2")
    assert [(r["step"], r.get("phase")) for r in rows(tmp_path / "a") if "val/needle/n" in r] == [(2, "rl"), (4, None)]
    fit(tmp_path / "c", small_model, "trainer.test_freq=-1")
    assert [r["step"] for r in rows(tmp_path / "c") if "val/needle/n" in r] == [0]
    fit(tmp_path / "b", small_model, "trainer.test_freq=0")
    assert [(r["step"], r.get("phase")) for r in rows(tmp_path / "b") if "val/needle/n" in r] == [
        (0, "base"),
        (4, None),
    ]


SFT = ["sft.data=expert", "sft.steps=6", "sft.batch_size=4", "sft.optim.lr=1e-2"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("before", [[], SFT], ids=["alone", "after SFT"])
def test_the_sampler_is_the_policy_that_is_trained(
    dtype: str, before: list[str], tmp_path: Path, small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = [f"actor_rollout_ref.{part}.dtype={dtype}" for part in ("actor", "rollout")]
    fit(tmp_path / "run", small_model, *kinds, *before)
    drift = [r["actor/logprob_drift"] for r in rows(tmp_path / "run") if "actor/logprob_drift" in r]
    assert len(drift) == 4
    assert max(drift) < (1e-4 if dtype == "float32" else 0.1)
    assert "differ" not in capsys.readouterr().err


def test_a_sampler_that_is_not_is_told(
    tmp_path: Path, small_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "recollect.training.learner.from_config.is_shared", lambda model, other: True
    )  # weights never reach the engine
    kinds = ["actor_rollout_ref.actor.dtype=float32", "actor_rollout_ref.rollout.dtype=bfloat16"]
    fit(tmp_path / "run", small_model, *kinds, *SFT, "sft.steps=30")
    assert capsys.readouterr().err.count("differ by") == 1


def test_turns_that_are_mostly_cut_are_said_once(
    tmp_path: Path, small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A random model hardly ever ends a turn."""
    args = command(tmp_path / "run", small_model, "trainer.total_training_steps=3")
    TrainRun(compose(args[1], args[2:]), Console()).fit()
    cut = [r["rollout/cut"] for r in rows(tmp_path / "run") if "rollout/cut" in r]
    said = capsys.readouterr().out
    assert max(cut) > 0.5
    assert len(cut) > 1
    assert said.count("were cut at their limit (rollout/cut)") == 1
    assert "recurrent.memory.config.max_memorization_length" in said


def test_validation_does_not_depend_on_its_batches(tmp_path: Path, small_model: Path) -> None:
    sampled = ["actor_rollout_ref.rollout.val_kwargs.n=2", "actor_rollout_ref.rollout.val_kwargs.do_sample=true"]
    only = ["trainer.val_only=true", *sampled]
    a = fit(tmp_path / "a", small_model, *only)["validation"]
    b = fit(tmp_path / "b", small_model, *only, "data.val_batch_size=3")["validation"]
    assert a == b
    assert 0 < a["val/needle/mean@2"] < a["val/needle/best@2"]


# ---- the best checkpoint ----


def test_best_and_patience_are_counted() -> None:
    progress = Progress()
    seen = []
    for step, value in enumerate([0.5, 0.5, 0.6, 0.4, 0.6]):
        progress.step = step
        seen.append((judge(progress, "m", 3, {"m": value}), progress.stale, bool(progress.stopped)))
    assert seen == [(True, 0, False), (False, 1, False), (True, 0, False), (False, 1, False), (False, 2, False)]
    assert (progress.best, progress.best_step) == (0.6, 2)
    judge(progress, "m", 3, {"m": 0.0})
    assert progress.stopped == "3 validations without a better m than 0.6 at step 2"
    assert not judge(Progress(), None, 1, {})


def test_the_best_checkpoint_survives(tmp_path: Path, small_model: Path) -> None:
    out = tmp_path / "run"
    metric = "val/needle/accuracy"
    report = fit(out, small_model, f"trainer.best_metric={metric}", "trainer.test_freq=1", "trainer.max_ckpt_to_keep=1")
    values = {r["step"]: r[metric] for r in rows(out) if "phase" in r}
    step = max(values, key=lambda s: (values[s], -s))
    assert report["best"] == {"metric": metric, "value": values[step], "step": step}
    assert checkpoints(out) == ["best", "step-4"]
    state = json.loads((out / "checkpoints" / "best" / "trainer_state.json").read_text())
    assert (state["step"], state["best"]) == (step, values[step])


def test_early_stop_ends_the_run(tmp_path: Path, small_model: Path) -> None:
    out = tmp_path / "run"
    still = ["actor_rollout_ref.actor.optim.lr=0", "actor_rollout_ref.actor.optim.lr_warmup_steps=0"]
    stop = ["trainer.best_metric=val/needle/accuracy", "trainer.patience=2", "trainer.test_freq=1"]
    report = fit(out, small_model, *still, *stop)
    assert report["steps"] == 2
    assert report["stopped"].startswith("2 validations without a better val/needle/accuracy")
    written = {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.name != "config.yaml"}
    assert fit(out, small_model, *still, *stop) == report
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.name in ("metrics.jsonl", "report.json")}.items() <= (
        written.items()
    )
    (out / "report.json").unlink()  # killed before its report: it is still over
    assert fit(out, small_model, *still, *stop)["steps"] == 2


# ---- only validating ----


def test_val_only_leaves_the_run_alone(tmp_path: Path, small_model: Path) -> None:
    out = tmp_path / "run"
    base = fit(out, small_model, "trainer.val_only=true")
    assert (base["steps"], checkpoints(out), (out / "metrics.jsonl").exists()) == (0, [], False)
    report = fit(out, small_model)
    assert report["held_out"]["base"] == base["held_out"]["base"]
    before = (rows(out), json.loads((out / "report.json").read_text()), checkpoints(out))
    after = fit(out, small_model, "trainer.val_only=true")
    assert after["steps"] == 4
    assert after["held_out"]["rl"] is not None
    assert (rows(out), json.loads((out / "report.json").read_text()), checkpoints(out)) == before
    assert [json.loads(line)["step"] for line in (out / "validation.jsonl").read_text().splitlines()] == [0, 4]


# ---- bad input, refused before anything is written ----


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["trainer.best_metric=val/needle/acuracy"], r"best_metric=val/needle/acuracy is unknown.*val/needle/maj@1"),
        (["trainer.patience=2"], "patience=2 needs trainer.best_metric"),
        (["trainer.logger=[console,wandbb]"], "wandbb is unknown; known: console, jsonl, tensorboard"),
        (["trainer.resume_mode=resume_path"], "needs trainer.resume_from_path"),
        (["trainer.resume_mode=resume_path", "trainer.resume_from_path=nowhere"], "no such folder"),
        (["sft.data=nosuch", "sft.steps=1"], "sft.data=nosuch: known are expert"),
        (["agent.reward_name=trajectory(domain=foo)"], "the domain foo is unknown"),
    ],
)
def test_refused(settings: list[str], message: str, tmp_path: Path, small_model: Path) -> None:
    with pytest.raises(BadInput, match=message):
        fit(tmp_path / "run", small_model, *settings)
    assert names(tmp_path / "run") == []


def test_a_start_that_does_not_fit_is_refused(tmp_path: Path, small_model: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    fit(source, small_model)
    save_scratch(tmp_path / "other", 0, width=48, layers=2, heads=2)
    save_scratch(tmp_path / "deeper", 0, width=32, layers=3, heads=2)
    path = lambda p: ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={p}"]
    for model in ("other", "deeper"):
        with pytest.raises(BadInput, match="does not fit this model"):
            fit(out, tmp_path / model, *path(source / "checkpoints" / "step-4"))
    with pytest.raises(BadInput, match="is not a checkpoint"):
        fit(out, small_model, *path(small_model))
    with pytest.raises(BadInput, match="no checkpoint that can be read"):
        fit(out, tmp_path / "other", *path(source))
    with pytest.raises(BadInput, match=r"at step 4, past trainer\.total_training_steps=3"):
        fit(out, small_model, *path(source), "trainer.total_training_steps=3")
    kl = "actor_rollout_ref.actor.use_kl_loss=true"
    (source / "checkpoints" / "step-0").rename(tmp_path / "moved")
    with pytest.raises(BadInput, match="step-0, is not beside it"):
        fit(out, small_model, *path(source), kl)
    assert names(out) == []
    state = source / "checkpoints" / "step-4" / "trainer_state.json"
    state.write_text(json.dumps({"step": 0}))
    with pytest.raises(BadInput, match="not a checkpoint of RL"):
        fit(out, small_model, *path(state.parent))


def test_a_run_directory_is_a_start_too(tmp_path: Path, small_model: Path) -> None:
    fit(tmp_path / "a", small_model)
    resume = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={tmp_path / 'a'}"]
    fit(tmp_path / "b", small_model, *resume, "trainer.total_training_steps=5")
    assert [r["step"] for r in rows(tmp_path / "b")] == [5, 5]
