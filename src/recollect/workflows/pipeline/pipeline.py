"""Run the stages of a pipeline one after another, skip those that are complete, and write the report."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection
from dataclasses import asdict
from glob import glob
from pathlib import Path
from typing import Any

from recollect.eval.card import file_hash
from recollect.files.output import refuse_unwritable, write_atomic
from recollect.runs.directory import dump, remove_tree
from recollect.runtime.console import Console
from recollect.types import BadInput
from recollect.workflows.pipeline.generate_trajectories import GENERATED, is_generated
from recollect.workflows.pipeline.held_out import test_tasks
from recollect.workflows.pipeline.paths import Place
from recollect.workflows.pipeline.pipeline_plan import FOLDERS, MODES, Plan
from recollect.workflows.pipeline.pipeline_report import write_report
from recollect.workflows.pipeline.pipeline_stages import NEEDS, READS, STAGES, outputs, run_folders


def wanted(mode: str, skip: Collection[str], evaluate: bool) -> list[str]:
    """The stages to run."""
    if mode not in MODES:
        raise BadInput(f"--mode {mode}: known are {', '.join(MODES)}")
    left_out = {"sft": {"rl"}, "rl": {"sft-data", "sft"}, "both": set()}[mode] | set(skip)
    return [s for s in STAGES if s not in left_out and (evaluate or s != "evaluate")]


def run_pipeline_stages(plan: Plan, names: Collection[str], console: Console) -> dict[str, Any]:
    """Run the stages that are not complete and write the report."""
    place = Place.of(plan)
    refuse_unwritable(place.out, f"out={plan.out}")
    for name in ("unified_dir", "sft_data_dir", *FOLDERS):
        if getattr(plan, name) is not None:
            refuse_unwritable(Path(getattr(plan, name)).expanduser(), f"{name}={getattr(plan, name)}")
    if "evaluate" in names:
        test_tasks(plan, plan.config({}))
    _refuse_others(plan, place, names)
    place.out.mkdir(parents=True, exist_ok=True)
    records: dict[str, Any] = {}
    for name in STAGES:
        mark = place.out / "stages" / f"{name}.json"
        key, before = _key(plan, name, records), _read(mark)
        if name not in names:
            if before is not None:
                records[name] = before
            continue
        if before is not None and before["key"] == key and all(p.exists() for p in outputs(plan, place, name)):
            console.say(f"{name}: complete, passed over")
            records[name] = before
            continue
        for folder in run_folders(plan, place, name) if before is not None else ():
            remove_tree(folder)
        console.say(f"── {name}")
        start = time.monotonic()
        made = STAGES[name](plan, place, console)
        records[name] = {"key": key, "seconds": round(time.monotonic() - start, 1), "made": made}
        mark.parent.mkdir(exist_ok=True)
        write_atomic(mark, dump(records[name], indent=2) + "\n")
    return write_report(plan, place.out, records)


def _refuse_others(plan: Plan, place: Place, names: Collection[str]) -> None:
    """Refuse to overwrite trajectories that the pipeline did not generate."""
    if plan.raw_glob is None or "generate" not in names or _read(place.out / "stages" / "generate.json") is not None:
        return
    there = (path for domain in plan.agents for path in place.raw_file(domain).glob(f"{GENERATED}*.traj.json"))
    if other := next((path for path in there if not is_generated(path)), None):
        raise BadInput(f"{other} is there already: --skip generate takes it as it is, or move it away")


def _key(plan: Plan, name: str, records: dict[str, Any]) -> str:
    """A fingerprint of everything that a stage's result depends on, files that the plan names included."""
    tree = asdict(plan)
    own = {k: tree[k] for k in READS[name]}
    named = [v for k in own for v in (tree[k], *_values(tree[k])) if k in ("weights", "templates", "agents")]
    files = [file_hash(Path(v)) for v in named if isinstance(v, str) and Path(v).is_file()]
    if name == "convert" and plan.raw_glob is not None:
        files += [file_hash(Path(path)) for path in sorted(glob(str(Path(plan.raw_glob).expanduser()), recursive=True))]
    before = [records.get(n, {}).get("key") for n in NEEDS[name]]
    return hashlib.sha256(json.dumps([name, own, before, *files], sort_keys=True).encode()).hexdigest()[:16]


def _values(agents: Any) -> list[Any]:
    """The questions and tests of all domains."""
    return [v for row in agents.values() for v in row.values()] if isinstance(agents, dict) else []


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return None
