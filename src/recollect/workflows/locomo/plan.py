"""What `recollect locomo` is asked for: its options, its files, and the settings that they stand for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from recollect.config import Config
from recollect.config.compose import compose
from recollect.data.conversation_split import NUM_TRAIN, NUM_VAL, asking, count, split
from recollect.data.locomo import read_locomo
from recollect.files.reading import read_bytes
from recollect.types import BadInput
from recollect.workflows.data.locomo_files import LocomoOptions, write_locomo

PLACES = ("locomo10.json", "data/locomo10.json")  # where the data is looked for
READS = ("recurrent", "notes")  # memories that the model writes, which costs turns
QUESTIONS = 8  # of a training task, where reading costs turns
MODES = ("train", "evaluate", "baselines", "judge")


@dataclass(frozen=True)
class LocomoPlan:
    """The options of the command."""

    mode: str
    data: str | None = None
    out: Path = Path("grpo_checkpoints")
    program: Path = Path("grpo_optimized_memory_qa.json")
    split: str | None = None
    num_train: int | None = None
    num_val: int | None = None
    num_test: int | None = None
    num_train_steps: int | None = None
    model: str | None = None
    inference_gpus: str | None = None
    training_gpus: str | None = None
    settings: Sequence[str] = ()
    arbor: str | None = None  # the address of the server that samples and trains
    train_categories: str | None = None  # of training questions, as in 1,2,3,4


def source_of(plan: LocomoPlan) -> str:
    """The file with the conversations."""
    if plan.data is not None:
        return plan.data
    found = next((place for place in PLACES if Path(place).is_file()), None)
    if found is None:
        raise BadInput(f"--data FILE: where is LoCoMo? There is no {' and no '.join(PLACES)} (see docs/locomo.md)")
    return found


def settings_of(plan: LocomoPlan) -> list[str]:
    """The options as settings; those that were given as settings go after them."""
    steps = [] if plan.num_train_steps is None else [f"trainer.total_training_steps={plan.num_train_steps}"]
    model = [] if plan.model is None else [f"actor_rollout_ref.model.path={json.dumps(plan.model)}"]
    return [*steps, *model, *plan.settings]


def training_config(plan: LocomoPlan, folder: Path) -> Config:
    """The configuration of the training; ``folder`` has the task files."""
    val = [f"data.val_files=[{json.dumps(str(folder / 'val.jsonl'))}]"] if (folder / "val.jsonl").exists() else []
    files = [f"data.train_files=[{json.dumps(str(folder / 'train.jsonl'))}]", *val]
    run = plan.out / ("run" if plan.arbor is None else "arbor")
    place = [f"trainer.default_local_dir={json.dumps(str(run))}"]
    return compose("locomo", [*files, *place, *settings_of(plan)])


def task_files(plan: LocomoPlan, say: Callable[[str], None]) -> Path:
    """The folder with train.jsonl, val.jsonl and test.jsonl, written unless the same is there already."""
    source = source_of(plan)
    options = _options(plan, source)
    told = json.dumps([asdict(options), hashlib.sha256(read_bytes(Path(source).expanduser())).hexdigest()])
    folder = plan.out / f"data-{hashlib.blake2b(told.encode(), digest_size=4).hexdigest()}"
    if not (folder / "card.json").is_file():
        write_locomo(source, folder, options, say)
    return folder


def _options(plan: LocomoPlan, source: str) -> LocomoOptions:
    """What is written: questions as asked for; to train by default the guide's, or all where those are few.

    A task has one question. Where the model reads its conversation, a training task has several, a validation task all.
    """
    if plan.mode != "train":
        return LocomoOptions(plan.split, num_test=plan.num_test)
    memory = compose("locomo", plan.settings).conversation.memory
    parts = asking(split(read_locomo(source), plan.split), plan.train_categories)
    train = min(NUM_TRAIN, count(parts["train"])) if plan.num_train is None else plan.num_train
    val = min(NUM_VAL, count(parts["val"])) if plan.num_val is None else plan.num_val
    numbers = train or None, val or None, plan.num_test
    sizes = (QUESTIONS, None) if memory in READS else (1, 1)
    return LocomoOptions(plan.split, *numbers, sizes[0], train_categories=plan.train_categories, val_questions=sizes[1])
