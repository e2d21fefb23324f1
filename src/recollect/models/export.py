"""Trained models as plain Hugging Face folders, for anything that loads those."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recollect.files.output import refuse_unwritable, unwritten
from recollect.models.load import load_model, load_tokenizer
from recollect.models.lora import adapter_base
from recollect.runs.directory import remove_tree
from recollect.types import BadInput


def write_model(model: Any, tokenizer: Any, out: Path) -> None:
    """Write a model and its tokenizer beside their place first, so that a folder is never half there."""
    temporary = out.with_name(f".{out.name}.writing")
    remove_tree(temporary)
    try:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
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
    write_model(model, tokenizer, out)
    how = f" (adapter merged into {base})" if base else ""
    return f"wrote {source}{how} as {dtype} to {out}"
