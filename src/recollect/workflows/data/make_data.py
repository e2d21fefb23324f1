"""`recollect data`: make a file of tasks from a data set or a made-up family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from recollect.config.compose import compose, recipe_names
from recollect.data.corpus_rows import write_passages
from recollect.data.datasets import DATASETS, convert
from recollect.data.haystack import read_source, without, write_haystack
from recollect.data.splits import SHARES, check_split, read_shares
from recollect.data.squad import SquadOptions, write_squad
from recollect.registries import FAMILIES
from recollect.runtime.console import Console
from recollect.sources.write import write_made_up
from recollect.types import BadInput
from recollect.workflows.data.closed_book import answered
from recollect.workflows.data.locomo_files import LocomoOptions, write_locomo

OTHERS = ("haystack", "squad", "passages", "locomo")  # data sets with options of their own
DOCUMENTS = (200,)  # paragraphs of a haystack's documents, unless others are asked for


@dataclass(frozen=True)
class DataOptions:
    """The options of the command, besides files."""

    documents: Sequence[int] = ()
    count: int = 1000
    multiple: int = 1
    held_out: bool = False
    seed: int | None = None
    closed_book: str | None = None
    paragraphs: Sequence[int] = ()
    split: str | None = None
    shares: str | None = None
    distractors: Sequence[str] = ()
    num_train: int | None = None
    num_val: int | None = None
    num_test: int | None = None
    questions: int | None = None
    train_categories: str | None = None
    calculations: int | None = None


def write_data(name: str, words: Sequence[str], options: DataOptions, console: Console) -> tuple[int, str]:
    """Write a data set's tasks; returns how many, and where."""
    settings = [w for w in words if "=" in w]
    paths = [w for w in words if "=" not in w]
    if name != "haystack" and (options.documents or options.closed_book):
        raise BadInput(f"--documents and --closed-book go with haystack, not with {name}")
    _refuse_options(name, options)
    if name in FAMILIES:
        (target,) = _paths(name, paths, "DST")
        seed = [] if options.seed is None else [f"trainer.seed={options.seed}"]
        cfg = compose(name if name in recipe_names() else None, [f"data.made_up={name}", *seed, *settings])
        return write_made_up(cfg, Path(target), options.count, options.multiple, options.held_out), target
    if name not in (*DATASETS, *OTHERS):
        raise BadInput(f"no data set {name}; known: {', '.join([*DATASETS, *OTHERS, *FAMILIES])}")
    if settings:
        raise BadInput(f"{settings[0]}: settings are for made-up tasks; {name} has none")
    if name in ("squad", "passages"):
        *sources, target = paths if len(paths) > 1 else _paths(name, paths, "SRC... DST")
        if name == "passages":
            return write_passages(sources, Path(target)), target
        return write_squad(sources, Path(target), _squad_options(options), console.say), target
    source, target = _paths(name, paths, "SRC OUTDIR" if name == "locomo" else "SRC DST")
    if name == "locomo":
        return write_locomo(source, Path(target), _locomo_options(options), console.say), target
    if name != "haystack":
        return convert(name, source, target, options.split, _shares(options), options.calculations), target
    found = read_source(source)
    if options.closed_book:
        known = answered(found.rows, options.closed_book, console)
        console.say(f"left out {sum(known)} of {len(known)} questions that are answered without a document")
        found = without(found, known)
    sizes = options.documents or DOCUMENTS
    with console.progress("documents", len(sizes) * len(found.rows)) as advance:
        return write_haystack(found, Path(target), sizes, options.seed or 0, lambda: advance("", 1)), target


OWN = {  # options of single data sets
    **dict.fromkeys(("paragraphs", "distractors"), ("squad",)),
    **dict.fromkeys(("num_train", "num_val", "num_test", "questions", "train_categories"), ("locomo",)),
    "calculations": ("gsm8k",),
    "split": ("squad", *DATASETS, "locomo"),
    "shares": ("squad", *DATASETS),
}


def _refuse_options(name: str, options: DataOptions) -> None:
    """Refuse options of one data set with others, an unknown split, and shares of no split."""
    for key, owners in OWN.items():
        if name not in owners and getattr(options, key) not in (None, (), []):
            raise BadInput(f"--{key.replace('_', '-')} goes with {' and '.join(owners)}, not with {name}")
    if name != "locomo":
        check_split(options.split)
    if options.shares and not options.split:
        raise BadInput("--shares says how large train, tune and test are; name one of them with --split")


def _locomo_options(options: DataOptions) -> LocomoOptions:
    numbers = options.num_train, options.num_val, options.num_test
    return LocomoOptions(options.split, *numbers, options.questions, options.seed or 0, options.train_categories)


def _shares(options: DataOptions) -> Sequence[float]:
    return SHARES if options.shares is None else read_shares(options.shares)


def _squad_options(options: DataOptions) -> SquadOptions:
    seed, others = options.seed or 0, options.distractors
    return SquadOptions(options.paragraphs, seed, options.split, _shares(options), others)


def _paths(name: str, given: Sequence[str], wanted: str) -> Sequence[str]:
    if len(given) != len(wanted.split()):
        raise BadInput(f"recollect data {name} takes {wanted}; given: {' '.join(given) or 'nothing'}")
    return given
