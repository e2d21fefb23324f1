"""Roles as settings: which roles an agent has, and what each is bound to.

`roles.NAME` is `trainable`, `frozen:DIR` (loaded in this process), `endpoint:URL` (a server that somebody runs) or
`serve:DIR` (a server that recollect runs). A role without an entry is played by the trained policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from recollect.config import Config
from recollect.registries import AGENTS
from recollect.runtime.address import is_address
from recollect.types import BadInput

Kind = Literal["trainable", "frozen", "endpoint", "serve"]
KINDS: tuple[Kind, ...] = ("trainable", "frozen", "endpoint", "serve")
FIXED_API = "actor_rollout_ref.rollout.fixed_model_api"


@dataclass(frozen=True)
class RoleSetting:
    """What one role is bound to."""

    kind: Kind
    where: str = ""  # a folder, a hub name or an address


def role_setting(role: str, text: str, api: str | None = None) -> RoleSetting:
    """The binding in a setting; ``endpoint`` alone means the address of fixed_model_api."""
    kind, _, where = text.partition(":")
    if kind not in KINDS:
        raise BadInput(f"roles.{role}={text} is unknown; known: trainable, frozen:DIR, endpoint:URL, serve:DIR")
    if kind == "trainable":
        if where:
            raise BadInput(f"roles.{role}={text}: trainable takes nothing after it")
        return RoleSetting("trainable")
    if kind == "endpoint":
        given = f"roles.{role}={text}" if where else f"{FIXED_API}={api}"
        where = where or api or ""
        if not where:
            raise BadInput(f"{FIXED_API} is required: roles.{role}=endpoint needs an address such as {EXAMPLE}")
        if not is_address(where):
            raise BadInput(f"{given} is no address; it starts with http:// or https://, as in {EXAMPLE}")
    if not where:
        raise BadInput(f"roles.{role}={text} needs a model folder: {kind}:DIR")
    return RoleSetting(kind, where)


EXAMPLE = "http://localhost:8000/v1"


def bindings(cfg: Config) -> dict[str, RoleSetting]:
    """What every role with a setting of its own is bound to."""
    return {
        role: role_setting(role, text, cfg.actor_rollout_ref.rollout.fixed_model_api)
        for role, text in cfg.roles.items()
    }


def roles_of(cfg: Config) -> tuple[str, ...] | None:
    """The roles of the configured agent; None when it is one of the user's own that does not name them."""
    spec = AGENTS.of(cfg.agent.agent_type)
    return spec.roles if spec else None


def who_plays(cfg: Config) -> list[str]:
    """A line for each role: whether the model that plays it is trained, and which one it is."""
    found, lines = bindings(cfg), []
    for role in dict.fromkeys([*(roles_of(cfg) or ("every other role",)), *found]):
        bound = found.get(role, RoleSetting("trainable"))
        fixed = bound.kind != "trainable"
        model = bound.where if fixed else cfg.actor_rollout_ref.model.path
        lines.append(f"{role}: using {'FIXED' if fixed else 'TRAINABLE'} model {model}")
    return lines


def problems(cfg: Config) -> Iterator[str]:
    """What is wrong with the bindings."""
    known = roles_of(cfg)
    for role in cfg.roles:
        if known is not None and role not in known:
            yield f"roles.{role}: the agent {cfg.agent.agent_type} has no such role; it has {', '.join(known)}"
    found = bindings(cfg)
    if known is not None and all(role in found and found[role].kind != "trainable" for role in known):
        yield f"no role is trainable: set one of {', '.join(f'roles.{role}' for role in known)} to trainable"
