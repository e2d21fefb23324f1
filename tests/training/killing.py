"""Runs that kill themselves, without warning, at a chosen moment: the k-th time that something of a kind happens."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import recollect.training.train_run as fit_module
from recollect.engine.batching import Engine
from recollect.runs.directory import RunDirectory
from recollect.training.learner.trained_model import TrainedModel
from tests.commands import CONTEXT, end, redirect

KINDS = ("token", "validation token", "update", "sync", "rename", "row")


def _child(args: Sequence[str], log: str, kind: str, at: int) -> None:
    """The run; every countable moment is counted, and at the chosen one the process dies."""
    os.setsid()
    redirect(log, log)
    torch.set_num_threads(1)
    seen: Counter[str] = Counter()
    validating = [False]

    def moment(name: str) -> None:
        seen[name] += 1
        if name == kind and seen[name] == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(owner: Any, name: str, what: Callable[[], str]) -> None:
        plain = getattr(owner, name)

        def call(*given: Any, **named: Any) -> Any:
            moment(what())
            return plain(*given, **named)

        setattr(owner, name, call)

    def validate(*given: Any, **named: Any) -> Any:
        validating[0] = True
        try:
            return plain_validate(*given, **named)
        finally:
            validating[0] = False

    plain_validate = fit_module.validate
    fit_module.validate = validate
    watched(Engine, "step", lambda: "validation token" if validating[0] else "token")
    watched(TrainedModel, "backward", lambda: "update")
    watched(TrainedModel, "step", lambda: "update")
    watched(os, "fsync", lambda: "sync")
    watched(os, "replace", lambda: "rename")
    watched(os, "rename", lambda: "rename")
    watched(RunDirectory, "log", lambda: "row")

    def note() -> None:
        Path(log).with_suffix(".moments").write_text("\n".join(f"{name}={count}" for name, count in seen.items()))

    end(args, note)


def run(args: Sequence[str], log: Path, kind: str = "", at: int = 0) -> int:
    """Run a command to its end or its death; the exit code (negative: the signal)."""
    process = CONTEXT.Process(target=_child, args=(list(args), str(log), kind, at))
    process.start()
    process.join(240)
    assert process.exitcode is not None, "the run hangs"
    return process.exitcode


def moments(log: Path) -> dict[str, int]:
    """How often each kind of moment came in a run that ended by itself."""
    lines = log.with_suffix(".moments").read_text().splitlines()
    return {name: int(count) for name, count in (line.split("=") for line in lines)}
