"""Batches that were sampled ahead of their steps, as a file of a checkpoint: who goes on trains on the very same.

Rows are those of stored trajectories, with exact log-probabilities. A row before those of a batch says what it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import zstandard

from recollect.runs.directory import dump, rows_of
from recollect.training.rl.gather import Gathered
from recollect.trajectories.codec import Row, decode
from recollect.trajectories.stored_images import write_images
from recollect.trajectories.stored_rows import read_trajectories
from recollect.types import BadInput, Group, Score

FILE = "started.jsonl.zst"

Started = dict[int, Gathered]  # by the step that will train on it


def write_started(folder: Path, started: Mapping[int, Gathered]) -> None:
    """Write batches into the folder of a checkpoint; nothing where there are none."""
    if not started:
        return
    for made in started.values():
        write_images(folder, made.sampled)
    lines = "".join(dump(row) + "\n" for step, made in sorted(started.items()) for row in _rows(step, made))
    (folder / FILE).write_bytes(zstandard.ZstdCompressor(level=3).compress(lines.encode()))


def read_started(folder: Path, step: int) -> Started:
    """The batches in a checkpoint of a step, which are those of the steps that follow it."""
    if not (folder / FILE).is_file():
        return {}
    rows, found = read_trajectories(folder / FILE), {}
    for about in rows:
        found[int(about["batch"])] = _batch(about, rows, str(folder / FILE))
    if list(found) != list(range(step, step + len(found))):
        raise BadInput(f"{folder / FILE} holds the batches {list(found)}, and the checkpoint is of step {step}")
    return found


def _rows(step: int, made: Gathered) -> Iterator[Row]:
    place = {id(group): i for i, group in enumerate(made.sampled)}
    yield {
        "batch": step,
        "version": made.version,
        "batches": made.batches,
        "waited": made.waited,
        "times": made.times,
        "attempts": [len(group.trajectories) for group in made.sampled],
        "kept": [place[id(group)] for group in made.groups],
        "greedy": None if made.greedy is None else [asdict(score) for score in made.greedy],
    }
    yield from rows_of(made.sampled, exact=True)


def _batch(about: Mapping[str, Any], rows: Iterator[Row], place: str) -> Gathered:
    sampled = []
    for count in about["attempts"]:
        attempts = [decode(row, place) for row in islice(rows, count)]
        sampled.append(Group(attempts[0][0], [trajectory for _, trajectory in attempts]))
    greedy = about["greedy"]
    return Gathered(
        [sampled[i] for i in about["kept"]],
        sampled,
        None if greedy is None else [Score(**{**row, "questions": tuple(row["questions"])}) for row in greedy],
        about["batches"],
        about["waited"],
        version=about["version"],
        times=about["times"],
    )
