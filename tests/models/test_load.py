"""A folder's own tokenizer is the one that is used, and its weights are copied."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from recollect.models.load import load_model, load_tokenizer
from tests.conftest import make_config


def own_words(folder: Path, kind: str) -> PreTrainedTokenizerFast:
    """A folder of some architecture with a tokenizer of words, which no family of models has."""
    words = ["<unk>", "<|end|>", *(f"w{i}" for i in range(60))]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", eos_token="<|end|>", pad_token="<unk>")
    make_config(kind).save_pretrained(folder)
    made.save_pretrained(folder)
    return made


@pytest.mark.parametrize("kind", ["Qwen2", "Qwen3", "Llama", "Gemma"])
def test_a_tokenizer_that_a_folder_declares_is_not_replaced_by_its_familys(kind: str, tmp_path: Path) -> None:
    made, text = own_words(tmp_path, kind), "w3 w17 w5 w99"
    found = load_tokenizer(str(tmp_path))
    assert found.encode(text) == made.encode(text) == [5, 19, 7, 0]
    assert found.eos_token_id == made.eos_token_id
    assert found.pad_token_id == made.pad_token_id


def test_what_the_library_chooses_stays_where_it_makes_the_same_ids(small_model: Path) -> None:
    text = " kelu 42 is <|end|> naïve"
    assert load_tokenizer(str(small_model)).encode(text) == AutoTokenizer.from_pretrained(small_model).encode(text)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_loaded_model_does_not_hang_on_its_file(small_model: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    """A file that is overwritten in place, or cut, is none of a loaded model's business."""
    folder = tmp_path / "model"
    shutil.copytree(small_model, folder)
    load_model(str(folder), dtype).save_pretrained(folder)  # its file has the type that is asked for
    model = load_model(str(folder), dtype)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    head = model.get_output_embeddings().weight
    assert head is model.get_input_embeddings().weight  # shared weights stay shared
    file = folder / "model.safetensors"
    with file.open("r+b") as out:
        out.seek(file.stat().st_size // 2)
        out.write(b"\xff" * (file.stat().st_size // 2))
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert str(file) not in Path("/proc/self/maps").read_text()  # so a file that is cut ends nobody
