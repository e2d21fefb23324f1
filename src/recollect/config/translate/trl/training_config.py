"""Every key of `training_config.yaml`, and the plan of a pipeline that it makes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recollect.config.translate.trl.keys import Settings, TRLKey
from recollect.config.translate.trl.read import checked, defaults, translate, weighted
from recollect.config.translate.trl.values import count, mapping, number, text, texts
from recollect.files.yaml import read_mapping
from recollect.types import BadInput

METRICS = ("accuracy", "reward", "efficiency")
BESIDE = {"sft": "trl_defaults.yaml", "train": "rl_defaults.yaml"}
DECIDED = (  # by the pipeline, whatever the files beside it say
    *("model_name", "out_dir", "tool", "data_root", "train_file", "val_file"),
    *("trajectory_glob", "min_reward", "max_examples"),
)
PIPELINE: tuple[TRLKey, ...] = (
    TRLKey("model_name", text, ("model",), "SFT and RL both start from it", "Qwen/Qwen2.5-0.5B"),
    TRLKey(
        "sft_models_dir", text, ("sft_models_dir",), "`SFT_MODELS_DIR/TOOL` is a run of `recollect sft`", "models/sft"
    ),
    TRLKey("rl_models_dir", text, ("rl_models_dir",), "a run of `recollect train`", "models/rl"),
    TRLKey("raw_glob", text, ("raw_glob",), "generated into it, converted from it", "data/raw/*/*.traj.json"),
    TRLKey("unified_dir", text, ("unified_dir",), "`UNIFIED_DIR/DOMAIN/`", "data/unified"),
    TRLKey("sft_data_dir", text, ("sft_data_dir",), "as `recollect sft-data` writes it", "data/sft"),
    TRLKey("rewards_file", text, ("rewards_file",), "as `recollect reward` writes it", "data/rewards/analysis.json"),
    TRLKey(
        "agents",
        mapping,
        ("agents",),
        "DOMAIN: `questions` (texts), `num_trajectories` (in all, the questions in turns), `video_context` (a file)",
    ),
    TRLKey("tools", texts, ("tools",), "one SFT model for each that has rows", ["reason", "bash", "finalize"]),
    TRLKey("templates", text, ("templates",), "of `recollect sft-data`"),
    TRLKey("min_reward", number, ("rl_min_reward",), "of RL's tasks; SFT takes all trajectories", 0.0),
    TRLKey("max_examples", count, ("max_examples",), "of RL's tasks", 1000),
    TRLKey("domain_weights", mapping, ("weights",), "weights of the reward, in RL too"),
    TRLKey(
        "evaluation",
        mapping,
        ("metrics", "test_files", "evaluation_dir"),
        "with `--evaluate`: `metrics` (accuracy, reward, efficiency), `test_datasets` (files of tasks), `output_dir`",
    ),
)
OTHERS = ("model_name", "domain_weights", "evaluation")  # keys that tell such a file from recollect's own
AGENT = {"questions": "questions", "num_trajectories": "num_trajectories", "video_context": "context", "test": "test"}
EVALUATION = {"metrics": "metrics", "test_datasets": "test_files", "output_dir": "evaluation_dir"}


def is_training_config(tree: Mapping[str, Any]) -> bool:
    """Whether a file is one of VideoMultiAgents'."""
    return any(name in tree for name in OTHERS)


def plan_tree(tree: Mapping[str, Any], place: str, own: set[str]) -> tuple[dict[str, Any], list[str]]:
    """The keys of recollect's plan that a file stands for, and what there is to say; ``own`` keys stay as they are."""
    names = {key.name for key in PIPELINE}
    given = {k: v for k, v in tree.items() if k in names or k not in own}
    values = {**defaults(PIPELINE), **checked(PIPELINE, given, place)}
    plan: dict[str, Any] = {"out": f"runs/recollect/{Path(place).stem}"}
    for key in PIPELINE:
        if key.name in values and len(key.becomes) == 1:
            plan[key.becomes[0]] = values[key.name]
    plan["agents"] = {domain: _renamed(row, AGENT, f"{place}: agents.{domain}") for domain, row in _agents(values)}
    plan |= _renamed(values.get("evaluation"), EVALUATION, f"{place}: evaluation")
    sft, rl, notes = _stages(place)
    if "domain_weights" in values:
        plan["weights"] = place
        rl["agent.reward_name"] = weighted(place)
    plan |= {"sft": nested(sft), "rl": nested(rl)}
    return {**plan, **{k: v for k, v in tree.items() if k not in names}}, notes


def nested(settings: Settings) -> dict[str, Any]:
    """Dotted keys as a tree."""
    tree: dict[str, Any] = {}
    for name, value in settings.items():
        *path, last = name.split(".")
        at = tree
        for part in path:
            at = at.setdefault(part, {})
        at[last] = value
    return tree


def _agents(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return list(values.get("agents", {}).items())


def _renamed(row: Any, names: Mapping[str, str], where: str) -> dict[str, Any]:
    if not isinstance(row or {}, Mapping):
        raise BadInput(f"{where} is a mapping of {', '.join(names)}")
    for name in row or {}:
        if name not in names:
            raise BadInput(f"{where}.{name} is unknown; known: {', '.join(names)}")
    return {names[name]: value for name, value in (row or {}).items() if value is not None}


def _stages(place: str) -> tuple[Settings, Settings, list[str]]:
    """The settings of SFT and RL from the files beside a pipeline's, or the defaults of their keys."""
    found, notes = {}, list[str]()
    for command, name in BESIDE.items():
        path = Path(place).expanduser().with_name(name)
        tree = read_mapping(path, "file of settings") if path.is_file() else {}
        made = translate(command, {k: v for k, v in tree.items() if k not in DECIDED}, str(path), {})
        decided = ("data.train_files", "data.val_files", "data.min_reward", "data.train_max_samples")
        found[command] = {k: v for k, v in made.settings.items() if k not in decided}
        notes.append(f"{name}: {path if path.is_file() else 'not beside the file; its keys have their defaults'}")
        notes += made.notes
    return found["sft"], found["train"], notes
