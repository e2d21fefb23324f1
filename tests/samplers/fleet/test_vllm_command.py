"""The command line of a server, where it runs, and where requests go."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from recollect.config.compose import compose
from recollect.samplers.fleet import make_fleet as fleet_making
from recollect.samplers.fleet.balance import Balance
from recollect.samplers.fleet.make_fleet import devices, fleet_plan
from recollect.samplers.fleet.vllm_client import ServerFailed, parameters, sampled
from recollect.samplers.fleet.vllm_command import command, environment, logprobs_mode
from recollect.types import BadInput, Sampling

ROLLOUT = "actor_rollout_ref.rollout"
VLLM = [f"{ROLLOUT}.name=vllm", f"{ROLLOUT}.server_python=/opt/vllm/bin/python", "trainer.device=cpu"]


def test_settings_become_options(tmp_path: Path) -> None:
    more = [
        f"{ROLLOUT}.max_num_seqs=7",
        f"{ROLLOUT}.num_servers=2",
        f"{ROLLOUT}.enforce_eager=True",
        f"{ROLLOUT}.seed=3",
    ]
    place = [f"trainer.default_local_dir={tmp_path}/run", "agent.max_context_length=700", f"{ROLLOUT}.dtype=float32"]
    plan = fleet_plan(compose(None, [*VLLM, *more, *place, f"{ROLLOUT}.prefix_cache_tokens=0"]), "tiny")
    assert (plan.count, plan.window, plan.logprobs) == (2, 700, "processed_logprobs")
    line = command(plan.servers[0], "127.0.0.1", 4321)
    pairs = dict(pairwise(line))
    assert line[:3] == ["/opt/vllm/bin/python", "-m", "vllm.entrypoints.openai.api_server"]
    expected = {"--host": "127.0.0.1", "--port": "4321", "--max-num-seqs": "7", "--max-model-len": "700"}
    assert expected.items() <= pairs.items()
    assert {"--enforce-eager", "--no-enable-prefix-caching", "--kv-cache-memory-bytes"} <= {*line}
    assert not (tmp_path / "run").exists()
    given = {"PYTHONPATH": "mine", "PYTHONHOME": "mine", "HOME": "/h"}
    found = environment(plan.servers[0], "127.0.0.1", given)
    assert (found["HOME"], found["VLLM_SERVER_DEV_MODE"], "PYTHONHOME" in found) == ("/h", "1", False)
    assert (Path(found["PYTHONPATH"]) / "recollect_vllm.py").is_file()
    assert found["OMP_NUM_THREADS"] == str(max(1, (os.cpu_count() or 1) // 2))


def test_the_storage_of_two_runs_of_one_name_is_apart(tmp_path: Path) -> None:
    shared = f"{ROLLOUT}.server_storage={tmp_path}/shared"
    plans = [
        fleet_plan(compose(None, [*VLLM, shared, f"trainer.default_local_dir={tmp_path}/{i}/run"]), "tiny")
        for i in (1, 2)
    ]
    assert plans[0].storage != plans[1].storage
    assert {plan.storage.parent for plan in plans} == {tmp_path / "shared"}


@pytest.mark.parametrize(
    ("visible", "size", "learner", "count", "expected"),
    [
        ("", 1, 1, 1, [("0",)]),  # one GPU, which the learner has too
        ("4,5", 1, 1, 1, [("5",)]),
        ("0,1,2,3", 2, 1, 1, [("1", "2")]),
        ("0,1,2,3", 2, 4, 2, [("0", "1"), ("2", "3")]),
        ("0,1,2,3", 1, 2, 2, [("2",), ("3",)]),
    ],
)
def test_servers_take_the_gpus_that_the_learner_leaves_free(
    visible: str, size: int, learner: int, count: int, expected: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(fleet_making.torch.cuda, "device_count", lambda: 1)
    cfg = compose(None, [*VLLM, f"{ROLLOUT}.tensor_model_parallel_size={size}"])
    cfg.trainer.n_gpus_per_node = learner
    assert [devices(cfg, number, count) for number in range(count)] == expected
    cfg.actor_rollout_ref.rollout.tensor_model_parallel_size = 8
    with pytest.raises(BadInput, match="tensor_model_parallel_size=8: there are"):
        devices(cfg, 0, 1)


@pytest.mark.parametrize(
    ("visible", "learner", "asked", "sleep"),
    [("0", 1, True, [True]), ("0", 1, False, [False]), ("4,5", 1, True, [False]), ("0,1,2", 2, True, [True, True])],
)
def test_servers_on_the_learners_gpus_sleep(
    visible: str, learner: int, asked: bool, sleep: list[bool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(fleet_making, "pick_device", lambda name: "cuda")
    more = [f"{ROLLOUT}.free_cache_engine={asked}", f"{ROLLOUT}.num_servers={len(sleep)}"]
    cfg = compose(None, [*VLLM, *more, f"{ROLLOUT}.dtype=float32", f"trainer.default_local_dir={tmp_path}"])
    cfg.trainer.n_gpus_per_node = learner
    plan = fleet_plan(cfg, "tiny")
    assert [server.sleeps for server in plan.servers] == sleep
    assert ["--enable-sleep-mode" in command(server, "127.0.0.1", 1) for server in plan.servers] == sleep
    cfg.actor_rollout_ref.rollout.weight_sync = "broadcast"
    if visible != "4,5":  # a GPU of its own
        with pytest.raises(BadInput, match="NCCL has one process on a GPU, and these servers share the learner's"):
            fleet_plan(cfg, "tiny")
    cfg.actor_rollout_ref.rollout.weight_sync = "files"
    cfg.trainer.max_staleness = 1  # they sample while the learner updates
    assert not any(server.sleeps for server in fleet_plan(cfg, "tiny").servers)


def test_servers_that_would_not_fit_one_gpu_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(fleet_making, "pick_device", lambda name: "cuda")

    def plan(count: int, share: float, *more: str) -> int:
        asked = [f"{ROLLOUT}.num_servers={count}", f"{ROLLOUT}.gpu_memory_utilization={share}", *more]
        return fleet_plan(compose(None, [*VLLM, *asked, f"trainer.default_local_dir={tmp_path}"]), "tiny").count

    apart = [f"{ROLLOUT}.nnodes=2", f"{ROLLOUT}.n_gpus_per_node=2"]
    assert [plan(2, 0.9), plan(4, 0.5), plan(4, 0.9, *apart)] == [2, 4, 4]
    for count, more in ((3, []), (5, apart)):
        with pytest.raises(BadInput, match=r"2 vLLM servers would be on one GPU, each with .*utilization=0.9 of its"):
            plan(count, 0.9, *more)


def test_how_to_sample_in_vllms_words() -> None:
    asked = Sampling(0.7, 1.0, -1, 9, ("end",), (1, 2), seed=4, key="a/b/0/0")
    found = parameters(asked)
    assert (found["seed"], found["top_k"], found["stop_token_ids"]) == (asked.noise_seed, 0, [1, 2])
    assert (found["detokenize"], parameters(Sampling())["detokenize"]) == (True, False)
    assert [logprobs_mode(Sampling(top_p=p)) for p in (1.0, 0.9)] == ["processed_logprobs", "raw_logprobs"]


def answer(**changes: object) -> dict[str, object]:
    logprobs = {"content": [{"logprob": -1.0}, {"logprob": -2.0}]}
    spans = [{"version": "3-ab", "start": 0, "end": 2}]
    choice = {"token_ids": [5, 6], "logprobs": logprobs, "weight_versions": spans, "finish_reason": "stop"}
    return {"choices": [choice | changes]}


def test_only_whole_completions_of_one_version_are_taken() -> None:
    assert sampled(answer(), "3-ab", 2).ids == (5, 6)
    two = [{"version": "2-aa", "start": 0, "end": 1}, {"version": "3-ab", "start": 1, "end": 2}]
    wrong: list[dict[str, object]] = [
        {"weight_versions": None},
        {"weight_versions": two},
        {"weight_versions": [{"version": "3-ab", "start": 0, "end": 1}]},
        {"token_ids": [5]},
        {"token_ids": []},
        {"token_ids": [5, "6"]},
        {"logprobs": None},
        {"logprobs": {"content": [{"logprob": -1.0}, {"logprob": float("nan")}]}},
        {"logprobs": {"content": [{"logprob": -1.0}, {"logprob": 0.5}]}},
        {"logprobs": {"content": [{"logprob": -1.0}, {"logprob": "-2"}]}},
        {"logprobs": {"content": [{"logprob": -1.0}] * 3}},
        {"finish_reason": "abort"},
    ]
    for change in wrong:
        with pytest.raises(ServerFailed):
            sampled(answer(**change), "3-ab", 2)
    with pytest.raises(ServerFailed, match="it gave 2 tokens, and 1 were asked for"):
        sampled(answer(), "3-ab", 1)
    with pytest.raises(ServerFailed, match="it sampled with 3-ab, not with 4-cd"):
        sampled(answer(), "4-cd", 2)
    with pytest.raises(ServerFailed):
        sampled({}, "3-ab", 2)


def test_attempts_stay_and_tasks_share_a_server_with_free_rows() -> None:
    load = {"a": 0, "b": 0}
    balance: Balance[str] = Balance(lambda name: load[name], rows=2)
    first = balance.choose("s/t0/0/0", ["a", "b"])
    load[first] += 1
    assert balance.choose("s/t0/1/0", ["a", "b"]) == first
    other = balance.choose("s/t1/0/0", ["a", "b"])
    assert other != first
    load[first] = 2
    assert balance.choose("s/t0/2/0", ["a", "b"]) == other  # no row is free
    assert balance.choose("s/t0/0/1", ["a", "b"]) == first
    assert balance.choose("s/t0/0/2", [other]) == other  # the first is gone
    balance.forget()
    assert balance.attempts == {}
