"""How a model cuts images into tokens: what its processor's file says, read without loading the processor.

The sizes are those of Qwen2-VL's processor, which Qwen2.5-VL and Qwen3-VL use too: a picture is scaled so that its
sides are multiples of a token's and its area is within bounds, and its sides' ratio changes as little as possible.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.files.output import write_atomic
from recollect.files.reading import read_json
from recollect.images.image_files import MOST_RATIO, NARROWEST
from recollect.images.image_ids import Grid
from recollect.types import BadInput, Image

FILE = "preprocessor_config.json"
WHOLE = "processor_config.json"  # newer folders keep it in here


@dataclass(frozen=True)
class Patches:
    """The size of a token in pixels, the bounds of a picture's area, and the vocabulary's id of an image token."""

    token: int
    settings: dict[str, Any]  # of the processor

    @property
    def side(self) -> int:
        """Pixels of a token's side."""
        return int(self.settings.get("patch_size", 14)) * int(self.settings.get("merge_size", 2))

    @property
    def area(self) -> tuple[int, int]:
        """Pixels that a picture has at least and at most after it was scaled."""
        size = self.settings.get("size") or {}
        least = self.settings.get("min_pixels") or size.get("shortest_edge") or 56 * 56
        most = self.settings.get("max_pixels") or size.get("longest_edge") or 28 * 28 * 1280
        return int(least), int(most)

    def scaled(self, width: int, height: int) -> tuple[int, int]:
        """Width and height in pixels as the model sees a picture."""
        if max(width, height) > MOST_RATIO * min(width, height):
            raise BadInput(f"an image of {width} × {height} pixels is too narrow; {NARROWEST}")
        side, (least, most) = self.side, self.area
        high, wide = round(height / side) * side, round(width / side) * side
        if high * wide > most:
            shrink = math.sqrt(height * width / most)
            high = max(side, math.floor(height / shrink / side) * side)
            wide = max(side, math.floor(width / shrink / side) * side)
        elif high * wide < least:
            grow = math.sqrt(least / (height * width))
            high, wide = math.ceil(height * grow / side) * side, math.ceil(width * grow / side) * side
        return wide, high

    def grid(self, image: Image) -> Grid:
        """How the model sees an image."""
        wide, high = self.scaled(image.width, image.height)
        return Grid(high // self.side, wide // self.side, self.token)

    def save(self, folder: Path) -> None:
        """Write the processor's file into a model's folder."""
        write_atomic(folder / FILE, json.dumps(self.settings, indent=2, sort_keys=True) + "\n")


def read_patches(folder: Path, token: int) -> Patches:
    """How the model in a folder cuts images."""
    for name in (FILE, WHOLE):
        if (folder / name).is_file():
            found = read_json(folder / name, what="settings of an image processor")
            found = found.get("image_processor", found) if isinstance(found, dict) else None
            if isinstance(found, dict):
                return Patches(token, found)
    raise BadInput(f"{folder} has no {FILE}: put the one of its model there")
