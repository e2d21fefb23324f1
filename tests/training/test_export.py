"""`recollect export`: a plain folder that computes what the checkpoint computes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from recollect.config import Optim
from recollect.models.export import export_model
from recollect.models.load import load_tokenizer
from recollect.training import checkpoint
from recollect.training.setup import build
from recollect.types import BadInput
from tests import commands
from tests.training.test_lora import config, updated

IDS = torch.arange(3, 60)[None]


def trained(folder: Path, path: str, *more: str) -> Path:
    """A run directory with two checkpoints, the later one different."""
    cfg = config(path, *more)
    parts = build(cfg, Optim(lr=1e-2), 10)
    for step in (1, 2):
        updated(parts.learner.trained)
        checkpoint.save(folder / "checkpoints", f"step-{step}", parts.learner, parts.renderer, {"step": step})
    return folder


def recollect(*args: str) -> subprocess.CompletedProcess[str]:
    return commands.run(*args)


def logits(folder: Path) -> torch.Tensor:
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(folder).eval()(IDS).logits


def test_an_exported_adapter_computes_what_peft_computes(tmp_path: Path, small_model: Path) -> None:
    import peft

    run = trained(tmp_path / "run", str(small_model))
    done = recollect("export", str(run), "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert "step-2" in done.stdout
    assert "merged" in done.stdout
    files = {p.name for p in (tmp_path / "out").iterdir()}
    assert {"config.json", "model.safetensors", "generation_config.json", "tokenizer.json"} <= files
    assert not any("adapter" in f for f in files)
    base = AutoModelForCausalLM.from_pretrained(small_model, dtype=torch.float32)
    with torch.no_grad():
        plain = base.eval()(IDS).logits
        expected = peft.PeftModel.from_pretrained(base, str(run / "checkpoints" / "step-2")).eval()(IDS).logits
    found = logits(tmp_path / "out")
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert (found - plain).abs().max() > 1e-3
    tokenizer, mine = AutoTokenizer.from_pretrained(tmp_path / "out"), load_tokenizer(str(small_model))
    messages = [{"role": "user", "content": "What does mira hold?"}]
    assert tokenizer.apply_chat_template(messages, tokenize=False) == mine.apply_chat_template(messages, tokenize=False)


@pytest.mark.parametrize("path", ["scratch_small", "tiny"])
def test_models_without_a_folder_of_their_own(tmp_path: Path, path: str) -> None:
    run = trained(tmp_path / "run", path)
    export_model(str(run / "checkpoints" / "step-1"), tmp_path / "one")
    export_model(str(run / "checkpoints" / "step-2"), tmp_path / "two")
    assert (logits(tmp_path / "one") - logits(tmp_path / "two")).abs().max() > 1e-4


def test_whole_weights_in_another_type(tmp_path: Path, small_model: Path) -> None:
    run = trained(tmp_path / "run", str(small_model), "actor_rollout_ref.model.lora_rank=0")
    source = run / "checkpoints" / "step-2"
    assert (source / "model.safetensors").is_file()
    said = export_model(str(source), tmp_path / "out", "bfloat16")
    assert "bfloat16" in said
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    expected = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    for (n, a), (_, b) in zip(found.named_parameters(), expected.named_parameters(), strict=True):
        assert a.dtype == torch.bfloat16
        assert torch.equal(a, b.bfloat16()), n


def test_nothing_is_overwritten(tmp_path: Path, small_model: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    done = recollect("export", str(small_model), "--out", str(out))
    assert done.returncode == 2
    assert "not empty" in done.stderr
    assert [p.name for p in out.iterdir()] == ["mine.txt"]
    file = tmp_path / "file"
    file.write_text("keep")
    with pytest.raises(BadInput, match="not empty"):
        export_model(str(small_model), file)
    assert file.read_text() == "keep"


def test_bad_input_is_refused_before_anything_is_written(tmp_path: Path, small_model: Path) -> None:
    for args in ((str(tmp_path / "nowhere"), "float32"), (str(small_model), "int3")):
        done = recollect("export", args[0], "--out", str(tmp_path / "out"), "--dtype", args[1])
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()
