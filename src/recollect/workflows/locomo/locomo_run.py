"""The three modes of `recollect locomo`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from recollect.config import Config
from recollect.config.prompt_file import prompt_entries
from recollect.config.startup_messages import startup_messages
from recollect.eval.summary import show_report
from recollect.files.output import refuse_unwritable
from recollect.models.checkpoints import find_checkpoint
from recollect.models.export import export_model
from recollect.models.lora import adapter_base
from recollect.models.program_file import ProgramFile, write_program
from recollect.runs.directory import remove_tree
from recollect.runtime.console import Console
from recollect.samplers.checkpoint_roles import NamedModels, named
from recollect.training.train_run import TrainRun
from recollect.types import BadInput
from recollect.workflows.dry_run.dry_run import dry_run
from recollect.workflows.eval.eval_run import run_evaluation
from recollect.workflows.locomo.arbor_settings import refuse_unheard
from recollect.workflows.locomo.baseline_table import refusals, show_baselines, write_baselines
from recollect.workflows.locomo.chosen_gpus import with_gpus, write_arbor
from recollect.workflows.locomo.judge_check import measure_judge
from recollect.workflows.locomo.plan import MODES, LocomoPlan, settings_of, task_files, training_config
from recollect.workflows.locomo.through_arbor import ArborTraining, trained_folder

UNBOUNDED = 10**9  # tokens: what is searched as a baseline has no budget
BASELINES: Mapping[str, tuple[str, ...]] = {  # name → settings
    "no memory": ("conversation.memory=none",),
    "whole conversation, cut": ("conversation.memory=whole",),
    **{
        f"RAG over {kind}": (f"conversation.memory={kind}", f"memory.budget={UNBOUNDED}")
        for kind in ("turns", "sessions", "observations")
    },
}


def run_locomo(plan: LocomoPlan, look: bool, console: Console) -> dict[str, Any]:
    """Do what is asked for. ``look``: check a training and stop."""
    if plan.mode not in MODES:
        raise BadInput(f"--mode {plan.mode} is unknown; known: {', '.join(MODES)}")
    if look and plan.mode != "train":
        raise BadInput("--dry-run goes with --mode train")
    if plan.arbor is not None and (look or plan.mode != "train"):
        raise BadInput("--arbor goes with --mode train, and not with --dry-run")
    if look:
        with tempfile.TemporaryDirectory() as folder:
            return _look(replace(plan, out=Path(folder)), console)
    refuse_unwritable(plan.out, f"--out {plan.out}")
    modes = {"train": _train, "evaluate": _evaluate, "baselines": _baselines, "judge": _judge}
    return modes[plan.mode](plan, console)


def _look(plan: LocomoPlan, console: Console) -> dict[str, Any]:
    plan = with_gpus(plan, console.say)
    dry_run(training_config(plan, task_files(plan, console.say)), console)
    return {}


def _train(plan: LocomoPlan, console: Console) -> dict[str, Any]:
    """Train, merge the adapter, and write the program."""
    refuse_unwritable(plan.program.expanduser().absolute().parent, f"--program {plan.program}")
    plan = with_gpus(plan, console.say)
    write_arbor(plan)
    cfg = training_config(plan, task_files(plan, console.say))
    if cfg.agent.agent_type != "conversation_qa":
        raise BadInput(f"agent.agent_type={cfg.agent.agent_type}: recollect locomo trains conversation_qa")
    if plan.arbor is not None:
        refuse_unheard(plan.settings, cfg)
    for line in startup_messages(cfg):
        console.say(line)
    if plan.arbor is not None:
        return _train_through(plan, cfg, plan.arbor, console)
    work = TrainRun(cfg, console)
    report = work.fit()
    show_report(report, work.run, console)
    program = _export(plan, cfg, work.run.path, console)
    write_program(plan.program, program)
    console.say(f"program: {plan.program}; recollect locomo --mode evaluate measures it")
    return {"report": report, "program": str(plan.program)}


def _train_through(plan: LocomoPlan, cfg: Config, url: str, console: Console) -> dict[str, Any]:
    """Train on a server; where it keeps its weights on this machine, write the program too."""
    work = ArborTraining(cfg, url, console)
    answer = work.fit()
    found: dict[str, Any] = {"job": work.job.id, "fidelity": answer.get("fidelity"), "program": None}
    folder = trained_folder(answer)
    if folder is None:
        console.say(f"the weights are with the server, in {answer.get('folder') or 'a folder of its own'}")
        return found
    program = replace(_export(plan, cfg, folder, console), run=work.run.path.resolve())
    write_program(plan.program, program)
    console.say(f"program: {plan.program}; recollect locomo --mode evaluate measures it")
    return found | {"program": str(plan.program)}


def _export(plan: LocomoPlan, cfg: Config, run: Path, console: Console) -> ProgramFile:
    newest = find_checkpoint(str(run))[0]
    merged = plan.out / "merged"
    remove_tree(merged)
    dtype = "bfloat16" if cfg.actor_rollout_ref.actor.dtype == "bfloat16" else "float32"
    console.say(export_model(newest, merged, dtype))
    adapter = Path(newest).resolve() if adapter_base(newest) else None
    memory = {"budget": cfg.memory.budget, "style": cfg.memory.style, **asdict(cfg.conversation)}
    prompts = {} if cfg.conversation.memory == "notes" else prompt_entries(cfg)
    return ProgramFile(merged.resolve(), adapter, run.resolve(), prompts, memory)


def _evaluate(plan: LocomoPlan, console: Console) -> dict[str, Any]:
    """Measure the program, or --model with the recipe's settings, on the test conversations."""
    if plan.model is None and not plan.program.expanduser().is_file():
        raise BadInput(f"there is no program at {plan.program}: train first, or name a model with --model")
    who = _who(plan, plan.model or str(plan.program), _test_file(plan, console))
    return run_evaluation(who, console, plan.out / "evaluation" / _name(plan))


def _baselines(plan: LocomoPlan, console: Console) -> dict[str, Any]:
    """Measure every baseline, and the memory itself, on the same questions with the same model."""
    test = _test_file(plan, console)
    place = plan.out / "baselines" / _name(plan)
    found: dict[str, Any] = {'always "not mentioned"': refusals(test)}
    for name, more in {**BASELINES, "memory": ()}.items():
        console.say(f"{name}:")
        who = _who(replace(plan, settings=[*plan.settings, *more]), _model(plan), test)
        made = run_evaluation(who, console, place.with_name(f"{place.name}-{name.replace(' ', '_').replace(',', '')}"))
        found[name] = made["agents"][who.cfg.agent.agent_type]["categories"]
    show_baselines(found, console)
    write_baselines(place, found)
    console.say(f"results: {place}.json, {place}.md")
    return found


def _judge(plan: LocomoPlan, console: Console) -> dict[str, Any]:
    """Measure the judge at judge.url on constructed answers to the test questions."""
    return measure_judge(training_config(plan, Path()), _test_file(plan, console), console)


def _model(plan: LocomoPlan) -> str:
    if plan.model is not None:
        return plan.model
    path = training_config(plan, Path()).actor_rollout_ref.model.path
    return str(path)


def _test_file(plan: LocomoPlan, console: Console) -> Path:
    file = task_files(plan, console.say) / "test.jsonl"
    if not file.exists():
        raise BadInput(f"--split {plan.split}: no conversation is left for the test; name some, or take --split all")
    return file


def _who(plan: LocomoPlan, model: str, test: Path) -> NamedModels:
    """A model and its settings: those of the program or run that it is, else those of the recipe."""
    own = find_checkpoint(model)[1] is not None
    words = plan.settings if own else settings_of(replace(plan, num_train_steps=None, model=None))
    files = f'data.val_files=["{test}"]'
    return named(model, [], [*([] if own else ["locomo"]), files, *words])


def _name(plan: LocomoPlan) -> str:
    """The name of results: the model's, and how many questions."""
    model = Path(plan.model).name if plan.model else plan.program.stem
    number = "all" if plan.num_test is None else str(plan.num_test)
    return f"{model}-{(plan.split or 'default').replace('/', '_')}-{number}"
