"""Which GPU trains and which samples, on machines with several of them (here their number is made up)."""

from __future__ import annotations

from typing import Any

import pytest

from recollect.config.compose import compose
from recollect.dist.place import RankPlace, meet
from recollect.models.gpu_plan import GpuPlan, gpu_plan, take_gpu
from recollect.samplers.fleet.make_fleet import devices, server_count
from recollect.training.learner.ranks.place_of import place_of
from recollect.types import BadInput
from recollect.workflows.dry_run.predict import Need
from recollect.workflows.dry_run.ranks_layout import ranks_layout

ROLLOUT = "actor_rollout_ref.rollout"
VLLM = [f"{ROLLOUT}.name=vllm", f"{ROLLOUT}.server_python=/opt/vllm/bin/python"]


@pytest.fixture(autouse=True)
def four(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A machine with four GPUs; returns those that a process was put on."""
    taken: list[int] = []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.setattr("torch.cuda.set_device", taken.append)
    return taken


def made(train: str = "[]", sample: str = "[]", ranks: int = 1, *more: str) -> Any:
    settings = [f"trainer.gpus={train}", f"{ROLLOUT}.gpus={sample}", f"trainer.n_gpus_per_node={ranks}"]
    return compose("needle", [*settings, "trainer.device=auto", *more])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("[]", "[]", 1), GpuPlan((0,), (), 0)),
        (("[2]", "[]", 1), GpuPlan((2,), (), 2)),
        (("[]", "[]", 2), GpuPlan((0, 1), (), 0)),
        (("[1,2]", "[0]", 2), GpuPlan((1, 2), (0,), 0)),
        (("[2,1]", "[1]", 2), GpuPlan((2, 1), (1,), 1)),
        (("[3]", "[0]", 1), GpuPlan((3,), (0,), 0, apart=True)),
        (("[3]", "[3]", 1), GpuPlan((3,), (3,), 3)),
        (("[1,2]", "[0,3]", 2, *VLLM), GpuPlan((1, 2), (0, 3), 1)),
        (("[3]", "[0]", 1, *VLLM), GpuPlan((3,), (0,), 3)),
    ],
)
def test_who_has_which(words: tuple[Any, ...], expected: GpuPlan, four: list[int]) -> None:
    cfg = made(*words)
    assert gpu_plan(cfg) == expected
    take_gpu(cfg)
    assert four == ([] if words[:2] == ("[]", "[]") else [expected.driver])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("[1,4]", "[]", 2), r"trainer.gpus=\[1, 4\]: there is no GPU 4; this machine has 4 GPUs, 0 to 3"),
        (("[]", "[9]", 1), r"rollout.gpus=\[9\]: there is no GPU 9"),
        (("[1,1]", "[]", 2), r"trainer.gpus=\[1, 1\] names a GPU twice"),
        (("[1,2]", "[]", 1), "n_gpus_per_node=1 is another number; set it to 2"),
        (("[]", "[0,3]", 1), "the engine samples on one GPU"),
        (("[]", "[]", 5), "n_gpus_per_node=5: this machine has 4 GPUs"),
        (("[]", "[0]", 1, VLLM[0], f"{ROLLOUT}.server_addresses=[http://10.0.0.5:1]"), "servers that the run starts"),
        (("[0]", "[]", 1, "trainer.device=cpu"), r"trainer.gpus=\[0\]: this run computes on the CPU"),
    ],
)
def test_what_is_not_there_is_one_line(words: tuple[Any, ...], message: str) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        gpu_plan(made(*words))
    assert "\n" not in str(refused.value)


def test_ranks_are_put_on_the_gpus_that_train(monkeypatch: pytest.MonkeyPatch, four: list[int]) -> None:
    monkeypatch.setattr("torch.distributed.init_process_group", lambda *args, **more: None)
    monkeypatch.setattr("torch.distributed.FileStore", lambda *args: None)
    monkeypatch.setattr("torch.set_num_threads", lambda number: None)
    place = place_of(made("[3,1]", "[0]", 2))
    assert isinstance(place, RankPlace)
    for rank in range(2):
        meet(RankPlace(**{**vars(place), "rank": rank, "local": rank, "meeting": "file"}))
    assert four == [3, 1]


def test_one_gpu_that_trains_beside_another_that_samples_is_a_rank_of_its_own() -> None:
    place = place_of(made("[3]", "[0]", 1))
    assert place is not None
    assert (place.size, place.gpu, place.device) == (1, 3, "cuda")
    assert place_of(made("[3]", "[3]", 1)) is None
    assert place_of(made("[3]", "[0]", 1, *VLLM)) is None  # servers sample: this process trains on its GPU


def test_servers_get_the_gpus_that_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = made("[1,2]", "[0,3]", 2, *VLLM)
    assert server_count(cfg) == 2
    assert [devices(cfg, number, 2) for number in range(2)] == [("0",), ("3",)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert [devices(cfg, number, 2) for number in range(2)] == [("4",), ("7",)]
    pair = made("[1,2]", "[0,3]", 2, *VLLM, f"{ROLLOUT}.tensor_model_parallel_size=2")
    assert server_count(pair) == 1
    assert devices(pair, 0, 1) == ("4", "7")
    free = made("[1,2]", "[]", 2, *VLLM)
    assert [devices(free, number, 2) for number in range(2)] == [("4",), ("7",)]
    more = made("[1,2]", "[0]", 2, *VLLM, f"{ROLLOUT}.tensor_model_parallel_size=2")
    with pytest.raises(BadInput, match=r"tensor_model_parallel_size=2: .*gpus names 1"):
        devices(more, 0, 1)


def test_the_dry_run_names_them() -> None:
    needs = [Need("actor", "tiny", 400), Need("rollout", "tiny", 200)]
    layout = ranks_layout(made("[1,2]", "[0]", 2), needs)
    assert layout is not None
    assert [row[1] for row in layout.rows(str)] == ["GPU 1, 2", "this process"]
    assert layout.rows(str)[-1][2] == "samples on GPU 0"
    assert layout.total == 200  # no GPU has both
    shared = ranks_layout(made("[0,1]", "[0]", 2), needs)
    assert shared is not None
    assert shared.total == 400
