"""The run directory: never half written, readable by other programs, and not anybody else's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from recollect.config import Config
from recollect.config.aliases import resolve
from recollect.config.compose import from_yaml
from recollect.files.output import write_atomic
from recollect.runs.directory import RunDirectory, remove_tree, rows_of
from recollect.trajectories.stored_rows import read_trajectories
from recollect.types import BadInput, Completion, Failure, Group, Score, Task, Trajectory, Turn


def config(path: Path, **trainer: Any) -> Config:
    cfg = resolve(Config())
    cfg.trainer.default_local_dir = str(path)
    for key, value in trainer.items():
        setattr(cfg.trainer, key, value)
    return cfg


def groups() -> list[Group]:
    turn = Turn("memory", (1, 2), Completion((3, 4), (-0.5, -1.25), "length", 6, "text 漢\u2028\n😀"), False, 0.7)
    good = Trajectory("t0", 0, [turn], "answer \x85", "answered", Score(1.5, {"f1": 0.5}), None, ["note\r\n"])
    bad = Trajectory("t0", 1, stop="failed", failure=Failure("timeout", "late"))
    return [Group(Task("t0", "q?", answers=("a", "b"), source="s"), [good, bad])]


def test_a_fresh_run_writes_its_configuration_and_folders(tmp_path: Path) -> None:
    cfg = config(tmp_path / "deep" / "run")
    run = RunDirectory.start(cfg)
    assert from_yaml((run.path / "config.yaml").read_text()) == cfg
    assert {p.name for p in run.path.iterdir() if p.is_dir()} == {"trajectories", "checkpoints", "plots"}
    assert RunDirectory.start(cfg).path == run.path  # the same configuration may go on


def test_where_a_run_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = Config()
    cfg.trainer.project_name, cfg.trainer.experiment_name = "p", "e"
    assert RunDirectory.of(cfg).path == Path("runs/p/e")
    monkeypatch.setenv("HOME", "/somewhere")
    cfg.trainer.default_local_dir = "~/x"
    assert RunDirectory.of(cfg).path == Path("/somewhere/x")


def test_another_configuration_is_refused(tmp_path: Path) -> None:
    RunDirectory.start(config(tmp_path / "run"))
    with pytest.raises(BadInput, match=r"another configuration \(trainer.seed is 0 there and 3 here\)"):
        RunDirectory.start(config(tmp_path / "run", seed=3))
    other = config(tmp_path / "run")
    other.data.needle.hops = 2
    with pytest.raises(BadInput, match=r"data\.needle\.hops"):
        RunDirectory.start(other)
    RunDirectory.start(
        config(tmp_path / "run", save_freq=1, max_ckpt_to_keep=9)
    )  # these do not change what a run computes
    assert from_yaml((tmp_path / "run" / "config.yaml").read_text()).trainer.save_freq == 1  # the latest is stored


def test_a_run_may_become_longer_unless_that_bends_its_schedule(tmp_path: Path) -> None:
    for schedule in ("constant", "linear"):
        short, long = (config(tmp_path / schedule, total_training_steps=steps) for steps in (40, 60))
        for cfg in (short, long):
            cfg.actor_rollout_ref.actor.optim.lr_scheduler_type = schedule
        RunDirectory.start(short)
        if schedule == "constant":
            RunDirectory.start(long)
            continue
        with pytest.raises(BadInput, match="total_training_steps is 40 there and 60 here"):
            RunDirectory.start(long)


def test_resume_mode_disable_starts_anew_and_keeps_the_earlier_run(tmp_path: Path) -> None:
    """Of the same configuration or of another one; nothing is deleted, and where it went is said."""
    said: list[str] = []
    RunDirectory.start(config(tmp_path / "run", resume_mode="disable"), said.append).log({"step": 1})
    assert not said
    RunDirectory.start(config(tmp_path / "run", resume_mode="disable"), said.append).log({"step": 2})
    run = RunDirectory.start(config(tmp_path / "run", resume_mode="disable", seed=3), said.append)
    assert run.metrics() == []
    assert [RunDirectory(tmp_path / f"run.old-{i}").metrics() for i in (1, 2)] == [[{"step": 1}], [{"step": 2}]]
    assert len(said) == 2
    assert "run.old-2" in said[1]


def test_resume_mode_disable_leaves_alone_what_is_not_a_run_or_is_needed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "cat.jpg").write_text("")
    with pytest.raises(BadInput, match="not a run of recollect"):
        RunDirectory.start(config(tmp_path / "mine", resume_mode="disable"))
    RunDirectory.start(config(tmp_path / "run"))
    cfg = config(tmp_path / "run", resume_mode="disable")
    cfg.actor_rollout_ref.model.path = str(tmp_path / "run" / "checkpoints" / "step-1")
    with pytest.raises(BadInput, match=r"this run needs .*step-1 from it"):
        RunDirectory.start(cfg)
    assert (tmp_path / "run" / "config.yaml").is_file()


def test_what_is_not_ours_is_refused_and_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "cat.jpg").touch()
    with pytest.raises(BadInput, match="not empty and not a run of recollect"):
        RunDirectory.start(config(folder))
    assert [p.name for p in folder.iterdir()] == ["cat.jpg"]
    with pytest.raises(BadInput, match="is a file"):
        RunDirectory.start(config(folder / "cat.jpg"))
    (tmp_path / "empty").mkdir()
    RunDirectory.start(config(tmp_path / "empty"))  # an empty folder is as good as none


def test_a_run_killed_while_it_wrote_its_configuration_can_be_started(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml.tmp").write_text("trainer:\n  se")
    RunDirectory.start(config(folder))
    assert (folder / "config.yaml").is_file()


# ---- writing ----


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file(broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")

    def fail(*args: Any) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, broken, fail)
        with pytest.raises(OSError, match="disk full"):
            write_atomic(path, "new" * 1000)
    assert path.read_text() == "old"
    write_atomic(path, "newer")
    assert path.read_text() == "newer"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_file_is_whole_and_synced_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append("sync"), sync(fd)))

    def watched(source: Path, target: Path) -> None:
        events.append((Path(source).read_bytes(), Path(target).exists()))
        replace(source, target)

    monkeypatch.setattr(os, "replace", watched)
    write_atomic(tmp_path / "file", "漢".encode() * 10)
    assert events == ["sync", ("漢".encode() * 10, False)]


def test_remove_tree(tmp_path: Path) -> None:
    folder = tmp_path / "step-1"
    for _ in range(2):
        (folder / "deep").mkdir(parents=True)
        (tmp_path / ".step-1.deleted").mkdir(exist_ok=True)  # left behind by a kill
        remove_tree(folder)
        assert list(tmp_path.iterdir()) == []
    remove_tree(folder)  # nothing there is fine


# ---- metrics ----


def test_metrics_are_appended_and_truncated(tmp_path: Path) -> None:
    run = RunDirectory.start(config(tmp_path / "run"))
    assert (run.metrics(), run.metrics_size()) == ([], 0)
    warnings: list[str] = []
    run.truncate_metrics(0, warnings.append)
    for step in range(3):
        run.log({"step": step, "name": "漢"})
        if step == 1:
            size = run.metrics_size()
    run.truncate_metrics(size, warnings.append)
    assert warnings == []
    assert [r["step"] for r in run.metrics()] == [0, 1]
    run.log({"step": 2})
    assert [r["step"] for r in run.metrics()] == [0, 1, 2]
    assert run.metrics_path.read_text().count("\n") == 3


@pytest.mark.parametrize("tail", ['{"step": 2, "rew', "{", '{"step": 2}'[:-1], "\x00\x00"])
def test_a_half_written_last_line_is_left_out(tail: str, tmp_path: Path) -> None:
    run = RunDirectory.start(config(tmp_path / "run"))
    run.log({"step": 1})
    with run.metrics_path.open("a") as file:
        file.write(tail)
    assert run.metrics() == [{"step": 1}]


def test_a_half_written_character_is_left_out_too(tmp_path: Path) -> None:
    run = RunDirectory.start(config(tmp_path / "run"))
    run.log({"step": 1, "name": "漢"})
    assert run.metrics_path.read_bytes().isascii()  # so a cut cannot fall inside a character
    with run.metrics_path.open("ab") as file:
        file.write(b'{"step": 2, "na')
    assert run.metrics() == [{"step": 1, "name": "漢"}]


def test_truncating_never_makes_the_metrics_longer(tmp_path: Path) -> None:
    """Metrics are not synced: after a power cut the file may be shorter than the checkpoint remembers."""
    run = RunDirectory.start(config(tmp_path / "run"))
    run.log({"step": 1})
    warnings: list[str] = []
    run.truncate_metrics(10_000, warnings.append)
    assert len(warnings) == 1
    run.log({"step": 2})
    assert [r["step"] for r in run.metrics()] == [1, 2]


def strict(text: str) -> Any:
    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_is_written_is_json_for_other_programs_too(number: float, tmp_path: Path) -> None:
    run = RunDirectory.start(config(tmp_path / "run"))
    run.log({"step": 1, "grad_norm": number})
    run.write_json("report.json", {"value": number})
    made = groups()
    made[0].trajectories[0].score = Score(1.0, {"part": number})
    run.save_trajectories("step-1", made)
    assert strict(run.metrics_path.read_text())["step"] == 1
    assert "value" in strict((run.path / "report.json").read_text())
    for row in run.trajectories():
        strict(json.dumps(row))


# ---- trajectories ----


def test_trajectories_round_trip(tmp_path: Path) -> None:
    run = RunDirectory.start(config(tmp_path / "run"))
    run.save_trajectories("step-000002", groups())
    run.save_trajectories("step-000001", groups()[:0])
    rows = list(run.trajectories())
    assert rows == list(rows_of(groups()))
    good, bad = rows
    assert good["turns"][0] == {
        "role": "memory",
        "is_final": 0,
        "question": 0,
        "prompt_ids": [1, 2],
        "ids": [3, 4],
        "logprobs": [-0.5, -1.25],
        "text": "text 漢\u2028\n😀",
        "stop": "length",
        "version": 6,
        "trainable": False,
        "is_trainable": False,
        "temperature": 0.7,
    }
    assert (good["answer"], good["reward"], good["parts"], good["notes"]) == (
        "answer \x85",
        1.5,
        {"f1": 0.5},
        ["note\r\n"],
    )
    assert (good["question"], good["answers"], good["source"], good["failure"]) == ("q?", ["a", "b"], "s", None)
    assert (bad["reward"], bad["failure"]) == (None, {"kind": "timeout", "message": "late"})


def test_another_try_at_a_step_replaces_the_first(tmp_path: Path) -> None:
    run = RunDirectory.start(config(tmp_path / "run"))
    run.save_trajectories("step-000001", groups() * 3)
    run.save_trajectories("step-000001", groups())
    assert len(list(run.trajectories())) == 2
    (path,) = (run.path / "trajectories").iterdir()
    assert len(list(read_trajectories(path))) == 2


def test_json_files(tmp_path: Path) -> None:
    run = RunDirectory.start(config(tmp_path / "run"))
    assert run.read_json("report.json") is None
    run.write_json("report.json", {"a": [1, None]})
    assert run.read_json("report.json") == {"a": [1, None]}


def test_a_run_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """Keys that came later are missing in what it stored, and some had other defaults."""
    cfg = config(tmp_path / "run")
    run = RunDirectory.start(cfg)
    stored = OmegaConf.create((run.path / "config.yaml").read_text())
    for optim in (stored.actor_rollout_ref.actor.optim, stored.critic.optim, stored.sft.optim):
        del optim["lr_warmup_steps_ratio"]
        optim.lr_warmup_steps = max(0, optim.lr_warmup_steps)
    del stored.critic["shuffle"]
    stored.trainer.test_freq = -1
    (run.path / "config.yaml").write_text(OmegaConf.to_yaml(stored))
    assert RunDirectory.usable(cfg).path == run.path
    stored.trainer.seed = 5
    (run.path / "config.yaml").write_text(OmegaConf.to_yaml(stored))
    with pytest.raises(BadInput, match=r"trainer\.seed is 5 there"):
        RunDirectory.usable(cfg)
