"""`--inference-gpus` and `--training-gpus` mean what they say where there are several GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect.config.compose import compose
from recollect.types import BadInput
from recollect.workflows.locomo.chosen_gpus import divided, gpus_of, with_gpus, write_arbor
from recollect.workflows.locomo.plan import LocomoPlan


def plan(inference: str | None, training: str | None, *settings: str, arbor: str | None = None) -> LocomoPlan:
    return LocomoPlan("train", inference_gpus=inference, training_gpus=training, settings=settings, arbor=arbor)


@pytest.mark.parametrize(
    ("inference", "training", "there", "sample", "train"),
    [
        ("0", "1,2", 4, [0], [1, 2]),  # the guide's
        ("0", "1", 2, [0], [1]),
        ("0", "0", 2, [0], [0]),
        ("0,3", "1,2", 4, [0, 3], [1, 2]),
        ("1", None, 4, [1], [0, 2, 3]),
        (None, "1,2", 4, [0], [1, 2]),
    ],
)
def test_they_become_settings(
    inference: str | None, training: str | None, there: int, sample: list[int], train: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("torch.cuda.device_count", lambda: there)
    said: list[str] = []
    cfg = compose("locomo", with_gpus(plan(inference, training), said.append).settings)
    assert (cfg.trainer.gpus, cfg.actor_rollout_ref.rollout.gpus) == (train, sample)
    assert cfg.trainer.n_gpus_per_node == len(train)
    assert said == [f"GPU {', '.join(map(str, sample))} samples, GPU {', '.join(map(str, train))} trains"]


def test_with_one_gpu_both_use_it_and_that_is_said_once() -> None:
    given = {"--inference-gpus": [0], "--training-gpus": [1, 2]}
    assert divided(given, 1) == ([], "this machine has one GPU: one device samples and trains")
    assert divided(given, 0) == ([], "this machine has no GPU: one device samples and trains")
    assert divided({}, 1) == ([], "")
    assert divided({}, 2)[0] == []
    assert "--training-gpus divide them" in divided({}, 2)[1]


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(BadInput, match="--training-gpus: there is no GPU 2; this machine has 2, 0 to 1"):
        divided({"--inference-gpus": [0], "--training-gpus": [1, 2]}, 2)
    with pytest.raises(BadInput, match="--inference-gpus names a GPU twice"):
        divided({"--inference-gpus": [0, 0]}, 2)
    with pytest.raises(BadInput, match="--inference-gpus a: give numbers"):
        gpus_of("a", "--inference-gpus")
    assert gpus_of("1, 2", "--x") == [1, 2]


def test_settings_of_the_user_come_last_and_a_server_has_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.chdir(tmp_path)
    words = with_gpus(plan("0", "1,2", "trainer.gpus=[3,2]"), lambda line: None).settings
    assert compose("locomo", words).trainer.gpus == [3, 2]
    there = plan("0", "1", arbor="http://127.0.0.1:7453")
    assert with_gpus(there, lambda line: None) == there
    write_arbor(there)
    assert Path("arbor.yaml").read_text() == "inference:\n  gpu_ids: '0'\n\ntraining:\n  gpu_ids: '1'\n"
