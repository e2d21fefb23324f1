"""`recollect optimize`: an optimizer of DSPy looks for better prompts, and held-out tasks say whether they are."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from recollect.config.prompt_file import prompts_hash
from recollect.config.rules import checked
from recollect.eval.items import fingerprint
from recollect.eval.paired import PairedDifference, between, between_categories, item_scores, question_values
from recollect.files.locks import lock_folder
from recollect.files.output import refuse_unwritable, write_atomic
from recollect.files.reading import read_json
from recollect.runtime.address import is_address
from recollect.runtime.console import Console
from recollect.runtime.threads import LoopThread
from recollect.samplers.bindings import RolePolicies, acting_roles
from recollect.samplers.checkpoint_roles import NamedModels
from recollect.types import BadInput, Task
from recollect.workflows.eval.comparison import items_of
from recollect.workflows.eval.eval_run import evaluation_tasks, run_evaluation
from recollect.workflows.optimize.optimize_request import OptimizeRequest, optimized_tasks, refuse_request

TwoParts = tuple[list[Task], list[Task]]  # to learn from, to choose by
STAMP = "optimize.json"
RESULT = "prompts.json"


def optimize(who: NamedModels, asked: OptimizeRequest, console: Console) -> dict[str, Any]:
    """Write prompts.json, report.json and the evaluations before and after; the same command goes on after a kill."""
    refuse_request(asked, who.cfg)
    train, val = optimized_tasks(who.cfg, asked)
    held_out = evaluation_tasks(who.cfg)
    refuse_unwritable(asked.out, f"--out {asked.out}")
    with lock_folder(asked.out, f"--out {asked.out}"):
        _refuse_other(who, asked)
        policies = who.policies(max((t.question for t in held_out), key=len))
        try:
            return _optimized(who, asked, policies, (train, val), console)
        finally:
            policies.close()


def _refuse_other(who: NamedModels, asked: OptimizeRequest) -> None:
    """Refuse a folder of another optimisation."""
    file, stamp = asked.out / STAMP, {**asked.stamp(), "settings": fingerprint(who.cfg, who.players)}
    if file.is_file() and read_json(file) != stamp:
        raise BadInput(f"--out {asked.out} holds another optimisation; name another folder")
    write_atomic(file, json.dumps(stamp, indent=2) + "\n")


def _optimized(
    who: NamedModels,
    asked: OptimizeRequest,
    policies: RolePolicies,
    tasks: TwoParts,
    console: Console,
) -> dict[str, Any]:
    before = run_evaluation(replace(who, run=None), console, asked.out / "before", loaded=policies)
    began = time.monotonic()
    with _quiet_libraries():
        found = _search(who, asked, policies, tasks, console)
    seconds = time.monotonic() - began
    prompts = asked.out / RESULT
    write_atomic(prompts, json.dumps({"prompts": found["prompts"]}, indent=2, ensure_ascii=False) + "\n")
    cfg = deepcopy(who.cfg)
    cfg.agent.prompts = str(prompts)
    after = run_evaluation(replace(who, run=None, cfg=checked(cfg)), console, asked.out / "after", loaded=policies)
    result = {
        "optimizer": asked.optimizer,
        "requests": found["requests"],
        "answered_by_cache": found["cached"],
        "budget": asked.calls,
        "budget_spent": found["spent"],
        "failed_attempts": found["failed"],  # by kind; each counted as a reward of 0
        "seconds": round(seconds, 1),
        "validation": found["validation"],
        "held_out": {"before": before["accuracy"], "after": after["accuracy"]},
        "paired": [row.row() for row in evaluation_difference(*(str(asked.out / n) for n in ("before", "after")))],
        "prompts_hash": prompts_hash(cfg),
    }
    write_atomic(asked.out / "report.json", json.dumps(result, indent=2) + "\n")
    _say(result, prompts, console)
    return result


def evaluation_difference(first: str, second: str) -> list[PairedDifference]:
    """Two evaluations of the same tasks: by questions that have a category, else by tasks."""
    a, b = items_of(first, None), items_of(second, None)
    by_question = between_categories(question_values(a, "locomo_f1"), question_values(b, "locomo_f1"))
    return by_question or between(item_scores(a, "reward"), item_scores(b, "reward"))


def _say(result: dict[str, Any], prompts: Path, console: Console) -> None:
    (row, *_) = result["paired"]
    console.say(
        f"{result['optimizer']}: {result['requests']:,} requests in {result['seconds']:g} s; held-out reward "
        f"{row['first']:.3f} → {row['second']:.3f}, difference {row['difference']:+.3f} "
        f"(95 % {row['low']:+.3f} – {row['high']:+.3f}, n = {row['n']})"
    )
    if failed := result["failed_attempts"]:
        kinds = ", ".join(f"{count} × {kind}" for kind, count in failed.items())
        console.say(f"attempts that failed, each counted as a reward of 0: {kinds}")
    console.say(f"prompts: {prompts}; use them with agent.prompts={prompts}")


def _search(
    who: NamedModels,
    asked: OptimizeRequest,
    policies: RolePolicies,
    tasks: TwoParts,
    console: Console,
) -> dict[str, Any]:
    """The best prompts within the budget."""
    from recollect.dspy.prompt_search import PromptSearch

    thread = LoopThread("optimize")
    writer = _prompt_policies(who, asked)
    try:
        with console.progress("requests", asked.calls) as advance, console.alone():
            search = PromptSearch(who.cfg, policies, who.players, thread, asked.calls, asked.out, advance, console.warn)
            return search.run(asked, *tasks, writer)
    finally:
        thread.close()
        if writer is not None:
            writer.close()


def _prompt_policies(who: NamedModels, asked: OptimizeRequest) -> RolePolicies | None:
    """The model that writes instructions, where it is not the policy itself."""
    if asked.prompt_model is None:
        return None
    cfg, place = deepcopy(who.cfg), asked.prompt_model
    if is_address(place):
        return acting_roles(cfg, None, {"*": place}, "")
    return acting_roles(cfg, place, {}, "")


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """DSPy, Optuna and GEPA say little, and ask nobody for prices."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import dspy  # noqa: F401  # it sets levels when it is imported

    names = ("dspy", "optuna", "gepa", "LiteLLM")
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
