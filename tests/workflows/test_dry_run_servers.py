"""What `--dry-run` says of servers, and which it refuses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from recollect.config.compose import compose
from recollect.runtime.console import Console
from recollect.samplers.fleet import members as fleet_members
from recollect.samplers.fleet.make_fleet import WEIGHTS, fleet_plan
from recollect.samplers.fleet.weight_store import WeightStore
from recollect.types import BadInput
from recollect.workflows.dry_run import server_layout
from recollect.workflows.dry_run.dry_run import dry_run
from tests.samplers.fleet.standin_vllm import StandIn, serving

ROLLOUT = "actor_rollout_ref.rollout"


def settings(model: Path, folder: Path, *more: str) -> list[str]:
    place = [f"actor_rollout_ref.model.path={model}", f"trainer.default_local_dir={folder / 'run'}"]
    return [*place, f"{ROLLOUT}.name=vllm", f"{ROLLOUT}.dtype=float32", "trainer.device=cpu", *more]


def test_the_layout_is_printed_and_nothing_started(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server_layout, "check_vllm", lambda rollout: None)
    own = [f"{ROLLOUT}.server_python={sys.executable}", f"{ROLLOUT}.num_servers=2"]
    found = dry_run(compose(None, settings(small_model, tmp_path, *own)), Console())
    assert len(found["servers"]["where"]) == 2
    assert found["servers"]["weights"] == found["servers"]["sync"] > 0
    assert found["seconds"] is None
    said = capsys.readouterr()
    for words in (
        "vLLM servers",
        "server 1",
        "sampled by vLLM servers",
        "at each step, through",
        "no sleep mode on a CPU",
    ):
        assert words in said.out + said.err
    both = dry_run(compose(None, [*settings(small_model, tmp_path, *own), "trainer.n_gpus_per_node=2"]), Console())
    assert (both["ranks"]["count"], len(both["servers"]["where"])) == (2, 2)
    said = capsys.readouterr()
    for words in ("ranks 0–1", "keeps the loop; servers sample", "server 1", "at each step, through"):
        assert words in said.out + said.err
    assert not (tmp_path / "run").exists()
    with pytest.raises(BadInput, match=r"900 vLLM servers need .* GiB, and this machine has"):
        dry_run(compose(None, [*settings(small_model, tmp_path, *own[:1]), f"{ROLLOUT}.num_servers=900"]), Console())
    wrong = compose(None, settings(small_model, tmp_path, *own, f"{ROLLOUT}.server_storage=/proc/none"))
    with pytest.raises(BadInput, match=r"the storage for weights /proc/.* cannot be written"):
        dry_run(wrong, Console())


def test_servers_that_run_already_are_asked(small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_members, "LOOK_S", 0.5)
    server = StandIn(small_model, window=16384)
    with serving(server) as urls:
        cfg = compose(None, settings(small_model, tmp_path, f"{ROLLOUT}.server_addresses=[{urls[0]}]"))
        assert dry_run(cfg, Console(quiet=True))["servers"]["where"] == tuple(urls)
        server.blind = True
        with pytest.raises(BadInput, match="it does not see"):
            dry_run(cfg, Console(quiet=True))
    with pytest.raises(BadInput, match="nothing answers there"):
        dry_run(cfg, Console(quiet=True))
    assert list(tmp_path.iterdir()) == []


def test_it_takes_no_weights_from_a_run_that_is_under_way(small_model: Path, tmp_path: Path) -> None:
    with serving(StandIn(small_model, window=16384)) as urls:
        own = [f"{ROLLOUT}.server_addresses=[{urls[0]}]", f"{ROLLOUT}.server_storage={tmp_path}/storage"]
        cfg = compose(None, settings(small_model, tmp_path, *own))
        store = WeightStore(fleet_plan(cfg, str(small_model)).storage / WEIGHTS, torch.float32)
        store.open()
        kept = store.write(3, [("a", torch.ones(2))])
        there = sorted(tmp_path.rglob("*"))
        dry_run(cfg, Console(quiet=True))
        assert sorted(tmp_path.rglob("*")) == there
        assert dict(kept.tensors())["a"].tolist() == [1, 1]
        assert store.probe.read_text() == store.token


def test_a_model_that_sees_has_no_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_layout, "check_vllm", lambda rollout: None)
    own = [
        f"{ROLLOUT}.server_python={sys.executable}",
        "agent.agent_type=chat",
        "data.made_up=shapes",
        "agent.reward_name=em",
    ]
    own += ["trainer.total_training_steps=1"]
    with pytest.raises(BadInput, match=r"reads images, and servers are sent none; drop .*rollout.name=vllm"):
        dry_run(compose(None, settings(Path("scratch_vision"), tmp_path, *own)), Console(quiet=True))
