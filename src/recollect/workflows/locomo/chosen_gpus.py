"""`--inference-gpus` and `--training-gpus`: which GPUs sample and which train."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from recollect.files.output import write_atomic
from recollect.models.gpu_plan import RANKS, SAMPLE, TRAIN
from recollect.types import BadInput
from recollect.workflows.locomo.plan import LocomoPlan

ARBOR = "arbor.yaml"
INFERENCE, TRAINING = "0", "1,2"  # the guide's


def with_gpus(plan: LocomoPlan, say: Callable[[str], None]) -> LocomoPlan:
    """The plan with the settings that its GPUs stand for."""
    named = {"--inference-gpus": plan.inference_gpus, "--training-gpus": plan.training_gpus}
    given = {option: gpus_of(text, option) for option, text in named.items() if text is not None}
    if plan.arbor is not None:
        return plan  # the server's GPUs
    settings, said = divided(given, torch.cuda.device_count())
    if said:
        say(said)
    return replace(plan, settings=[*settings, *plan.settings])


def write_arbor(plan: LocomoPlan) -> None:
    """Write arbor.yaml, for servers that read it, where it is missing."""
    if not Path(ARBOR).exists():
        ids = plan.inference_gpus or INFERENCE, plan.training_gpus or TRAINING
        write_atomic(Path(ARBOR), "inference:\n  gpu_ids: '{}'\n\ntraining:\n  gpu_ids: '{}'\n".format(*ids))


def divided(given: dict[str, list[int]], there: int) -> tuple[list[str], str]:
    """Settings for the GPUs that were named, and what to say, on a machine with so many GPUs."""
    if there < 2:
        return [], f"this machine has {'one' if there else 'no'} GPU: one device samples and trains" if given else ""
    if not given:
        hint = "--inference-gpus and --training-gpus divide them"
        return [], f"one of the {there} GPUs here samples and trains; {hint}"
    for option, gpus in given.items():
        if missing := [gpu for gpu in gpus if gpu >= there]:
            raise BadInput(f"{option}: there is no GPU {missing[0]}; this machine has {there}, 0 to {there - 1}")
        if len(set(gpus)) < len(gpus):
            raise BadInput(f"{option} names a GPU twice")
    sample = given.get("--inference-gpus") or [0]
    train = given.get("--training-gpus") or [gpu for gpu in range(there) if gpu not in sample] or sample
    settings = [f"{TRAIN}={_list(train)}", f"{RANKS}={len(train)}", f"{SAMPLE}={_list(sample)}"]
    return settings, f"GPU {_words(sample)} samples, GPU {_words(train)} trains"


def gpus_of(text: str, option: str) -> list[int]:
    """The numbers of GPUs in a text such as 1,2."""
    if not re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*", text):
        raise BadInput(f"{option} {text}: give numbers of GPUs such as 0 or 1,2")
    return [int(part) for part in text.split(",")]


def _list(gpus: Sequence[int]) -> str:
    return f"[{','.join(map(str, gpus))}]"


def _words(gpus: Sequence[int]) -> str:
    return ", ".join(map(str, gpus))
