"""`recollect optimize --phases prompts,weights,prompts`: prompts and weights in turn, over one store of trajectories.

Each phase starts from the prompts and the weights that the one before left. All attempts at training tasks, of both
kinds of phases, are stored in OUT/trajectories, and a table says what each phase gave on the held-out tasks.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recollect.config import Config
from recollect.eval.paired import PairedDifference
from recollect.files.locks import lock_folder
from recollect.files.output import refuse_unwritable, write_atomic
from recollect.files.reading import read_json
from recollect.models.checkpoints import find_checkpoint
from recollect.models.export import export_model
from recollect.models.lora import adapter_base
from recollect.runs.directory import remove_tree
from recollect.runtime.console import Console
from recollect.samplers.checkpoint_roles import NamedModels
from recollect.training.train_run import TrainRun
from recollect.types import BadInput
from recollect.workflows.eval.eval_run import run_evaluation
from recollect.workflows.optimize.optimize_request import OptimizeRequest, refuse_request
from recollect.workflows.optimize.optimize_run import RESULT, evaluation_difference, optimize

PROMPTS, WEIGHTS = "prompts", "weights"
DONE, STEPS = "phases.json", "step-*.zst"
HEADER = ("phase", "held-out reward", "difference to the phase before (95 %)", "what it took", "seconds")
WithSettings = Callable[[Sequence[str]], Config]  # the configuration with further settings


def phase_names(text: str) -> tuple[str, ...]:
    """The phases of --phases."""
    names = tuple(name.strip() for name in text.split(","))
    if wrong := [name for name in names if name not in (PROMPTS, WEIGHTS)]:
        raise BadInput(f"--phases {text}: {wrong[0] or 'an empty word'} is unknown; known: {PROMPTS}, {WEIGHTS}")
    return names


@dataclass
class PhaseRow:
    """What one phase gave."""

    name: str
    reward: float  # on the held-out tasks, after it
    paired: dict[str, Any] | None  # against the phase before
    took: str
    seconds: float
    weights: str
    prompts: str | None
    results: str  # of its evaluation


@dataclass
class Phases:
    """Phases over one folder."""

    compose: WithSettings
    asked: OptimizeRequest
    weights: str
    console: Console
    prompts: str | None = None
    rows: list[PhaseRow] = field(default_factory=list)

    def run(self, names: Sequence[str]) -> dict[str, Any]:
        """All phases; those that an earlier run of the command finished are not done again."""
        out = self.asked.out
        refuse_request(self.asked, self._config())
        refuse_unwritable(out, f"--out {out}")
        with lock_folder(out, f"--out {out}"):
            self._take_up(names)
            for number in range(len(self.rows), len(names) + 1):
                began = time.monotonic()
                name = names[number - 1] if number else "start"
                self.console.say(f"phase {number} of {len(names)}: {name}")
                took = {"start": self._start, PROMPTS: self._prompts, WEIGHTS: self._weights}[name](number)
                self._add(number, name, took, time.monotonic() - began)
                self._write(names)
        self.console.table("Prompts and weights", HEADER, [cells(row) for row in self.rows])
        return {"phases": [vars(row) for row in self.rows]}

    # ---- one phase ----

    def _start(self, number: int) -> str:
        self._measure(number)
        return "–"

    def _prompts(self, number: int) -> str:
        """Look for prompts; the attempts go into the store."""
        folder = self._folder(number)
        asked = replace(self.asked, out=folder)
        made = optimize(self._who(), asked, self.console)
        self._keep(folder / "trajectories", f"{folder.name}-")
        self.prompts = str(folder / RESULT)
        return f"{made['requests']:,} requests, {made['answered_by_cache']:,} answered by the cache"

    def _weights(self, number: int) -> str:
        """Train with these prompts; the run's trajectories are the store's too."""
        folder = self._folder(number)
        cfg = self._config(f"trainer.default_local_dir={json.dumps(str(folder))}")
        work = TrainRun(cfg, self.console)
        work.fit()
        newest = find_checkpoint(str(folder))[0]
        if adapter_base(newest):
            merged = folder / "merged"
            remove_tree(merged)
            self.console.say(export_model(newest, merged, "float32"))
            newest = str(merged)
        self.weights = newest
        self._keep(folder / "trajectories", f"{folder.name}-", STEPS)
        self._measure(number)
        return f"{len(list((folder / 'trajectories').glob(STEPS)))} steps"

    def _measure(self, number: int) -> None:
        """Evaluate what there is now."""
        run_evaluation(self._who(), self.console, self._place(number))

    def _add(self, number: int, name: str, took: str, seconds: float) -> None:
        place, before = str(self._place(number)), str(self._place(max(0, number - 1)))
        (found, *_) = evaluation_difference(before, place)
        paired = found.row() if number else None
        row = PhaseRow(name, found.second, paired, took, round(seconds, 1), self.weights, self.prompts, place)
        self.rows.append(row)

    # ---- places ----

    def _config(self, *more: str) -> Config:
        prompts = [] if self.prompts is None else [f"agent.prompts={json.dumps(self.prompts)}"]
        return self.compose([*prompts, f"actor_rollout_ref.model.path={json.dumps(self.weights)}", *more])

    def _who(self) -> NamedModels:
        cfg = self._config()
        cfg.roles = {}
        return NamedModels(self.weights, None, {}, cfg)

    def _folder(self, number: int) -> Path:
        return self.asked.out / f"{number}-{self._names[number - 1]}"

    def _place(self, number: int) -> Path:
        """Where the results after a phase are."""
        if number and self._names[number - 1] == PROMPTS:
            return self._folder(number) / "after"
        return self.asked.out / f"held-out-{number}"

    def _keep(self, source: Path, prefix: str, pattern: str = "*.zst") -> None:
        """Put trajectories into the store, without a second copy where the file system can."""
        store = self.asked.out / "trajectories"
        store.mkdir(exist_ok=True)
        for path in sorted(source.glob(pattern)):
            target = store / f"{prefix}{path.name}"
            target.unlink(missing_ok=True)
            try:
                os.link(path, target)
            except OSError:
                shutil.copyfile(path, target)

    # ---- what an earlier run left ----

    _names: tuple[str, ...] = ()

    def _take_up(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        file = self.asked.out / DONE
        if not file.is_file():
            return
        found = read_json(file)
        if found.get("asked") != self._stamp(names):
            raise BadInput(f"--out {self.asked.out} holds other phases; name another folder")
        self.rows = [PhaseRow(**row) for row in found["rows"]]
        if self.rows:
            self.weights, self.prompts = self.rows[-1].weights, self.rows[-1].prompts
            self.console.say(f"{len(self.rows) - 1} of {len(names)} phases are done")

    def _stamp(self, names: Sequence[str]) -> dict[str, Any]:
        return {"phases": list(names), **self.asked.stamp(), "calls": self.asked.calls}

    def _write(self, names: Sequence[str]) -> None:
        rows = [vars(row) for row in self.rows]
        text = json.dumps({"asked": self._stamp(names), "rows": rows}, indent=2, ensure_ascii=False)
        write_atomic(self.asked.out / DONE, text + "\n")
        lines = [HEADER, ["---"] * len(HEADER), *(cells(row) for row in self.rows)]
        table = "\n".join(f"| {' | '.join(row)} |" for row in lines)
        write_atomic(self.asked.out / "phases.md", f"# Prompts and weights\n\n{table}\n")


def cells(row: PhaseRow) -> list[str]:
    """A row of the table."""
    paired = "–"
    if row.paired is not None:
        found = PairedDifference(**row.paired)
        paired = f"{found.difference:+.3f} ({found.low:+.3f} – {found.high:+.3f}, n = {found.n})"
    return [row.name, f"{row.reward:.3f}", paired, row.took, f"{row.seconds:g}"]
