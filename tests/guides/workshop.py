"""A folder with everything that the commands of the pages name, made up on the spot, and small."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import recollect
from recollect.config.compose import compose, to_yaml
from recollect.eval.items import Item
from tests.data.conversations import conversation
from tests.models.gguf_files import write_gguf

SMALL: dict[str, Any] = {
    "trainer.total_training_steps": 1,
    "data.train_batch_size": 2,
    "actor_rollout_ref.rollout.n": 2,
    "data.val_max_samples": 2,
    "evaluation.lengths": [1],
    "evaluation.tasks": [2],
    "sft.steps": 1,
    "sft.batch_size": 2,
    "trainer.threads": 1,
}
NO_SFT = {"sft.steps": 0}
RUN = "runs/recollect/needle"
NAMES = ("mira", "kolu", "savo", "tare", "nilo", "pemu")


def build(folder: Path) -> Path:
    """Make the folder."""
    folder.mkdir(parents=True)
    recollect.train("needle", settings=SMALL | NO_SFT, out=folder / RUN, quiet=True)
    (folder / RUN / "config.yaml").write_text(to_yaml(compose("needle", ["trainer.threads=1"])))  # as of `make demo`
    (folder / "notes.txt").write_text("kolu holds 118. mira holds 472. savo holds 903.")
    for name in ("rows.jsonl", "tasks.jsonl"):
        lines(folder / name, [row(n) for n in range(64)])
    lines(folder / "few.jsonl", [row(n) for n in range(4)])
    for name in ("gsm8k_train.json", "gsm8k_test.json"):
        (folder / name).write_text(json.dumps([{"question": f"{n} + {n}?", "answer": str(2 * n)} for n in range(64)]))
    for name in ("chats.jsonl", "held_out.jsonl"):
        lines(folder / name, [{"messages": talk(n)} for n in range(8)])
    lines(folder / "train.jsonl", [{"question": f"What is {n} + {n}?", "answer": f"#### {2 * n}"} for n in range(4)])
    (folder / "test.jsonl").write_text((folder / "train.jsonl").read_text())
    (folder / "hotpot_dev_distractor_v1.json").write_text(json.dumps([hotpot(n) for n in range(8)]))
    (folder / "train-v2.0.json").write_text(json.dumps({"data": [squad(n) for n in range(20)]}))
    (folder / "dev-v2.0.json").write_text(json.dumps({"data": [squad(n) for n in range(20, 50)]}))
    (folder / "locomo10.json").write_text(json.dumps([conversation(f"conv-{26 + n}", 150) for n in range(3)]))
    write_gguf(folder / "model.gguf")
    (folder / "optimized").mkdir()
    (folder / "optimized" / "prompts.json").write_text(json.dumps({"prompts": {"read": {"instruction": "keep"}}}))
    configurations(folder)
    functions(folder)
    trajectories(folder)
    results(folder / "results")
    return folder


def results(folder: Path) -> None:
    """What two evaluations of the same items have left."""
    for name, score in (("sft", 0.25), ("rl", 0.5)):
        items = folder / f"{name}.items"
        items.mkdir(parents=True)
        (folder / f"{name}.json").write_text(json.dumps({"agents": {"recurrent": {}}}))
        found = [Item(f"q{n}-{size}", 0, "squad", size, "", score, {"f1": score}) for n in range(4) for size in (4, 16)]
        lines(items / "recurrent.jsonl", [asdict(item) for item in found])


def lines(path: Path, rows: Sequence[Any]) -> None:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))


def row(seed: int) -> dict[str, str]:
    held = {name: str(random.Random(seed * 10 + k).randrange(100, 1000)) for k, name in enumerate(NAMES)}
    text = " ".join(f"{name} holds {value}." for name, value in held.items())
    total = f"0+{held['mira']}"
    solution = f"{total}=<<{total}={held['mira']}>>{held['mira']}"  # as rows of GSM8K have one
    return {"question": "What does mira hold?", "context": text, "answer": held["mira"], "solution": solution}


def talk(n: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"say {n}"}, {"role": "assistant", "content": str(n)}]


def hotpot(n: int) -> dict[str, Any]:
    context = [[f"Title {n} {k}", [f"{name} {n} holds {k}{n}."]] for k, name in enumerate(NAMES)]
    facts = [[context[0][0], 0], [context[1][0], 0]]
    question = f"What does mira {n} hold?"
    return {"_id": str(n), "question": question, "answer": f"0{n}", "context": context, "supporting_facts": facts}


def squad(n: int) -> dict[str, Any]:
    text = f"mira {n} holds {n}472."
    asked = {
        "id": str(n),
        "question": f"What does mira {n} hold?",
        "answers": [{"text": f"{n}472", "answer_start": 13}],
    }
    asked["answers"][0]["answer_start"] = text.index(f"{n}472")  # type: ignore[index]
    return {"title": f"Title {n}", "paragraphs": [{"context": text, "qas": [asked]}]}


def configurations(folder: Path) -> None:
    """YAML files of a user, and of VideoMultiAgents."""
    mine = "trainer: {experiment_name: mine, total_training_steps: 4}\nagent: {agent_type: recurrent}\n"
    (folder / "mine.yaml").write_text(mine)
    (folder / "FILE.yaml").write_text("stages: [{role: memory, steps: 1}]\nevaluation: {lengths: [1], tasks: [2]}\n")
    (folder / "trl_defaults.yaml").write_text("learning_rate: 1.0e-5\nper_device_train_batch_size: 2\n")
    (folder / "rl_defaults.yaml").write_text("learning_rate: 1.0e-6\n")


def functions(folder: Path) -> None:
    """The files that commands name, where a page has them: blocks that begin with a file's name."""
    from tests.guides.blocks import blocks

    for block in blocks("python", "yaml"):
        first = block.text.splitlines()[0]
        if first.startswith("# ") and first.endswith((".py", ".yaml")):
            (folder / first.removeprefix("# ")).write_text(block.text)
    (folder / "my_tools.py").write_text('def calculator(expression: str) -> str:\n    """Compute."""\n    return "1"\n')


def trajectories(folder: Path) -> None:
    """Stored trajectories of the scripted experts, raw and as training rows."""
    from tests.commands import run

    made = run("rollout", "--domain", "mhqa", "--tasks", "4", "--policy", "expert", "--out", "raw.jsonl", cwd=folder)
    assert made.returncode == 0, made.stderr
    for place in ("other", "raw", "unified", "data/raw/mhqa", "data/unified/mhqa"):
        (folder / place).mkdir(parents=True)
    stored = (folder / "raw.jsonl").read_text().splitlines()
    for name in ("other/more.json", "raw/one.json", "data/raw/one.json"):
        (folder / name).write_text(stored[0])
    for number, text in enumerate(stored):
        (folder / "data" / "raw" / "mhqa" / f"{number}.traj.json").write_text(text)
    shutil.move(folder / "raw.jsonl", folder / "raw" / "mhqa_first.jsonl")
    given = [str(folder / "raw"), "--domain", "mhqa", "--out", "unified.jsonl"]
    assert run("convert", *given, cwd=folder).returncode == 0
    for name in ("unified/first.jsonl", "data/unified/first.jsonl", "data/unified/mhqa/one.json"):
        shutil.copy(folder / "unified.jsonl", folder / name)
    built = run("sft-data", "unified.jsonl", "--out", "data/sft", cwd=folder)
    assert built.returncode == 0, built.stderr
    shutil.copytree(folder / "data" / "sft" / "search", folder / "data" / "sft" / "reason")
    long = run("data", "haystack", "hotpot_dev_distractor_v1.json", "dev.parquet", "--documents", "8", cwd=folder)
    assert long.returncode == 0, long.stderr
