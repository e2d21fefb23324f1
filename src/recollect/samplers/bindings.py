"""Who plays which role: the trained policy, frozen models of this process, outside endpoints, servers of our own.

Frozen weights are hashed when they are loaded and again at the end; they must not have changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from recollect.agents.session import Binding
from recollect.agents.window import check_window
from recollect.chat import Renderer
from recollect.config import Config
from recollect.config.roles import Bound, bindings
from recollect.engine import Loop, load_fitted, make_engine
from recollect.engine.attention_check import fit_of
from recollect.models.checkpoints import find_checkpoint
from recollect.models.device import pick_device, pick_dtype, thread_counts
from recollect.models.load import load_tokenizer
from recollect.models.starting_model import starting_model
from recollect.policies.endpoint import Endpoint, Patience
from recollect.runtime.address import is_address
from recollect.samplers.child_server import Served


def weights_hash(model: Any) -> str:
    """A digest of every weight, by name; the same for the same weights, whoever holds them."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}:{tuple(tensor.shape)}:{tensor.dtype}".encode())
        digest.update(tensor.detach().to("cpu").contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@dataclass
class Frozen:
    """A model of this process that is not trained."""

    path: str
    engine: Loop
    renderer: Renderer
    before: str  # digest of its weights when it was loaded

    def after(self) -> str:
        """The digest now."""
        return weights_hash(self.engine.model)


@dataclass
class Cast:
    """The roles, and what has to be looked after for them."""

    bindings: dict[str, Binding] = field(default_factory=dict)
    frozen: dict[str, Frozen] = field(default_factory=dict)  # by role
    endpoints: dict[str, Endpoint] = field(default_factory=dict)  # by role
    served: list[Served] = field(default_factory=list)

    def free(self) -> None:
        """Give the memory of frozen models' caches back until they are asked again."""
        for frozen in self.frozen.values():
            frozen.engine.free()

    def hashes(self) -> dict[str, dict[str, str]]:
        """What each role that is not trained is, and the digests of frozen weights at the start and now."""
        found: dict[str, dict[str, str]] = {
            role: {"model": f.path, "before": f.before, "after": f.after()} for role, f in self.frozen.items()
        }
        return found | {role: {"model": f"{e.url} {e.name}"} for role, e in self.endpoints.items()}

    def close(self) -> None:
        """Close connections and stop our servers."""
        for endpoint in dict.fromkeys(self.endpoints.values()):
            endpoint.close()
        for served in self.served:
            served.stop()


class Casting:
    """Makes a cast; models, connections and servers that several roles name are made once."""

    def __init__(
        self, cfg: Config, everyone: Binding | None, question: str = "", say: Callable[[str], None] = lambda text: None
    ) -> None:
        """``everyone`` plays every role without a binding of its own; ``question`` is the longest one asked."""
        self.cfg, self.question, self.say = cfg, question, say
        self.cast = Cast({} if everyone is None else {"*": everyone})
        self.everyone = everyone
        self._loaded: dict[str, Frozen] = {}
        self._reached: dict[str, Endpoint] = {}

    def make(self, asked: Mapping[str, Bound] | None = None) -> Cast:
        """The cast that the configuration asks for, every endpoint of it reachable."""
        try:
            for role, bound in (bindings(self.cfg) if asked is None else asked).items():
                if bound.kind != "trainable":
                    self.cast.bindings[role] = self._bind(role, bound)
                elif self.everyone is not None:
                    self.cast.bindings[role] = self.everyone
        except BaseException:
            self.cast.close()
            raise
        return self.cast

    def _bind(self, role: str, bound: Bound) -> Binding:
        if bound.kind == "frozen":
            frozen = self.cast.frozen[role] = self.frozen(role, bound.where)
            return Binding(frozen.engine, frozen.renderer, trainable=False)
        if bound.kind == "serve":
            bound = Bound("serve", find_checkpoint(bound.where)[0])
        url = self._serve(bound.where) if bound.kind == "serve" else bound.where
        endpoint = self.cast.endpoints[role] = self._endpoint(url, own=bound.kind == "serve")
        return Binding(endpoint, self._counter(bound), trainable=False)

    def frozen(self, role: str, path: str) -> Frozen:
        """A model of this process (of a run: its newest checkpoint), its window large enough for a role."""
        path = find_checkpoint(path)[0]
        key = str(Path(path).expanduser().resolve()) if Path(path).expanduser().is_dir() else path
        if key not in self._loaded:
            self._loaded[key] = self.loaded(path)
        made = self._loaded[key]
        check_window(self.cfg, made.renderer, made.engine.window, self.question, role)
        return made

    def loaded(self, path: str) -> Frozen:
        """A model with an engine of its own."""
        with starting_model(self.cfg, path) as found:
            return self._load(path, found)

    def _load(self, path: str, found: str) -> Frozen:
        cfg, device = self.cfg, pick_device(self.cfg.trainer.device)
        renderer = Renderer(load_tokenizer(found, cfg.agent.template))
        model = load_fitted(found, pick_dtype(cfg.actor_rollout_ref.rollout.dtype, device), device)
        if note := fit_of(model.config).note:
            self.say(f"{path}: {note}")
        model.requires_grad_(False)
        engine = make_engine(model, renderer.decode, cfg.actor_rollout_ref.rollout, own=True)
        engine.threads = thread_counts(cfg.trainer.threads, sum(p.numel() for p in model.parameters()))[0]
        return Frozen(path, engine, renderer, weights_hash(model))

    def _serve(self, path: str) -> str:
        for served in self.cast.served:
            if served.path == path:
                return served.url
        self.say(f"starting a server for {path}")
        self.cast.served.append(served := Served(path, self.cfg.agent.template))
        return served.url

    def _endpoint(self, url: str, own: bool) -> Endpoint:
        if url not in self._reached:
            rollout = self.cfg.actor_rollout_ref.rollout
            patience = Patience(
                rollout.fixed_model_timeout_s,
                rollout.fixed_model_retries,
                rollout.fixed_model_wait_s,
                rollout.fixed_model_concurrency,
            )
            name = None if own else rollout.fixed_model_name
            made = Endpoint(url, name, patience, rollout.fixed_model_key_env, self._syntax())
            self._reached[url] = made
            try:
                name = made.check()
            except BaseException:
                made.close()
                raise
            self.say(f"the fixed model is {name} at {made.url}")
        return self._reached[url]

    def _syntax(self) -> str:
        return self.cfg.agent.tool_parser or (self.everyone.renderer.parser if self.everyone else "hermes")

    def _counter(self, bound: Bound) -> Renderer:
        """The renderer that counts tokens for a role behind an endpoint: of its own model, or the trained one's."""
        if bound.kind == "serve":
            return Renderer(load_tokenizer(bound.where, self.cfg.agent.template))
        if self.everyone is not None:
            return self.everyone.renderer
        if self._loaded:
            return next(iter(self._loaded.values())).renderer
        return Renderer(load_tokenizer(self.cfg.actor_rollout_ref.model.path, self.cfg.agent.template))


def acting_roles(cfg: Config, path: str | None, given: Mapping[str, str], question: str) -> Cast:
    """A cast in which nobody is trained: one model for every role, and those that single roles are given."""
    asked = {role: Bound("endpoint" if is_address(where) else "frozen", where) for role, where in given.items()}
    casting = Casting(cfg, None, question)
    if path is not None:
        everyone = casting.frozen("", path)
        casting.everyone = casting.cast.bindings["*"] = Binding(everyone.engine, everyone.renderer, trainable=False)
    return casting.make(asked)
