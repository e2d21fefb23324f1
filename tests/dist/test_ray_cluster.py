"""What is said where there is no Ray cluster to join."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from recollect.dist import ray_cluster, ray_nodes
from recollect.dist.node_host import HostedProcess
from recollect.dist.ray_cluster import NodeFacts, connect, head_address
from recollect.dist.ray_nodes import NodeAway, RemoteProcess
from recollect.dist.ray_room import Bundle, room
from recollect.types import BadInput

KEY = "trainer.nnodes=2"


def test_the_head_is_named_or_found_on_this_machine(tmp_path: Path) -> None:
    assert head_address({"RAY_ADDRESS": "10.0.0.1:6379", "RAY_TMPDIR": str(tmp_path)}) == "10.0.0.1:6379"
    here = {"RAY_ADDRESS": "auto", "RAY_TMPDIR": str(tmp_path)}
    assert head_address(here) == ""
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("10.0.0.2:6379")
    assert head_address(here) == "10.0.0.2:6379"


def test_what_cannot_be_joined_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(ray_cluster, "REACH_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
    said = {
        "": "needs a Ray cluster, and none runs here; the head of a Ray cluster is named by RAY_ADDRESS",
        nobody: f"{nobody} does not answer .Connection refused.",
        "no-number": "no-number does not answer",
        "ray://10.0.0.1:10001": "start it there with `ray job submit`",
        "http://10.0.0.1:8265": "is where `ray job submit` sends jobs; a run itself needs the head, HOST:6379",
    }
    for address, words in said.items():
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(BadInput, match=words):
            connect(KEY)
    monkeypatch.setattr(ray_cluster, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"trainer.nnodes=2 needs Ray, which is not installed: pip install"):
        connect(KEY)


def nodes(*has: tuple[float, float]) -> list[NodeFacts]:
    return [NodeFacts(f"n{i}", f"10.0.0.{i}", cpus, gpus, 1 << 30) for i, (cpus, gpus) in enumerate(has)]


def wanted(*units: int, gpus: bool = True) -> list[Bundle]:
    made = lambda n: {"CPU": float(n), **({"GPU": float(n)} if gpus else {})}
    return [Bundle(f"node {i} of the learner", n, KEY, made(n)) for i, n in enumerate(units)]


def test_each_part_of_a_run_gets_a_node_that_has_what_it_needs() -> None:
    found = room(wanted(1, 2), nodes((8, 1), (8, 4)), "cuda")
    assert [node.name for node in found] == ["n0", "n1"]
    found = room(wanted(2), nodes((1, 8), (8, 4)), "cuda")  # the larger node has too few CPUs
    assert [node.name for node in found] == ["n1"]
    assert room(wanted(2, gpus=False), nodes((1, 8), (2, 0)), "cpu")[0].name == "n1"


def test_nodes_that_ray_would_wait_for_are_refused() -> None:
    unequal = "needs 2 nodes, 2 with 8 GPUs each .*; the Ray cluster has 10.0.0.0 with 8, 10.0.0.1 with 4"
    for has, said in {
        ((99, 8), (99, 4)): unequal,
        ((99, 8),): "the Ray cluster has 10.0.0.0 with 8$",
        ((99, 8), (4, 8)): r"needs 8 CPUs beside its 8 GPUs .*, and Ray has 4 on 10.0.0.1: start Ray there with --num-cpus",
    }.items():
        with pytest.raises(BadInput, match=said):
            room(wanted(8, 8), nodes(*has), "cuda")


def test_a_node_is_silent_from_when_it_was_asked_and_did_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that nobody has asked for an hour is not given up at its first missed answer."""
    now, away = [0.0], [False]

    class Node:
        def ask(self, method: str, *given: object, **more: object) -> None:
            if away[0]:
                raise NodeAway("no answer")

    monkeypatch.setattr(ray_nodes.time, "monotonic", lambda: now[0])
    node: Any = Node()
    process = RemoteProcess(node, HostedProcess("life", "rank-0", 1, 0), "10.0.0.2")
    now[0], away[0] = 3600.0, True
    assert process.ended() is None
    now[0] += ray_nodes.SILENT_S
    assert process.ended() is None
    now[0] += 1
    assert process.ended() == "its node has been silent for 61 s"
    away[0] = False
    assert process.ended() is None
    away[0] = True
    assert process.ended() is None
