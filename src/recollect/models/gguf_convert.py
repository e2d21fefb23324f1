"""GGUF files as models: dequantised once into a plain folder with the tokenizer and chat template of the file."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from recollect.files.reading import refuse_odd
from recollect.models.checksums import digest_of
from recollect.models.gguf_header import GGUFHeader, StoredTensor, check_whole, read_header
from recollect.models.gguf_tokenizer import read_tokenizer, splits_unknown
from recollect.models.kind_check import refuse_other_kinds
from recollect.models.model_cache import make_cached, new_folder, refuse_filled
from recollect.types import BadInput

GIB = 1 << 30
CONVERTER = 1  # a later one makes other folders
DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2}  # bytes of a weight
EXACT = {"F32": "float32", "F64": "float32", "F16": "float16"}  # types that are kept as they are; others are rounded
Say = Callable[[str], None]


def say_aside(text: str) -> None:
    """A line on standard error: what is asked for may be written to standard output."""
    print(f"recollect: {text}", file=sys.stderr, flush=True)


def gguf_folder(path: str, say: Say = say_aside) -> Path:
    """The plain folder of a GGUF file, from the cache; the first time it is converted, which takes a while."""
    file = Path(path).expanduser().absolute()
    refuse_odd(file, "GGUF file")
    header = read_header(file)
    if not file.is_file():
        raise BadInput(f"{path} is not a plain file; a GGUF file is needed")
    name = f"gguf-{_digest(file, file.stat().st_size, file.stat().st_mtime_ns)[:32]}-{CONVERTER}"
    return make_cached(name, lambda folder: convert(header, folder, say))


def save_gguf(path: Path, out: Path, dtype: str = "auto", say: Say = say_aside) -> str:
    """Write the model of a GGUF file to a new plain folder; returns a sentence about it."""
    out, file = refuse_filled(out), path.expanduser().absolute()
    if dtype not in ("auto", *DTYPES):
        raise BadInput(f"--dtype {dtype}: known are auto, {', '.join(DTYPES)}")
    header = read_header(file)
    with new_folder(out) as made:
        stored = convert(header, made.folder, say, dtype=dtype)
        made.keep()
    return f"wrote {path} ({kinds_of(header)}) as {stored} to {out}"


@functools.lru_cache(maxsize=64)
def _digest(file: Path, size: int, changed: int) -> str:
    """The SHA-256 of a file, once in a process while its size and time stay."""
    return digest_of(file)


def convert(header: GGUFHeader, folder: Path, say: Say, origin: str = "", dtype: str = "auto") -> str:
    """Write a plain model folder with a card; returns the type of its weights. ``origin`` says whence the file came."""
    from recollect.models.gguf_card import card

    _need_package()
    names = _names(header)
    check_whole(header, _bytes_of)
    stored = _stored(header, names) if dtype == "auto" else dtype
    _need_room(header, folder, stored)
    say(f"converting {header.path.name} ({header.parameters / 1e6:,.0f}M parameters, {kinds_of(header)}) to {stored}")
    if unknown := splits_unknown(header):
        say(
            f"{header.path.name}: its tokenizer splits words as {unknown}, which is not known here; GPT-2's way is used"
        )
    with _one_line(header), _bar_for_people():
        tokenizer = read_tokenizer(header)
        model = _model(header, stored)
    _end_ids(model, header)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(card(header, digest_of(header.path), kinds_of(header), stored, origin))
    return stored


def _need_package() -> None:
    try:
        import gguf  # noqa: F401
    except ImportError:
        raise BadInput("GGUF files need the package gguf: pip install 'recollect-rl[gguf]'") from None


def _names(header: GGUFHeader) -> dict[int, str]:
    """Type number → name, of the types in the file; refuses one that cannot be dequantised."""
    import numpy as np
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

    found = {}
    for number in header.kinds():
        try:
            kind = GGMLQuantizationType(number)
            dequantize(np.zeros(GGML_QUANT_SIZES[kind][1], np.uint8).view(_unit(kind.name)), kind)
        except (ValueError, KeyError, NotImplementedError):
            known = {k.value: k.name for k in GGMLQuantizationType}.get(number, str(number))
            tensor = next(t.name for t in header.tensors if t.kind == number)
            raise BadInput(
                f"{header.path} holds weights of type {known} ({tensor[:80]}), which cannot be dequantised here; "
                "take a file of another type, such as Q8_0"
            ) from None
        found[number] = kind.name
    return found


def _unit(name: str) -> str:
    return {"F32": "float32", "F16": "float16"}.get(name, "uint8")


def kinds_of(header: GGUFHeader) -> str:
    """The types of a file's weights by how much is of each, such as ``Q4_1, Q8_0, F32``."""
    sizes: dict[str, int] = {}
    names = _names(header)
    for tensor in header.tensors:
        sizes[names[tensor.kind]] = sizes.get(names[tensor.kind], 0) + tensor.numel
    return ", ".join(sorted(sizes, key=lambda name: -sizes[name]))


def _bytes_of(tensor: StoredTensor) -> int:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    block, size = GGML_QUANT_SIZES[GGMLQuantizationType(tensor.kind)]
    return -(-tensor.numel // block) * size


def _stored(header: GGUFHeader, names: dict[int, str]) -> str:
    """The type of the plain folder's weights: that of the file's matrices, or bfloat16 for quantised ones."""
    matrices = {names[t.kind] for t in header.tensors if len(t.shape) > 1}
    exact = {EXACT.get(name, "bfloat16") for name in matrices}
    return exact.pop() if len(exact) == 1 else "float32" if "float32" in exact else "bfloat16"


def _need_room(header: GGUFHeader, folder: Path, dtype: str) -> None:
    need = header.parameters * DTYPES[dtype]
    memory, free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), shutil.disk_usage(folder).free
    for have, where in ((memory, "this machine's memory"), (free, f"the disk of {folder.parent.parent}")):
        if need > have:
            raise BadInput(
                f"{header.path} takes {need / GIB:.1f} GiB dequantised, and {where} has {have / GIB:.1f} GiB"
            )


class _one_line:
    """Turns what the library raises about a file into a line of ours. Use it as a context."""

    def __init__(self, header: GGUFHeader) -> None:
        self.header = header

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        if error is None or isinstance(error, BadInput) or not isinstance(error, Exception):
            return
        import transformers

        why = " ".join(str(error).split())[:200] or type(error).__name__
        what = f"{self.header.path} holds a model of the architecture {self.header.architecture[:40]}"
        raise BadInput(f"{what}, which transformers {transformers.__version__} cannot read: {why}") from None


def _bar_for_people() -> AbstractContextManager[Any]:
    """The library's bar is drawn in a terminal only."""
    return nullcontext() if sys.stderr.isatty() else redirect_stderr(StringIO())


def _model(header: GGUFHeader, dtype: str) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig

    from recollect.models.weights_check import check_complete

    place = {"gguf_file": header.path.name, "trust_remote_code": False, "local_files_only": True}
    config = AutoConfig.from_pretrained(str(header.path.parent), **place)
    refuse_other_kinds(config, str(header.path))
    model, found = AutoModelForCausalLM.from_pretrained(
        str(header.path.parent),
        **place,
        config=config,
        quantization_config=GgufConfig(dequantize=True),
        dtype=getattr(torch, dtype),
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # they are refused by name
    )
    check_complete(model, found, str(header.path))
    return model


def _end_ids(model: Any, header: GGUFHeader) -> None:
    """Let the plain model end where the file says that a text or a turn ends."""
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    given = [header.metadata.get(f"tokenizer.ggml.{key}") for key in keys]
    ids = list(dict.fromkeys(i for i in given if isinstance(i, int)))
    if ids:
        model.generation_config.eos_token_id = ids[0] if len(ids) == 1 else ids
    model.config._name_or_path = ""
