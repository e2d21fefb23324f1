"""Good files of every kind that recollect reads, ways to spoil them, and commands that read them."""

from __future__ import annotations

import io
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import zstandard

from recollect.config.compose import compose, to_yaml
from recollect.eval.items import Item
from tests.data.conversations import conversation
from tests.models.gguf_files import write_gguf

QUICK = ["agent.agent_type=chat", "data.train_batch_size=2", "trainer.total_training_steps=1", "--dry-run"]
ROWS = [{"id": str(i), "question": f"what is {i} + {i}?", "answer": [str(2 * i)], "context": f"{i}!"} for i in range(9)]
RECORDS = [
    {
        "task_id": str(i),
        "domain": "math",
        "question": f"what is {i} + {i}?",
        "actions": [{"step": 1, "tool": "reason", "input": "add", "output": "ok"}],
        "final_answer": str(2 * i),
        "success": True,
        "reward": 1.0,
        "metadata": {},
    }
    for i in range(5)
]
TURN = {"role": "agent", "prompt_ids": [1, 2], "ids": [3, 4], "logprobs": [-0.5, -0.1], "text": "4", "trainable": True}
STORED = [{**row, "sample": 0, "source": "math", "answers": ["4"], "answer": "4", "turns": [TURN]} for row in RECORDS]
SQUAD = {
    "data": [
        {
            "title": "Numbers",
            "paragraphs": [
                {
                    "context": "Two and two are four.",
                    "qas": [{"id": "a", "question": "2 + 2?", "answers": [{"text": "four", "answer_start": 16}]}],
                }
            ],
        }
    ]
}
DATABASE = {"policy": "Be kind.", "database": {"orders": {"1": {"status": "open"}}}, "goal": {}, "user": ["Hello."]}
SRT = "1\n00:00:01,000 --> 00:00:02,000\nA red car stops.\n\n2\n00:00:03,000 --> 00:00:05,000\nA man gets out.\n"
RECIPE = "description: mine\ndata:\n  train_batch_size: 2\n  made_up: needle\ntrainer:\n  total_training_steps: 1\n"
TEMPLATES = "tools:\n  reason:\n    prompt: 'Think: {question}'\n    response: '{input}'\n"
WEIGHTS = "weights:\n  default: {completion: 0.4, efficiency: 0.2, quality: 0.2, reasoning: 0.2}\n"
PROMPTS = {"prompts": {"read": {"instruction": "Keep {it}.", "demonstrations": []}, "answer": "{question} {memory}"}}
ITEMS = [asdict(Item(f"q{n}-{size}", 0, "squad", size, "", 0.5, {"f1": 0.5})) for n in range(4) for size in (4, 16)]
MODEL_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "generation_config.json")


@dataclass(frozen=True)
class Reader:
    """A file, and a command that reads it."""

    name: str  # of the file
    data: bytes
    command: tuple[str, ...]  # FILE stands for the file, OUT for something new
    folder: str = ""  # of a model, or of a run, that the file lies in


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parquet() -> bytes:
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), file)
    return file.getvalue()


def gguf(beside: Path) -> bytes:
    """A small model in one file."""
    file = write_gguf(beside.parent / "good.gguf")
    try:
        return file.read_bytes()
    finally:
        file.unlink()


def readers(model: Path) -> list[Reader]:
    """All of them."""
    train = ("train", "data.train_files=FILE", *QUICK)
    csv = "question,answer\n" + "".join(f"what is {i}?,{i}\n" for i in range(9))
    packed = zstandard.ZstdCompressor().compress(lines(STORED))
    cfg = to_yaml(compose("needle", ["trainer.default_local_dir=run"])).encode()
    rollout = ("rollout", "--out", "OUT.json", "--question", "What stops?", "--context", "FILE", "--domain")
    found = [
        Reader("rows.json", json.dumps(ROWS).encode(), train),
        Reader("rows.jsonl", lines(ROWS), train),
        Reader("rows.csv", csv.encode(), train),
        Reader("rows.parquet", parquet(), train),
        Reader("step-1.jsonl.zst", packed, train),
        Reader("step-1.jsonl.zst", packed, ("reward", "FILE")),
        Reader("unified.jsonl", lines(RECORDS), ("reward", "FILE", "--output", "OUT.json")),
        Reader("unified.json", json.dumps(RECORDS).encode(), ("convert", "FILE", "--out", "OUT.jsonl")),
        Reader("unified.jsonl", lines(RECORDS), ("sft-data", "FILE", "--out", "OUT")),
        Reader("unified.json", json.dumps(RECORDS).encode(), train),
        Reader("squad.json", json.dumps(SQUAD).encode(), ("data", "squad", "FILE", "OUT.json")),
        Reader(
            "gsm8k.jsonl",
            lines([{"question": "1 + 1?", "answer": "It is #### 2"}]),
            ("data", "gsm8k", "FILE", "OUT.json"),
        ),
        Reader("video.srt", SRT.encode(), (*rollout, "video")),
        Reader("orders.json", json.dumps(DATABASE).encode(), (*rollout, "tau")),
        Reader("mine.yaml", RECIPE.encode(), ("train", "FILE", "--cfg")),
        Reader("mine.yaml", RECIPE.encode(), ("train", "--config", "FILE", "--cfg")),
        Reader("templates.yaml", TEMPLATES.encode(), ("sft-data", "good.jsonl", "--templates", "FILE", "--out", "OUT")),
        Reader("weights.yaml", WEIGHTS.encode(), ("reward", "good.jsonl", "--weights", "FILE")),
        Reader("config.yaml", cfg, ("train", "trainer.default_local_dir=run", "--dry-run"), "run"),
    ]
    talks, split = [conversation(f"conv-{n}") for n in range(9)], ("--split", "60/10/30")
    found += [
        Reader("locomo.json", json.dumps(talks).encode(), ("data", "locomo", "FILE", "OUT.json", *split)),
        Reader("prompts.json", json.dumps(PROMPTS).encode(), ("train", "agent.prompts=FILE", "--dry-run")),
        Reader("recurrent.jsonl", lines(ITEMS), ("compare", "mine", "--metric", "f1"), "mine.items"),
        Reader("model.gguf", gguf(model), ("model", "gguf", "FILE", "--out", "OUT")),
    ]
    for name in MODEL_FILES:
        found += [Reader(name, (model / name).read_bytes(), ("export", "m", "--out", "OUT"), "m")] * (
            (model / name).is_file()
        )
    return found


# ---- ways to spoil a file ----


def _place(data: bytes, rng: random.Random) -> int:
    return rng.randrange(len(data) + 1)


def flip(data: bytes, rng: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 30))):
        if made:
            made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    return bytes(made)


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: _place(data, rng)]


def insert(data: bytes, rng: random.Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + rng.randbytes(rng.choice((1, 8, 1000))) + data[at:]


def nul(data: bytes, rng: random.Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + bytes(rng.choice((1, 4096))) + data[at:]


def not_utf8(data: bytes, rng: random.Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + rng.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xff\xfe")) + data[at:]


def nest(data: bytes, rng: random.Random) -> bytes:
    at, depth = _place(data, rng), rng.choice((150, 3000, 100_000))
    begin, end = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"{a: ", b"}")))
    return data[:at] + begin * depth + end * depth + data[at:]


def swap(data: bytes, rng: random.Random) -> bytes:
    """Another type in the place of a value."""
    values = (
        b"null",
        b"true",
        b"-1",
        b"[]",
        b"{}",
        b'""',
        b"NaN",
        b"1e999",
        b'"\\ud800"',
        b"[[]]",
        b"9" * 6000,
        b"10000000000",
    )
    marks = [i for i, byte in enumerate(data) if byte in b":,=" and i + 1 < len(data)]
    if not marks:
        return insert(data, rng)
    at = rng.choice(marks) + 1
    end = at
    while end < len(data) and data[end] not in b",}]\n":
        end += 1
    return data[:at] + b" " + rng.choice(values) + data[end:]


def repeat(data: bytes, rng: random.Random) -> bytes:
    start, end = sorted((_place(data, rng), _place(data, rng)))
    return data[:end] + data[start:end] * rng.choice((1, 5)) + data[end:]


def replace(data: bytes, rng: random.Random) -> bytes:
    """Something else altogether."""
    return rng.choice(
        (b"", b"5", b"[]", b"{}", b"null", b'"text"', b"\x00" * 99, rng.randbytes(500), b"a: &a [*a]", b"\n\n")
    )


WAYS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(flip, truncate, insert, nul, not_utf8, nest, swap, swap, repeat, replace),
)


def spoil(reader: Reader, rng: random.Random) -> tuple[str, bytes]:
    """(the way, the file) after one of the ways."""
    way = rng.choice(WAYS)
    return way.__name__, way(reader.data, rng)


def lay_out(folder: Path, reader: Reader, data: bytes, model: Path) -> list[str]:
    """Put everything in a folder; returns the command."""
    (folder / "good.jsonl").write_bytes(lines(RECORDS))
    if reader.folder == "m":
        shutil.copytree(model, folder / "m")
    if reader.folder == "run":
        shutil.copytree(model, folder / "run" / "checkpoints" / "step-1")
    if reader.folder == "mine.items":
        (folder / "mine.items").mkdir()
        (folder / "mine.json").write_text(json.dumps({"agents": {"recurrent": {}}}))
    (folder / reader.folder / reader.name).write_bytes(data)
    return [word.replace("FILE", reader.name).replace("OUT", "new") for word in reader.command]
