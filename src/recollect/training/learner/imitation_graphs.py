"""Imitation under CUDA graphs: a GPU computes a small model faster than the host can launch it.

A graph holds the forward and backward pass of about so many tokens. Its inputs are in memory that stays: sequences that
share nothing lie side by side, and what they leave free is filled with tokens that nobody learns from. The gradients
are those of the same micro-batch without a graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from recollect.engine.cuda.graph_pool import GraphPool
from recollect.models.attention import using
from recollect.models.lora import is_adapted
from recollect.models.plain_rows import is_plain
from recollect.packing.micro_batch import Packed, TreePlan
from recollect.packing.tree_attention import Level
from recollect.training.learner import recompute
from recollect.training.learner.free_memory import is_scarce
from recollect.training.learner.imitation_loss import token_losses
from recollect.training.learner.trained_model import TrainedModel

MOST_WORK = 4e12  # tokens × parameters of a micro-batch up to which launching it takes longer than computing it
TOKENS, SEQUENCES = 512, 16  # sizes of graphs are multiples of these
LONGEST = 1024  # tokens of a sequence that every graph has room for
TARGETS = 8  # of a graph's tokens, so many parts of them
SPARE = 1.1  # a graph that is there serves for so many times the tokens: capturing another takes a quarter of a second


class GraphSize(NamedTuple):
    """What a graph has room for."""

    tokens: int
    targets: int
    sequences: int
    longest: int

    @staticmethod
    def of(packed: Packed, level: Level) -> GraphSize:
        """The smallest that holds a micro-batch."""
        tokens = _up(len(packed.tokens), TOKENS)
        longest = max(LONGEST, 1 << (level.q_most - 1).bit_length())
        sequences = len(level.q_ends) - 1 + -(-TOKENS // longest)  # the last ones are what is left over
        return GraphSize(tokens, _up(len(packed.targets), tokens // TARGETS), _up(sequences, SEQUENCES), longest)

    def holds(self, packed: Packed, level: Level) -> bool:
        """Whether a micro-batch fits, and does not leave too much free."""
        left = self.tokens - len(packed.tokens)
        sequences = len(level.q_ends) - 1 + -(-left // self.longest)
        fits = left >= 0 and len(packed.targets) <= self.targets and sequences <= self.sequences
        return fits and level.q_most <= self.longest and self.tokens <= SPARE * _up(len(packed.tokens), TOKENS)


def _up(count: int, step: int) -> int:
    return max(1, -(-count // step)) * step


def side_by_side(packed: Packed) -> Level | None:
    """How the sequences of a micro-batch attend, if each attends to itself alone."""
    calls = packed.plan.levels
    if calls is None or len(calls) != 1 or not isinstance(calls[0], Level):
        return None
    return calls[0] if calls[0].causal and calls[0].q == slice(0, len(packed.tokens)) else None


class ImitationGraph:
    """One captured pass, and the memory that it reads."""

    def __init__(self, trained: TrainedModel, size: GraphSize, pool: GraphPool) -> None:
        self.trained, self.size = trained, size
        ids = lambda count: torch.zeros(count, dtype=torch.int64, device=trained.device)
        self.ends = torch.zeros(size.sequences + 1, dtype=torch.int32, device=trained.device)
        self.weights = torch.zeros(size.targets, device=trained.device)
        everything = slice(0, size.tokens)
        level = Level(everything, everything, self.ends, self.ends, size.longest, size.longest, True)
        plan = TreePlan([], ids(size.tokens), None, [level])  # the last layer computes all tokens
        self.packed = Packed(ids(size.tokens), ids(size.tokens), plan, *(ids(size.targets) for _ in range(4)))
        self.gradients: dict[str, Tensor] = {}
        self.loss = self.right = torch.zeros((), device=trained.device)
        self.pool = pool
        self.graph: torch.cuda.CUDAGraph | None = None

    def fill(self, packed: Packed, level: Level, entries: int) -> None:
        """Take in a micro-batch; each of its targets counts 1 / ``entries`` for each time that it is trained on."""
        used, count = len(packed.tokens), len(packed.targets)
        for mine, given in zip(self._inputs(self.packed), self._inputs(packed), strict=True):
            mine[len(given) :] = 0
            mine[: len(given)].copy_(given, non_blocking=True)
        ends = torch.full(self.ends.shape, self.size.tokens, dtype=torch.int32)
        ends[: len(level.q_ends)] = level.q_ends
        rest = torch.arange(used, self.size.tokens, self.size.longest, dtype=torch.int32)[1:]
        ends[len(level.q_ends) : len(level.q_ends) + len(rest)] = rest
        self.ends.copy_(ends, non_blocking=True)
        weights = torch.zeros(self.size.targets)
        weights[:count] = torch.bincount(packed.entry_target, minlength=count) / entries
        self.weights.copy_(weights, non_blocking=True)

    @staticmethod
    def _inputs(packed: Packed) -> tuple[Tensor, ...]:
        return packed.tokens, packed.positions, packed.parents, packed.targets

    def run(self) -> None:
        """The pass over what was taken in; the first one captures it."""
        if self.graph is None:
            self.trained.model.train()
            recompute.none(self.trained.model)
            self.graph = self.pool.capture(self._pass)
        self.graph.replay()

    def _pass(self) -> None:
        masters = self.trained.masters
        assert masters is not None
        masters.take()
        with self.trained.policy():
            losses, right = token_losses(self.trained.model, self.packed, chunk=self.size.targets)
        loss = (losses * self.weights).sum()
        with using(self.packed.plan):
            loss.backward()
        self.loss, self.right = loss.detach(), (right * self.weights).sum()
        self.gradients = masters.take()


class ImitationGraphs:
    """The graphs of one learner, by size."""

    def __init__(self, trained: TrainedModel) -> None:
        self.trained = trained
        self.parameters = sum(p.numel() for p in trained.model.parameters())
        self.graphs: dict[GraphSize, ImitationGraph] = {}
        self.pool = GraphPool()

    @staticmethod
    def of(trained: TrainedModel) -> ImitationGraphs | None:
        """None for a model whose passes cannot be captured, or read something else each time."""
        model, offloads = trained.model, [t.offload for t in (trained, trained.owner) if t is not None]
        random = any(isinstance(m, nn.Dropout) and m.p > 0 for m in model.modules())
        random |= (getattr(model.config, "attention_dropout", 0.0) or 0.0) > 0
        moved = any(o.param_offload or o.optimizer_offload for o in offloads)
        if trained.device.type != "cuda" or trained.masters is None or is_adapted(model) or is_plain(model):
            return None
        return None if random or moved else ImitationGraphs(trained)

    def accumulate(self, packs: Sequence[Packed], entries: int) -> Tensor | None:
        """The loss and the share of targets that were right, with their gradients; None: it takes another way.

        Nothing waits for the GPU here, so what follows can be launched meanwhile.
        """
        level = side_by_side(packs[0]) if len(packs) == 1 else None
        if level is None or len(packs[0].tokens) * self.parameters > MOST_WORK:
            return None
        graph, masters = self._graph(packs[0], level), self.trained.masters
        if graph is None or masters is None:
            return None
        graph.fill(packs[0], level, entries)
        graph.run()
        masters.give(graph.gradients)
        return torch.stack([graph.loss, graph.right])

    def _graph(self, packed: Packed, level: Level) -> ImitationGraph | None:
        """The smallest graph that there is for a micro-batch, else a new one; None without memory for it."""
        sizes = [size for size in self.graphs if size.holds(packed, level)]
        size = min(sizes, default=None)
        if size is None:
            if is_scarce(self.trained.device):
                return None
            size = GraphSize.of(packed, level)
            self.graphs[size] = ImitationGraph(self.trained, size, self.pool)
        return self.graphs[size]
