"""LoCoMo's figures on one machine within a time limit: no memory, RAG, memory before and after GRPO.

    python benchmarks/real/locomo.py --data locomo10.json --model smollm2 --embedding minilm --out DIR --seconds 540
    python benchmarks/real/locomo.py --data locomo10.json --model tiny --out DIR --size smoke

The test conversations are those of `recollect data locomo` without --split. Rows that need no training are measured
beside the trainings. Two models are trained by GRPO: `full`, all weights on questions of categories 1 to 4, and `lora`,
with the guide's LoRA on all categories. Each is asked to save and stop in time for its evaluation. Whenever a command
ends, OUT/locomo.tar.gz is written anew with what is small: table.md, comparisons, results with their answers, metrics
and logs. What is there already is not made again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from recollect.runtime.console import Console
from recollect.workflows.eval.comparison import compare
from recollect.workflows.locomo.baseline_table import refusals, write_baselines

UNBOUNDED = "memory.budget=1000000000"  # what is searched as a baseline has no budget
ROWS = {  # name → what it is called in the table, settings; the most important first
    "memory": ("memory of turns, BM25", ()),
    "none": ("no memory", ("conversation.memory=none",)),
    "rag": ("RAG over turns, BM25", (UNBOUNDED,)),
    "rag-dense": ("RAG over turns, dense", (UNBOUNDED, "conversation.method=dense")),
    "memory-dense": ("memory of turns, dense", ("conversation.method=dense",)),
    "rag-observations": ("RAG over observations, BM25", (UNBOUNDED, "conversation.memory=observations")),
    "rag-sessions": ("RAG over sessions, BM25", (UNBOUNDED, "conversation.memory=sessions", "conversation.top_k=2")),
    "whole": ("whole conversation, cut", ("conversation.memory=whole", "data.max_prompt_length=4096")),
}
AFTER = ("memory", "none", "memory-dense", "rag-observations")  # rows that are measured again after a training
FULL = ("actor_rollout_ref.model.lora_rank=0", "actor_rollout_ref.actor.optim.lr=2.0e-5")
LORA = ("actor_rollout_ref.actor.optim.lr=3.0e-4",)
TRAININGS = {"full": ("train-answerable", FULL), "lora": ("train", LORA)}  # name → its questions, its settings
GRACE = 25.0  # seconds between asking a training to stop and ending it
SMALL = ("config.yaml", "metrics.jsonl", "report.json", "report.md", "fidelity.json")


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    settings: tuple[str, ...]
    training: tuple[str, ...]
    num_test: int | None = None
    questions: int = 8  # of a training task


SIZES = {
    "full": Size(
        (
            *("data.max_prompt_length=1536", "data.max_response_length=48", "conversation.top_k=20"),
            *("actor_rollout_ref.rollout.max_num_seqs=512", "actor_rollout_ref.rollout.max_num_batched_tokens=32768"),
            "actor_rollout_ref.rollout.prefix_cache_tokens=65536",
        ),
        (
            *("trainer.total_training_steps=400", "data.train_batch_size=8", "actor_rollout_ref.rollout.n=8"),
            *("actor_rollout_ref.actor.ppo_mini_batch_size=8", "actor_rollout_ref.actor.use_dynamic_bsz=true"),
            *("actor_rollout_ref.actor.ppo_max_token_len_per_gpu=32768", "trainer.val_before_train=false"),
            *("actor_rollout_ref.rollout.free_cache_engine=False", "trainer.save_freq=0", "trainer.test_freq=0"),
            "data.val_max_samples=1",
        ),
    ),
    "smoke": Size(
        (
            *("data.max_prompt_length=256", "data.max_response_length=8", "conversation.top_k=2", "memory.style=plain"),
            *("actor_rollout_ref.rollout.dtype=auto", "actor_rollout_ref.actor.dtype=auto", "trainer.threads=1"),
        ),
        (
            *("trainer.total_training_steps=400", "data.train_batch_size=1", "actor_rollout_ref.rollout.n=2"),
            *("data.train_max_samples=4", "trainer.val_before_train=false"),
            *("trainer.save_freq=0", "trainer.test_freq=0", "data.val_max_samples=1"),
        ),
        num_test=20,
        questions=2,
    ),
}


class Sitting:
    """All commands within one time limit."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.size, self.out = args, SIZES[args.size], args.out
        self.began, self.lock = time.monotonic(), threading.Lock()
        self.ended: dict[str, int] = {}
        self.running: set[subprocess.Popen[bytes]] = set()
        (self.out / "logs").mkdir(parents=True, exist_ok=True)

    @property
    def now(self) -> float:
        return time.monotonic() - self.began

    def run(self) -> None:
        """Everything; ends in time."""
        self._data()
        rows = [name for name in ROWS if self.args.embedding is not None or not name.endswith("dense")]
        half = self.args.lanes
        lanes = [lambda part=rows[i::half]: self._measure(part) for i in range(half)]
        lanes += [lambda name=name: self._train(name) for name in self.args.train]
        threads = [threading.Thread(target=lane, daemon=True) for lane in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, self.args.seconds - 8 - self.now))
        for process in list(self.running):
            _end(process, signal.SIGKILL)
        self.pack()
        self.say("done" if not any(thread.is_alive() for thread in threads) else "the time is over")

    def say(self, text: str) -> None:
        line = f"{self.now:6.1f} s  {text}"
        with self.lock, (self.out / "progress.txt").open("a") as file:
            print(line, flush=True)
            file.write(line + "\n")

    # ---- what is done ----

    def _data(self) -> None:
        """The task files, and one of the questions of categories 1 to 4."""
        data, size = self.out / "data", self.size
        if not (data / "card.json").exists():
            number = [] if size.num_test is None else ["--num-test", str(size.num_test)]
            words = ["data", "locomo", str(self.args.data), str(data), "--questions", str(size.questions), *number]
            self._command("data", words)
        rows = [json.loads(line) for line in (data / "train.jsonl").read_text().splitlines()]
        for row in rows:
            row["questions"] = [question for question in row["questions"] if question["category"] != 5]
        kept = [json.dumps(row, ensure_ascii=False) for row in rows if row["questions"]]
        (data / "train-answerable.jsonl").write_text("\n".join(kept) + "\n")

    def _measure(self, names: Sequence[str], model: str | None = None, after: str = "") -> None:
        """Rows of the table, for a model before or after its training."""
        for name in names:
            place, (_, how) = self.out / f"{name}{after and '-after-'}{after}", ROWS[name]
            if place.with_suffix(".json").exists():
                continue
            own = [] if model is not None else ["locomo"]
            files = [f"data.val_files=[{self.out / 'data' / 'test.jsonl'}]", "data.val_max_samples=-1"]
            settings = [*files, *self._settings(), *how]
            words = ["eval", model or str(self.args.model), *own, *settings, "--out", str(place)]
            self._command(place.name, words)

    def _train(self, name: str) -> None:
        """One training until its time is over, then its rows."""
        run, (questions, how) = self.out / f"run-{name}", TRAININGS[name]
        data = self.out / "data"
        files = [f"data.train_files=[{data / f'{questions}.jsonl'}]", f"data.val_files=[{data / 'val.jsonl'}]"]
        place = [f"trainer.default_local_dir={run}", f"actor_rollout_ref.model.path={self.args.model}"]
        words = ["train", "locomo", *files, *place, *self._settings(), *self.size.training, *how]
        self._command(f"run-{name}", words, until=self.args.until * self.args.seconds)
        if any((run / "checkpoints").glob("step-*")):
            self._measure([row for row in AFTER if self._wanted(row)], str(run), name)

    def _wanted(self, row: str) -> bool:
        return self.args.embedding is not None or not row.endswith("dense")

    def _settings(self) -> list[str]:
        """Settings of every command that runs a model."""
        folder = [] if self.args.embedding is None else [f"search.embedding_model={self.args.embedding}"]
        return [*folder, f"trainer.device={self.args.device}", *self.size.settings, *self.args.settings]

    def _command(self, name: str, words: Sequence[str], until: float | None = None) -> None:
        """One `recollect` command; with ``until`` it is asked to save and stop then."""
        began = self.now
        if began > self.args.seconds - 15:
            return self.say(f"left out: {name}")
        with (self.out / "logs" / f"{name}.log").open("ab") as log:
            log.write(f"$ recollect {' '.join(words)}\n".encode())
            log.flush()
            process = subprocess.Popen(
                [sys.executable, "-m", "recollect", *words],
                stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self.running.add(process)
        self.say(f"start {name}")
        try:
            process.wait(None if until is None else max(0.0, until - self.now))
        except subprocess.TimeoutExpired:
            self.say(f"asked to stop: {name}")
            process.send_signal(signal.SIGINT)
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                _end(process, signal.SIGKILL)
                process.wait()
        self.running.discard(process)
        self.ended[name] = process.returncode
        self.say(f"end {name}: {process.returncode}, {self.now - began:.0f} s")
        return self.pack()

    # ---- what is kept ----

    def pack(self) -> None:
        """Write the table and the archive anew."""
        with self.lock:
            found = {'always "not mentioned"': refusals(self.out / "data" / "test.jsonl")} if self._has_test() else {}
            for after in ("", *TRAININGS):
                for name, (title, _) in ROWS.items():
                    place = self.out / f"{name}{after and '-after-'}{after}.json"
                    if place.exists():
                        (agent,) = json.loads(place.read_text())["agents"].values()
                        found[f"{title}, {f'after GRPO ({after})' if after else 'before'}"] = agent["categories"]
            if found:
                write_baselines(self.out / "table", found)
            self._compare()
            files = [p for p in self.out.iterdir() if p.is_file() and p.suffix in (".json", ".md", ".txt")]
            files += [*(self.out / "logs").glob("*.log"), *self.out.glob("*.items/*")]
            files += [self.out / f"run-{name}" / small for name in TRAININGS for small in SMALL]
            half = self.out / ".locomo.tar.gz"
            with tarfile.open(half, "w:gz", compresslevel=6) as archive:
                for path in sorted(path for path in files if path.is_file() and path.stat().st_size < 4 << 20):
                    archive.add(path, path.relative_to(self.out))
            os.replace(half, self.out / "locomo.tar.gz")
            if self.args.copy is not None:
                for name in ("locomo.tar.gz", "table.md"):
                    if (self.out / name).exists():
                        target = self.args.copy / f".{name}"
                        target.write_bytes((self.out / name).read_bytes())
                        os.replace(target, self.args.copy / name)

    def _compare(self) -> None:
        """The paired differences of what was measured before and after a training; each once."""
        for after in TRAININGS:
            for name in AFTER:
                before, place = self.out / name, self.out / f"{name}-after-{after}"
                target = place.with_name(f"compare-{place.name}.json")
                if not target.exists() and all(p.with_suffix(".json").exists() for p in (before, place)):
                    made = compare(str(before), str(place), "locomo_f1", (None, None), Console(True))
                    target.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")

    def _has_test(self) -> bool:
        return (self.out / "data" / "test.jsonl").exists()


def _end(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="settings of every command that runs a model")
    parser.add_argument("--data", type=Path, required=True, help="locomo10.json")
    parser.add_argument("--model", required=True, help="a folder of `recollect model smollm2`, or tiny")
    parser.add_argument("--embedding", type=Path, help="a sentence-transformers folder; without it, no dense rows")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--copy", type=Path, help="a folder that gets the archive and the table too")
    parser.add_argument("--device", default="auto", help="auto, cuda or cpu")
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--seconds", type=float, default=540.0, help="in which everything ends")
    parser.add_argument("--until", type=float, default=0.72, help="share of the time in which trainings train")
    parser.add_argument("--train", nargs="*", choices=TRAININGS, default=list(TRAININGS))
    parser.add_argument("--lanes", type=int, default=2, help="rows that are measured side by side before training")
    return parser.parse_args()


if __name__ == "__main__":
    Sitting(read_options()).run()
