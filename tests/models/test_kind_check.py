"""Folders of models that do not continue text are one line, in every command that takes a model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import transformers
from typer.testing import CliRunner

from recollect.models.load import load_config, load_model
from recollect.models.tiny import TINY
from recollect.types import BadInput

SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}


def seeing() -> Any:
    text = {**SMALL, "num_key_value_heads": 2, "vocab_size": 512, "model_type": "llama"}
    seen = {**SMALL, "image_size": 28, "patch_size": 14, "model_type": "clip_vision_model"}
    config = transformers.LlavaConfig(text_config=text, vision_config=seen, image_token_index=5)
    return transformers.LlavaForConditionalGeneration(config)


def encoder() -> Any:
    return transformers.BertForMaskedLM(transformers.BertConfig(**SMALL, vocab_size=512))


def both() -> Any:
    config = transformers.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=2, vocab_size=512)
    return transformers.T5ForConditionalGeneration(config)


def hearing() -> Any:
    layers = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 1), ("ffn_dim", 64))}
    heads = {f"{side}_attention_heads": 2 for side in ("encoder", "decoder")}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = transformers.WhisperConfig(d_model=32, vocab_size=512, **layers, **heads, **ids)
    return transformers.WhisperForConditionalGeneration(config)


def classifier() -> Any:
    config = transformers.Qwen2Config(**SMALL, num_key_value_heads=2, vocab_size=512, num_labels=1)
    return transformers.Qwen2ForSequenceClassification(config)


KINDS = {
    seeing: r"a model that reads images \(llava\)",
    encoder: r"an encoder, which .* \(bert\)",
    both: r"an encoder-decoder model \(t5\)",
    hearing: r"an encoder-decoder model \(whisper\)",
    classifier: r"a Qwen2ForSequenceClassification, .* \(qwen2\)",
}


def folder_of(make: Any, place: Path) -> Path:
    """A model folder, with a tokenizer."""
    make().save_pretrained(place)
    for file in TINY.iterdir():
        if "token" in file.name or file.suffix == ".jinja":
            shutil.copy(file, place)
    return place


@pytest.mark.parametrize("make", KINDS)
def test_other_kinds_of_models_are_refused(make: Any, tmp_path: Path) -> None:
    import torch

    folder = str(folder_of(make, tmp_path / "model"))
    for load in (load_config, lambda path: load_model(path, torch.float32)):
        with pytest.raises(BadInput, match=KINDS[make]) as caught:
            load(folder)
        assert len(str(caught.value)) < 300 + len(folder)


def test_causal_models_are_taken() -> None:
    assert load_config("tiny").model_type == json.loads((TINY / "config.json").read_text())["model_type"]


MODEL = "actor_rollout_ref.model.path=vl"
COMMANDS = [
    ["train", "needle", MODEL],
    ["train", "needle", MODEL, "--dry-run"],
    ["train", "needle", "roles.qa=frozen:vl", "--dry-run"],
    ["train", "needle", "algorithm.adv_estimator=gae", "critic.model.path=vl", "--dry-run"],
    ["sft", "needle", "sft.steps=1", MODEL],
    ["stages", "two_stage", MODEL],
    ["stages", "two_stage", MODEL, "--dry-run"],
    ["eval", "vl"],
    ["eval", "--model", "vl", "--data", "rows.jsonl"],
    ["eval", "--role", "memory=vl", "--role", "qa=vl"],
    ["ask", "vl", "What does mira hold?", "--document", "notes.txt"],
    ["serve", "--checkpoint", "vl", "--port", "0"],
    ["export", "vl", "--out", "plain"],
    ["rollout", "--domain", "math", "--tasks", "1", "--policy", "vl", "--out", "out.jsonl"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_refuses_it_in_one_line(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recollect.cli import app

    monkeypatch.chdir(tmp_path)
    folder_of(seeing, tmp_path / "vl")
    Path("notes.txt").write_text("mira holds 472.")
    row = {"question": "What does mira hold?", "context": "mira holds 472.", "answer": "472"}
    Path("rows.jsonl").write_text(json.dumps(row) + "\n")
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, BadInput), done.output
    assert "vl is a model that reads images (llava)" in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not Path("runs").exists() or not list(Path("runs").rglob("config.yaml")), "nothing was begun"
