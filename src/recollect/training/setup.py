"""From a configuration to what trains: a learner, a sampler of its weights, and the renderer of its prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from recollect.agents.session import Binding
from recollect.agents.window import check_window
from recollect.chat import Renderer
from recollect.config import Config, Optim
from recollect.config.roles import roles_of
from recollect.config.servers import served
from recollect.models.load import context_window, load_config, load_renderer
from recollect.models.starting_model import starting_model
from recollect.samplers.fleet.make_fleet import make_fleet
from recollect.samplers.sampler import Sampler
from recollect.training.compile_ahead import CompilingAhead, compile_ahead
from recollect.training.learner.from_config import make_learner, make_sampler
from recollect.training.learner.learner import Learner
from recollect.training.learner.ranks.place_of import place_of
from recollect.training.run_nodes import RunNodes, open_nodes


@dataclass
class TrainedPolicy:
    """The policy that a run trains: its learner, its sampler, and the renderer of its prompts."""

    renderer: Renderer
    learner: Learner
    sampler: Sampler
    nodes: RunNodes | None = None  # of a Ray cluster
    compiling: CompilingAhead = field(default_factory=CompilingAhead)

    def sync(self, version: int) -> None:
        """Give the sampler the learner's weights, as the given version."""
        self.learner.sync(self.sampler, version)

    @property
    def binding(self) -> Binding:
        """The policy, for whichever roles it plays."""
        return Binding(self.sampler, self.renderer)

    def roles(self) -> dict[str, Binding]:
        """Every role played by the trained policy."""
        return {"*": self.binding}

    def close(self) -> None:
        """End the processes that the learner and the sampler have, if any, and give nodes back."""
        self.learner.close()
        self.sampler.close()
        self.compiling.close()
        if self.nodes is not None:
            self.nodes.close()


def build_learner(
    cfg: Config, optim: Optim, updates: int, warn: Callable[[str], None] = lambda message: None
) -> tuple[Learner, Renderer]:
    """The learner alone, for training without sampling, and the renderer."""
    with starting_model(cfg) as path:
        learner = make_learner(cfg, path, optim, updates, warn, open_nodes(cfg, False, warn))
        return learner, load_renderer(path, cfg.agent.template)


def build(
    cfg: Config,
    optim: Optim,
    updates: int,
    longest_question: str = "",
    warn: Callable[[str], None] = lambda message: None,
    say: Callable[[str], None] | None = None,
) -> TrainedPolicy:
    """Load the model that the configuration names and make its learner and sampler.

    With ``say``, which is told what servers do, they may sample; without it the engine of this process does.
    """
    with starting_model(cfg) as path:
        renderer = load_renderer(path, cfg.agent.template)
        trained = [role for role in roles_of(cfg) or () if cfg.roles.get(role, "trainable") == "trainable"]
        only = trained[0] if len(trained) == 1 else ""
        check_window(cfg, renderer, context_window(load_config(path)), longest_question, only)
        if say is not None and served(cfg.actor_rollout_ref.rollout):
            nodes = open_nodes(cfg, True, say)
            fleet = make_fleet(cfg, path, renderer.decode, say, warn, () if nodes is None else nodes.servers)
            return TrainedPolicy(renderer, make_learner(cfg, path, optim, updates, warn, nodes), fleet, nodes)
        nodes = open_nodes(cfg, False, say or warn)
        compiling = compile_ahead(cfg, path, renderer.stop_ids) if place_of(cfg) is None else CompilingAhead()
        try:
            learner = make_learner(cfg, path, optim, updates, warn, nodes)
            sampler = make_sampler(cfg, learner, path, renderer.decode)
        except BaseException:
            compiling.close()
            raise
        return TrainedPolicy(renderer, learner, sampler, nodes, compiling)
