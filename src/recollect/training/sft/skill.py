"""Batches of single-turn examples for making the embedded base model (recipe `needle_base`).

Batch b depends on (seed, b) alone, so any number of workers can prepare them and a resumed run goes on exactly.
"""

from __future__ import annotations

import random
from itertools import islice

import numpy as np

from recollect.agents.memory.recurrent_prompts import answer_prompt, update_prompt
from recollect.chat import Renderer
from recollect.config import Config
from recollect.packing.micro_batch import Packed, pack
from recollect.packing.tree import build_tree
from recollect.tasks.drill import make_drill
from recollect.tasks.needle import Demonstration, NeedleShape, PolicyMix, skill_stream
from recollect.types import Message

MarkedIds = list[tuple[int, bool]]  # a sequence: each id, and whether it is trained


def demonstration_text(demo: Demonstration, style: str, layout: str) -> str:
    """The prompt of an example."""
    if demo.chunk is None:
        return answer_prompt(style, demo.question, demo.memory)
    return update_prompt(style, layout, demo.question, demo.chunk, demo.memory)


class SkillBatches:
    """A map-style data set: item b is batch b, packed."""

    def __init__(self, cfg: Config, renderer: Renderer) -> None:
        self.cfg, self.renderer = cfg, renderer

    def __len__(self) -> int:
        return self.cfg.sft.steps

    def __getitem__(self, index: int) -> Packed:
        if index >= len(self):
            raise IndexError(index)
        made = self._drills(index) if index < self.cfg.data.needle.drill else self._examples(index)
        sequences = [np.array([t for t, _ in tokens]) for tokens in made]
        masks = [np.array([trained for _, trained in tokens]) for tokens in made]
        offsets = np.concatenate([[0], np.cumsum([m.sum() for m in masks])])[:-1]
        return pack([build_tree([i], [s]) for i, s in enumerate(sequences)], masks, offsets.tolist())

    def _seed(self, index: int) -> int:
        return self.cfg.trainer.seed * 1_000_003 + index

    def _examples(self, index: int) -> list[MarkedIds]:
        """What the skill's teacher does: its whole response is trained."""
        limits, needle = self.cfg.recurrent.memory.config, self.cfg.data.needle
        shape = NeedleShape(facts_per_chunk=needle.facts_per_chunk)
        stream = skill_stream(self._seed(index), shape, PolicyMix(), recall=needle.recall, chained=needle.chained)
        out = []
        for i, demo in enumerate(islice(stream, self.cfg.sft.batch_size)):
            other = int((i + 1) * needle.memory_first) > int(i * needle.memory_first)
            text = demonstration_text(demo, limits.style, "memory_first" if other else "chunk_first")
            prompt = self.renderer.prompt([Message("user", text)])
            response = [*self.renderer.encode(demo.response), self.renderer.end_id]
            out.append([(t, False) for t in prompt] + [(t, True) for t in response])
        return out

    def _drills(self, index: int) -> list[MarkedIds]:
        """Look-up exercises: only what can be looked up is trained."""
        rng = random.Random(f"drill:{self._seed(index)}")
        done = index / self.cfg.data.needle.drill
        out = []
        for drill in (make_drill(rng, done) for _ in range(self.cfg.sft.batch_size)):
            prompt = self.renderer.prompt([Message("user", "".join(drill.given))])
            asked = [(t, trained) for piece, trained in drill.asked for t in self.renderer.encode(piece)]
            out.append([(t, False) for t in prompt] + asked)
        return out
