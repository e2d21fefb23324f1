"""Who plays an agent in `recollect rollout`: the domain's expert, a model folder or run, or a server."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.chat import Renderer
from recollect.config import Config
from recollect.domains.registry import expert_of
from recollect.policies.scripted import Expert
from recollect.session import Binding
from recollect.types import Task

EXPERT = "expert"
URLS = ("http://", "https://")


def settings_of(policy: str, domain: str, given: Sequence[str]) -> Config:
    """The configuration: that of the policy's run, if it is one, with the domain's agent and the given settings."""
    from recollect.compose import compose
    from recollect.eval.command import config_of, find_checkpoint

    own = [
        f"agent.agent_type={domain}",
        "recurrent.enable=null",
        "agent.reward_name=trajectory",
        f"data.made_up={domain}",
    ]
    run = None if policy == EXPERT or policy.startswith(URLS) else find_checkpoint(policy)[1]
    return compose(None, [*own, *given], base={}) if run is None else config_of(run, [*own, *given])


def player(policy: str, cfg: Config, tasks: Sequence[Task]) -> Binding:
    """A policy by its name."""
    from recollect.models.load import EMBEDDED, load_tokenizer

    if policy == EXPERT:
        renderer = Renderer(load_tokenizer(EMBEDDED, cfg.agent.template))
        return Binding(Expert(renderer, expert_of(cfg.agent.agent_type)), renderer, trainable=False)
    if policy.startswith(URLS):
        from recollect.policies.endpoint import Endpoint

        server = Endpoint(policy, syntax=cfg.agent.tool_parser or "line")
        server.check()
        return Binding(server, Renderer(load_tokenizer(EMBEDDED)), trainable=False)
    from recollect.eval.command import build_policy, find_checkpoint

    longest = max((t.question for t in tasks), key=len)
    return build_policy(cfg, find_checkpoint(policy)[0], longest)["*"]
