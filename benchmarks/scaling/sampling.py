"""Simulated sampling: attempts of several turns on servers that batch continuously, with lengths that differ.

Every row of a server samples one token in each of its steps, so a row that began when n steps were done ends after step
n + its length. A prompt that is read holds up the rows beside it, as on one GPU.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass

import numpy as np
from scaling.h200 import Pace
from scaling.model_shape import ModelShape


@dataclass(frozen=True)
class Work:
    """A step of a memory agent: sections of a document, each with the memory behind it, and then the question."""

    tasks: int = 128
    samples: int = 16
    sections: int = 4
    section: int = 5000  # tokens
    mean: int = 400  # sampled tokens of a turn …
    limit: int = 1024  # … and the most
    spread: float = 0.6  # of the logarithm of their number; 0: all alike

    def prompt(self, turn: int) -> int:
        """Tokens of a turn's prompt that all attempts at a task share; the last turn reads the memory alone."""
        return self.section if turn < self.sections else 0

    def lengths(self, seed: int) -> np.ndarray:
        """Sampled tokens by task, attempt and turn."""
        rng = np.random.default_rng(seed)
        size = (self.tasks, self.samples, self.sections + 1)
        drawn = self.mean * np.exp(rng.normal(-(self.spread**2) / 2, self.spread, size))
        return np.clip(drawn, 1, self.limit).astype(int)


@dataclass(frozen=True)
class Servers:
    """Engines that sample."""

    count: int
    tensor_parallel: int
    rows: int = 256  # sequences that one decodes at once
    together: float = 0.0  # seconds in which the GPUs of one server add up a layer's parts, per step and layer
    slower: float = 1.0  # than the engine that was measured
    shares: bool = False  # rows that share a prompt read its keys and values once, as recollect's engine does


@dataclass
class _Server:
    shape: ModelShape
    pace: Pace
    servers: Servers
    clock: float = 0.0
    steps: int = 0  # of decoding

    def decode(self, count: int, rows: int, read: float) -> None:
        each = self.pace.decode(self.shape, rows, read, self.servers.tensor_parallel)
        took = count * (each + self.shape.layers * self.servers.together) * self.servers.slower
        self.clock, self.steps = self.clock + took, self.steps + count

    def prefill(self, tokens: float, pairs: float) -> None:
        operations = self.shape.forward(tokens, pairs)
        self.clock += operations * self.pace.operation / self.servers.tensor_parallel * self.servers.slower


@dataclass(frozen=True)
class Sampled:
    """What a simulation gives."""

    seconds: float  # until the last server is done
    mean: float  # until a server is done, on average


def simulate(work: Work, shape: ModelShape, pace: Pace, servers: Servers, seed: int = 0) -> Sampled:
    """Sample a step. All attempts at a task are on one server; tasks go to servers in turn."""
    lengths = work.lengths(seed)
    ended = []
    for number in range(servers.count):
        server = _Server(shape, pace, servers)
        _run(server, work, lengths[number :: servers.count])
        ended.append(server.clock)
    return Sampled(float(max(ended)), float(np.mean(ended)))


def _run(server: _Server, work: Work, lengths: np.ndarray) -> None:
    """Sample these tasks on one server."""
    waiting = [(task, sample, 0) for task in range(len(lengths)) for sample in range(work.samples)][::-1]
    under_way: list[tuple[int, int, int, int]] = []  # the step after which it ends, task, attempt, turn
    cached: set[tuple[int, int]] = set()  # sections that were read
    readers: Counter[tuple[int, int]] = Counter()  # rows by section
    own = 0.0  # tokens that only one row reads: its memory and half of what it samples
    while waiting or under_way:
        while waiting and len(under_way) < server.servers.rows:
            task, sample, turn = waiting.pop()
            memory, length = _memory(lengths, task, sample, turn), int(lengths[task, sample, turn])
            prompt = work.prompt(turn)
            if (task, turn) not in cached:
                cached.add((task, turn))
                server.prefill(prompt, prompt**2 / 2)
            server.prefill(memory, memory * (prompt + memory / 2))
            heapq.heappush(under_way, (server.steps + length, task, sample, turn))
            readers[task, turn] += 1
            own += memory + length / 2
        end, task, sample, turn = heapq.heappop(under_way)
        shared = sum(work.prompt(t) * (1 if server.servers.shares else n) for (_, t), n in readers.items())
        server.decode(end - server.steps, len(under_way) + 1, own + shared)
        own -= _memory(lengths, task, sample, turn) + lengths[task, sample, turn] / 2
        readers[task, turn] -= 1
        if not readers[task, turn]:
            del readers[task, turn]
        if turn < work.sections:
            waiting.append((task, sample, turn + 1))


def _memory(lengths: np.ndarray, task: int, sample: int, turn: int) -> int:
    """Tokens of the memory in a turn's prompt: what the turn before sampled."""
    return int(lengths[task, sample, turn - 1]) if turn else 0
