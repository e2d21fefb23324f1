"""`recollect.evaluate`: how often an agent succeeds on tasks that it has not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recollect.library.event_loops import run_anywhere
from recollect.library.loaded_policy import LoadedPolicy
from recollect.library.settings import Function, overrides
from recollect.library.train_from_python import Report
from recollect.runtime.console import Console
from recollect.samplers.checkpoint_roles import named
from recollect.workflows.eval.eval_run import run_evaluation


def evaluate(
    policy: LoadedPolicy | str | Path,
    *,
    tasks: Any = None,
    agent: Function | None = None,
    reward: Function | None = None,
    tools: Sequence[Function] | None = None,
    settings: Mapping[str, Any] | None = None,
    baselines: Sequence[str] = (),
    out: str | Path | None = None,
    quiet: bool = False,
) -> Report:
    """Success rates with 95 % intervals, as `recollect eval` measures them.

    Args:
        policy: What `recollect.load` gave, or what it takes.
        tasks: Rows, a data set, a table or file names; None: the run's own held-out tasks.
        agent: The agent, if another than the run's.
        reward: The reward, if another than the run's.
        tools: Names and functions for ``agent.tools``.
        settings: Any keys of docs/config.md.
        baselines: Agents to compare with on the same tasks, such as ``["concat", "rag"]``.
        out: Where to keep the results; a killed evaluation goes on from there.
        quiet: Print nothing but warnings.

    >>> import recollect
    >>> rows = [{"question": "Who holds the key?", "context": "mira holds the key.", "answer": "mira"}]
    >>> recollect.evaluate("tiny", tasks=rows, quiet=True).accuracy["n"]
    1
    """
    given = overrides(settings, held_out=tasks, agent=agent, reward=reward, tools=tools)
    path, loaded = (policy.path, policy.policies) if isinstance(policy, LoadedPolicy) else (str(policy), None)
    who, place = named(path, [], given), None if out is None else Path(out)
    return Report(run_anywhere(lambda: run_evaluation(who, Console(quiet), place, list(baselines), loaded)))
