"""Who plays which role in `eval` and `ask`: one checkpoint, or a folder or an address for each role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.config import Config
from recollect.config.compose import Override, compose, stored_tree
from recollect.config.prompt_file import kept_prompts
from recollect.config.roles import roles_of
from recollect.models.checkpoints import find_checkpoint
from recollect.models.load import context_window, load_config, speaks_embedded
from recollect.models.program_file import program_settings
from recollect.runtime.address import is_address
from recollect.samplers.bindings import RolePolicies, acting_roles
from recollect.types import BadInput

READING = {  # tokens that fit the window of a small model
    "style": "instruct",
    "chunk_size": 1024,
    "max_prompt_length": 512,
    "max_memorization_length": 256,
    "max_final_response_length": 256,
}

CHOOSES = ("agent.", "recurrent.", "rag.")  # settings of a user who knows how to read


def config_of(run: Path | None, settings: Sequence[Override]) -> Config:
    """The run's own configuration, or the default recipe's, with overrides."""
    if run is None:
        first = settings[0] if settings else ()
        recipe = first if isinstance(first, str) and "=" not in first else None
        return compose(recipe, settings if recipe is None else settings[1:])
    return compose(None, settings, base=own_prompts(stored_tree(run), run), where=str(run / "config.yaml"))


def own_prompts(tree: dict[str, Any], run: Path) -> dict[str, Any]:
    """A run's tree with the copy of its prompts that it keeps."""
    agent = tree.get("agent") or {}
    file = agent.get("prompts")
    if not isinstance(file, str) or not (run / kept_prompts(file)).is_file():
        return tree
    return {**tree, "agent": {**agent, "prompts": str(run / kept_prompts(file))}}


def reading_config(path: str, settings: Sequence[Override]) -> Config:
    """How a model that belongs to no run reads a document.

    One that was not made here gets prompts in words, and room for answers in its own words.
    """
    first = settings[0] if settings else ()
    named_recipe = isinstance(first, str) and "=" not in first
    if named_recipe or is_address(path) or speaks_embedded(path):
        return config_of(None, settings)
    return compose(None, settings, base={"recurrent": {"memory": {"config": dict(READING)}}})


@dataclass
class NamedModels:
    """What the command line names: a checkpoint for every role, and models of single roles."""

    path: str | None  # the checkpoint's folder
    run: Path | None  # the run that it belongs to
    roles: dict[str, str]  # folders and addresses
    cfg: Config
    window: int | None = None  # of a model that nobody has taught to read in sections; None: of any other

    @property
    def players(self) -> dict[str, str]:
        """Who plays what; under ``*`` who plays every role that is given to nobody else."""
        return {**({"*": self.path} if self.path else {}), **self.roles}

    def policies(self, longest_question: str) -> RolePolicies:
        """Those who play, ready."""
        known, kind = roles_of(self.cfg), self.cfg.agent.agent_type
        for role in self.roles:
            if known is not None and role not in known:
                raise BadInput(f"--role {role}: the agent {kind} has no such role; it has {', '.join(known)}")
        missing = [role for role in known or () if role not in self.roles]
        if self.path is None and missing:
            raise BadInput(f"who plays {missing[0]}? Name a checkpoint, or --role {missing[0]}=DIR_OR_URL")
        return acting_roles(self.cfg, self.path, self.roles, longest_question)


def named(
    checkpoint: str | None, given: Sequence[str], settings: Sequence[Override], reads: bool = False
) -> NamedModels:
    """What is meant; the configuration is that of the checkpoint's run, or else of the first role's that has one.

    ``reads``: a model that belongs to no run is to read one's own documents, not made-up ones.
    """
    places, settings = role_settings(given), program_settings(checkpoint, settings)
    found = {role: find_checkpoint(where) for role, where in places.items() if not is_address(where)}
    path, run = find_checkpoint(checkpoint) if checkpoint is not None else (None, None)
    origin = run if checkpoint is not None else next((r for _, r in found.values() if r is not None), None)
    model = path if path is not None else next((place for place, _ in found.values()), None)
    alone = reads and origin is None and model is not None
    cfg = reading_config(str(model), settings) if alone else config_of(origin, settings)
    cfg.roles = {}  # those of the training are another matter
    players = {role: found[role][0] if role in found else where for role, where in places.items()}
    chosen = any((text if isinstance(text, str) else text[0]).startswith(CHOOSES) for text in settings)
    untaught = alone and path is not None and not players and not chosen and not speaks_embedded(path)
    window = context_window(load_config(path)) if untaught and path is not None else None
    return NamedModels(path, run, players, cfg, window)


def role_settings(given: Sequence[str]) -> Mapping[str, str]:
    """`NAME=DIR_OR_URL` of each --role."""
    found = {}
    for text in given:
        role, _, where = text.partition("=")
        if not role or not where:
            raise BadInput(f"--role {text} is not NAME=DIR_OR_URL, for example qa=http://localhost:8000/v1")
        found[role] = where
    return found
