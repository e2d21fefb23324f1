"""Seconds of a GRPO step on many GPUs, part by part, for one way to divide them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scaling.h200 import Pace
from scaling.model_shape import ModelShape
from scaling.sampling import Servers, Work, simulate

BUDGET = 32768  # tokens of a micro-batch on one rank
NODE = 8  # GPUs
MASTER = 16  # bytes of a trained parameter: float32 weight, gradient and two moments
REDUCED = 4  # bytes of a gradient that ranks add up
SERVED = 0.9  # of a GPU's memory that a server of its own may have
SLEPT = 0.5  # … and one that shares it


@dataclass(frozen=True)
class Wires:
    """What joins GPUs, hosts and storage. Figures of data sheets, times the share that is usually reached."""

    node: float = 0.8 * 450e9  # bytes per second of a GPU to its node
    outside: float = 0.8 * 50e9  # … to other nodes
    host: float = 0.8 * 55e9  # … to its host's memory
    latency: float = 10e-6  # of one collective in a node
    write: float = 1.0e9  # of weights to storage by one writer, digest and sync to the disk included
    read: float = 2.0e9  # of weights from storage by a server, digest included
    handed: float = 1.3e9  # of weights from ranks to the process that was started, which takes them one after the other
    packed: float = 1.0e9  # … into its memory for a broadcast, with checksums
    memory: float = 141e9  # bytes of a GPU


@dataclass(frozen=True)
class Layout:
    """Who has which GPUs."""

    servers: int
    tensor_parallel: int
    ranks: int
    apart: bool  # servers have GPUs of their own
    staleness: int = 0
    broadcast: bool = False  # weights go over the wires between GPUs, and not by files
    slower: float = 1.0  # servers, than the engine that was measured
    shares: bool = False

    @property
    def gpus(self) -> int:
        """How many there are."""
        return self.ranks + self.servers * self.tensor_parallel if self.apart else self.ranks

    @property
    def name(self) -> str:
        """In words."""
        tensors = f" of {self.tensor_parallel} GPUs" if self.tensor_parallel > 1 else ""
        servers = f"{self.servers} server{'s' if self.servers > 1 else ''}{tensors}"
        return f"{servers} {'and' if self.apart else 'on the'} {self.ranks} ranks"


@dataclass(frozen=True)
class StepParts:
    """Seconds of a step's parts."""

    sampling: float
    tail: float  # of the sampling: the last server alone, the others having ended
    sync: float
    compute: float
    communication: float  # that computing does not hide
    moving: float  # sleeping, waking, and weights to and from the host
    overlaps: bool

    @property
    def learning(self) -> float:
        """The learner's part."""
        return self.compute + self.communication

    @property
    def total(self) -> float:
        """The step."""
        both = self.sampling, self.learning
        return (max(both) if self.overlaps else sum(both)) + self.sync + self.moving

    @property
    def bottleneck(self) -> str:
        """The part that takes most of the step."""
        named = {
            "sampling": self.sampling - self.tail,
            "the last server": self.tail,
            "weights to servers": self.sync,
            "update": self.compute,
            "ranks' communication": self.communication,
            "sleeping and waking": self.moving,
        }
        if self.overlaps:  # what the other side hides costs nothing
            hidden = ("update", "ranks' communication")
            for name in hidden if self.sampling > self.learning else ("sampling", "the last server"):
                del named[name]
        return max(named, key=lambda name: named[name])


def step_parts(work: Work, shape: ModelShape, pace: Pace, wires: Wires, layout: Layout) -> StepParts | None:
    """The parts of a step; None where it does not fit into memory."""
    rows = server_rows(work, shape, wires, layout)
    if rows < 1 or learner_bytes(shape, layout) > wires.memory:
        return None
    joined = 2 * (wires.latency + rows * shape.width * 2 / wires.node) if layout.tensor_parallel > 1 else 0.0
    servers = Servers(layout.servers, layout.tensor_parallel, rows, joined, layout.slower, layout.shares)
    sampled = simulate(work, shape, pace, servers)
    compute, communication = learning(work, shape, pace, wires, layout)
    alone = layout.gpus == 1
    return StepParts(
        sampled.seconds,
        sampled.seconds - sampled.mean,
        0.0 if alone else sync(shape, wires, layout),
        compute,
        communication,
        0.0 if layout.apart or alone else 2 * MASTER * shape.parameters / layout.ranks / wires.host,
        layout.staleness > 0,
    )


def server_rows(work: Work, shape: ModelShape, wires: Wires, layout: Layout) -> int:
    """Sequences that a server's memory holds at once."""
    share = SERVED if layout.apart or layout.gpus == 1 else SLEPT
    room = share * wires.memory * layout.tensor_parallel - shape.weight_bytes
    return min(256, int(room // (shape.token_bytes * (work.section + 2 * work.mean))))


def learner_bytes(shape: ModelShape, layout: Layout) -> float:
    """Memory of a rank: its part, two whole layers, and the inputs of all layers for a micro-batch."""
    held = MASTER * shape.parameters / min(layout.ranks, NODE)
    return held + 2 * shape.weight_bytes / shape.layers + 2 * BUDGET * shape.width * shape.layers


def sync(shape: ModelShape, wires: Wires, layout: Layout) -> float:
    """New weights for all servers, which take them at the same time, from one process that has them from the ranks."""
    handed = 0.0 if layout.ranks == 1 else 1 / wires.handed
    if layout.broadcast:
        return shape.weight_bytes * (handed + 1 / wires.packed + 1 / wires.outside)
    return shape.weight_bytes * (handed + 1 / wires.write + 1 / wires.read)


def learning(work: Work, shape: ModelShape, pace: Pace, wires: Wires, layout: Layout) -> tuple[float, float]:
    """Seconds of computing an update, and of communication that computing does not hide.

    Ranks of a node share the weights, nodes are copies. Each micro-batch brings the layers together twice and adds up
    gradients once, while the layer before is computed.
    """
    tokens, pairs, scored = trained_tokens(work)
    passes = max(1, int(np.ceil(tokens / layout.ranks / BUDGET)))
    compute = shape.update(tokens, pairs, scored) * pace.operation / layout.ranks
    if layout.staleness:  # log-probabilities of the current weights, for the correction
        compute += shape.forward(tokens, pairs, scored) * pace.operation / layout.ranks
    shards = min(layout.ranks, NODE)
    copies = layout.ranks // shards
    moved = (2 * 2 + REDUCED) * shape.parameters * (shards - 1) / shards / wires.node
    moved += 2 * REDUCED * shape.parameters / shards * (copies - 1) / copies / wires.outside
    first = moved / shape.layers  # nothing is computed beside it
    return compute, passes * (first + max(0.0, moved - first - compute / passes))


def trained_tokens(work: Work, seed: int = 0) -> tuple[float, float, float]:
    """Tokens of a step's trees, pairs of attention, and tokens that are trained."""
    lengths = work.lengths(seed).astype(float)
    memory = np.concatenate([np.zeros_like(lengths[..., :1]), lengths[..., :-1]], -1)
    prompts = np.array([work.prompt(turn) for turn in range(work.sections + 1)], float)
    own = memory + lengths
    tokens = own.sum() + work.tasks * prompts.sum()
    pairs = (own * (prompts + own / 2)).sum() + work.tasks * (prompts**2 / 2).sum()
    return float(tokens), float(pairs), float(lengths.sum())


def layouts(gpus: int, shape: ModelShape, staleness: int) -> list[Layout]:
    """Ways to divide the GPUs: eighths of them apart, or all of them for both in turn."""
    found = []
    for parallel in (1, 2, 4, 8):
        if shape.kv_heads % parallel or gpus % parallel:
            continue
        if not staleness:
            found.append(Layout(gpus // parallel, parallel, gpus, apart=False))
        for eighth in range(1, 8):
            serving = gpus * eighth // 8
            if serving % parallel == 0:
                ranks = gpus - serving
                if ranks <= NODE or ranks % NODE == 0:
                    found.append(Layout(serving // parallel, parallel, ranks, True, staleness))
    return found


def best(
    work: Work, shape: ModelShape, pace: Pace, wires: Wires, gpus: int, staleness: int, asked: dict[str, Any]
) -> tuple[Layout, StepParts] | None:
    """The layout with the shortest step, with what is asked of it beside; None where none fits."""
    tried = [replace(layout, **asked) for layout in layouts(gpus, shape, staleness)]
    made = [(layout, step_parts(work, shape, pace, wires, layout)) for layout in tried]
    fitting = [(layout, parts) for layout, parts in made if parts is not None]
    return min(fitting, key=lambda one: one[1].total, default=None)
