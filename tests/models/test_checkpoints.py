"""A run or a checkpoint in the place of a model: which one is meant, and what is said where it is not whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from recollect.config.compose import compose
from recollect.models.checkpoints import find_checkpoint, pin_models, problem
from recollect.models.load import load_config, load_model, load_tokenizer
from recollect.runtime.console import Console
from recollect.training.train_run import TrainRun
from recollect.types import BadInput
from recollect.workflows.dry_run.dry_run import dry_run


def made(run: Path, model: Path, *names: str) -> Path:
    """A run directory with copies of a model under some names."""
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("{}\n")
    for name in names:
        shutil.copytree(model, run / name)
    return run


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def test_a_run_is_its_newest_whole_checkpoint(tmp_path: Path, small_model: Path) -> None:
    run = made(tmp_path / "run", small_model, "checkpoints/step-2", "checkpoints/step-10", "checkpoints/best")
    assert find_checkpoint(str(run)) == (str(run / "checkpoints" / "step-10"), run)
    assert find_checkpoint(str(run / "checkpoints"))[0].endswith("step-10")
    assert find_checkpoint(str(run / "checkpoints" / "best"))[0].endswith("best")
    cut(run / "checkpoints" / "step-10" / "model.safetensors")
    assert find_checkpoint(str(run))[0].endswith("step-2")
    with pytest.raises(BadInput, match=r"step-10 is not a whole checkpoint: model.safetensors is cut off"):
        find_checkpoint(str(run / "checkpoints" / "step-10"))
    assert problem(small_model) == ""


def test_supervised_runs_and_folders_of_runs(tmp_path: Path, small_model: Path) -> None:
    run = made(tmp_path / "sft", small_model, "checkpoints/sft-4", "model")
    assert find_checkpoint(str(run)) == (str(run / "model"), run)
    shutil.rmtree(run / "model")
    assert find_checkpoint(str(run))[0].endswith("sft-4")
    whole = tmp_path / "stages"
    made(whole / "1-memory", small_model, "checkpoints/step-1")
    made(whole / "2-qa", small_model, "checkpoints/step-1")
    assert find_checkpoint(str(whole / "2-qa"))[0].endswith("2-qa/checkpoints/step-1")
    with pytest.raises(BadInput, match=r"holds several runs; name one of them: 1-memory, 2-qa"):
        find_checkpoint(str(whole))


def test_runs_without_a_checkpoint_are_refused_in_one_line(tmp_path: Path, small_model: Path) -> None:
    run = made(tmp_path / "run", small_model)
    for _ in range(2):
        with pytest.raises(BadInput, match="a run without a checkpoint yet"):
            find_checkpoint(str(run))
        (run / "checkpoints").mkdir(exist_ok=True)
    (run / "checkpoints" / "step-1").mkdir()
    with pytest.raises(BadInput, match=r"step-1 is not whole: it has no config.json"):
        find_checkpoint(str(run))


def test_loaders_take_a_run(tmp_path: Path, small_model: Path) -> None:
    import torch

    run = str(made(tmp_path / "run", small_model, "checkpoints/step-1"))
    assert load_config(run).vocab_size == load_config(str(small_model)).vocab_size
    assert load_tokenizer(run).get_vocab() == load_tokenizer(str(small_model)).get_vocab()
    mine, theirs = (load_model(path, torch.float32).state_dict() for path in (run, str(small_model)))
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_settings_that_name_runs_are_pinned_and_it_is_said(tmp_path: Path, small_model: Path) -> None:
    run = made(tmp_path / "run", small_model, "checkpoints/step-3")
    found, said = str(run / "checkpoints" / "step-3"), []
    settings = [f"actor_rollout_ref.model.path={run}", f"roles.qa=frozen:{run}", "algorithm.adv_estimator=gae"]
    cfg = compose("needle", [*settings, f"critic.model.path={tmp_path / 'run' / 'checkpoints'}"])
    pin_models(cfg, said.append)
    assert cfg.actor_rollout_ref.model.path == cfg.agent.model_name_or_path == cfg.critic.model.path == found
    assert cfg.roles == {"qa": f"frozen:{found}"}
    assert [line.rpartition(" is ")[2] for line in said] == [found] * 3
    assert said[0].startswith("actor_rollout_ref.model.path=")
    again: list[str] = []
    pin_models(cfg, again.append)
    assert again == []


def test_training_starts_from_a_run_and_from_its_adapter(tmp_path: Path, small_model: Path) -> None:
    small = ["trainer.total_training_steps=1", "actor_rollout_ref.rollout.n=2", "trainer.device=cpu", "sft.steps=0"]
    small += ["data.train_batch_size=2", "data.val_max_samples=2", "evaluation.lengths=[1]", "evaluation.tasks=[2]"]
    start, last = f"actor_rollout_ref.model.path={small_model}", tmp_path / "one"
    for folder, rank in (("two", 2), ("three", 0)):
        cfg = compose("needle", [*small, start, f"trainer.default_local_dir={last}", f"{LORA}={rank or 0}"])
        assert TrainRun(cfg, Console(True)).fit()["steps"] == 1
        start, last = f"actor_rollout_ref.model.path={last}", tmp_path / folder
    cfg = compose("needle", [*small, start, f"trainer.default_local_dir={tmp_path / 'dry'}"])
    dry_run(cfg, Console(True))


LORA = "actor_rollout_ref.model.lora_rank"
