"""Who plays an agent in `recollect rollout`: the domain's expert, a model folder or run, or a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from recollect.agents.session import Binding
from recollect.config import Config
from recollect.domains.registry import expert_of
from recollect.policies.scripted import Expert
from recollect.runtime.address import is_address
from recollect.types import Task

EXPERT = "expert"


def settings_of(policy: str, domain: str, given: Sequence[str]) -> Config:
    """The configuration: that of the policy's run, if it is one, with the domain's agent and the given settings."""
    from recollect.config.compose import compose
    from recollect.models.checkpoints import find_checkpoint
    from recollect.samplers.checkpoint_roles import config_of

    own = [f"agent.agent_type={domain}", "recurrent.enable=null", f"data.made_up={domain}"]
    own += ["agent.reward_name=trajectory", "agent.tool_parser=line"]
    run = None if policy == EXPERT or is_address(policy) else find_checkpoint(policy)[1]
    return compose(None, [*own, *given], base={}) if run is None else config_of(run, [*own, *given])


@contextmanager
def players(cfg: Config, policy: str, user: str | None, tasks: Sequence[Task]) -> Iterator[dict[str, Binding]]:
    """The bindings of all roles; connections are closed on exit."""
    from recollect.models.checkpoints import find_checkpoint
    from recollect.samplers.bindings import acting_roles

    named = {role: name for role, name in (("*", policy), ("user", user)) if name is not None}
    scripted = {role: _expert(cfg) for role, name in named.items() if name == EXPERT}
    others = {r: n if is_address(n) else find_checkpoint(n)[0] for r, n in named.items() if n != EXPERT}
    if not others:
        yield scripted
        return
    policies = acting_roles(cfg, None, others, max((t.question for t in tasks), key=len))
    try:
        yield policies.bindings | scripted
    finally:
        policies.close()


def _expert(cfg: Config) -> Binding:
    from recollect.models.load import EMBEDDED, load_renderer

    renderer = load_renderer(EMBEDDED, cfg.agent.template)
    return Binding(Expert(renderer, expert_of(cfg.agent.agent_type)), renderer, trainable=False)
