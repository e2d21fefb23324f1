"""The tables of docs/results.md from what side_by_side.py left: tables.py OUT [PAGE].

OUT is its folder, or one into which its archives were unpacked. Without PAGE the tables are printed; with it they take
the places of those between `<!-- table: NAME -->` and `<!-- end of table -->`. A result in which an attempt failed, and
one that is not there, has no row.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recollect.runtime.console import Console
from recollect.types import BadInput
from recollect.workflows.eval.comparison import compare

SEEDS = (0, 1, 2)
MEMORY = (
    ("memory-base", "memory agent, untrained"),
    *((f"memory-{seed}-sft", f"memory agent after SFT, seed {seed}") for seed in SEEDS),
    *((f"memory-{seed}-rl", f"memory agent after RL, seed {seed}") for seed in SEEDS),
    ("concat-base", "`concat`, untrained"),
    ("concat", "`concat` after SFT"),
    ("rag-base", "`rag`, untrained"),
    ("rag", "`rag` after SFT"),
)
GSM8K = (
    ("gsm8k-base", "untrained"),
    ("gsm8k-sft", "after SFT"),
    ("gsm8k-rl", "after RL"),
    ("gsm8k-none-sft", "without tools, after SFT"),
    ("gsm8k-none-rl", "without tools, after RL"),
)
SEARCH = (
    ("closed-test", "no search, after SFT"),
    *((f"once-{how}-test", f"one fixed search ({how}), after SFT") for how in ("bm25", "dense")),
    *((f"search-{how}-sft", f"ReAct ({how}) after SFT") for how in ("bm25", "dense")),
    *((f"search-{how}-rl", f"ReAct ({how}) after RL") for how in ("bm25", "dense")),
)
HOPS = tuple(
    (f"{name}-{how}-hotpotqa", f"{what} ({how})")
    for name, what in (("search", "ReAct after RL"), ("once", "one fixed search, after SFT"))
    for how in ("bm25", "dense")
)
STAGES = (
    ("memory-0-sft", "start"),
    ("stages-1", "after stage 1, memory"),
    ("stages-2", "after stage 2, answers"),
    ("stages-end-to-end", "end to end, as many updates"),
)
PAIRS = {
    "memory-pairs": [(f"memory-{s}-{a}", f"memory-{s}-{b}", "f1") for s in SEEDS for a, b in (("sft", "rl"),)]
    + [(f"memory-{s}-rl", None, "f1") for s in SEEDS]
    + [("concat", "memory-0-rl", "f1"), ("rag", "memory-0-rl", "f1"), ("memory-base", None, "f1")],
    "gsm8k-pairs": [
        (a, b, "reward")
        for a, b in (("gsm8k-base", "gsm8k-sft"), ("gsm8k-sft", "gsm8k-rl"), ("gsm8k-none-rl", "gsm8k-rl"))
    ],
    "search-pairs": [
        (a, f"search-{how}-rl", "f1")
        for how in ("bm25", "dense")
        for a in ("closed-test", f"once-{how}-test", f"search-{how}-sft")
    ],
    "stages-pairs": [
        (a, b, "f1")
        for a, b in (
            ("memory-0-sft", "stages-1"),
            ("stages-1", "stages-2"),
            ("memory-0-sft", "stages-end-to-end"),
            ("stages-2", "stages-end-to-end"),
        )
    ],
}
NAMES = dict([*MEMORY, *GSM8K, *SEARCH, *STAGES[1:]])


def found(out: Path, name: str) -> Mapping[str, Any] | None:
    """The results of an evaluation in which no attempt failed."""
    file = out / f"{name}.json"
    result = json.loads(file.read_text()) if file.is_file() else None
    return None if result is None or result["failures"] else result


def cell(row: Mapping[str, float]) -> str:
    """A figure with its interval."""
    return f"{row['accuracy']:.3f} ({row['low']:.3f} – {row['high']:.3f})"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown; a line where there is nothing."""
    if not rows:
        return "Not measured."
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def by_length(out: Path) -> str:
    """F1 at each length."""
    rows, lengths = [], (4, 16, 64)
    for name, title in MEMORY:
        if (result := found(out, name)) is None:
            continue
        made = {row["chunks"]: row for row in result["by_length"]}
        rows.append([title, *(cell(made[n]) for n in lengths), f"{made[4]['n']:,}"])
    return table(["", *(f"{n} paragraphs" for n in lengths), "questions"], rows)


def overall(out: Path, names: Sequence[tuple[str, str]], metric: str) -> str:
    """One figure over all items of each."""
    rows = []
    for name, title in names:
        if (result := found(out, name)) is not None:
            (own,) = next(iter(result["agents"].values()))["sources"].values()
            exact = [cell(own["em"])] if metric == "f1" else []
            rows.append([title, cell(own[metric]), *exact, f"{own[metric]['n']:,}"])
    shown = ["F1", "exact match"] if metric == "f1" else ["right"]
    return table(["", *shown, "questions"], rows)


def pairs(out: Path, wanted: Sequence[tuple[str, str | None, str]]) -> str:
    """Paired differences, over all items and at each length."""
    rows = []
    for first, second, metric in wanted:
        if found(out, first) is None or (second is not None and found(out, second) is None):
            continue
        try:
            made = compare(str(out / first), second and str(out / second), metric, (None, None), Console(True))["rows"]
        except BadInput:
            continue
        whole = made if second is None or first.startswith("memory") else made[:1]
        title = NAMES[first] if second is None else f"{NAMES[second]} − {NAMES[first]}"
        for row in whole:
            what = title if row["what"] == "all" else f"{title}, {row['what']}"
            rows.append([what, f"{row['difference']:+.3f}", f"{row['low']:+.3f} – {row['high']:+.3f}", f"{row['n']:,}"])
    return table(["", "difference", "95 %", "questions"], rows)


def curves(out: Path) -> str:
    """What the runs of squad_memory saw while they trained."""
    rows = []
    for seed in SEEDS:
        metrics = out / f"memory-{seed}" / "metrics.jsonl"
        if not metrics.is_file():
            continue
        seen = [json.loads(line) for line in metrics.read_text().splitlines()]
        (after,) = [r for r in seen if r.get("phase") == "sft" and "val/squad/accuracy" in r]
        rewards = [r["reward/mean"] for r in seen if "reward/mean" in r]
        ends = [sum(part) / len(part) for part in (rewards[:5], rewards[-5:])] if len(rewards) >= 10 else None
        kept = [after[f"val/squad/{name}"] for name in ("accuracy", "low", "high", "n")]
        told = f"{ends[0]:.3f} → {ends[1]:.3f}" if ends else "–"
        rows.append(
            [str(seed), f"{kept[0]:.3f} ({kept[1]:.3f} – {kept[2]:.3f})", f"{kept[3]:.0f}", str(len(rewards)), told]
        )
    return table(["seed", "F1 after SFT", "questions", "RL steps", "reward, first 5 → last 5 steps"], rows)


def losses(out: Path, run: str) -> str:
    """The loss on held-out conversations while SFT went on."""
    metrics = out / run / "metrics.jsonl"
    seen = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.is_file() else []
    kept = [r for r in seen if "val/loss" in r]
    rows = [[f"{r['step']:,}", f"{r['val/loss']:.3f}", f"{r['val/token_accuracy']:.3f}"] for r in kept]
    return table(["updates", "held-out loss", "token accuracy"], rows)


def recalls(out: Path) -> str:
    """How often a search with the question finds all that it needs."""
    rows = []
    for what, title in (("search_test", "the needed paragraph"), ("hotpotqa", "HotpotQA, both paragraphs")):
        for how in ("bm25", "dense"):
            if (file := out / f"recall-{how}-{what}.json").is_file():
                made = json.loads(file.read_text())
                rows.append([f"{title}, {how}", *map(cell, made.values()), f"{made['1']['n']:,}"])
    return table(["", *(f"first {n}" for n in (1, 3, 5, 10)), "questions"], rows)


def tables(out: Path) -> Iterator[tuple[str, str]]:
    """All tables by name."""
    yield "memory", by_length(out)
    yield "memory-curves", curves(out)
    yield "gsm8k", overall(out, GSM8K, "accuracy")
    yield "gsm8k-loss", losses(out, "gsm8k")
    yield "search", overall(out, SEARCH, "f1")
    yield "search-loss", losses(out, "search-bm25")
    yield "hops", overall(out, HOPS, "f1")
    yield "recall", recalls(out)
    yield "stages", overall(out, STAGES, "f1") if found(out, "stages-1") else table([], [])
    for name, wanted in PAIRS.items():
        yield name, pairs(out, wanted)


def main(folder: str, page: str = "") -> None:
    """Print the tables, or put them into a page."""
    made = dict(tables(Path(folder)))
    if not page:
        for name, text in made.items():
            print(f"{name}\n\n{text}\n")
        return
    place = Path(page)
    fill = lambda match: f"{match[1]}\n{made[match[2]]}\n\n{match[3]}"
    text = place.read_text()
    place.write_text(re.sub(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end of table -->)", fill, text, flags=re.DOTALL))


if __name__ == "__main__":
    main(*sys.argv[1:])
