"""The command line in processes of their own, forked from one that has everything imported: they start at once."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import matplotlib.pyplot  # noqa: F401
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2ForCausalLM, Qwen3ForCausalLM  # noqa: F401

import recollect.cli
import recollect.training.train_run
from recollect.config.compose import known_keys

known_keys()
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.warm"])


def redirect(out: str, error: str) -> None:
    """Have this process write to files, appending."""
    for name, stream in ((out, 1), (error, 2)):
        with open(name, "a") as file:
            os.dup2(file.fileno(), stream)


def end(args: Sequence[str], last: Callable[[], None] = lambda: None) -> NoReturn:
    """Run a command, do something last, and end this process with the command's exit code."""
    sys.argv = ["recollect", *args]
    code = 0
    try:
        recollect.cli.main()
    except SystemExit as stop:
        code = int(stop.code or 0)
    last()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _child(args: Sequence[str], folder: str, cwd: str | None, env: Mapping[str, str]) -> None:
    redirect(f"{folder}/out", f"{folder}/error")
    os.environ.clear()
    os.environ.update(env)
    if cwd is not None:
        os.chdir(cwd)
    torch.set_num_threads(1)
    end(args)


def run(
    *args: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """One command to its end, as `subprocess.run` would."""
    with tempfile.TemporaryDirectory() as folder:
        given = (list(args), folder, None if cwd is None else str(cwd), {**os.environ, **(env or {})})
        process = CONTEXT.Process(target=_child, args=given)
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(list(args), timeout)
        out, error = (Path(folder, name) for name in ("out", "error"))
        read = lambda file: file.read_text() if file.exists() else ""
        return subprocess.CompletedProcess(args, process.exitcode, read(out), read(error))
