"""`recollect.train`, `recollect.sft` and `recollect.stages`: the commands of the same names, from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.config.compose import composed
from recollect.config.startup_messages import startup_messages
from recollect.library.event_loops import run_anywhere
from recollect.library.loaded_policy import LoadedPolicy, load
from recollect.library.run_view import Run
from recollect.library.settings import Function, overrides
from recollect.runs.directory import RunDirectory as Directory
from recollect.runtime.console import Console
from recollect.training.sft.sft_run import supervise
from recollect.training.train_run import OnStep, TrainRun
from recollect.types import BadInput
from recollect.workflows.stages.run_stages import run_stages
from recollect.workflows.stages.stage_plan import has_stages, read_plan


class Report(dict[str, Any]):
    """A report as a mapping whose keys are attributes too: ``report.held_out["rl"]``."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the report has no {name}; it has {', '.join(self)}") from None


@dataclass(frozen=True)
class Result:
    """What a training left: its report, its run directory, and the trained policy."""

    report: Report
    run: Run

    @property
    def policy(self) -> LoadedPolicy:
        """The trained policy, loaded from the run's newest checkpoint."""
        return load(self.run.path)


def train(
    recipe: str | Path | None = None,
    *,
    model: str | Path | None = None,
    tasks: Any = None,
    held_out: Any = None,
    agent: Function | None = None,
    reward: Function | None = None,
    tools: Sequence[Function] | None = None,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    on_step: OnStep | None = None,
    quiet: bool = False,
) -> Result:
    """Train an agent, as `recollect train` does: the same settings, run directory, resume and weights.

    Args:
        recipe: A recipe's name or a YAML file. None: the default recipe, or the plain defaults where tasks are given.
        model: A folder, a run, a hub name or ``"tiny"``.
        tasks: Rows (mappings with a question and its answer), a data set, a table, or file names.
        held_out: Tasks of the same forms for validation.
        agent: An agent's name, or an async function of (task, session, cfg).
        reward: A reward's name, or a function.
        tools: Names and functions for ``agent.tools``.
        settings: Any keys of docs/config.md.
        out: The run directory. A run that is in it already goes on.
        on_step: Called with the metrics of each step; False ends the run after that step.
        quiet: Print nothing but warnings.

    >>> import recollect, tempfile
    >>> def short(answer): return 1.0 / (1 + len(answer))
    >>> result = recollect.train(reward=short, quiet=True, out=tempfile.mkdtemp() + "/run", settings={
    ...     "trainer.total_training_steps": 1, "data.train_batch_size": 2, "actor_rollout_ref.rollout.n": 2,
    ...     "data.needle.chunks": 1, "data.val_max_samples": 2, "evaluation.lengths": [1], "evaluation.tasks": [2]})
    >>> result.report.steps
    1
    """
    given = overrides(
        settings, model=model, tasks=tasks, held_out=held_out, agent=agent, reward=reward, tools=tools, out=out
    )
    name = None if recipe is None else str(recipe)
    if has_stages(name):
        raise BadInput(f"{name} is a recipe of stages: call recollect.stages({name!r})")
    whole, console = composed(name, given), Console(quiet)
    for line in (*whole.said, *startup_messages(whole.cfg)):
        console.say(line)
    started: list[TrainRun] = []

    def work() -> dict[str, Any]:
        started.append(TrainRun(whole.cfg, console, on_step))
        return started[0].fit()

    def stop() -> None:
        for run in started:
            run.stop.made = True

    report = run_anywhere(work, stop)
    return Result(Report(report), Run(started[0].run.path))


def sft(
    recipe: str | Path | None = None,
    *,
    model: str | Path | None = None,
    data: Any = None,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    quiet: bool = False,
) -> Result:
    """Imitate conversations or stored trajectories, as `recollect sft` does.

    Args:
        recipe: A recipe's name or a YAML file.
        model: What to start from.
        data: Rows with ``messages``, a data set, a table, file names, or a run's directory.
        settings: Any keys of docs/config.md.
        out: The run directory.
        quiet: Print nothing but warnings.

    >>> import recollect, tempfile
    >>> rows = [{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}] * 4
    >>> result = recollect.sft(model="tiny", data=rows, out=tempfile.mkdtemp() + "/run", quiet=True,
    ...     settings={"sft.steps": 1, "sft.batch_size": 2})
    >>> result.report.steps, len(result.policy.generate("hi", max_tokens=2).ids) <= 2
    (1, True)
    """
    given = overrides(settings, model=model, tasks=data, out=out)
    whole, console = composed(None if recipe is None else str(recipe), given), Console(quiet)
    for line in whole.said:
        console.say(line)
    report = run_anywhere(lambda: supervise(whole.cfg, console))
    return Result(Report(report), Run(Directory.of(whole.cfg).path))


def stages(
    recipe: str | Path = "two_stage",
    *,
    settings: Mapping[str, Any] | None = None,
    model: str | Path | None = None,
    tasks: Any = None,
    held_out: Any = None,
    out: str | Path | None = None,
    quiet: bool = False,
) -> Report:
    """Train several roles one after another, as `recollect stages` does; the report of all stages."""
    given = overrides(settings, model=model, tasks=tasks, held_out=held_out, out=out)
    plan = read_plan(str(recipe), given)
    return Report(run_anywhere(lambda: run_stages(plan, Console(quiet))))
