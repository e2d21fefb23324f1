"""Recipe + overrides → a checked configuration, with errors that name the nearest known key."""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from recollect.config import Config
from recollect.config.aliases import AGENT_NAMES, canonical, refuse_contradictions, resolve, stale
from recollect.config.from_trajectories import agent_of
from recollect.config.reward_terms import EVERY_QUESTION
from recollect.config.rules import checked
from recollect.config.translate import Translated, translate
from recollect.config.translate.apply import refuse_unread
from recollect.files.rows import agent_of_rows
from recollect.files.yaml import parse_yaml, read_yaml, refuse_endless
from recollect.registries import AGENTS, only_read
from recollect.types import BadInput

DEFAULT_RECIPE = "needle"
_ENVIRONMENT = re.compile(r"\$\{.*\boc\.env\b", re.DOTALL)


Override = str | tuple[str, Any]  # key=value as it is written on a command line, or a key and its value


def words(arguments: Sequence[str]) -> list[str]:
    """A command's words without what line breaks leave: spaces around them, a lone or trailing backslash."""
    cleaned = (text.strip().removesuffix("\\").strip() for text in arguments)
    return [text for text in cleaned if text]


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    folder = resources.files("recollect") / "recipes"
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml"))


def read_recipe(name: str) -> dict[str, Any]:
    """A recipe's tree, from the package or from a YAML file."""
    if name in recipe_names():
        text, place = (resources.files("recollect") / "recipes" / f"{name}.yaml").read_text(), name
    elif Path(name).is_file():
        text, place = read_yaml(Path(name), "recipe"), name
    else:
        if name.endswith((".yaml", ".yml")):
            raise BadInput(f"{name}: there is no such file")
        near = difflib.get_close_matches(name, recipe_names(), 1)
        hint = f"did you mean {near[0]}? Known: " if near else "known: "
        raise BadInput(f"no recipe {name}; {hint}{', '.join(recipe_names())}, or a YAML file")
    return tree_of(text, place)


def tree_of(text: str, place: str) -> dict[str, Any]:
    """The tree of a text of settings, which is at some place for messages."""
    refuse_endless(text, place)
    if not isinstance(parse_yaml(text, place), dict | None):
        raise BadInput(f"{place}: a recipe is a mapping of keys")
    try:
        tree: Any = OmegaConf.to_container(OmegaConf.create(text))
    except Exception as error:
        raise BadInput(f"{place} is not YAML: {' '.join(str(error).split())[:300] or type(error).__name__}") from None
    return {str(k): v for k, v in tree.items()}


def stored_tree(run: Path) -> dict[str, Any]:
    """The tree of a run's own configuration."""
    path = run / "config.yaml"
    return tree_of(read_yaml(path, "configuration"), str(path))


@dataclass(frozen=True)
class Composed:
    """A configuration, and messages about settings of other systems."""

    cfg: Config
    said: list[str]


def compose(
    recipe: str | None, overrides: Sequence[Override], base: dict[str, Any] | None = None, where: str = "the recipe"
) -> Config:
    """The configuration of a recipe (or of a given tree, from ``where``) with ``key=value`` overrides applied.

    Without either, a command that brings data of its own starts from the defaults of the tree, any other from `needle`.
    """
    return composed(recipe, overrides, base, where).cfg


def composed(
    recipe: str | None, overrides: Sequence[Override], base: dict[str, Any] | None = None, where: str = "the recipe"
) -> Composed:
    """The same, with the messages."""
    settings = parsed(overrides)
    if base is None and recipe is None:
        base = _own_data(dict(settings))
    tree = dict(base) if base is not None else read_recipe(recipe or DEFAULT_RECIPE)
    where = f"recipe {recipe}" if recipe else where
    variants = variants_of(tree.pop("variants", None), where)
    tree = settings_of(tree)
    cfg = copy.deepcopy(_defaults())
    layers = [_merge(cfg, tree, where)]
    for key, value in settings:
        if key in variants:
            layers.append(_merge(cfg, settings_of(choice_of(variants, key, value)), f"{key}={value}"))
    layers.append(_override(cfg, [(key, value) for key, value in settings if key not in variants]))
    layers.append(_override(cfg, _of_rows({key: value for layer in layers for key, value in layer.settings.items()})))
    try:
        with only_read() if base is not None else nullcontext():  # it may be a stored run of somebody else's
            made = checked(resolve(_as_object(cfg)))
    except BadInput as error:  # where nothing else says anything, it is the tree that is wrong
        raise error if settings or not tree else BadInput(f"{where}: {error}") from None
    refuse_unread([each for layer in layers for each in layer.only_for], made.agent.agent_type)
    return Composed(made, [line for layer in layers for line in layer.lines()])


NOT_SETTINGS = ("description", "stages", "end_to_end")  # see workflows/stages/stage_plan.py


def settings_of(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's tree without what is no setting."""
    return {key: value for key, value in tree.items() if key not in NOT_SETTINGS}


def choice_of(variants: Mapping[str, Mapping[str, dict[str, Any]]], name: str, value: Any) -> dict[str, Any]:
    """The keys that a choice of a variant sets."""
    choices = variants[name]
    if str(value) not in choices:
        raise BadInput(f"{name}={value}: known are {', '.join(choices)}")
    return choices[str(value)]


AGENT_KEYS = ("agent.agent_type", "agent.use_agent", "recurrent.enable")
NAMED_BY_ROWS = "actor_rollout_ref.rollout.agent_name_override"


def _of_rows(given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What follows from an agent that is named as other systems name theirs, by the data or by its override.

    The data's `agent_name` counts where nothing else names the agent. Where no reward is named, an agent that answers
    several questions has the one that looks at each.
    """
    name, files = given.get(NAMED_BY_ROWS), given.get("data.train_files") or given.get("data.val_files")
    picked: list[tuple[str, Any]] = []
    if not name and not any(key in given for key in AGENT_KEYS) and files:
        name = agent_of_rows([str(path) for path in (files if isinstance(files, list) else _as_list(files))])
        picked = [("agent.agent_type", AGENT_NAMES.get(name, name))] if name else []
    if name in AGENT_NAMES and AGENTS.knows(AGENT_NAMES[name], "many_questions") and "agent.reward_name" not in given:
        picked.append(("agent.reward_name", EVERY_QUESTION))
    return picked


def _own_data(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a command starts from that brings data of its own; trajectories of a domain name their agent. Else None."""
    files, offline = (_as_list(given.get(f"data.{name}") or []) for name in ("train_files", "offline_files"))
    agent = agent_of([*files, *offline])
    return agent if agent or files else None


def variants_of(given: Any, where: str) -> dict[str, dict[str, dict[str, Any]]]:
    """name → choice → the keys that it sets."""
    out: dict[str, dict[str, dict[str, Any]]] = {}
    for name, choices in given.items() if isinstance(given, Mapping) else [("", given)] if given else []:
        if not isinstance(choices, Mapping) or not all(isinstance(t or {}, Mapping) for t in choices.values()):
            key = f"variants.{name}" if name else "variants"
            raise BadInput(f"{where}: {key}={choices} names no choices; write variants: {{NAME: {{CHOICE: {{KEYS}}}}}}")
        out[str(name)] = {str(choice): dict(tree or {}) for choice, tree in choices.items()}
    return out


def _as_object(cfg: Any) -> Config:
    for key, value in flatten(OmegaConf.to_container(cfg)).items():
        if _ENVIRONMENT.search(str(value)):
            raise BadInput(f"{key}: values are not read from the environment; what is secret stays there")
    try:
        return OmegaConf.to_object(cfg)  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        raise BadInput(str(error).splitlines()[0]) from None


def to_yaml(cfg: Config) -> str:
    """The resolved tree as YAML."""
    return OmegaConf.to_yaml(OmegaConf.structured(cfg))


STORED = "the stored configuration"


def from_yaml(text: str, where: str = STORED) -> Config:
    """A configuration from its resolved tree, as this version or an earlier one stored it."""
    tree = OmegaConf.create(tree_of(text, where))
    if _is_earlier(tree):
        _upgrade(tree)
    return compose(None, [], base=OmegaConf.to_container(tree), where=where)  # type: ignore[arg-type]


def differing(text: str, cfg: Config, ignore: Sequence[str], where: str = STORED) -> str:
    """The first key in which a stored configuration differs, with both values; empty when none does."""
    tree = OmegaConf.create(tree_of(text, where))
    stored, now = flatten(tree), flatten(OmegaConf.structured(cfg))
    if _is_earlier(tree) or now.keys() - stored.keys():  # a version that did not have all of today's keys
        stored = flatten(OmegaConf.structured(from_yaml(text, where)))
    for key in sorted(stored.keys() | now.keys()):
        if stored.get(key) != now.get(key) and not key.startswith(tuple(ignore)):
            return f"{key} is {stored.get(key)} there and {now.get(key)} here"
    return ""


def _is_earlier(tree: Any) -> bool:
    """Whether a version stored a tree that did not have all of today's keys."""
    optim = OmegaConf.select(tree, "actor_rollout_ref.actor.optim")
    return optim is not None and "lr_warmup_steps_ratio" not in optim


def _upgrade(tree: Any) -> None:
    """Translate what an earlier version stored: 0 and -1 have changed their meaning in some keys."""
    for key in ("actor_rollout_ref.actor.optim", "critic.optim", "sft.optim"):
        if OmegaConf.select(tree, f"{key}.lr_warmup_steps") == 0:
            OmegaConf.update(tree, f"{key}.lr_warmup_steps", -1)
    for key in ("trainer.save_freq", "trainer.test_freq"):
        if OmegaConf.select(tree, key) == -1:
            OmegaConf.update(tree, key, 0)


def flatten(node: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted keys of a tree, with their values."""
    out: dict[str, Any] = {}
    for key in node:
        value = node[key]
        name = f"{prefix}{key}"
        if isinstance(value, DictConfig | dict) and len(value):
            out |= flatten(value, f"{name}.")
        else:
            out[name] = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
    return out


@cache
def _defaults() -> Any:
    """The tree as it is without any setting; to be copied, as making it is slow."""
    return OmegaConf.structured(Config)


@cache
def known_keys() -> list[str]:
    """Every key of the tree."""
    return list(flatten(_defaults()))


def _is_known(key: str) -> bool:
    """True for a key of the tree, and for the role that a key names."""
    place, _, role = key.partition(".")
    return key in known_keys() or (place == "roles" and role.isidentifier())


def _merge(cfg: Any, tree: dict[str, Any], where: str) -> Translated:
    """Set the keys of a tree; ``where`` it is from is for messages."""
    try:
        given = _by_one_name(flatten(OmegaConf.to_container(OmegaConf.create(tree))).items())
        layer = translate(given)
        _refuse_unknown(layer.settings)
        _forget(cfg, layer.settings)
        for key, value in layer.settings.items():
            _set(cfg, key, value)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None
    return layer


def _by_one_name(given: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The settings of a tree under one name each."""
    out: dict[str, Any] = {}
    names: dict[str, str] = {}
    for key, value in given:
        name = canonical(key)
        if name in out and out[name] != value:
            raise BadInput(f"{names[name]} and {key} are the same key; give one of them")
        out[name] = value
        names.setdefault(name, key)
    return out


def _forget(cfg: Any, given: Mapping[str, Any]) -> None:
    """Reset the other names of keys that are now given."""
    for key in stale(given, lambda name: OmegaConf.select(cfg, name)):
        OmegaConf.update(cfg, key, OmegaConf.select(_defaults(), key))


def parsed(overrides: Sequence[Override]) -> list[tuple[str, Any]]:
    """(key, value) of each override; `key`, `+key` and `++key` mean the same."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    out: list[tuple[str, Any]] = []
    for given in overrides:
        if isinstance(given, tuple):
            key = canonical(given[0])
            section = isinstance(given[1], dict) and given[1] and not _is_known(key)
            out += flatten(given[1], f"{key}.").items() if section else [(key, given[1])]
            continue
        (text,) = words([given]) or ("",)
        if not text:
            continue
        if "=" not in text:
            first = "; a recipe stands before all settings" if text in recipe_names() or Path(text).is_file() else ""
            raise BadInput(f"'{text}' is not key=value{first}")
        try:
            override = parser.parse_override(text)
        except HydraException:  # values with spaces or odd characters are taken as they are
            key, _, value = text.partition("=")
            out.append((canonical(key.lstrip("+~").strip()), value.strip()))
            continue
        key = canonical(override.key_or_group)
        if override.is_delete() or override.is_sweep_override():
            raise BadInput(
                f"'{text.partition('=')[0]}': keys are set to one value; deleting keys and sweeps over values are not "
                "known"
            )
        value = override.value()
        section = isinstance(value, dict) and value and not _is_known(key)
        out += flatten(value, f"{key}.").items() if section else [(key, value)]
    return out


def _override(cfg: Any, settings: Sequence[tuple[str, Any]]) -> Translated:
    """Set keys one after another; the last word about a key, or about one of its other names, counts."""
    layer = translate(dict(settings))
    _refuse_unknown(layer.settings)
    refuse_contradictions(layer.settings)
    _forget(cfg, layer.settings)
    for key, value in layer.settings.items():
        _set(cfg, key, value)
    return layer


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    for key in given:
        if not _is_known(key):
            raise BadInput(_unknown(key))


def _set(cfg: Any, key: str, value: Any) -> None:
    if value == "???":
        raise BadInput(f"{key}=???: give it a value")
    if key == "agent.reward_name" and isinstance(value, list):
        value = _joined(value)
    if OmegaConf.is_list(OmegaConf.select(cfg, key)) and not isinstance(value, list):
        value = _as_list(value)
    if isinstance(value, list) and (odd := [v for v in value if isinstance(v, dict | list)]):
        raise BadInput(f"{key}={value}: {odd[0]} is no plain value")
    try:
        OmegaConf.update(cfg, key, value)
    except (OmegaConfBaseException, ValueError) as error:
        raise BadInput(f"{key}={value}: {str(error).splitlines()[0]}") from None


def _as_list(value: Any) -> list[Any]:
    """A list from one value, or from a list in quotes."""
    if isinstance(value, list):
        return value
    if isinstance(value, str) and value.startswith("[") and value.endswith("]"):
        inside = parsed([f"x={value}"])[0][1]
        return inside if isinstance(inside, list) else [value]
    return [value]


def _joined(rewards: Sequence[Any]) -> str:
    """A sum of rewards, which is one text in the tree."""
    return f"[{','.join(map(str, rewards))}]"


def _unknown(key: str) -> str:
    known = known_keys()
    near = difflib.get_close_matches(key, known, 3, 0.6)
    leaf = key.rsplit(".", 1)[-1]
    same = sorted((k for k in known if k.rsplit(".", 1)[-1] == leaf), key=lambda k: not k.startswith("trainer."))
    near = same[:3] if leaf == key and same else near or same[:3]
    return f"unknown key {key}" + (f"; the nearest known: {', '.join(near)}" if near else "; see docs/config.md")
