"""Recipe + overrides → a checked configuration, with errors that name the nearest known key."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from recollect.check import checked
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
            choices = {str(name): tree for name, tree in variants[key].items()}
            if str(value) not in choices:
                raise BadInput(f"{key}={value}: known are {', '.join(map(str, choices))}")
            cfg = _merge(cfg, choices[str(value)] or {}, f"{key}={value}")
    for key, value in _parse(overrides):
        if key not in variants:
            _set(cfg, key, value)
    try:
        made = OmegaConf.to_object(cfg)
    except OmegaConfBaseException as error:
        raise BadInput(str(error).splitlines()[0]) from None
    return checked(made)  # type: ignore[arg-type]


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


@cache
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
        if override.is_delete() or override.is_sweep_override():
            raise BadInput(f"'{text}': keys are set to one value; deleting keys and sweeps over values are not known")
        out.append((override.key_or_group, override.value()))
    return out


def _set(cfg: Any, key: str, value: Any) -> None:
    if key not in known_keys():
        raise BadInput(_unknown(key))
    if value == "???":
        raise BadInput(f"{key}=???: give it a value")
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
