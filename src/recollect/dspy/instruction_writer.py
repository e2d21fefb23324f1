"""New instructions from what went wrong: one request, whose whole reply is the instruction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

ASK = """An assistant works with this instruction:
<instruction>
{told}
</instruction>

These are turns that it made, with what came of them:
{turns}

Write a better instruction: say what to keep, what to leave out and in which form to answer. Name no single example. \
Reply with the instruction and nothing else."""
SHOWN = 3  # turns
LONGEST = 1500  # characters of one


class InstructionWriter:
    """Proposes instructions for GEPA with any model, however short its window."""

    def __init__(self, lm: Any) -> None:
        self.lm = lm

    def __deepcopy__(self, memo: object) -> InstructionWriter:
        return self

    def __call__(
        self,
        candidate: Mapping[str, str],
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: Sequence[str],
    ) -> dict[str, str]:
        return {
            name: self._written(candidate[name], reflective_dataset.get(name) or ()) for name in components_to_update
        }

    def _written(self, told: str, turns: Sequence[Mapping[str, Any]]) -> str:
        rows = [json.dumps(turn, ensure_ascii=False, default=str)[:LONGEST] for turn in turns[:SHOWN]]
        (reply,) = self.lm(ASK.format(told=told, turns="\n".join(rows)))
        return str(reply).strip().strip("`").strip() or told
