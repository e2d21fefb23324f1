"""Models that are made from nothing when a run starts, by the names that stand in place of a path."""

from __future__ import annotations

from recollect.models.tiny import Scratch
from recollect.models.tiny_vision import VisionScratch

SCRATCH: dict[str, Scratch | VisionScratch] = {
    "scratch": Scratch(),
    "scratch_small": Scratch(128, 2, 4, 4),
    "scratch_tools": Scratch(128, 3, 2, tools=True),
    "scratch_vision": VisionScratch(),
}
