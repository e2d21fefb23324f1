"""What becomes of other systems' keys: ``python -m recollect.config.translate.verl_reference > docs/from-verl.md``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from recollect.config.reference import sections
from recollect.config.translate.agent_keys import plain
from recollect.config.translate.key_answer import Alias, Answer, Refused
from recollect.config.translate.known_keys import ANSWERS, PATTERNS, answer_of, own_keys
from recollect.config.translate.trees import SYSTEMS, tree

HEADER = """# Coming from verl, MemAgent, the two-stage memory agent or AgentFly

Every key of these systems has an answer here. It takes effect under its own name, or it is another name for a key here;
it is refused with a reason; or, where no value of it changes a result here, it is taken with a note at the start of the
run. Of a refused key the default of any of these systems is taken, for it asks for nothing.

`key=`, `+key=` and `++key=` mean the same, and so do keys in a YAML file. `agent.init_args.X`, `agent.init_config.X`
and `agent.run_config.X` are `agent.X`. A key that no system knows is refused with the nearest known one.

This page is generated from `src/recollect/config/translate/`:
`python -m recollect.config.translate.verl_reference > docs/from-verl.md`.
"""
MEANING = """
## What differs in meaning

- `actor_rollout_ref.actor.ppo_mini_batch_size` counts tasks, as in verl and MemAgent. AgentFly counts attempts: divide
  by `agent.num_chains`.
- Learning rates change from step to step, as in verl; all updates of a step have the same one. Warm-up starts at
  lr / steps; `optim.zero_indexed_step=True` starts at 0, as verl does.
- `trainer.save_freq=-1` saves nothing: there is no checkpoint for `recollect eval`, `ask` or `serve` to load, nor for a
  run to go on from. Metrics, trajectories and the report are written as always. 0 saves at the end alone.
- `trainer.test_freq=-1` measures nothing in training or after it, so the report has no success after RL;
  `recollect eval RUN` measures a checkpoint later. `trainer.val_before_train` decides for itself. 0 measures before and
  after.
- `trainer.resume_mode=disable` starts anew. A run that is in the directory moves to `DIRECTORY.old-N`, and nothing is
  deleted.
- `trainer.load_checkpoint=PATH` is `trainer.resume_mode=resume_path trainer.resume_from_path=PATH`.
- `fsdp_size` larger than the number of devices means all of them, in verl too.
"""
TITLES = {"verl": "verl", "memagent": "MemAgent", "agentfly": "AgentFly"}
PLACES = ("path", "files", "project_name", "experiment_name", "default_local_dir", "logger", "_key")  # say nothing


def from_verl_markdown() -> str:
    """The whole page as Markdown."""
    out = [HEADER, "## Defaults that differ", "", *_differing(), MEANING]
    for name, title in SYSTEMS.items():
        before = () if name == "verl" else tree("verl")
        rows = [row for key, value in tree(name).items() if key not in before for row in [_row(key, value)]]
        of = "" if name == "verl" else " alone"
        out += [f"## Keys of {title}{of}", "", *_table(("key", "default there", "here"), _grouped(rows)), ""]
    return "\n".join(out)


def _differing() -> Iterator[str]:
    """Keys that mean the same here and have another default."""
    ours = {key.name: key.default for section in sections() for key in section.keys}
    trees = [_by_our_names(tree(name)) for name in TITLES]
    rows = []
    for key in [k for k in ours if any(k in found for found in trees) and not k.endswith(PLACES)]:
        theirs = [found.get(key) for found in trees]
        if any(v is not None and not _equal(v, ours[key]) for v in theirs):
            rows.append((f"`{key}`", *("" if v is None else _value(v) for v in theirs), _value(ours[key])))
    yield from _table(("key", *TITLES.values(), "here"), rows)


def _by_our_names(found: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults under our names for their keys; those that follow another key have none of their own."""
    out: dict[str, Any] = {}
    for key, value in found.items():
        name, answer = plain(key), answer_of(plain(key))
        if value is None or str(value).startswith(("${", "???")):
            continue
        if isinstance(answer, Alias) and answer.expand is None:
            name = answer.to
            value = answer.words.get(value, value) if answer.words else value
        out.setdefault(name, value)
    return out


def _equal(one: Any, other: Any) -> bool:
    return one == other or (isinstance(other, list) and [one] == other)


def _row(key: str, value: Any) -> tuple[str, str, str]:
    name = plain(key)
    answer = answer_of(name)
    if answer is None:
        assert name in own_keys(), f"{key} has no answer"
        return key, _value(value), "the same key" if name == key else f"`{name}`"
    return _pattern(name, key), _value(value), _said(answer, name)


def _pattern(name: str, key: str) -> str:
    """The pattern that answers a whole section, so that the section is one row."""
    if name in ANSWERS:
        return key
    return next(p for p in PATTERNS if fnmatchcase(name, p))


def _grouped(rows: list[tuple[str, str, str]]) -> Iterator[tuple[str, str, str]]:
    """Rows in their order; of a section that has one answer, one row without defaults."""
    seen: set[str] = set()
    for key, value, said in rows:
        if key not in seen:
            seen.add(key)
            yield f"`{key}`", "" if "*" in key else value, said


def _said(answer: Answer, key: str) -> str:
    if isinstance(answer, Alias):
        words = ", ".join(f"`{theirs}` is `{ours}`" for theirs, ours in answer.words.items())
        more = "; ".join(text for text in (answer.why, words) if text)
        return (f"`{answer.to}`" if answer.to != key else "the same key") + (f": {more}" if more else "")
    if isinstance(answer, Refused):
        fine = f" (also taken: {', '.join(f'`{_plain(v)}`' for v in answer.fine)})" if answer.fine else ""
        return f"refused: {answer.why}{fine}"
    return f"taken, with a note: {answer.why}"


def _table(header: tuple[str, ...], rows: Iterator[tuple[str, ...]] | list[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def _value(value: Any) -> str:
    return f"`{_plain(value)}`"


def _plain(value: Any) -> str:
    if value is None or isinstance(value, Mapping):
        return "null" if value is None else "{}"
    return json.dumps(value) if isinstance(value, list) else str(value) or "''"


if __name__ == "__main__":
    print(from_verl_markdown(), end="")
