"""The commands `eval` and `ask`: a trained policy at work, without a learner."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recollect.chat import Renderer
from recollect.compose import compose
from recollect.config import Config
from recollect.console import Console
from recollect.data.documents import open_document
from recollect.data.made_up import has_lengths, planned_turns
from recollect.data.tasks import held_out
from recollect.eval.accuracy import accuracy
from recollect.eval.evaluate import by_length, by_source, evaluate, val_sampling
from recollect.eval.summary import length_table
from recollect.models.load import EMBEDDED, context_window, load_config, load_model, load_tokenizer
from recollect.policies.engine import make_engine
from recollect.rewards.text import last_boxed
from recollect.rollout import Collector
from recollect.run import write_atomic
from recollect.session import Binding, Session
from recollect.train.device import pick_device, pick_dtype, thread_counts
from recollect.train.setup import check_window
from recollect.types import BadInput, Sampling, Task, Trajectory


def find_checkpoint(name: str) -> tuple[str, Path | None]:
    """The model folder behind a name, and the run directory it belongs to, if any."""
    path = Path(name).expanduser()
    if name == EMBEDDED:
        return name, None
    if (path / "checkpoints").is_dir():
        pattern = re.compile(r"step-(\d+)$")
        found = [(int(m.group(1)), p) for p in (path / "checkpoints").iterdir() if (m := pattern.match(p.name))]
        if not found:
            raise BadInput(f"{name} is a run without a checkpoint yet")
        return str(max(found)[1]), path
    if path.is_dir() and path.parent.name == "checkpoints" and (path.parent.parent / "config.yaml").is_file():
        return str(path), path.parent.parent
    return name, None


def config_of(run: Path | None, settings: list[str]) -> Config:
    """The run's own configuration, or the default recipe's, with overrides."""
    if run is None:
        recipe = settings.pop(0) if settings and "=" not in settings[0] else None
        return compose(recipe, settings)
    from omegaconf import OmegaConf

    tree: Any = OmegaConf.to_container(OmegaConf.load(run / "config.yaml"))
    return compose(None, settings, base=tree)


def build_policy(cfg: Config, path: str, longest_question: str) -> dict[str, Binding]:
    """The engine over one checkpoint, bound to every role."""
    device, rollout = pick_device(cfg.trainer.device), cfg.actor_rollout_ref.rollout
    renderer = Renderer(load_tokenizer(path, cfg.agent.template))
    check_window(cfg, renderer, context_window(load_config(path)), longest_question)
    model = load_model(path, pick_dtype(rollout.dtype, device), device)
    engine = make_engine(model, renderer.decode, rollout, own=True)
    engine.threads = thread_counts(cfg.trainer.threads, sum(p.numel() for p in model.parameters()))[0]
    return {"*": Binding(engine, renderer, trainable=False)}


def run_evaluation(name: str, settings: list[str], console: Console) -> None:
    """`recollect eval`: print and store success rates."""
    path, run = find_checkpoint(name)
    cfg = config_of(run, settings)
    tasks = held_out(cfg)
    if not tasks:
        raise BadInput("nothing to evaluate on: set data.val_files")
    collector = Collector(cfg, build_policy(cfg, path, max((t.question for t in tasks), key=len)))
    began = time.monotonic()
    result: dict[str, Any] = {"checkpoint": path}
    if not has_lengths(cfg):
        with console.progress("held-out tasks", len(tasks)) as advance:
            collector.on_done = lambda trajectory: advance("", 1) if trajectory.sample == 0 else None
            groups = evaluate(collector, tasks, "val")
    else:
        with console.progress("reading held-out documents, sections", planned_turns(cfg)) as advance:
            result["by_length"], groups = by_length(collector, lambda count: advance("", count))
        console.show(length_table(result["by_length"]))
    result |= {
        "accuracy": accuracy(groups).row(),
        "sources": {k: v.row() for k, v in by_source(groups).items()},
    }
    result["failures"] = sum(t.failure is not None for g in groups for t in g.trajectories)
    result["seconds"] = round(time.monotonic() - began, 2)
    for source, found in by_source(groups).items():
        console.say(f"{source}: {found.accuracy:.3f} (95 % {found.low:.3f}–{found.high:.3f}, n = {found.n})")
    if run is not None:
        out = run / "eval" / f"{Path(path).name}.json"
        out.parent.mkdir(exist_ok=True)
        write_atomic(out, json.dumps(result, indent=2) + "\n")
        console.say(f"results: {out}")
    if console.quiet:
        print(json.dumps(result))


def answer_question(name: str, document: Path, question: str, settings: list[str], console: Console) -> None:
    """`recollect ask`: read a document and print the answer."""
    path, run = find_checkpoint(name)
    cfg = config_of(run, settings)
    if not question.strip():
        raise BadInput("the question is empty")
    task = Task("ask", question, open_document(document))
    roles = build_policy(cfg, path, question)
    reader = Reader(task, roles, val_sampling(cfg))
    collector = Collector(cfg, roles)
    about = document.stat().st_size // (cfg.recurrent.memory.config.chunk_size * 3)
    with console.progress("sections read, about", max(1, about)) as advance:
        reader.advance = advance
        answer = asyncio.run(_answer(collector, task, reader))
    if not reader.sections_read and cfg.agent.agent_type == "recurrent":
        raise BadInput(f"the document {document} holds no text")
    for section, memory in reader.changes:
        console.say(f"memory after section {section}: {memory}")
    boxed = last_boxed(answer)
    print(boxed if boxed is not None else answer.strip())


class Reader(Session):
    """A session that keeps only the last few memories, so that a document of any length fits."""

    def __init__(self, task: Task, roles: dict[str, Binding], sampling: Sampling) -> None:
        super().__init__(task, Trajectory(task.id, 0), roles, sampling, "ask")
        self.advance: Callable[..., None] = lambda text="", count=1: None
        self.changes: deque[tuple[int, str]] = deque(maxlen=8)
        self.sections_read = 0

    def note(self, text: str) -> None:
        self.sections_read += 1
        self.trajectory.turns.clear()
        if not self.changes or self.changes[-1][1] != text:
            self.changes.append((self.sections_read, text))
        self.advance()


async def _answer(collector: Collector, task: Task, session: Session) -> str:
    return await collector.agent(task, session, collector.cfg)
