"""Recipe + overrides → a checked configuration, with errors that name the nearest known key."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from recollect.config import Config
from recollect.types import BadInput

DEFAULT_RECIPE = "needle"


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    folder = resources.files("recollect") / "recipes"
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml"))


def read_recipe(name: str) -> dict[str, Any]:
    """A recipe's tree, from the package or from a YAML file."""
    if name in recipe_names():
        text, place = (resources.files("recollect") / "recipes" / f"{name}.yaml").read_text(), name
    elif Path(name).is_file():
        text, place = Path(name).read_text(), name
    else:
        near = difflib.get_close_matches(name, recipe_names(), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise BadInput(f"no recipe {name}{hint} Known: {', '.join(recipe_names())}, or a YAML file")
    try:
        tree = OmegaConf.to_container(OmegaConf.create(text))
    except Exception as error:
        raise BadInput(f"{place} is not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(tree, dict):
        raise BadInput(f"{place}: a recipe is a mapping of keys")
    return {str(k): v for k, v in tree.items()}


def compose(recipe: str | None, overrides: Sequence[str], base: dict[str, Any] | None = None) -> Config:
    """The configuration of a recipe (or of a given tree) with ``key=value`` overrides applied."""
    tree = dict(base) if base is not None else read_recipe(recipe or DEFAULT_RECIPE)
    variants = tree.pop("variants", {}) or {}
    tree.pop("description", None)
    cfg = OmegaConf.structured(Config)
    cfg = _merge(cfg, tree, f"recipe {recipe}" if recipe else "the recipe")
    for key, value in _parse(overrides):
        if key in variants:
            choices = variants[key]
            if str(value) not in choices:
                raise BadInput(f"{key}={value}: known are {', '.join(map(str, choices))}")
            cfg = _merge(cfg, choices[str(value)] or {}, f"{key}={value}")
    for key, value in _parse(overrides):
        if key not in variants:
            _set(cfg, key, value)
    return checked(OmegaConf.to_object(cfg))


def to_yaml(cfg: Config) -> str:
    """The resolved tree as YAML."""
    return OmegaConf.to_yaml(OmegaConf.structured(cfg))


def from_yaml(text: str) -> Config:
    """A configuration from its resolved tree."""
    return compose(None, [], base=OmegaConf.to_container(OmegaConf.create(text)))  # type: ignore[arg-type]


def differing(text: str, cfg: Config, ignore: Sequence[str]) -> str:
    """The first key in which a stored configuration differs, with both values; empty when none does."""
    stored, now = flatten(OmegaConf.create(text)), flatten(OmegaConf.structured(cfg))
    for key in sorted(stored.keys() | now.keys()):
        if stored.get(key) != now.get(key) and not key.startswith(tuple(ignore)):
            return f"{key} is {stored.get(key)} there and {now.get(key)} here"
    return ""


def flatten(node: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted keys of a tree, with their values."""
    out: dict[str, Any] = {}
    for key in node:
        value = node[key]
        name = f"{prefix}{key}"
        if isinstance(value, DictConfig):
            out |= flatten(value, f"{name}.")
        else:
            out[name] = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
    return out


def known_keys() -> list[str]:
    """Every key of the tree."""
    return list(flatten(OmegaConf.structured(Config)))


def _merge(cfg: Any, tree: dict[str, Any], where: str) -> Any:
    for key in flatten(OmegaConf.create(tree)):
        if key not in known_keys():
            raise BadInput(f"{where}: {_unknown(key)}")
    try:
        return OmegaConf.merge(cfg, tree)
    except OmegaConfBaseException as error:
        raise BadInput(f"{where}: {str(error).splitlines()[0]}") from None


def _parse(overrides: Sequence[str]) -> list[tuple[str, Any]]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    out = []
    for text in overrides:
        if "=" not in text:
            raise BadInput(f"'{text}' is not key=value")
        try:
            override = parser.parse_override(text)
        except HydraException:  # values with spaces or odd characters are taken as they are
            key, _, value = text.partition("=")
            out.append((key.lstrip("+~"), value))
            continue
        out.append((override.key_or_group, override.value()))
    return out


def _set(cfg: Any, key: str, value: Any) -> None:
    if key not in known_keys():
        raise BadInput(_unknown(key))
    current = OmegaConf.select(cfg, key)
    if OmegaConf.is_list(current) and not isinstance(value, list):
        value = [value]
    try:
        OmegaConf.update(cfg, key, value)
    except (OmegaConfBaseException, ValueError) as error:
        raise BadInput(f"{key}={value}: {str(error).splitlines()[0]}") from None


def _unknown(key: str) -> str:
    known = known_keys()
    near = difflib.get_close_matches(key, known, 3, 0.6)
    leaf = key.rsplit(".", 1)[-1]
    near = near or [k for k in known if k.rsplit(".", 1)[-1] == leaf][:3]
    return f"unknown key {key}" + (f"; the nearest known: {', '.join(near)}" if near else "; see docs/config.md")


def checked(cfg: Any) -> Config:
    """Refuse values that cannot work, each with one line."""
    assert isinstance(cfg, Config)
    limits, actor, rollout = cfg.recurrent.memory.config, cfg.actor_rollout_ref.actor, cfg.actor_rollout_ref.rollout
    mini = actor.ppo_mini_batch_size
    prefix = "recurrent.memory.config."
    rules: list[tuple[bool, str]] = [
        (limits.chunk_size > 0, f"{prefix}chunk_size={limits.chunk_size} must be positive"),
        (limits.max_memorization_length > 0, f"{prefix}max_memorization_length must be positive"),
        (limits.max_final_response_length > 0, f"{prefix}max_final_response_length must be positive"),
        (limits.max_chunks >= 0, f"{prefix}max_chunks must not be negative"),
        (limits.split in ("token", "sentence"), f"{prefix}split={limits.split}: known are token and sentence"),
        (limits.layout in ("chunk_first", "memory_first"), f"{prefix}layout={limits.layout}: known are chunk_first and memory_first"),
        (limits.style in ("plain", "instruct"), f"{prefix}style={limits.style}: known are plain and instruct"),
        (cfg.recurrent.enable == "memory", f"recurrent.enable={cfg.recurrent.enable}: known is memory"),
        (cfg.algorithm.adv_estimator == "grpo", f"algorithm.adv_estimator={cfg.algorithm.adv_estimator}: known is grpo"),
        (actor.loss_agg_mode in ("token-mean", "trajectory-mean"), f"actor_rollout_ref.actor.loss_agg_mode={actor.loss_agg_mode}: known are token-mean and trajectory-mean"),
        (actor.kl_loss_type in ("kl", "abs", "mse", "low_var_kl"), f"actor_rollout_ref.actor.kl_loss_type={actor.kl_loss_type}: known are kl, abs, mse and low_var_kl"),
        (rollout.name == "engine", f"actor_rollout_ref.rollout.name={rollout.name}: known is engine"),
        (rollout.n >= 1, "actor_rollout_ref.rollout.n must be at least 1"),
        (rollout.temperature > 0, "actor_rollout_ref.rollout.temperature must be positive: training needs sampling"),
        (rollout.max_num_seqs >= 1, "actor_rollout_ref.rollout.max_num_seqs must be at least 1"),
        (cfg.data.train_batch_size >= 1, "data.train_batch_size must be at least 1"),
        (0 <= mini <= cfg.data.train_batch_size, f"actor_rollout_ref.actor.ppo_mini_batch_size={mini} is larger than data.train_batch_size={cfg.data.train_batch_size}"),
        (mini == 0 or cfg.data.train_batch_size % mini == 0, f"data.train_batch_size={cfg.data.train_batch_size} is not a multiple of ppo_mini_batch_size={mini}"),
        (actor.ppo_max_token_len_per_gpu > 0, "actor_rollout_ref.actor.ppo_max_token_len_per_gpu must be positive"),
        (cfg.data.needle.hops in (1, 2), "data.needle.hops must be 1 or 2"),
        (cfg.data.needle.chunks >= 1 and cfg.data.needle.facts_per_chunk >= cfg.data.needle.hops, "data.needle: too few chunks or facts_per_chunk"),
        (len(cfg.evaluation.lengths) == len(cfg.evaluation.tasks), "evaluation.lengths and evaluation.tasks must have one entry for each length"),
        (cfg.trainer.resume_mode in ("auto", "disable"), f"trainer.resume_mode={cfg.trainer.resume_mode}: known are auto and disable"),
    ]
    for ok, message in rules:
        if not ok:
            raise BadInput(message)
    return cfg
