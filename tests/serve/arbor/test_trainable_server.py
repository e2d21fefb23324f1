"""A server that clients train, asked as the clients of DSPy ask."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from recollect.models.checkpoints import find_checkpoint
from recollect.runs.directory import RunDirectory
from tests.serve.arbor.arbor_client import Arbor, asking, flat, nested, rewarded
from tests.waiting import LONG, until


@pytest.fixture(scope="module")
def arbor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arbor]:
    made = Arbor(tmp_path_factory.mktemp("jobs"))
    yield made
    made.stop()


def roll(arbor: Arbor, job: str, texts: list[str], n: int = 4) -> dict[str, list[str]]:
    """Rollouts as DSPy makes them, one request for each."""
    return {text: [arbor.chat(job, text)[0] for _ in range(n)] for text in texts}


def group(text: str, said: list[str]) -> list[dict[str, Any]]:
    return [rewarded(asking(text), t, float(i % 2)) for i, t in enumerate(said)]


def test_a_round_trains_what_was_sampled(arbor: Arbor) -> None:
    first = arbor.grpo("initialize", nested())
    job = first["job_id"]
    assert first["current_model"] == job
    assert job.startswith("grpo:tiny:")
    arbor.chat(job, "validation", n=6)
    assert arbor.pending(job)
    said = roll(arbor, job, ["a", "b"])
    ids = arbor.pending(job)
    assert len(ids) == 2
    arbor.chat(job, "validation", n=6)  # the client validates before it posts
    answer = arbor.step(job, ids[0], group("a", said["a"]))
    assert answer["pending_batch_ids"] == [ids[1]]
    assert answer["step"] == 0
    done = arbor.step(job, ids[1], group("b", said["b"]), metrics={"validation_score": 0.5, "format_failures": 1})
    assert done["step"] == 1
    assert done["fidelity"]["fidelity"] == 1
    assert done["fidelity"]["completions"] == {"matched": 8}
    assert not set(arbor.pending(job)) & set(ids), "a filled id is never pending again"
    rows = RunDirectory(Path(done["folder"])).metrics()
    assert {"client/validation_score", "client/format_failures"} <= {key for row in rows for key in row}
    (stored,) = (Path(done["folder"]) / "trajectories").iterdir()
    assert stored.name.startswith("step-000001")


def test_every_reward_goes_to_the_ids_that_earned_it(arbor: Arbor) -> None:
    """What the job stores of a step is what it trained: ids that decode to the text, with the text's reward."""
    job = arbor.begin(nested(generations=8))
    assert arbor.pending(job)
    said = [arbor.chat(job, "Question:", max_tokens=8, temperature=1.0)[0] for _ in range(8)]
    rewards = {text: float(i) for i, text in enumerate(dict.fromkeys(said))}
    batch = [rewarded(asking("Question:"), text, rewards[text]) for text in said]
    random.Random(1).shuffle(batch)
    batch[0] = rewarded(asking("Question:"), "an edited text", 99.0)  # this one does not come back
    loaded = arbor.server.job
    assert loaded is not None
    done = arbor.step(job, arbor.pending(job)[0], batch)
    sampled = {row.completion.ids for row in loaded.store.rows}
    rows = list(RunDirectory(Path(done["folder"])).trajectories())
    assert rows
    for row in rows:
        (turn,) = row["turns"]
        ids, text = tuple(turn["ids"]), loaded.renderer.decode(turn["ids"])
        assert (ids in sampled) == (row["reward"] != 99.0)
        assert row["reward"] == (rewards[text] if ids in sampled else 99.0)
    assert done["fidelity"]["completions"]["tokenised"] == 1


def test_three_rounds_and_a_final_model(arbor: Arbor) -> None:
    job = arbor.begin()
    for _ in range(3):
        assert len(arbor.pending(job)) >= 1
        said = roll(arbor, job, ["a"])
        (number,) = arbor.pending(job)
        arbor.step(job, number, group("a", said["a"]))
    done = arbor.grpo("terminate", {"job_id": job})
    assert (done["status"], done["current_model"], done["step"]) == ("succeeded", job, 3)
    assert done["pending_batch_ids"] == []
    assert find_checkpoint(done["folder"])[0].endswith("step-3")
    assert arbor.chat(job, "a"), "the trained model is served on"
    assert arbor.step(job, None, group("a", ["x"] * 4), 409)["error"]["param"] == "job_id"
    assert arbor.grpo("terminate", {"job_id": job})["status"] == "succeeded"
    before = arbor.chat("tiny", "Question:", temperature=0, max_tokens=20)
    assert arbor.chat("tiny", "Question:", temperature=0, max_tokens=20) == before, "the base is served again"
    assert arbor.chat(job, "a"), "and the job"


def test_older_clients_ask_for_no_status_and_name_no_batch(arbor: Arbor) -> None:
    answer = arbor.grpo("initialize", flat())
    assert ":mine-" in answer["job_id"]
    assert "update_interval" in answer["settings_without_effect"]
    job = answer["job_id"]
    for step in (1, 2):
        said = roll(arbor, job, ["a"])
        body = {"model": f"arbor:{job}", "update_inference_model": True, "batch": group("a", said["a"])}
        done = arbor.grpo("step", body)
        assert done["step"] == step
        assert done["fidelity"]["fidelity"] == 1
    assert arbor.grpo("update_model", {"model": job})["current_model"] == job
    assert arbor.grpo("terminate", {"job_id": job})["status"] == "succeeded"


def test_lora_trains_an_adapter(arbor: Arbor) -> None:
    pytest.importorskip("peft")
    lora = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "lora_dropout": 0.0}
    job = arbor.begin(nested(lora_config=lora, beta=0.04))
    said = roll(arbor, job, ["a"])
    arbor.step(job, arbor.pending(job)[0], group("a", said["a"]))
    done = arbor.grpo("checkpoint", {"job_id": job, "checkpoint_name": "best", "metadata": {"score": 0.5}})
    kept = done["checkpoints"]["best"]
    assert done["last_checkpoint"] == "best"
    assert kept["metadata"] == {"score": 0.5}
    assert (Path(kept["checkpoint_dir"]) / "adapter_config.json").is_file()
    arbor.grpo("cancel", {"job_id": job})


def test_a_new_job_ends_the_one_before_and_goes_on_from_one(arbor: Arbor) -> None:
    one = arbor.begin()
    trained = arbor.step(one, None, group("a", ["x", "y", "z", "w"]))
    two = arbor.begin(nested(model=one))
    assert two != one
    ended = arbor.grpo("status", {"job_id": one})  # all that was known of it while it was open
    assert ended == {**trained, "status": "cancelled", "pending_batch_ids": []}
    assert ended["step"] == 1
    assert ended["fidelity"]["completions"] == {"tokenised": 4}
    answer = arbor.step(one, None, group("a", ["x"] * 4), 409)
    assert f"{two} began" in answer["error"]["message"]
    assert arbor.grpo("cancel", {"job_id": two})["status"] == "cancelled"


WRONG: dict[str, tuple[Any, str]] = {
    "nothing": ({}, "batch"),
    "no list": ({"batch": "x"}, "batch"),
    "ragged": ({"batch": group("a", ["x"] * 3)}, "num_generations=4"),
    "no reward": ({"batch": [{**row, "reward": None} for row in group("a", ["x"] * 4)]}, "reward"),
    "an endless reward": ({"batch": [{**row, "reward": 1e999} for row in group("a", ["x"] * 4)]}, "reward"),
    "no messages": ({"batch": [{**row, "messages": []} for row in group("a", ["x"] * 4)]}, "messages"),
    "no completion": ({"batch": [{**row, "completion": None} for row in group("a", ["x"] * 4)]}, "completion"),
    "a strange role": ({"batch": [{**r, "messages": [{"role": "x"}]} for r in group("a", ["x"] * 4)]}, "role"),
    "an id of no kind": ({"batch": group("a", ["x"] * 4), "batch_id": "1"}, "batch_id"),
    "an id that is not pending": ({"batch": group("a", ["x"] * 4), "batch_id": 77}, "batch_id"),
    "metrics of no kind": ({"batch": group("a", ["x"] * 4), "metrics": [1]}, "metrics"),
}


def test_bad_steps_are_refused_and_the_job_survives(arbor: Arbor) -> None:
    job = arbor.begin()
    assert arbor.pending(job)
    for name, (body, word) in WRONG.items():
        raw = json.dumps({"job_id": job, **body})
        answer = httpx.post(f"{arbor.url}/fine_tuning/grpo/step", content=raw, timeout=LONG)
        assert answer.status_code == 400, name
        assert word in answer.json()["error"]["message"], name
    for route in ("status", "step", "checkpoint", "cancel", "terminate"):
        assert "no job" in arbor.grpo(route, {"job_id": "grpo:none", "batch": []}, 404)["error"]["message"]
    assert arbor.grpo("status", {"job_id": 7}, 400)["error"]["param"] == "job_id"
    for name in (None, "", "../x", "step-1", "a/b", "x" * 200, 7):
        arbor.grpo("checkpoint", {"job_id": job, "checkpoint_name": name}, 400)
    said = roll(arbor, job, ["a"])
    assert arbor.step(job, arbor.pending(job)[0], group("a", said["a"]))["step"] == 1


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({}, 400, "model"),
        ({"model": "tiny"}, 400, "num_generations"),
        (nested(generations=1), 400, "num_generations"),
        (nested(num_generations="4"), 400, "num_generations"),
        (nested(surprise=1), 400, "surprise"),
        (nested() | {"surprise": 1}, 400, "surprise"),
        (nested(learning_rate=-1), 400, "learning_rate"),
        (nested(lr_scheduler_type="polynomial"), 400, "lr_scheduler_type"),
        (nested(loss_type="other"), 400, "loss_type"),
        (nested(temperature=0), 400, "temperature"),
        (nested(lora_config={"rank": 4}), 400, "lora_config"),
        (nested(soft_completion_penalty_length=10), 400, "max_completion_length"),
        (nested(model="no/such"), 404, "no/such"),
        (nested() | {"trainer_config": [1]}, 400, "trainer_config"),
        (nested() | {"inference_config": [1]}, 400, "inference_config"),
    ],
)
def test_bad_jobs_are_refused_and_the_open_one_goes_on(arbor: Arbor, body: Any, status: int, word: str) -> None:
    loaded = arbor.server.job
    job = loaded.record.id if loaded is not None and loaded.record.status == "running" else arbor.begin()
    assert word in arbor.grpo("initialize", body, status)["error"]["message"]
    assert arbor.grpo("status", {"job_id": job})["status"] == "running"


def test_what_a_client_sends_again_is_taken_once(arbor: Arbor) -> None:
    job = arbor.begin()
    assert arbor.pending(job)
    said = roll(arbor, job, ["a"])
    (number,) = arbor.pending(job)
    for _ in range(2):
        assert arbor.step(job, number, group("a", said["a"]))["step"] == 1
    assert "another group" in arbor.step(job, number, group("a", ["other"] * 4), 409)["error"]["message"]


def test_names_that_cannot_be_served(arbor: Arbor) -> None:
    job = arbor.begin()
    body = {"messages": asking("a"), "max_tokens": 2}
    assert "no model" in arbor.post("chat/completions", body | {"model": "arbor:other"}, 404)["error"]["message"]
    assert job in arbor.post("chat/completions", body | {"model": "arbor:tiny"}, 409)["error"]["message"]
    assert arbor.post("chat/kill", {}, 409)
    arbor.grpo("cancel", {"job_id": job})
    assert arbor.post("chat/kill", {})
    assert arbor.post("chat/launch", {"model": "tiny", "launch_kwargs": {}})
    assert arbor.chat("tiny", "a")
    listed = httpx.get(f"{arbor.url}/models", timeout=LONG).json()["data"]
    assert {"tiny", job} <= {row["id"] for row in listed}


def test_who_asks_during_an_update_waits_for_it(arbor: Arbor, monkeypatch: pytest.MonkeyPatch) -> None:
    job = arbor.begin()
    assert arbor.pending(job)
    said = roll(arbor, job, ["a"])
    (number,) = arbor.pending(job)
    begun, go_on = threading.Event(), threading.Event()
    loaded = arbor.server.job
    assert loaded is not None
    real = loaded.rl.step

    def slow() -> Any:
        begun.set()
        assert go_on.wait(LONG)
        return real()

    monkeypatch.setattr(loaded.rl, "step", slow)
    posting = threading.Thread(target=arbor.step, args=(job, number, group("a", said["a"])))
    posting.start()
    assert begun.wait(LONG)
    busy = arbor.grpo("status", {"job_id": job})
    assert (busy["status"], busy["pending_batch_ids"]) == ("training", [])
    got: list[str] = []
    asking_ = threading.Thread(target=lambda: got.extend(arbor.chat(job, "a")))
    asking_.start()
    assert not until(lambda: bool(got), 0.3)
    go_on.set()
    posting.join(LONG)
    asking_.join(LONG)
    assert got
    assert loaded.store.rows[-1].completion.version == 1


def test_an_update_that_fails_is_an_error_and_the_job_survives(arbor: Arbor, monkeypatch: pytest.MonkeyPatch) -> None:
    job = arbor.begin()
    assert arbor.pending(job)
    said = roll(arbor, job, ["a"])
    (number,) = arbor.pending(job)
    loaded = arbor.server.job
    assert loaded is not None
    with monkeypatch.context() as broken:
        broken.setattr(loaded.rl, "step", lambda: 1 / 0)
        assert "ZeroDivision" in arbor.step(job, number, group("a", said["a"]), 500)["error"]["message"]
    (fresh,) = arbor.pending(job)
    assert fresh > number
    said = roll(arbor, job, ["a"])
    assert arbor.step(job, arbor.pending(job)[0], group("a", said["a"]))["step"] == 1


def test_completions_of_other_temperatures_and_edited_ones(arbor: Arbor) -> None:
    job = arbor.begin()
    assert arbor.pending(job)
    said = [*arbor.chat(job, "a", n=2), *arbor.chat(job, "a", temperature=0.0), "never said here"]
    done = arbor.step(job, arbor.pending(job)[0], group("a", said))
    counts = done["fidelity"]["completions"]
    assert counts["tokenised"] == 1
    assert counts.get("other_temperature", 0) + counts.get("ambiguous", 0) + counts.get("repeated", 0) >= 1
    assert 0 < done["fidelity"]["fidelity"] < 1
    assert any("tokenised" in text for text in arbor.warned)


def test_a_round_that_is_left_out_is_said(arbor: Arbor) -> None:
    job = arbor.begin(nested(max_prompt_length=2))
    said = roll(arbor, job, ["a"])
    done = arbor.step(job, arbor.pending(job)[0], group("a", said["a"]))
    assert (done["step"], done["fidelity"]["completions"]) == (0, {"too_long": 4})
    assert arbor.warned[-1] == f"{job}: completions of round 0 were left out: 4 too_long"


def test_completions_that_follow_a_schema_are_trained_as_they_were_sampled(arbor: Arbor) -> None:
    pytest.importorskip("llguidance")
    number = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}}
    schema = {**number, "required": ["a"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "number", "schema": schema}}
    job = arbor.begin()
    assert arbor.pending(job)
    said = [arbor.chat(job, "a", response_format=form, max_tokens=40)[0] for _ in range(4)]
    values = [json.loads(text)["a"] for text in said]
    (number_of_group,) = arbor.pending(job)
    batch = [rewarded(asking("a"), text, float(value % 2)) for text, value in zip(said, values, strict=True)]
    done = arbor.step(job, number_of_group, batch)
    assert done["fidelity"]["fidelity"] == 1
    assert set(done["fidelity"]["completions"]) <= {"matched", "repeated"}


def test_a_killed_server_goes_on_where_it_was(tmp_path: Path) -> None:
    one = Arbor(tmp_path)
    job = one.begin(nested(beta=0.1))
    assert one.pending(job)
    said = roll(one, job, ["a"])
    one.step(job, one.pending(job)[0], group("a", said["a"]))
    assert one.pending(job)
    said = roll(one, job, ["a", "b"])
    numbers = one.pending(job)
    assert len(numbers) == 2
    one.step(job, numbers[0], group("a", said["a"]))
    one.stop()  # with a round half posted

    two = Arbor(tmp_path)
    try:
        answer = two.grpo("status", {"job_id": job})
        assert answer["step"] == 1
        assert answer["pending_batch_ids"] == [numbers[1]]
        done = two.step(job, numbers[1], group("b", said["b"]))
        assert done["step"] == 2
        assert done["fidelity"]["completions"] == {"matched": 12}
        assert done["fidelity"]["fidelity"] == 1
    finally:
        two.stop()


def test_a_server_without_a_model_takes_those_that_clients_name(tmp_path: Path) -> None:
    server = Arbor(tmp_path, only=None)
    try:
        assert httpx.get(f"{server.url}/models", timeout=LONG).json()["data"] == []
        assert server.post("chat/completions", {"messages": asking("a")}, 400)["error"]["param"] == "model"
        assert server.chat("tiny", "a")
        job = server.begin()
        assert server.chat(job, "a")
    finally:
        server.stop()


def test_training_through_the_server_raises_the_reward(tmp_path: Path) -> None:
    """The reward asks for short answers; a policy learns that in some rounds."""
    server = Arbor(tmp_path)
    rng = random.Random(0)
    try:
        job = server.begin(nested(generations=8, learning_rate=2e-3))
        means = []
        for _ in range(12):
            assert server.pending(job)
            text = f"Question: {rng.random()}"
            said = server.chat(job, text, n=8, max_tokens=12)
            rewards = [-len(t) / 10 for t in said]
            means.append(sum(rewards) / 8)
            batch = [rewarded(asking(text), t, r) for t, r in zip(said, rewards, strict=True)]
            rng.shuffle(batch)
            done = server.step(job, server.pending(job)[0], batch)
        assert sum(means[-4:]) > sum(means[:4])
        assert done["fidelity"]["matched_tokens"] == done["fidelity"]["trained_tokens"] > 0
    finally:
        server.stop()
