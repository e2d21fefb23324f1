"""LoCoMo's figures on one machine within a time limit: no memory, RAG, memory before and after training.

    python benchmarks/real/locomo.py --data locomo10.json --model smollm2 --embedding minilm --out DIR --seconds 540
    python benchmarks/real/locomo.py --data locomo10.json --model tiny --out DIR --size smoke

The test conversations are those of `recollect data locomo` without --split. Rows that need no training are measured
beside the trainings: `full`, GRPO of all weights on questions of categories 1 to 4; `warm`, the same after a few
supervised updates towards the answers of the training conversations, which have a row of their own; `lora`, the guide's
LoRA on all categories. Each is asked to save and stop in time for its evaluation. Whenever a command ends,
OUT/locomo.tar.gz is written anew with what is small: table.md and paired differences, results with their answers,
metrics and logs. Results in which an attempt failed are left out. What is there already is not made again.
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
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs import SEVERAL_ON_A_GPU, most_tokens

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
    "rag-sessions": (
        "RAG over sessions, BM25",
        (UNBOUNDED, "conversation.memory=sessions", "conversation.top_k=2", "data.max_prompt_length=1024"),
    ),
    "whole": ("whole conversation, cut", ("conversation.memory=whole", "data.max_prompt_length=4096")),
}
AFTER = ("memory", "rag", "none", "rag-dense", "memory-dense", "rag-observations")  # measured again after a training
ALL_WEIGHTS = (
    *("actor_rollout_ref.model.lora_rank=0", "actor_rollout_ref.actor.use_kl_loss=false"),
    "actor_rollout_ref.actor.optim.lr_warmup_steps=2",
)
FULL = (*ALL_WEIGHTS, "actor_rollout_ref.actor.optim.lr=3.0e-5")
WARM = (*ALL_WEIGHTS, "actor_rollout_ref.actor.optim.lr=2.0e-5")
LORA = ("actor_rollout_ref.actor.optim.lr=3.0e-4",)
GRACE = 25.0  # seconds between asking a training to stop and ending it
FEW_THREADS = {"OMP_NUM_THREADS": "2", "RAYON_NUM_THREADS": "4", "TOKENIZERS_PARALLELISM": "true"}  # many run at once
SMALL = ("config.yaml", "metrics.jsonl", "report.json", "report.md", "fidelity.json")


@dataclass(frozen=True)
class Training:
    """What is trained on which questions."""

    title: str
    questions: str  # the name of a task file
    settings: tuple[str, ...]
    warm: bool = False  # supervised updates go before


TRAININGS = {
    "full": Training("GRPO", "train-answerable", FULL),
    "warm": Training("SFT, then GRPO", "train-answerable", WARM, warm=True),
    "lora": Training("GRPO, LoRA, all categories", "train", LORA),
}
SFT = "sft"  # what the rows after the supervised updates of a warm start are called


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    settings: tuple[str, ...]
    training: tuple[str, ...]
    warm: tuple[str, ...]
    num_test: int | None = None
    questions: int = 8  # of a training task
    side_by_side: bool = True  # False: one command after the other
    after: tuple[str, ...] = AFTER  # rows that are measured again after a training


SIZES = {
    "full": Size(
        (
            *("data.max_prompt_length=1024", "data.max_response_length=32", "conversation.top_k=10"),
            *("actor_rollout_ref.rollout.max_num_seqs=512", "actor_rollout_ref.rollout.max_num_batched_tokens=32768"),
            *SEVERAL_ON_A_GPU,
        ),
        (
            *("trainer.total_training_steps=400", "data.train_batch_size=4", "actor_rollout_ref.rollout.n=16"),
            *("actor_rollout_ref.actor.ppo_mini_batch_size=4", "actor_rollout_ref.actor.use_dynamic_bsz=true"),
            *("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=null", most_tokens(32768)),
            *("trainer.val_before_train=false", "trainer.save_freq=0", "trainer.test_freq=-1"),
        ),
        (
            *("sft.data=oracle", "sft.steps=60", "sft.batch_size=32", "sft.optim.lr=1.0e-4"),
            *("sft.optim.lr_warmup_steps=6", "sft.optim.lr_scheduler_type=linear", "sft.optim.weight_decay=0.0"),
        ),
    ),
    "laptop": Size(  # what size=laptop of the recipe has, for two cores
        (
            *("data.max_prompt_length=400", "data.max_response_length=24", "conversation.top_k=4"),
            *("actor_rollout_ref.rollout.max_num_seqs=64", "trainer.threads=2", "data.val_batch_size=1"),
        ),
        (
            *("trainer.total_training_steps=100", "data.train_batch_size=8", "actor_rollout_ref.rollout.n=16"),
            *("actor_rollout_ref.actor.ppo_mini_batch_size=8", "actor_rollout_ref.actor.use_dynamic_bsz=true"),
            *("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=null", most_tokens(4096)),
            *("trainer.val_before_train=false", "trainer.save_freq=25", "trainer.test_freq=-1"),
            "trainer.max_ckpt_to_keep=null",  # step-0, what a warm start was before GRPO, is measured last
        ),
        (
            *("sft.data=oracle", "sft.steps=40", "sft.batch_size=16", "sft.optim.lr=1.0e-4"),
            *("sft.optim.lr_warmup_steps=4", "sft.optim.lr_scheduler_type=linear", "sft.optim.weight_decay=0.0"),
        ),
        questions=1,
        side_by_side=False,
        after=AFTER[:3],
    ),
    "smoke": Size(
        (
            *("data.max_prompt_length=256", "data.max_response_length=8", "conversation.top_k=2", "memory.style=plain"),
            *("actor_rollout_ref.rollout.dtype=auto", "actor_rollout_ref.actor.dtype=auto", "trainer.threads=1"),
        ),
        (
            *("trainer.total_training_steps=400", "data.train_batch_size=1", "actor_rollout_ref.rollout.n=2"),
            *("data.train_max_samples=4", "trainer.val_before_train=false"),
            *("trainer.save_freq=0", "trainer.test_freq=-1"),
        ),
        ("sft.data=oracle", "sft.steps=2", "sft.batch_size=2", "sft.optim.lr_warmup_steps=0"),
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
        self.failed: set[str] = set()  # results that are left out
        self.over = False
        (self.out / "logs").mkdir(parents=True, exist_ok=True)

    @property
    def now(self) -> float:
        return time.monotonic() - self.began

    def run(self) -> None:
        """Everything; ends in time."""
        self._data()
        rows = [name for name in ROWS if self._wanted(name)]
        work = [lambda name=name: self._train(name) for name in self.args.train]
        work += [lambda name=name: self._measure_sft(name) for name in self.args.train if TRAININGS[name].warm]
        work.append(lambda: self._measure(rows))
        if not self.size.side_by_side:
            in_turn = [work[-1], *work[:-1]]
            work = [lambda: [each() for each in in_turn]]
        threads = self._side_by_side(work)
        for thread in threads:
            thread.join(max(0.0, self.args.seconds - 8 - self.now))
        self.over = True
        for process in list(self.running):
            _end(process, signal.SIGKILL)
        self.pack()
        self.say("done" if not any(thread.is_alive() for thread in threads) else "the time is over")

    def _side_by_side(self, work: Sequence[Callable[[], object]]) -> list[threading.Thread]:
        """Threads that do these things; what goes wrong in one of them is said, and ends no other."""

        def safely(do: Callable[[], object]) -> None:
            try:
                do()
            except Exception:
                self.say(f"went wrong: {traceback.format_exc()}")

        threads = [threading.Thread(target=safely, args=(do,), daemon=True) for do in work]
        for thread in threads:
            thread.start()
        return threads

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

    def _measure(self, names: Sequence[str], model: Path | None = None, after: str = "") -> None:
        """Rows of the table, for a model before or after its training; several side by side."""
        count = min(self.args.lanes if self.size.side_by_side else 1, len(names))
        lanes = [names[i::count] for i in range(count)]
        work = [lambda lane=lane: [self._row(name, model, after) for name in lane] for lane in lanes]
        for thread in self._side_by_side(work):
            thread.join()

    def _row(self, name: str, model: Path | None, after: str) -> None:
        place, (_, how) = self._place(name, after), ROWS[name]
        if place.with_suffix(".json").exists():
            return
        own = [] if model is not None else ["locomo"]
        files = [f"data.val_files=[{self.out / 'data' / 'test.jsonl'}]", "data.val_max_samples=-1"]
        settings = [*files, *self._settings(), *how]
        words = ["eval", str(model or self.args.model), *own, *settings, "--out", str(place)]
        self._command(place.name, words)

    def _train(self, name: str) -> None:
        """One training until its time is over, then its rows."""
        run, training, data = self._run(name), TRAININGS[name], self.out / "data"
        files = [f"data.train_files=[{data / training.questions}.jsonl]", f"data.val_files=[{data / 'val.jsonl'}]"]
        place = [f"trainer.default_local_dir={run}", f"actor_rollout_ref.model.path={self.args.model}"]
        warm = self.size.warm if training.warm else ()
        how = [*self._settings(), *self.size.training, *training.settings, *warm, *self.args.training]
        words = ["train", "locomo", *files, *place, *how]
        self._command(f"run-{name}", words, until=self.args.until * self.args.seconds)
        if any(path.name != "step-0" for path in (run / "checkpoints").glob("step-*")):
            self._measure([row for row in self.size.after if self._wanted(row)], run, name)

    def _measure_sft(self, name: str) -> None:
        """The rows of what a warm start was before GRPO, as soon as it is saved."""
        first = self._run(name) / "checkpoints" / "step-0"
        while not first.is_dir():
            if self.over or f"run-{name}" in self.ended:
                return
            time.sleep(0.5)
        self._measure([row for row in self.size.after[:1] if self._wanted(row)], first, SFT)

    def _run(self, name: str) -> Path:
        return self.out / f"run-{name}"

    def _place(self, row: str, after: str) -> Path:
        return self.out / f"{row}{after and '-after-'}{after}"

    def _wanted(self, row: str) -> bool:
        return row in self.args.rows and (self.args.embedding is not None or not row.endswith("dense"))

    def _settings(self) -> list[str]:
        """Settings of every command that runs a model."""
        folder = [] if self.args.embedding is None else [f"search.embedding_model={self.args.embedding}"]
        return [*folder, f"trainer.device={self.args.device}", *self.size.settings, *self.args.settings]

    def _command(self, name: str, words: Sequence[str], until: float | None = None) -> None:
        """One `recollect` command; with ``until`` it is asked to save and stop then."""
        began = self.now
        if began > self.args.seconds - 15:
            self.say(f"left out: {name}")
            return
        with (self.out / "logs" / f"{name}.log").open("ab") as log:
            log.write(f"$ recollect {' '.join(words)}\n".encode())
            log.flush()
            process = subprocess.Popen(
                [sys.executable, "-m", "recollect", *words],
                stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env={**FEW_THREADS, **os.environ},
                start_new_session=True,
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
        self.pack()

    # ---- what is kept ----

    def pack(self) -> None:
        """Write the tables and the archive anew."""
        with self.lock:
            try:
                self._write_tables()
                self._archive()
            except Exception:
                print(f"not packed: {traceback.format_exc()}", flush=True)  # the next one may be

    def _write_tables(self) -> None:
        found = {'always "not mentioned"': refusals(self.out / "data" / "test.jsonl")} if self._has_test() else {}
        for after, when in self._times().items():
            for name, (title, _) in ROWS.items():
                if (agent := self._result(name, after)) is not None:
                    found[f"{title}, {when}"] = agent["categories"]
        if found:
            write_baselines(self.out / "table", found)
        rows = [row for pair in self._pairs() for row in self._compared(*pair)]
        if rows:
            lines = ["| | | first | second | difference | 95 % | questions |", "|---|---|---|---|---|---|---|", *rows]
            (self.out / "differences.md").write_text("\n".join(lines) + "\n")

    def _times(self) -> dict[str, str]:
        """What a row may come after → how that is called."""
        return {"": "before", SFT: "after SFT", **{name: f"after {each.title}" for name, each in TRAININGS.items()}}

    def _pairs(self) -> list[tuple[str, str, str]]:
        """Row, and the two times at which it is compared."""
        times = [("", name) for name in self._times() if name]
        return [(row, *pair) for row in AFTER for pair in [*times, (SFT, "warm")]]

    def _result(self, name: str, after: str) -> dict[str, Any] | None:
        """What was measured, unless an attempt failed."""
        place = self._place(name, after)
        if not place.with_suffix(".json").exists():
            return None
        (agent,) = json.loads(place.with_suffix(".json").read_text())["agents"].values()
        if agent["all"]["failures"]:
            if place.name not in self.failed:
                print(f"left out, {agent['all']['failures']} attempts failed: {place.name}", flush=True)
            self.failed.add(place.name)
            return None
        return dict(agent)

    def _compared(self, name: str, first: str, second: str) -> list[str]:
        """The paired differences between two times, as lines of a table; worked out once."""
        if any(self._result(name, after) is None for after in (first, second)):
            return []
        places = [self._place(name, after) for after in (first, second)]
        target = self.out / f"compare-{places[0].name}-{places[1].name}.json"
        if not target.exists():
            made = compare(str(places[0]), str(places[1]), "locomo_f1", (None, None), Console(True))
            target.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
        times = self._times()
        title = f"{ROWS[name][0]}: {times[first]} → {times[second]}"
        return [
            f"| {title} | {row['what']} | {row['first']:.3f} | {row['second']:.3f} | {row['difference']:+.3f} "
            f"| {row['low']:+.3f} – {row['high']:+.3f} | {row['n']} |"
            for row in json.loads(target.read_text())["rows"]
        ]

    def _archive(self) -> None:
        files = [p for p in self.out.iterdir() if p.is_file() and p.suffix in (".json", ".md", ".txt")]
        files += [*(self.out / "logs").glob("*.log"), *self.out.glob("*.items/*")]
        files += [self._run(name) / small for name in TRAININGS for small in SMALL]
        half = self.out / ".locomo.tar.gz"
        with tarfile.open(half, "w:gz", compresslevel=6) as archive:
            for path in sorted(path for path in files if path.is_file() and path.stat().st_size < 4 << 20):
                archive.add(path, path.relative_to(self.out))
        os.replace(half, self.out / "locomo.tar.gz")
        if self.args.copy is not None:
            for name in ("locomo.tar.gz", "table.md", "differences.md"):
                if (self.out / name).exists():
                    target = self.args.copy / f".{name}"
                    target.write_bytes((self.out / name).read_bytes())
                    os.replace(target, self.args.copy / name)

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
    parser.add_argument("--train", nargs="*", choices=TRAININGS, default=["full", "warm"])
    parser.add_argument("--training", nargs="*", metavar="KEY=VALUE", default=[], help="settings of every training")
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--lanes", type=int, default=4, help="rows that are measured side by side")
    return parser.parse_args()


if __name__ == "__main__":
    Sitting(read_options()).run()
