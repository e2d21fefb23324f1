"""Who plays which role: the trained policy, frozen models of this process, outside endpoints, servers of our own.

Frozen weights are hashed when they are loaded and again at the end; they must not have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from recollect.agents.session import Binding
from recollect.agents.window import check_window
from recollect.chat import Renderer
from recollect.config import Config
from recollect.config.roles import RoleSetting, bindings
from recollect.engine import load_fitted, make_engine
from recollect.engine.attention_check import fit_of
from recollect.models.checkpoints import find_checkpoint
from recollect.models.device import pick_device, pick_dtype, thread_counts
from recollect.models.load import load_renderer
from recollect.models.starting_model import starting_model
from recollect.policies.endpoint import Endpoint, Patience
from recollect.rewards.before_run import asks_judge
from recollect.rewards.judge import SEATED
from recollect.runtime.address import is_address
from recollect.samplers.child_server import Served
from recollect.samplers.frozen_judge import FrozenJudge
from recollect.samplers.sampler import Sampler


@dataclass
class FrozenModel:
    """A model of this process that is not trained."""

    path: str
    sampler: Sampler
    renderer: Renderer
    before: str  # digest of its weights when it was loaded

    def after(self) -> str:
        """The digest now."""
        return self.sampler.weights_digest()


@dataclass
class RolePolicies:
    """Which policy plays each role, and the models, connections and servers behind those policies."""

    bindings: dict[str, Binding] = field(default_factory=dict)
    frozen: dict[str, FrozenModel] = field(default_factory=dict)  # by role
    endpoints: dict[str, Endpoint] = field(default_factory=dict)  # by role
    served: list[Served] = field(default_factory=list)
    judge: str = ""  # judge.url, where the judge is among these models

    def free(self) -> None:
        """Give the memory of frozen models' caches to others."""
        for frozen in self.frozen.values():
            frozen.sampler.free()

    def restore(self) -> None:
        """Take that memory back."""
        for frozen in self.frozen.values():
            frozen.sampler.restore()

    def hashes(self) -> dict[str, dict[str, str]]:
        """What each role that is not trained is, and the digests of frozen weights at the start and now."""
        found: dict[str, dict[str, str]] = {
            role: {"model": f.path, "before": f.before, "after": f.after()} for role, f in self.frozen.items()
        }
        return found | {role: {"model": f"{e.url} {e.name}"} for role, e in self.endpoints.items()}

    def close(self) -> None:
        """Close connections and stop our servers."""
        SEATED.pop(self.judge, None)
        for endpoint in dict.fromkeys(self.endpoints.values()):
            endpoint.close()
        for served in self.served:
            served.stop()


class RoleBinder:
    """Binds roles to policies; models, connections and servers that several roles name are made once."""

    def __init__(
        self, cfg: Config, everyone: Binding | None, question: str = "", say: Callable[[str], None] = lambda text: None
    ) -> None:
        """``everyone`` plays every role without a binding of its own; ``question`` is the longest one asked."""
        self.cfg, self.question, self.say = cfg, question, say
        self.policies = RolePolicies({} if everyone is None else {"*": everyone})
        self.everyone = everyone
        self._loaded: dict[str, FrozenModel] = {}
        self._reached: dict[str, Endpoint] = {}

    def make(self, asked: Mapping[str, RoleSetting] | None = None) -> RolePolicies:
        """The policies that the configuration asks for, every endpoint reachable."""
        try:
            for role, bound in (bindings(self.cfg) if asked is None else asked).items():
                if bound.kind != "trainable":
                    self.policies.bindings[role] = self._bind(role, bound)
                elif self.everyone is not None:
                    self.policies.bindings[role] = self.everyone
            if asks_judge(self.cfg):
                self.seat_judge()
        except BaseException:
            self.policies.close()
            raise
        return self.policies

    def _bind(self, role: str, bound: RoleSetting) -> Binding:
        if bound.kind == "frozen":
            frozen = self.policies.frozen[role] = self.frozen(role, bound.where)
            return Binding(frozen.sampler, frozen.renderer, trainable=False)
        if bound.kind == "serve":
            bound = RoleSetting("serve", find_checkpoint(bound.where)[0])
        url = self._serve(bound.where) if bound.kind == "serve" else bound.where
        endpoint = self.policies.endpoints[role] = self._endpoint(url, own=bound.kind == "serve")
        return Binding(endpoint, self._counter(bound).for_counting(), trainable=False)

    def frozen(self, role: str, path: str) -> FrozenModel:
        """A model of this process (of a run: its newest checkpoint), its window large enough for a role."""
        made = self._once(path)
        check_window(self.cfg, made.renderer, made.sampler.window, self.question, role)
        return made

    def _once(self, path: str) -> FrozenModel:
        path = find_checkpoint(path)[0]
        key = str(Path(path).expanduser().resolve()) if Path(path).expanduser().is_dir() else path
        if key not in self._loaded:
            self._loaded[key] = self.loaded(path)
        return self._loaded[key]

    def seat_judge(self) -> RolePolicies:
        """Load or serve the model of the reward `judge`, unless it is behind an address."""
        text = self.cfg.judge.url or ""
        kind, _, where = text.partition(":")
        if kind == "frozen":
            frozen = self.policies.frozen["judge"] = self._once(where)
            SEATED[text] = FrozenJudge(frozen.sampler, frozen.renderer)
        elif kind == "serve":
            url = self._serve(find_checkpoint(where)[0])
            SEATED[text] = self.policies.endpoints["judge"] = self._endpoint(url, own=True)
        self.policies.judge = text
        return self.policies

    def loaded(self, path: str) -> FrozenModel:
        """A model with an engine of its own."""
        with starting_model(self.cfg, path) as found:
            return self._load(path, found)

    def _load(self, path: str, found: str) -> FrozenModel:
        cfg, device = self.cfg, pick_device(self.cfg.trainer.device)
        renderer = load_renderer(found, cfg.agent.template)
        model = load_fitted(found, pick_dtype(cfg.actor_rollout_ref.rollout.dtype, device), device)
        if note := fit_of(model.config).note:
            self.say(f"{path}: {note}")
        model.requires_grad_(False)
        threads = thread_counts(cfg.trainer.threads, sum(p.numel() for p in model.parameters()))[0]
        sampler = make_engine(model, renderer.decode, cfg.actor_rollout_ref.rollout, own=True, threads=threads)
        return FrozenModel(path, sampler, renderer, sampler.weights_digest())

    def _serve(self, path: str) -> str:
        for served in self.policies.served:
            if served.path == path:
                return served.url
        self.say(f"starting a server for {path}")
        self.policies.served.append(served := Served(path, self.cfg.agent.template))
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

    def _counter(self, bound: RoleSetting) -> Renderer:
        """The renderer that counts tokens for a role behind an endpoint: of its own model, or the trained one's."""
        if bound.kind == "serve":
            return load_renderer(bound.where, self.cfg.agent.template)
        if self.everyone is not None:
            return self.everyone.renderer
        if self._loaded:
            return next(iter(self._loaded.values())).renderer
        return load_renderer(self.cfg.actor_rollout_ref.model.path, self.cfg.agent.template)


def acting_roles(cfg: Config, path: str | None, given: Mapping[str, str], question: str) -> RolePolicies:
    """Policies of which none is trained: one model for every role, and those that single roles are given."""
    asked = {role: RoleSetting("endpoint" if is_address(where) else "frozen", where) for role, where in given.items()}
    binder = RoleBinder(cfg, None, question)
    if path is not None:
        everyone = binder.frozen("", path)
        binder.everyone = binder.policies.bindings["*"] = Binding(everyone.sampler, everyone.renderer, trainable=False)
    return binder.make(asked)
