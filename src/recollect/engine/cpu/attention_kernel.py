"""The engine's own attention on CPUs, compiled (models/native/build.py).

A step of a small model is many small operations; this does a layer's attention over rows and shared prefixes in one,
without masks, padding or copies. Where there is no compiler the engine uses the plain backend.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.engine.kv_cache import KVCache
from recollect.engine.prefix import PrefixChunk
from recollect.engine.request import EngineRequest
from recollect.models.attention import Scoring
from recollect.models.native.build import function

SOURCE = Path(__file__).with_name("kernel.cpp")
TASK = 16  # queries done together, at most
_NUMBERS = "heads kv dim layer slots capacity tasks window"
_POINTERS = "q k v out keys values"
_ARRAYS = "slot spot into task row own shared place base room"


class Job(ctypes.Structure):
    """The arguments of the compiled function (mirrors Job in attend.h)."""

    _fields_ = (
        [(n, ctypes.c_int64) for n in _NUMBERS.split()]
        + [("scale", ctypes.c_float), ("softcap", ctypes.c_float)]
        + [(n, ctypes.c_void_p) for n in _POINTERS.split()]
        + [("fresh", ctypes.c_int64), ("prefill", ctypes.c_int64)]
        + [(n, ctypes.c_void_p) for n in _ARRAYS.split()]
    )


def attention_function(dtype: torch.dtype) -> Any | None:
    """The compiled function for numbers of this kind, or None where there is no compiler or no such kind."""
    return function(SOURCE, "attend", "p", dtype, "cpu")


@dataclass
class Queries:
    """Queries, in tasks that attend to one prefix each."""

    place: np.ndarray  # [queries] which of the flat tokens
    row: np.ndarray  # [queries] which of the rows
    shared: np.ndarray  # [queries]
    task: np.ndarray  # [tasks + 1] first query of each
    base: np.ndarray  # [tasks] address of the prefix, 0 for none
    room: np.ndarray  # [tasks] tokens that the prefix has room for

    @staticmethod
    def of(requests: list[EngineRequest], place: np.ndarray, row: np.ndarray) -> Queries:
        """Queries at these places for these rows, those of one prefix side by side."""
        prefixes = {id(r.prefix): i for i, r in enumerate(requests) if r.prefix is not None}
        group_of = np.array([i if r.prefix is None else prefixes[id(r.prefix)] for i, r in enumerate(requests)])
        group = group_of[row]
        order = np.argsort(group, kind="stable")
        group = group[order]
        starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
        sizes = np.diff(np.r_[starts, len(group)])
        task = np.concatenate([np.arange(s, s + n, TASK) for s, n in zip(starts, sizes, strict=True)])
        readers = [requests[g].prefix for g in group[task]]
        return Queries(
            place[order],
            row[order],
            np.array([r.shared for r in requests])[row[order]],
            np.r_[task, len(group)],
            np.array([0 if p is None else p.memory.data_ptr() for p in readers], np.int64),
            np.array([0 if p is None else p.room for p in readers], np.int64),
        )


class KernelAttention:
    """A call of the compiled function for each layer of a step."""

    def __init__(self, function: Any, cache: KVCache, job: dict[str, Any], last: dict[str, Any]) -> None:
        """``job`` and ``last`` give the fields of Job for most layers and for the last one."""
        self.function, self.cache = function, cache
        self.jobs = [self._job(job), self._job(last)]

    def _job(self, fields: dict[str, Any]) -> tuple[Job, list[np.ndarray]]:
        c = self.cache
        arrays = {k: np.ascontiguousarray(v) for k, v in fields.items() if isinstance(v, np.ndarray)}
        job = Job(kv=c.heads, dim=c.dim, slots=c.slots, capacity=c.capacity, fresh=len(arrays["slot"]))
        for name, value in fields.items():
            setattr(job, name, arrays[name].ctypes.data if name in arrays else value)
        return job, list(arrays.values())  # the arrays must live as long as the job

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring, last: bool = False) -> Tensor:
        """Queries [heads, tokens, dim] in row order → [tokens, heads, dim]; new keys and values are stored."""
        job, _ = self.jobs[last]
        q, k, v = (x.transpose(0, 1).contiguous() for x in (q, k, v))
        out = torch.zeros_like(q) if last else torch.empty_like(q)
        job.heads, job.layer, job.window = q.shape[1], layer, scoring.window or 0
        job.scale, job.softcap = scoring.scale, scoring.softcap or 0.0
        job.q, job.k, job.v, job.out = q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr()
        if self.cache.keys:
            job.keys, job.values = self.cache.keys[layer].data_ptr(), self.cache.values[layer].data_ptr()
        self.function(ctypes.byref(job))
        return out


class KernelRows(KernelAttention):
    """Attention of some rows' new tokens over what they share and own (as plain_attention.RowsAttention)."""

    def __init__(
        self,
        function: Any,
        cache: KVCache,
        queries: Queries,
        last: Queries,
        first: int,
        spot: np.ndarray,
        row: np.ndarray,
    ) -> None:
        """``spot`` and ``row`` are for each new token: own tokens before it, and its row."""
        self.decoding = queries is last  # each of these rows has one new token
        store = {"slot": row + first, "spot": spot}
        super().__init__(function, cache, *(store | self._fields(q, first, spot) for q in (queries, last)))

    def bind(self, layers: Any, room: tuple[Tensor, ...]) -> None:
        """Have a compiled forward pass (decode.py) attend with these rows, each with one new token."""
        job, _ = self.jobs[0]
        job.heads = room[0].shape[1]
        job.q, job.k, job.v, job.out = (t.data_ptr() for t in room)
        for i, (keys, values) in enumerate(zip(self.cache.keys, self.cache.values, strict=True)):
            layers[i].keys, layers[i].values = keys.data_ptr(), values.data_ptr()

    def _fields(self, q: Queries, first: int, spot: np.ndarray) -> dict[str, Any]:
        seen = {"row": q.row + first, "own": spot[q.place] + 1, "shared": q.shared}
        return seen | {"tasks": len(q.base), "task": q.task, "place": q.place, "base": q.base, "room": q.room}


class KernelPrefill(KernelAttention):
    """Attention of chunks of prefixes (as plain_prefill.ChunkPrefill and BatchPrefill)."""

    def __init__(self, function: Any, cache: KVCache, chunks: Sequence[PrefixChunk]) -> None:
        counts, prefixes = np.array([n for _, n in chunks]), [p for p, _ in chunks]
        size = int(counts.sum())
        memory = np.array([p.memory.data_ptr() for p in prefixes], np.int64)
        room = np.array([p.room for p in prefixes], np.int64)
        spot, starts = np.concatenate([c.places for c in chunks]), np.cumsum(counts) - counts
        store = {"prefill": 1, "slot": np.repeat(memory, counts), "spot": spot, "into": np.repeat(room, counts)}
        task = [np.arange(s, s + n, TASK) for s, n in zip(starts, counts, strict=True)]
        tasks = np.array([len(t) for t in task])
        none = np.zeros(size, np.int64)
        fields = {"place": np.arange(size), "row": none, "own": none, "shared": spot + 1, "tasks": int(tasks.sum())}
        fields |= {"task": np.r_[(*task, size)], "base": np.repeat(memory, tasks), "room": np.repeat(room, tasks)}
        super().__init__(function, cache, store | fields, store)
