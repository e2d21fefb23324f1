"""Batches of single-turn examples for making the embedded base model (recipe `needle_base`).

Batch b depends on (seed, b) alone, so any number of workers can prepare them and a resumed run goes on exactly.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

from recollect.agents.prompts import answer_prompt, update_prompt
from recollect.algos.packed import Packed, pack
from recollect.algos.tree import build_tree
from recollect.chat import Renderer
from recollect.config import Config
from recollect.data.needle import Demonstration, NeedleShape, PolicyMix, skill_stream
from recollect.types import Message


def demonstration_text(demo: Demonstration, style: str, layout: str) -> str:
    """The prompt of an example."""
    if demo.chunk is None:
        return answer_prompt(style, demo.question, demo.memory)
    return update_prompt(style, layout, demo.question, demo.chunk, demo.memory)


class SkillBatches:
    """A map-style data set: item b is batch b, packed."""

    def __init__(self, cfg: Config, tokenizer: Any) -> None:
        self.cfg, self.renderer = cfg, Renderer(tokenizer)

    def __len__(self) -> int:
        return self.cfg.sft.steps

    def __getitem__(self, index: int) -> Packed:
        if index >= len(self):
            raise IndexError(index)
        limits, needle = self.cfg.recurrent.memory.config, self.cfg.data.needle
        shape = NeedleShape(facts_per_chunk=needle.facts_per_chunk)
        seed = self.cfg.trainer.seed * 1_000_003 + index
        stream = skill_stream(seed, shape, PolicyMix(), recall=needle.recall)
        demos = list(islice(stream, self.cfg.sft.batch_size))
        sequences, masks = [], []
        stop = self.renderer.end_id
        for i, demo in enumerate(demos):
            layout = "memory_first" if i % 5 == 0 else "chunk_first"  # so that both can be trained from the base
            prompt = self.renderer.prompt([Message("user", demonstration_text(demo, limits.style, layout))])
            response = [*self.renderer.encode(demo.response), stop]
            sequences.append(np.array(prompt + response))
            masks.append(np.arange(len(sequences[-1])) >= len(prompt))
        offsets = np.concatenate([[0], np.cumsum([m.sum() for m in masks])])[:-1]
        return pack([build_tree([i], [s]) for i, s in enumerate(sequences)], masks, offsets.tolist())
