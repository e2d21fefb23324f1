"""Files and options that cannot work: one line, which names the file, and exit code 2. Nothing is read without end."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from recollect.config import amounts
from recollect.config.compose import compose, read_recipe, to_yaml
from recollect.files.output import write_atomic, writing
from recollect.files.reading import MOST_DEPTH, bounded, is_deep, parse_json, read_bytes
from recollect.files.rows import read_rows
from recollect.files.unpacking import Frames, unpacked_lines
from recollect.files.yaml import MOST_BYTES, read_mapping
from recollect.models.checkpoints import problem
from recollect.models.load import load_config, load_tokenizer
from recollect.runs.directory import RunDirectory
from recollect.runtime.console import Console
from recollect.runtime.plugins import find
from recollect.trajectories.stored_rows import read_trajectories
from recollect.trajectories.stream import FilePiece, records
from recollect.types import BadInput
from recollect.workflows.dry_run.dry_run import dry_run
from tests import commands

ROW = {"question": "2 + 2?", "answer": "4", "context": "Two and two are four."}
RECORD = {"question": "2 + 2?", "domain": "math", "actions": [], "final_answer": "4", "success": True}
DEEP = '{"question": "a", "answer": ' + "[" * 3000 + "]" * 3000 + "}"
LONG = '{"question": "a", "answer": ' + "9" * 6000 + "}"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{chr(ord(name) - 1)}'] * 9)}]\n" for name in "bcdefghi"
)


def refused(work: Callable[[], object]) -> str:
    """What is said about input that is refused: one line."""
    with pytest.raises(BadInput) as caught:
        work()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def rows_of(path: Path) -> list[object]:
    return [row for _, row in read_rows(path)]


def told(*args: str, cwd: Path) -> str:
    """The only line that a command says when it refuses something."""
    done = commands.run(*args, cwd=cwd)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert len(lines) == 1, lines
    return lines[0]


# ---- what is no file ----


@pytest.mark.parametrize(
    "args",
    [
        ["convert", "/dev/zero", "--domain", "math", "--out", "o.jsonl"],
        ["reward", "/dev/zero"],
        ["sft-data", "/dev/zero", "--out", "o"],
        ["rollout", "--domain", "math", "--question", "1 + 1?", "--context", "/dev/zero", "--out", "o.json"],
        ["rollout", "--domain", "tau", "--question", "?", "--context", "/dev/zero", "--out", "o.json"],
        ["rollout", "--domain", "math", "--data", "/dev/zero", "--out", "o.json"],
        ["ask", "tiny", "who?", "--document", "/dev/zero"],
        ["data", "gsm8k", "/dev/zero", "o.json"],
        ["data", "squad", "/dev/zero", "o.json"],
        ["data", "haystack", "/dev/zero", "o.json"],
        ["train", "--config", "/dev/zero", "--dry-run"],
        ["train", "/dev/zero", "--dry-run"],
        ["pipeline", "/dev/zero"],
        ["reward", "some.jsonl", "--weights", "/dev/zero"],
        ["sft-data", "some.jsonl", "--templates", "/dev/zero", "--out", "o"],
        ["train", "data.train_files=/dev/zero", "--dry-run"],
        ["sft", "data.train_files=/dev/zero"],
    ],
    ids=lambda args: " ".join(args[:3]),
)
def test_a_device_is_no_file(args: list[str], tmp_path: Path) -> None:
    (tmp_path / "some.jsonl").write_text(json.dumps(RECORD) + "\n")
    assert "/dev/zero" in told(*args, cwd=tmp_path)


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").symlink_to(tmp_path / "gone")
    assert "rows.jsonl (the link there leads nowhere)" in refused(lambda: rows_of(tmp_path / "rows.jsonl"))
    (tmp_path / "run").symlink_to(tmp_path / "gone")
    for name in ("trainer.default_local_dir=run", "actor_rollout_ref.model.path=./run"):
        assert "run" in told("train", name, "--dry-run", cwd=tmp_path)


def test_a_pipe_is_read_up_to_a_bound(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(json.dumps(ROW) + "\n"), daemon=True)
    writer.start()
    assert rows_of(pipe) == [ROW]
    writer.join()
    endless = subprocess.Popen(["sh", "-c", f"exec cat /dev/zero > {pipe} 2> /dev/null"])
    try:
        assert "more than the 8 MB" in refused(lambda: read_bytes(pipe, 8 << 20))
    finally:
        endless.wait(60)


def test_a_pipe_that_nobody_writes_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.files.waiting_files.WRITER_S", 0.3)
    for name in ("pipe.jsonl", "pipe.json", "pipe.csv", "pipe.parquet"):
        os.mkfifo(tmp_path / name)
        assert name in refused(lambda name=name: rows_of(tmp_path / name))  # type: ignore[misc]
    assert "pipe that nobody" in refused(lambda: read_mapping(tmp_path / "pipe.json", "recipe"))


def test_a_slow_writer_is_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    text = json.dumps(ROW)
    code = f"exec 3> {pipe}; sleep 0.5; printf '%s' '{text[:9]}' >&3; sleep 0.5; printf '%s\\n' '{text[9:]}' >&3"
    writer = subprocess.Popen(["sh", "-c", code])
    assert rows_of(pipe) == [ROW]
    writer.wait(60)


@pytest.mark.skipif(not os.access("/proc/version", os.R_OK), reason="no /proc")
def test_files_of_the_kernel_are_refused(tmp_path: Path) -> None:
    for place in ("/proc/version", "/proc/kmsg"):
        (tmp_path / "rows.jsonl").unlink(missing_ok=True)
        (tmp_path / "rows.jsonl").symlink_to(place)
        assert "rows.jsonl" in refused(lambda: rows_of(tmp_path / "rows.jsonl"))
    assert "/proc/version" in told("train", "--config", "/proc/version", "--dry-run", cwd=tmp_path)
    (tmp_path / "empty.jsonl").touch()
    assert rows_of(tmp_path / "empty.jsonl") == []


def test_large_files_are_refused_before_they_are_read(tmp_path: Path) -> None:
    for name in ("rows.json", "rows.yaml"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 40)
    assert "rows.json has more than the 2048 MB" in refused(lambda: rows_of(tmp_path / "rows.json"))
    assert "rows.yaml has more than the 1 MB" in refused(lambda: read_mapping(tmp_path / "rows.yaml", "recipe"))
    (tmp_path / "line").write_bytes(b"short\n" + b"x" * 100)
    with (tmp_path / "line").open("rb") as file:
        assert "line 2: it is longer" in refused(lambda: list(bounded(file, "line", 50)))


# ---- JSON ----


@pytest.mark.parametrize(("text", "words"), [(DEEP, "nested"), (LONG, "digits"), ('{"a": \x00}', "broken JSON")])
def test_values_that_json_cannot_hold(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\n" + text + "\n")
    (tmp_path / "rows.json").write_text(f"[{text}]")
    for name, place in (("rows.jsonl", "rows.jsonl: broken JSON at line 2"), ("rows.json", "rows.json")):
        said = refused(lambda name=name: rows_of(tmp_path / name))  # type: ignore[misc]
        assert place in said
        assert words in said
    assert "rows.json" in told("reward", "rows.json", cwd=tmp_path)


def test_depth() -> None:
    def nested(depth: int) -> str:
        return "[" * depth + "]" * depth

    assert is_deep(parse_json(nested(MOST_DEPTH), "x")) is False
    assert "x: broken JSON: it is nested" in refused(lambda: parse_json(nested(MOST_DEPTH + 1), "x"))
    assert "x: broken JSON: it is nested" in refused(lambda: parse_json(nested(100_000), "x"))


# ---- parquet, zst ----


def test_a_damaged_parquet_page(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"question": [f"what {i}" for i in range(2000)]}), path)
    data = bytearray(path.read_bytes())
    for i in range(100, len(data) // 2, 7):
        data[i] ^= 0x55
    path.write_bytes(data)
    assert str(path) in refused(lambda: rows_of(path))


def packed(count: int = 50) -> bytes:
    text = "".join(json.dumps({**RECORD, "task_id": str(i), "turns": []}) + "\n" for i in range(count))
    return zstandard.ZstdCompressor().compress(text.encode())


@pytest.mark.parametrize("kind", ["cut", "short", "garbage", "flipped", "empty"])
def test_zst_that_is_cut_or_garbage(kind: str, tmp_path: Path) -> None:
    whole = zstandard.ZstdCompressor(write_checksum=True).compress(
        b'{"a": "%s"}\n' % random.Random(0).randbytes(99).hex().encode()
    )
    flipped = bytearray(whole)
    flipped[20] ^= 1
    made = {
        "cut": packed()[: len(packed()) // 2],
        "short": packed(1)[:6],
        "garbage": random.Random(1).randbytes(100),
        "flipped": bytes(flipped),
        "empty": b"",
    }
    path = tmp_path / "step-1.jsonl.zst"
    path.write_bytes(made[kind])
    if kind == "empty":
        assert list(read_trajectories(path)) == []
        return
    assert f"{path} is damaged" in refused(lambda: list(read_trajectories(path)))
    found = list(records(FilePiece(str(path), "packed")))
    assert "damaged" in found[-1].wrong
    assert "step-1.jsonl.zst" in told("reward", path.name, cwd=tmp_path)


def test_zst_of_several_frames_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "step-1.jsonl.zst"
    path.write_bytes(packed(3) + packed(4))
    assert len(list(read_trajectories(path))) == 7


def test_zst_that_grows_without_end_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "bomb.jsonl.zst"
    with path.open("wb") as file, zstandard.ZstdCompressor().stream_writer(file) as stream:
        for _ in range(512):
            stream.write(bytes(1 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with path.open("rb") as raw:
        assert len(Frames(raw).read(1000)) == 1000
    with path.open("rb") as raw:
        assert "line 1: it is longer" in refused(
            lambda: list(bounded(__import__("io").BufferedReader(Frames(raw)), "x", 1 << 20))
        )
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


@pytest.mark.parametrize("line", [b"\n", b"{}\n", b" " * 99 + b"\n"], ids=["newlines", "objects", "spaces"])
def test_zst_that_grows_like_no_data_is_refused_soon(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bomb.jsonl.zst"
    with path.open("wb") as file, zstandard.ZstdCompressor().stream_writer(file) as stream:
        for _ in range(1100):
            stream.write(line * ((1 << 20) // len(line)))
    assert path.stat().st_size < 1 << 20
    start = time.monotonic()
    assert "bomb.jsonl.zst is damaged: it unpacks to more than 2,000 times" in refused(lambda: list(lines_of(path)))
    assert time.monotonic() - start < 30


def lines_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as raw:
        for line in unpacked_lines(raw, path):
            if len(line) > 200:
                yield line


def test_text_that_repeats_itself_is_no_bomb(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.zst"
    row = json.dumps({"text": random.Random(0).choices(range(10**6), k=20_000)}).encode() + b"\n"
    with path.open("wb") as file, zstandard.ZstdCompressor(level=3).stream_writer(file) as stream:
        for i in range(600):
            stream.write(b"%d " % i + row)
    with path.open("rb") as raw:
        assert sum(1 for _ in unpacked_lines(raw, path)) == 600


# ---- YAML ----


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("5", "mapping"),
        ("- 5", "mapping"),
        ("text", "mapping"),
        (BOMB, "100,000 values"),
        ("a: &a [*a]", "alias"),
        ("a: *b", "alias"),
        ("a: &a {b: *a}", "alias"),
        ("a: " + "[" * 500 + "]" * 500, "deep"),
        ("a: " + "9" * 6000, "digits"),
        ("a: 2024-13-45", "month"),
        ("a: [1", "is not YAML"),
        ("a: \x00", "is not YAML"),
        ("a: !!python/object/apply:os.system [ls]", "is not YAML"),
        ("? [a, b]\n: 1", "unhashable"),
        ("x" * (MOST_BYTES + 1), "1 MB"),
    ],
    ids=lambda text: text[:12] if len(text) < 100 else "large",
)
def test_yaml_that_cannot_work(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    for read in (lambda: read_recipe(str(path)), lambda: read_mapping(path, "recipe")):
        said = refused(read)
        assert "bad.yaml" in said
    assert words in said or words in refused(lambda: read_recipe(str(path)))


def test_merged_aliases_are_bounded(tmp_path: Path) -> None:
    lines = ["a0: &a0 {k: 1}"] + [f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}" for i in range(1, 40)]
    (tmp_path / "bad.yaml").write_text("\n".join(lines))
    assert "100,000 values" in refused(lambda: read_mapping(tmp_path / "bad.yaml", "recipe"))


def test_aliases_that_are_fine(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: [*a, *a]")
    found = read_mapping(tmp_path / "good.yaml", "recipe")
    assert found["b"] == {"x": 1, "y": 2}


# ---- run directories and models ----


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    cfg = compose("needle", [f"trainer.default_local_dir={folder}"])
    (folder / "config.yaml").write_text(to_yaml(cfg))
    return folder


@pytest.mark.parametrize("text", [b"\xff\xfe\x00", b"5", b"a: [", BOMB.encode(), b"trainer: 5", b"nonsense: 1"])
def test_a_runs_configuration_that_cannot_be_read(text: bytes, run: Path) -> None:
    (run / "config.yaml").write_bytes(text)
    assert "run" in told("train", f"trainer.default_local_dir={run}", "--dry-run", cwd=run.parent)


def test_metrics_that_cannot_be_read(run: Path) -> None:
    made = RunDirectory(run)
    made.metrics_path.write_bytes(b'{"step": 1}\n{"step"')
    assert made.metrics() == [{"step": 1}]  # what a kill has cut
    made.metrics_path.write_bytes(b'{"step": 1}\n\xff\x00\n{"step": 2}\n')
    assert "metrics.jsonl: broken JSON at line 2" in refused(made.metrics)
    made.metrics_path.unlink()
    made.metrics_path.mkdir()
    assert "metrics.jsonl is a folder" in refused(made.metrics)


@pytest.mark.parametrize(
    "command", [["export", "m", "--out", "o"], ["ask", "m", "who?", "-d", "doc.txt"], ["eval", "m"]]
)
def test_a_model_without_tokenizer(command: list[str], tmp_path: Path, small_model: Path) -> None:
    shutil.copytree(small_model, tmp_path / "m")
    for path in (tmp_path / "m").iterdir():
        if "token" in path.name or path.suffix == ".jinja":
            path.unlink()
    (tmp_path / "doc.txt").write_text("text")
    assert "m" in told(*command, cwd=tmp_path)
    assert not (tmp_path / "o").exists()


def test_a_model_with_code_of_its_own_is_refused(tmp_path: Path, small_model: Path) -> None:
    shutil.copytree(small_model, tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Model"}}
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    (tmp_path / "m" / "own.py").write_text("open('ran', 'w')")
    said = told("export", "m", "--out", "o", cwd=tmp_path)
    assert "m" in said
    assert "[y/N]" not in said
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("header", [b"[]", b'{"a": 5}', b'{"a": {"data_offsets": "x"}}', b"[" * 5000, b"\xff{}"])
def test_weights_with_a_damaged_header(header: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert "model.safetensors" in problem(tmp_path)


def copied(model: Path, out: Path) -> Path:
    out.mkdir()
    for file in model.iterdir():
        (out / file.name).write_bytes(file.read_bytes())
    return out


@pytest.mark.parametrize("dtype", ["complex64", "int8", "int64", "bool", "uint8"])
def test_weights_of_a_type_that_no_weight_has(dtype: str, tmp_path: Path, small_model: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    folder, name = copied(small_model, tmp_path / "model"), "model.layers.0.mlp.up_proj.weight"
    weights = load_file(folder / "model.safetensors")
    weights = {n: w.to(getattr(torch, dtype)) if n == name else w.clone() for n, w in weights.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert name in told("export", "model", "--out", "out", cwd=tmp_path)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("key", ["rms_norm_eps", "initializer_range", "rope_parameters"])
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_a_configuration_with_numbers_that_are_none(key: str, value: str, tmp_path: Path, small_model: Path) -> None:
    folder = copied(small_model, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    number = float(value.replace("Infinity", "inf"))
    config[key] = {"rope_theta": number} if key == "rope_parameters" else number
    (folder / "config.json").write_text(json.dumps(config))
    assert f"config.json: {key}" in told("export", "model", "--out", "out", cwd=tmp_path)


@pytest.mark.parametrize("name", ["num_hidden_layers", "vocab_size", "intermediate_size", "num_key_value_heads"])
def test_a_configuration_beyond_its_weights(name: str, tmp_path: Path, small_model: Path) -> None:
    shutil.copytree(small_model, tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    config |= {name: 10**9, **({"layer_types": None} if "layers" in name else {})}
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    for load in (load_config, load_tokenizer):
        assert f"config.json says {name}=1000000000" in refused(lambda load=load: load(str(tmp_path / "m")))  # type: ignore[misc]


# ---- full disks ----


def limited(most: int, work: Callable[[], object]) -> str:
    """What is said when no file may have more than some bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        return refused(work)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    said = limited(1000, lambda: write_atomic(tmp_path / "report.json", "x" * 5000))
    assert f"{tmp_path / 'report.json'} could not be written: File too large" in said
    run = RunDirectory(tmp_path)
    assert "metrics.jsonl could not be written" in limited(1000, lambda: run.log({"x": "y" * 5000}))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["metrics.jsonl"]
    with pytest.raises(BadInput, match="out could not be written: No space left"), writing(tmp_path / "out"):
        raise OSError(28, "No space left on device")


def test_commands_on_a_full_disk(tmp_path: Path) -> None:
    from recollect.models.export import export_model
    from recollect.workflows.trajectories.convert import convert
    from recollect.workflows.trajectories.score import reward
    from recollect.workflows.trajectories.sft_data import Choice, sft_data

    rows = [
        {**RECORD, "question": f"{i} + 2?", "actions": [{"tool": "t", "input": "x" * 99, "output": "y"}]}
        for i in range(99)
    ]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    quiet = Console(True)
    for out in ("o.jsonl", "o.json"):
        said = limited(5000, lambda out=out: convert([str(source)], "math", tmp_path / out, quiet))  # type: ignore[misc]
        assert f"{out} could not be written" in said
    said = limited(5000, lambda: sft_data([str(source)], tmp_path / "sft", Choice(None, None, None, 0.1, 0), quiet))
    assert "sft could not be written" in said
    limited(5000, lambda: reward([str(source)], quiet, tmp_path / "a.json", None, None, None, False))
    assert "model could not be written" in limited(5000, lambda: export_model("tiny", tmp_path / "model"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rows.jsonl"]


def test_a_tool_named_like_a_file_of_ours(tmp_path: Path) -> None:
    actions = [
        {"tool": "SUMMARY.json", "input": "a", "output": "b"},
        {"tool": "conversations", "input": "c", "output": "d"},
    ]
    (tmp_path / "rows.jsonl").write_text(json.dumps({**RECORD, "actions": actions}) + "\n")
    done = commands.run("sft-data", "rows.jsonl", "--out", "sft", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "sft" / "SUMMARY.json").is_file()
    assert (tmp_path / "sft" / "SUMMARY.json_tool" / "train.jsonl").is_file()


# ---- options and plugins ----


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(
    "args",
    [
        ["rollout", "--domain", "math", "--tasks", "1", "--out", "o.jsonl", "--temperature"],
        ["reward", "rows.jsonl", "--output", "o.json", "--min-reward"],
        ["sft-data", "rows.jsonl", "--out", "o", "--min-reward"],
        ["sft-data", "rows.jsonl", "--out", "o", "--val-ratio"],
        ["train", "--dry-run", "--min-reward"],
    ],
    ids=lambda args: f"{args[0]} {args[-1]}" if isinstance(args, list) else args,
)
def test_numbers_that_are_none(args: list[str], value: str, tmp_path: Path) -> None:
    if value == "inf" or args[0] != "train":
        (tmp_path / "rows.jsonl").write_text(json.dumps(RECORD) + "\n")
    assert value in told(*args, value, cwd=tmp_path)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys\nsys.exit(3)", "sys.exit(3)"),
        ("raise SystemExit", "sys.exit()"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("def f(:", "SyntaxError"),
        ("import not_there_at_all", "ModuleNotFoundError"),
        ("class E(BaseException): pass\nraise E('odd')", "E: odd"),
        ("x = 1", "has no function f"),
        ("\x00", "null bytes"),
    ],
)
def test_a_plugin_that_fails(code: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.py"
    path.write_text("print('hello')\n" + code)
    said = refused(lambda: find(f"{path}:f", {}, "agent.reward_name"))
    assert "mine.py" in said
    assert words in said
    assert "hello" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "setting",
    [
        "actor_rollout_ref.rollout.n=1000000000",
        "data.train_batch_size=1000000000",
        "data.val_max_samples=1000000000",
        "evaluation.tasks=[1000000000]",
        "sft.batch_size=1000000000",
    ],
)
def test_more_attempts_than_any_memory_takes(setting: str) -> None:
    more = ["evaluation.lengths=[1]"] if "evaluation" in setting else []
    assert "the limit is 1,000,000" in refused(lambda: compose("needle", [setting, *more]))
    assert amounts.too_many("x", amounts.MOST) == ""


@pytest.mark.parametrize(
    "settings",
    [
        ["agent.reward_name=judge", "judge.url=http://127.0.0.1:9/v1"],
        ["agent.reward_name=0.5*judge+0.5*qa_em", "judge.url=http://127.0.0.1:9/v1"],
    ],
    ids=["alone", "a part"],
)
def test_a_dry_run_asks_the_judge(settings: list[str], tmp_path: Path) -> None:
    for command in (["train", "needle", *settings, "--dry-run"], ["train", "needle", *settings]):
        said = told(*command, f"trainer.default_local_dir={tmp_path / 'run'}", cwd=tmp_path)
        assert "Connection error to judge at judge.url, http://127.0.0.1:9/v1" in said
    assert not (tmp_path / "run").exists()


def test_a_dry_run_asks_a_fixed_model(tmp_path: Path) -> None:
    away = "http://127.0.0.1:9/v1"
    assert away in told("train", "needle", f"roles.qa=endpoint:{away}", "--dry-run", cwd=tmp_path)


def test_a_dry_run_looks_for_isolation_and_servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    tools = ["agent.agent_type=react", "data.made_up=arithmetic"]
    said = refused(lambda: dry_run(compose(None, [*tools, "agent.tools=[mcp:stdio:/nope]"]), Console(True)))
    assert "agent.tools=mcp:stdio:/nope does not start" in said
    monkeypatch.setattr("recollect.sandbox.box._isolating_command", lambda plan: ["/nope/bwrap"])
    tools += ["agent.tools=[bash]", "sandbox.isolation=bubblewrap"]
    said = refused(lambda: dry_run(compose(None, tools), Console(True)))
    assert "bubblewrap" in said
