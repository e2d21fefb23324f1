"""Runs and models that were damaged, cut or used by two processes at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from recollect.config.compose import compose
from recollect.files.locks import lock_file, lock_folder, refuse_locked
from recollect.models.load import load_model
from recollect.runs.directory import RunDirectory
from recollect.runtime.console import Console
from recollect.training import checkpoint
from recollect.training.learner.weight_files import OPTIMIZER
from recollect.training.sft.sft_run import supervise
from recollect.training.train_run import TrainRun
from recollect.types import BadInput
from tests import commands
from tests.training.test_resume import command, rows
from tests.waiting import until

# ---- locks ----


def test_a_second_process_is_refused_and_told_whose_it_is(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from recollect.files.locks import lock_folder as f; l = f(pathlib.Path(sys.argv[1]), 'x')"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", f"{code}; print('held', flush=True); input()", str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(BadInput, match=f"the run is in use by process {holder.pid};"):
        lock_folder(tmp_path, "the run")
    with pytest.raises(BadInput, match="in use"):
        refuse_locked(tmp_path, "the run")
    holder.kill()
    holder.wait()
    with lock_folder(tmp_path, "the run"):
        pass


def test_a_process_does_not_lock_itself_out(tmp_path: Path) -> None:
    for _ in range(2):
        with lock_file(tmp_path / "out.jsonl", "--out"), lock_file(tmp_path / "out.jsonl", "--out"):
            assert (tmp_path / ".out.jsonl.lock").read_text() == f"{os.getpid()}\n"


# ---- checkpoints ----

STEPS = ("trainer.total_training_steps=3", "trainer.save_freq=1", "trainer.max_ckpt_to_keep=5")


def trained(out: Path, model: Path) -> dict[str, torch.Tensor]:
    args = command(out, model, *STEPS)
    TrainRun(compose(args[1], args[2:]), Console(quiet=True)).fit()
    return last_weights(out)


def last_weights(out: Path) -> dict[str, torch.Tensor]:
    weights = load_file(out / "checkpoints" / "step-3" / "model.safetensors")
    return {name: weight.clone() for name, weight in weights.items()}  # loaded ones are the file itself


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory, small_model: Path) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    trained(out, small_model)
    return out


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))


def state_of(text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / checkpoint.STATE).write_text(text)
        (folder / "checksums.json").unlink()  # as an older version would have written it

    return write


def changed(**values: object) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        state = json.loads((folder / checkpoint.STATE).read_text())
        state.pop("files")  # an older version lists none
        state_of(json.dumps(state | values))(folder)

    return write


def without_checksums(left: str | None, name: str) -> Callable[[Path], None]:
    """Lose the checksums, or all that they say, and flip a byte that they would have shown."""

    def damage(folder: Path) -> None:
        place = folder / "checksums.json"
        if left is None:
            place.unlink()
        elif left == "some":
            place.write_text(json.dumps({k: v for k, v in json.loads(place.read_text()).items() if k != name}))
        else:
            place.write_text(left)
        flip(folder / name)

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        without_checksums(None, "model.safetensors"),
        without_checksums("{}", "model.safetensors"),
        without_checksums("{}", OPTIMIZER),
        without_checksums("[]", OPTIMIZER),
        without_checksums("some", OPTIMIZER),
        lambda folder: flip(folder / "model.safetensors"),
        lambda folder: flip(folder / OPTIMIZER),
        lambda folder: (folder / OPTIMIZER).unlink(),
        state_of("{}"),
        state_of("[]"),
        state_of('{"step": 3}'),
        changed(step=-1),
        changed(step=10**9),
        changed(step="3"),
    ],
    ids=[
        "no-sums",
        "no-entries",
        "no-entries-2",
        "list-of-sums",
        "an-entry",
        "weights",
        "optimizer",
        "gone",
        "empty",
        "list",
        "little",
        "negative",
        "huge",
        "text",
    ],
)
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    damage: Callable[[Path], None], whole_run: Path, small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = whole_run.with_name("damaged")  # beside it: both use the reward file there
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(whole_run, out)
    whole = last_weights(out)
    damage(out / "checkpoints" / "step-3")
    (out / "report.json").unlink()
    again = trained(out, small_model)
    assert "checkpoint step-3 cannot be read" in capsys.readouterr().err
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    assert [r["step"] for r in rows(out) if "reward/mean" in r] == [1, 2, 3]


def damaged_copy(run: Path, name: str = "damaged") -> Path:
    out = run.with_name(name)
    shutil.rmtree(out, ignore_errors=True)
    return shutil.copytree(run, out)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: flip(folder / "model.safetensors"),
        lambda folder: flip(folder / OPTIMIZER),
        lambda folder: (folder / "model.safetensors").unlink(),
        lambda folder: (folder / "tokenizer.json").unlink(),
        state_of("{}"),
        changed(step=7),
    ],
    ids=["weights", "optimizer", "gone", "tokenizer", "empty", "step"],
)
def test_a_finished_run_is_only_finished_while_its_checkpoint_is_whole(
    damage: Callable[[Path], None], whole_run: Path, small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = damaged_copy(whole_run)
    whole = last_weights(out)
    damage(out / "checkpoints" / "step-3")
    again = trained(out, small_model)
    said = capsys.readouterr().err
    assert "was complete, but its checkpoint step-3 is damaged" in said
    assert "checkpoint step-3 cannot be read" in said
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    assert [r["step"] for r in rows(out) if "reward/mean" in r] == [1, 2, 3]
    trained(out, small_model)
    assert not capsys.readouterr().err


def test_a_finished_run_without_a_whole_checkpoint_is_refused(whole_run: Path, small_model: Path) -> None:
    out = damaged_copy(whole_run)
    for folder in (out / "checkpoints").glob("step-*"):
        flip(folder / "model.safetensors")
    with pytest.raises(BadInput, match=r"no checkpoint of .* can be read"):
        trained(out, small_model)


def test_a_finished_run_whose_best_checkpoint_is_damaged_is_refused(whole_run: Path, small_model: Path) -> None:
    out = damaged_copy(whole_run)
    shutil.copytree(out / "checkpoints" / "step-2", out / "checkpoints" / "best")
    flip(out / "checkpoints" / "best" / "model.safetensors")
    with pytest.raises(BadInput, match=r"the checkpoint best is damaged: .*; delete it"):
        trained(out, small_model)
    shutil.rmtree(out / "checkpoints" / "best")
    trained(out, small_model)


def imitated(out: Path, model: Path) -> dict[str, torch.Tensor]:
    settings = [f"trainer.default_local_dir={out}", f"actor_rollout_ref.model.path={model}", "sft.steps=2"]
    supervise(compose("needle", [*settings, "sft.batch_size=4", "data.val_max_samples=2"]), Console(quiet=True))
    return {name: weight.clone() for name, weight in load_file(out / "model" / "model.safetensors").items()}


def test_a_finished_sft_run_writes_a_damaged_model_again(
    tmp_path: Path, small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = imitated(tmp_path / "run", small_model)
    before = rows(tmp_path / "run")
    flip(tmp_path / "run" / "model" / "model.safetensors")
    with pytest.raises(BadInput, match=r"model\.safetensors is damaged"):
        load_model(str(tmp_path / "run" / "model"), torch.float32)
    again = imitated(tmp_path / "run", small_model)
    assert "was complete, but is damaged" in capsys.readouterr().err
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    assert rows(tmp_path / "run") == before
    flip(tmp_path / "run" / "checkpoints" / "step-0" / "model.safetensors")
    with pytest.raises(BadInput, match=r"step-0 cannot be read .* move .* away to train again"):
        imitated(tmp_path / "run", small_model)


@pytest.mark.parametrize("left", [None, "{}"])
def test_the_model_of_a_finished_sft_run_does_not_lose_its_checksums_unnoticed(
    left: str | None, tmp_path: Path, small_model: Path
) -> None:
    imitated(tmp_path / "run", small_model)
    without_checksums(left, "model.safetensors")(tmp_path / "run" / "model")
    with pytest.raises(BadInput, match=r"checksums\.json is "):
        load_model(str(tmp_path / "run" / "model"), torch.float32)


@pytest.mark.parametrize("cut", ["gone", "empty", "a line", "in a line", "in the last line"])
def test_a_run_that_lost_rows_of_metrics_says_so_and_goes_on(
    cut: str, whole_run: Path, small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = damaged_copy(whole_run)
    shutil.rmtree(out / "checkpoints" / "step-3")
    (out / "report.json").unlink()
    path, before = out / "metrics.jsonl", rows(out)
    first = path.read_bytes().index(b"\n") + 1
    known = json.loads((out / "checkpoints" / "step-2" / checkpoint.STATE).read_text())["metrics_size"]
    sizes = {"empty": 0, "a line": first, "in a line": first + 9, "in the last line": known - 3}
    path.unlink() if cut == "gone" else os.truncate(path, sizes[cut])
    again = trained(out, small_model)
    said = capsys.readouterr().err
    assert f"{path} has lost rows" in said
    assert len(said.splitlines()) == 1
    assert last_weights(whole_run).keys() == again.keys()
    assert all(torch.equal(weight, again[name]) for name, weight in last_weights(whole_run).items())
    after = rows(out)
    assert after[-1]["step"] == 3
    assert all(row in before for row in after if "reward/mean" in row)
    path.unlink()
    trained(out, small_model)  # complete by now
    assert "has lost rows" in capsys.readouterr().err


def test_a_checkpoint_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc] unexpected pos")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match=r"the checkpoint .*step-0 could not be written"):
        trained(tmp_path / "run", small_model)
    assert not list((tmp_path / "run" / "checkpoints").iterdir())


# ---- models ----


def rewritten(model: Path, out: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> str:
    out.mkdir()
    for file in model.iterdir():
        (out / file.name).write_bytes(file.read_bytes())
    weights = load_file(out / "model.safetensors")
    change(weights)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    return str(out)


NAMED = "model.layers.0.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: w.pop(NAMED), "lacks weights of the model"),
        (
            lambda w: w.update({NAMED: w[NAMED][:-1].clone()}),
            rf"shape .*: {NAMED} is \(\d+, \d+\) in the file and \(",
        ),
        (lambda w: w.update({NAMED: w[NAMED].T.contiguous()[:3].clone()}), rf"{NAMED} is \(3, \d+\) in the file"),
        (lambda w: w.update(extra=torch.zeros(2)), "holds weights that the model does not have: extra"),
        (lambda w: w[NAMED].fill_(float("nan")), "not finite"),
        (lambda w: w[NAMED].view(-1)[3:4].fill_(float("inf")), "not finite"),
    ],
)
def test_a_model_that_is_not_all_there_is_refused(
    change: Callable[[dict[str, torch.Tensor]], None], said: str, tmp_path: Path, small_model: Path
) -> None:
    with pytest.raises(BadInput, match=said):
        load_model(rewritten(small_model, tmp_path / "model", change), torch.float32)


def test_a_checkpoint_with_a_flipped_byte_is_not_used(tmp_path: Path, whole_run: Path) -> None:
    folder = shutil.copytree(whole_run, tmp_path / "run") / "checkpoints" / "step-3"
    load_model(str(folder), torch.float32)
    flip(folder / "model.safetensors")
    with pytest.raises(BadInput, match=r"model\.safetensors is damaged"):
        load_model(str(folder), torch.float32)


# ---- two processes, and a signal ----


def test_a_second_run_is_refused_and_sigterm_saves_the_first(tmp_path: Path, small_model: Path) -> None:
    out = tmp_path / "run"
    args = command(out, small_model, "trainer.total_training_steps=2000", "trainer.save_freq=5000")
    first = subprocess.Popen([sys.executable, "-m", "recollect", *args], stdout=subprocess.DEVNULL)
    try:
        assert until(lambda: any("reward/mean" in r for r in RunDirectory(out).metrics()), 200)
        second = commands.run(*args)
        assert second.returncode == 2
        assert f"in use by process {first.pid}" in second.stderr
        first.send_signal(signal.SIGTERM)  # as the first Ctrl-C
        assert first.wait(200) == 130
    finally:
        first.kill()  # whatever failed, nothing stays behind to hold a core
    steps = [r["step"] for r in rows(out) if "reward/mean" in r]
    assert steps == list(range(1, len(steps) + 1))
    assert checkpoint.names(out / "checkpoints", "step")[-1] == f"step-{steps[-1]}"
