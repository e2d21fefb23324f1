"""The command `pipeline`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from recollect.files.locks import lock_file, lock_folder
from recollect.files.output import refuse_unwritable
from recollect.runtime.console import Console
from recollect.types import BadInput
from recollect.workflows.pipeline.pipeline import run_pipeline_stages, wanted
from recollect.workflows.pipeline.pipeline_plan import read_plan
from recollect.workflows.pipeline.pipeline_stages import STAGES

SHARED = ("unified_dir", "sft_data_dir", "rewards_file", "evaluation_dir")  # what stages write outside of runs


def run_pipeline(
    config: str | None, mode: str, skip: Sequence[str], evaluate: bool | None, out: str | None, console: Console
) -> dict[str, Any]:
    """Run the stages and show the results; returns the report. The embedded example is evaluated too."""
    for name in skip:
        if name not in STAGES:
            raise BadInput(f"--skip {name}: the stages are {', '.join(STAGES)}")
    plan = read_plan(config, console.say)
    plan = replace(plan, out=out) if out else plan
    names = wanted(mode, skip, config is None if evaluate is None else evaluate)
    place = Path(plan.out).expanduser()
    refuse_unwritable(place, f"out={plan.out}")
    with ExitStack() as held:
        held.enter_context(lock_folder(place, f"the pipeline's folder {plan.out}"))
        for key in SHARED:  # another pipeline may name the same ones
            if (folder := getattr(plan, key)) is not None:
                held.enter_context(lock_file(Path(folder).expanduser().absolute(), f"{key}={folder}"))
        report = run_pipeline_stages(plan, names, console)
    shown = lambda value: "–" if value is None else f"{value:.3f}"
    rows = [[d, *(shown(r[p]) for p in ("base", "sft", "rl")), str(r["n"])] for d, r in report["domains"].items()]
    if "evaluate" in report["seconds"]:
        console.table("Success on held-out tasks", ["domain", "base", "SFT", "RL", "tasks"], rows)
    console.say(f"{sum(report['seconds'].values()):.0f} s in all; report: {Path(plan.out) / 'report.md'}")
    return report
