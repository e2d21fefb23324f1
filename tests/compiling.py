"""Layers go through the compiler, which runs what it found as it is: what a GPU has, on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend


def compiling_lightly(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """From now on; returns how to ask for the number of graphs."""
    counter, whole = CompileCounterWithBackend("aot_eager"), nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda self, **more: whole(self, backend=counter, **more))
    return lambda: counter.frame_count
