"""The stages of a recipe: what each trains, from which weights, against which models. Nothing is started here.

stages:
  - {name: memory, role: memory, steps: 20}
  - {name: qa, role: qa, steps: 20, start: base, others: {memory: newest}, settings: {trainer: {seed: 1}}}
end_to_end: true

A variant may hold stages of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from recollect.config import Config
from recollect.config.compose import Override, choice_of, compose, parsed, read_recipe, variants_of
from recollect.config.roles import KINDS, roles_of
from recollect.models.checkpoints import find_checkpoint
from recollect.models.load import load_config
from recollect.models.scratch_models import SCRATCH
from recollect.runs.directory import RunDirectory
from recollect.types import BadInput

KEYS = ("name", "role", "steps", "start", "others", "settings")
STARTS = "last (the role's newest checkpoint), base, or a folder"
OTHERS = "newest, base, serve (its newest checkpoint behind a server), a folder, or what roles.NAME takes"
END_TO_END = "end_to_end"


@dataclass(frozen=True)
class Stage:
    """One stage."""

    name: str
    roles: tuple[str, ...]  # those that are trained
    start: str = "last"
    others: Mapping[str, str] = field(default_factory=dict)  # of roles that are not trained; default newest
    settings: Mapping[str, Any] = field(default_factory=dict)  # a tree of settings of its own
    number: int = 0  # its place in the list, from 1; 0: the comparison, which is in none

    @property
    def title(self) -> str:
        """The trained roles."""
        return "+".join(self.roles)


@dataclass(frozen=True)
class StagePlan:
    """All that a recipe with stages asks for."""

    tree: Mapping[str, Any]  # the recipe without its stages
    overrides: tuple[Override, ...]
    stages: tuple[Stage, ...]
    end_to_end: Stage | None
    cfg: Config  # what all stages share

    @property
    def root(self) -> Path:
        """The directory of the whole."""
        return RunDirectory.of(self.cfg).path

    def folder(self, stage: Stage) -> Path:
        """The run directory of one stage."""
        return self.root / (f"{stage.number}-{stage.name}" if stage.number else stage.name)

    def config(self, stage: Stage, start: str, bound: Mapping[str, str]) -> Config:
        """The configuration of a stage that starts from a model, with what each role is bound to."""
        number = max(0, stage.number - 1)
        seed = self.cfg.trainer.seed + number  # each stage meets tasks of its own
        own = {
            "trainer": {"default_local_dir": str(self.folder(stage)), "val_before_train": number == 0, "seed": seed},
            "actor_rollout_ref": {"model": {"path": start}},
            "agent": {"model_name_or_path": None},
            "sft": {"steps": 0},
            "roles": dict(bound),
        }
        taken = (*TAKEN, "trainer.total_training_steps") if not stage.number else TAKEN
        given = [text for text in self.overrides if _key(text) not in taken]
        return compose(None, given, base=_merged(self.tree, own, stage.settings))

    def warm_config(self) -> Config | None:
        """The configuration of the warm start, if the recipe asks for one."""
        if self.cfg.sft.steps <= 0:
            return None
        own = {"trainer": {"default_local_dir": str(self.root / "base"), "val_before_train": False}}
        cfg = compose(None, self.overrides, base=_merged(self.tree, own))
        cfg.trainer.total_training_steps, cfg.trainer.default_local_dir = 0, str(self.root / "base")
        return cfg


TAKEN = (  # keys of the whole that a stage has values of its own for
    *("trainer.default_local_dir", "trainer.seed", "trainer.val_before_train", "sft.steps"),
    *("actor_rollout_ref.model.path", "agent.model_name_or_path"),
)


def has_stages(recipe: str | None) -> bool:
    """True when a recipe is one of stages."""
    return recipe is not None and "stages" in read_recipe(recipe)


def read_plan(recipe: str, overrides: Sequence[Override]) -> StagePlan:
    """The plan of a recipe, checked."""
    tree, given = with_variants(read_recipe(recipe), overrides, f"recipe {recipe}")
    rows, compared = tree.pop("stages", None), tree.pop(END_TO_END, None)
    if not isinstance(rows, list) or not rows:
        raise BadInput(f"{recipe} has no stages: a list such as stages: [{{role: memory, steps: 20}}, {{role: qa}}]")
    cfg = compose(recipe, overrides)
    _check_trainer(cfg)
    stages = tuple(_stage(row, i, cfg) for i, row in enumerate(rows, 1))
    names = [stage.name for stage in stages]
    if END_TO_END in names:
        raise BadInput(f"{END_TO_END} is the name of the comparison; give the stage another")
    load_config(find_checkpoint(cfg.actor_rollout_ref.model.path)[0])  # refuses what is no causal language model
    plan = StagePlan(tree, tuple(given), stages, None, cfg)
    for stage in stages:  # what is wrong with a late one is said now, and not after hours
        plan.config(stage, "base", bindings(stage, dict.fromkeys(roles_of(cfg) or (), "base"), "base"))
        _check_models(plan, stage)
    return replace(plan, end_to_end=_end_to_end(plan, compared)) if compared else plan


def with_variants(
    tree: Mapping[str, Any], overrides: Sequence[Override], where: str
) -> tuple[dict[str, Any], list[Override]]:
    """A recipe's tree with its chosen variants, which stages' own settings come after; the other overrides."""
    made = dict(tree)
    variants = variants_of(made.pop("variants", None), where)
    for key, value in parsed(overrides):
        if key in variants:
            made = _merged(made, choice_of(variants, key, value))
    return made, [override for override in overrides if _key(override) not in variants]


def _check_trainer(cfg: Config) -> None:
    """Refuse settings under which stages would have no checkpoints, or lose those of earlier stages."""
    if cfg.trainer.save_freq < 0:
        raise BadInput(
            "trainer.save_freq=-1 saves nothing, and a stage starts from the checkpoint of the one before it; 0 saves "
            "at the end alone"
        )
    if cfg.trainer.resume_mode == "disable":
        raise BadInput(
            "trainer.resume_mode=disable: stages go on where they were; start anew in another directory, with "
            "trainer.experiment_name=…"
        )


def _end_to_end(plan: StagePlan, compared: Any) -> Stage:
    """All roles in one stage, with as many steps as the stages have together."""
    roles = _all_trained(plan.cfg)
    steps = [
        plan.config(s, plan.cfg.actor_rollout_ref.model.path, roles).trainer.total_training_steps for s in plan.stages
    ]
    if None in steps:
        raise BadInput(f"{END_TO_END} trains for as many steps as the stages: give each of them steps")
    own = {"trainer": {"total_training_steps": sum(filter(None, steps))}}
    return Stage(END_TO_END, tuple(roles), "base", {}, _merged(own, compared if isinstance(compared, dict) else {}))


def _all_trained(cfg: Config) -> dict[str, str]:
    return dict.fromkeys(roles_of(cfg) or ("agent",), "trainable")


def _stage(row: Any, number: int, cfg: Config) -> Stage:
    """One stage from its YAML."""
    where = f"stage {number}"
    if not isinstance(row, dict):
        raise BadInput(f"{where} is not a mapping; it has {', '.join(KEYS)}")
    if unknown := [key for key in row if key not in KEYS]:
        raise BadInput(f"{where}: unknown key {unknown[0]}; known: {', '.join(KEYS)}")
    known = roles_of(cfg)
    given = row.get("role")
    roles = tuple(dict.fromkeys(map(str, given if isinstance(given, list) else [given]))) if given else ()
    if not roles:
        raise BadInput(f"{where} needs a role to train" + (f": {', '.join(known)}" if known else ""))
    for key in ("others", "settings"):
        if not isinstance(row.get(key) or {}, dict):
            raise BadInput(f"{where}: {key} is not a mapping")
    others = {str(k): str(v) for k, v in (row.get("others") or {}).items()}
    for role in (*roles, *others):
        if known is not None and role not in known:
            raise BadInput(f"{where}: the agent {cfg.agent.agent_type} has no role {role}; it has {', '.join(known)}")
    if both := [role for role in others if role in roles]:
        raise BadInput(f"{where}: {both[0]} is trained, so it cannot be among the others")
    settings, steps = row.get("settings") or {}, row.get("steps")
    if steps is not None:
        if isinstance(steps, bool) or not isinstance(steps, int):
            raise BadInput(f"{where}: steps={steps} is not a whole number")
        settings = _merged({"trainer": {"total_training_steps": steps}}, settings)
    name = str(row.get("name") or "+".join(roles))
    if Path(name).name != name:
        raise BadInput(f"{where}: name={name} is the name of a folder, without / in it")
    return Stage(name, roles, str(row.get("start") or "last"), others, settings, number)


def bindings(stage: Stage, newest: Mapping[str, str], base: str) -> dict[str, str]:
    """What each role is bound to in a stage."""
    asked = {role: stage.others.get(role, "newest") for role in newest if role not in stage.roles}
    fixed = {role: other_binding(text, newest[role], base) for role, text in asked.items()}
    return dict.fromkeys(stage.roles, "trainable") | fixed


def other_binding(text: str, newest: str, base: str) -> str:
    """What a role that is not trained is bound to, as a setting of `roles`."""
    if text in ("newest", "base"):
        return f"frozen:{newest if text == 'newest' else base}"
    if text == "serve":
        return f"serve:{newest}"
    return text if text.partition(":")[0] in KINDS else f"frozen:{text}"


def _check_models(plan: StagePlan, stage: Stage) -> None:
    """Refuse a stage that names a model that is not there, unless an earlier stage is going to make it."""
    named = {} if stage.start in ("last", "base") else {"start": stage.start}
    for role, text in stage.others.items():
        kind, _, where = other_binding(text, "", "").partition(":")
        if kind in ("frozen", "serve") and where:
            named[f"others.{role}"] = where
    made = [plan.root / "base", *(plan.folder(s) for s in plan.stages if s.number < stage.number)]
    for key, name in named.items():
        folder = Path(name).expanduser().absolute()
        if name in SCRATCH or any(folder.is_relative_to(run.absolute()) for run in made):
            continue
        try:
            load_config(find_checkpoint(name)[0])
        except BadInput as error:
            known = STARTS if key == "start" else OTHERS
            raise BadInput(f"stage {stage.number}: {key}={name}: {error}; known: {known}") from None


def _key(override: Override) -> str:
    return override[0] if isinstance(override, tuple) else override.partition("=")[0].lstrip("+").strip()


def _merged(*trees: Mapping[str, Any]) -> dict[str, Any]:
    return OmegaConf.to_container(OmegaConf.merge(*[dict(tree) for tree in trees]))  # type: ignore[return-value]
