"""Training with roles that are not trained: frozen models, endpoints, servers of our own."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from recollect.config.compose import compose
from recollect.models.weights_digest import weights_digest
from recollect.policies.endpoint import EndpointGone
from recollect.runs.directory import RunDirectory
from recollect.runtime.console import Console
from recollect.tasks.needle import expert
from recollect.training.train_run import TrainRun
from recollect.trajectories.codec import decode
from recollect.trajectories.stored_rows import read_trajectories
from recollect.types import BadInput
from recollect.workflows.dry_run.dry_run import dry_run
from tests.policies.outside import Outside, running

SHORT = [
    *("trainer.total_training_steps=3", "trainer.save_freq=1", "trainer.val_before_train=False", "trainer.threads=1"),
    *("data.train_batch_size=3", "actor_rollout_ref.rollout.n=4", "data.needle.chunks=2", "data.needle.start_chunks=2"),
    *("evaluation.lengths=[1]", "evaluation.tasks=[4]", "data.val_max_samples=4", "trainer.device=cpu"),
]


def fit(folder: Path, *settings: str) -> tuple[TrainRun, dict[str, Any]]:
    cfg = compose(None, [*SHORT, f"trainer.default_local_dir={folder}", *settings])
    work = TrainRun(cfg, Console(quiet=True))
    return work, work.fit()


def weights(folder: Path) -> str:
    newest = max((folder / "checkpoints").glob("step-*"), key=lambda p: int(p.name[5:]))
    return hashlib.sha256((newest / "model.safetensors").read_bytes()).hexdigest()


def answers(body: dict[str, Any]) -> str:
    """The expert's answer to a question that came as one user message."""
    (message,) = body["messages"]
    assert message["role"] == "user"
    assert "<|" not in message["content"], "a prompt that was rendered before it was sent"
    assert re.match(r"Question: What does \w+ hold\?\n", message["content"])
    return expert(message["content"])


def test_a_frozen_role_is_not_trained(tmp_path: Path) -> None:
    work, report = fit(tmp_path / "run", "roles.qa=frozen:tiny", "roles.memory=trainable")
    fixed = report["fixed_roles"]["qa"]
    assert fixed["before"] == fixed["after"]
    assert fixed["after"] != weights_digest(work.policy.sampler.model)  # the trained role has moved away from it
    assert report["fidelity"] == 1.0
    rows = work.run.metrics()
    trained = sum(r["tokens/memory/trained"] for r in rows if "reward/mean" in r)
    untrained = sum(r["tokens/qa/untrained"] for r in rows if "reward/mean" in r)
    assert (trained, untrained) == (report["trained_tokens"], report["untrained_tokens"])
    assert not any("tokens/qa/trained" in r or "tokens/memory/untrained" in r for r in rows)
    assert untrained > 0
    for row in RunDirectory(tmp_path / "run").trajectories():
        assert {t["role"]: t["trainable"] for t in row["turns"]} == {"memory": True, "qa": False}


def test_training_one_role_is_training_without_the_others_tokens(tmp_path: Path) -> None:
    """The first step against frozen copies of itself samples the same; only what is trained on differs."""
    _, both = fit(tmp_path / "both", "trainer.total_training_steps=1")
    counts = {}
    for role, other in (("memory", "qa"), ("qa", "memory")):
        _, one = fit(tmp_path / role, f"roles.{other}=frozen:tiny", "trainer.total_training_steps=1")
        counts[role] = one["trained_tokens"]
        assert one["trained_tokens"] + one["untrained_tokens"] == both["trained_tokens"]
    assert sum(counts.values()) == both["trained_tokens"]
    assert len({weights(tmp_path / name) for name in ("both", "memory", "qa")}) == 3


def test_an_unreliable_endpoint_changes_nothing(tmp_path: Path) -> None:
    """30 % of calls drop, stall, fail, break off or come back empty: the run completes with the same weights."""
    patience = [
        "actor_rollout_ref.rollout.fixed_model_timeout_s=0.4",
        "actor_rollout_ref.rollout.fixed_model_retries=12",
    ]
    stage = "actor_rollout_ref.rollout.training_stage=memory"
    found = []
    for name, share in (("calm", 0.0), ("rough", 0.3)):
        with running(Outside(answers, faults=share, stall_s=1.0)) as outside:
            api = f"actor_rollout_ref.rollout.fixed_model_api={outside.url}"
            _, report = fit(tmp_path / name, stage, api, *patience)
            found.append((weights(tmp_path / name), report["held_out"], report["trained_tokens"]))
            assert {*outside.failed} == ({"drop", "stall", "500", "half", "empty"} if share else set())
            assert report["fixed_roles"]["qa"]["model"] == f"{outside.url} outside"
        rows = RunDirectory(tmp_path / name).metrics()
        assert all(r["rollout/failures"] == 0 for r in rows if "reward/mean" in r)
    assert found[0] == found[1]


def test_a_server_that_is_gone_stops_the_run_saved_and_resumable(tmp_path: Path) -> None:
    patience = [
        *(f"actor_rollout_ref.rollout.fixed_model_{k}" for k in ("retries=1", "wait_s=0.5", "timeout_s=60")),
        "actor_rollout_ref.rollout.training_stage=memory",
    ]
    with running(Outside(answers)) as outside:
        api = f"actor_rollout_ref.rollout.fixed_model_api={outside.url}"
        fit(tmp_path / "whole", api, *patience)
        outside.bodies.clear()
        outside.limit = 18  # the second of three steps asks for the 13th to the 24th
        with pytest.raises(EndpointGone, match="saved at step 1, the same command goes on"):
            fit(tmp_path / "run", api, *patience)
        (lost,) = (tmp_path / "run" / "trajectories").glob("lost-*")
        kinds = [row["failure"] and row["failure"]["kind"] for row in read_trajectories(lost)]
        assert set(kinds) == {None, "endpoint"}
        with pytest.raises(BadInput, match="Connection error to fixed model API"):
            fit(tmp_path / "run", api, *patience)
    with running(Outside(answers)) as outside:  # at another address
        fit(tmp_path / "run", f"actor_rollout_ref.rollout.fixed_model_api={outside.url}", *patience)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    steps = [r["step"] for r in RunDirectory(tmp_path / "run").metrics() if "reward/mean" in r]
    assert steps == [1, 2, 3]


def test_what_is_wrong_is_said_before_anything_is_written(tmp_path: Path) -> None:
    for settings, words in (
        (["roles.qa=endpoint:http://127.0.0.1:9/v1"], "Connection error to fixed model API http://127.0.0.1:9/v1"),
        ([f"roles.qa=frozen:{tmp_path}/none"], "no model folder"),
        (["roles.answerer=trainable"], "has no such role; it has memory, qa"),
        (["actor_rollout_ref.rollout.training_stage=memory"], "fixed_model_api is required"),
        (["roles.qa=endpoint"], "fixed_model_api is required"),
        (
            ["actor_rollout_ref.rollout.training_stage=qa", "actor_rollout_ref.rollout.fixed_model_api=localhost:8123"],
            "actor_rollout_ref.rollout.fixed_model_api=localhost:8123 is no address",
        ),
        (["actor_rollout_ref.rollout.agent_name_override=no_such"], "no_such"),
    ):
        with pytest.raises(BadInput, match=re.escape(words)):
            fit(tmp_path / "run", *settings)
    assert not (tmp_path / "run").exists()


def test_the_stored_configuration_is_a_fixed_point(tmp_path: Path) -> None:
    from recollect.config.compose import from_yaml, to_yaml

    cfg = compose(None, ["roles.qa=frozen:tiny", "actor_rollout_ref.rollout.training_stage=memory"])
    assert cfg.roles == {"memory": "trainable", "qa": "frozen:tiny"}
    assert from_yaml(to_yaml(cfg)) == cfg
    assert json.dumps(cfg.roles)


def test_who_is_trained_is_printed_stored_and_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cfg = compose(None, [*SHORT, f"trainer.default_local_dir={tmp_path / 'run'}", "roles.qa=frozen:tiny"])
    cfg.trainer.total_training_steps = 1
    TrainRun(cfg, Console()).fit()
    said = capsys.readouterr().out
    assert "memory: using TRAINABLE model tiny" in said
    assert "qa: using FIXED model tiny" in said
    for row in RunDirectory(tmp_path / "run").trajectories():
        assert {(t["role"], t["is_trainable"], t["is_final"]) for t in row["turns"]} == {
            ("memory", True, 0),
            ("qa", False, 1),
        }
        for turn, stored in zip(decode(row, "here")[1].turns, row["turns"], strict=True):
            assert (turn.trainable, turn.question) == (stored["is_trainable"], stored["question"])
        for stored in row["turns"]:  # as another program may write it
            del stored["trainable"], stored["question"]
        turns = decode(row, "here")[1].turns
        assert [(t.trainable, t.question) for t in turns] == [(True, 0), (True, 0), (False, 1)]


def test_the_dry_run_says_who_is_trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cfg = compose(None, [*SHORT, f"trainer.default_local_dir={tmp_path / 'run'}", "roles.memory=frozen:tiny"])
    dry_run(cfg, Console())
    said = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert any(line.startswith("memory tiny, FIXED: ") for line in said)
    assert any(line.startswith("qa tiny, TRAINABLE: ") for line in said)
