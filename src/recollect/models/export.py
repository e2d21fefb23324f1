"""Trained models as plain Hugging Face folders, for anything that loads those."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recollect.files.output import refuse_unwritable, unwritten
from recollect.images.patches import read_patches
from recollect.models.kind_check import sees
from recollect.models.load import load_model, load_tokenizer, processor_folder
from recollect.models.lora import adapter_base
from recollect.runs.directory import remove_tree
from recollect.types import BadInput


@contextmanager
def writing_model(out: Path) -> Iterator[Path]:
    """A folder beside its place for a model and its tokenizer; it is put there when all is written, so never half."""
    temporary = out.with_name(f".{out.name}.writing")
    remove_tree(temporary)
    try:
        yield temporary
        remove_tree(out)
        temporary.rename(out)
    except Exception as error:
        remove_tree(temporary)
        raise unwritten(out, error) from error


def export_model(source: str, out: Path, dtype: str = "float32") -> str:
    """Write the model in a folder to a new one, an adapter merged into its base; returns a sentence about it."""
    import torch

    known = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if dtype not in known:
        raise BadInput(f"--dtype {dtype}: known are {' and '.join(known)}")
    out = out.expanduser().absolute()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out} is not empty; name a new folder with --out")
    refuse_unwritable(out, f"--out {out}")
    base = adapter_base(source)
    model, tokenizer = load_model(source, known[dtype], attention=None), load_tokenizer(source)
    out.parent.mkdir(parents=True, exist_ok=True)
    with writing_model(out) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if sees(model.config):
            read_patches(Path(processor_folder(source)), int(model.config.image_token_id)).save(folder)
    how = f" (adapter merged into {base})" if base else ""
    return f"wrote {source}{how} as {dtype} to {out}"
