"""Weights by broadcast: bytes that arrive as they were sent, and servers that hold up no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.config.compose import compose
from recollect.engine import load_fitted
from recollect.models.load import load_tokenizer
from recollect.models.lora import plain_weights
from recollect.samplers.fleet import members as fleet_members
from recollect.samplers.fleet import vllm_client, weight_broadcast
from recollect.samplers.fleet.fleet import Fleet
from recollect.samplers.fleet.inside import recollect_broadcast as inside
from recollect.samplers.fleet.inside.recollect_broadcast import buckets, checksum, unpacked
from recollect.samplers.fleet.make_fleet import make_fleet
from recollect.types import BadInput
from tests.samplers.fleet.standin_vllm import StandIn, serving
from tests.samplers.fleet.test_fleet import KEYS, ask
from tests.samplers.fleet.test_training import ROLLOUT, near, weights, work
from tests.waiting import until

Fleets = Callable[..., tuple[Fleet, list[StandIn]]]
SHAPES = st.lists(
    st.tuples(st.sampled_from([torch.float32, torch.bfloat16, torch.int64]), st.integers(0, 40)), max_size=9
)


@given(SHAPES, st.integers(1, 300))
def test_buckets_hold_what_was_put_in(shapes: list[tuple[torch.dtype, int]], size: int) -> None:
    before = inside.BUCKET_BYTES
    inside.BUCKET_BYTES = size
    try:
        put = [(f"w{i}", torch.randn(n, 3).to(kind)) for i, (kind, n) in enumerate(shapes)]
        made = list(buckets(put))
    finally:
        inside.BUCKET_BYTES = before
    got = [named for bucket in made for named in unpacked(bucket.flat, bucket.tensors)]
    assert [name for name, _ in got] == [name for name, _ in put]
    for (_, a), (_, b) in zip(got, put, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert all(bucket.checksum == checksum(bucket.flat) for bucket in made)


@settings(max_examples=50)
@given(st.integers(1, 3 * inside.WORDS), st.data())
def test_every_change_of_bytes_is_another_checksum(words: int, data: st.DataObject) -> None:
    flat = torch.randint(0, 256, (8 * words,), dtype=torch.uint8)
    right, place = checksum(flat), data.draw(st.integers(0, 8 * words - 1))
    other = flat.clone()
    other[place] += data.draw(st.integers(1, 255))
    assert checksum(other) != right
    assert checksum(torch.cat([flat, torch.zeros(8, dtype=torch.uint8)])) != right
    if words > 1:
        swapped = torch.cat([flat[8:], flat[:8]])
        assert torch.equal(swapped, flat) or checksum(swapped) != right


@pytest.fixture
def fleets(small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleets]:
    """Makes a fleet over so many servers that get weights by broadcast."""
    monkeypatch.setattr(fleet_members, "PAUSE_S", 0.05)
    monkeypatch.setattr(weight_broadcast, "OPERATION_S", 10.0)
    monkeypatch.setattr(inside, "BUCKET_BYTES", 1 << 14)
    monkeypatch.setattr(vllm_client, "CONTROL_S", 12.0)
    opened = []

    def make(count: int = 2) -> tuple[Fleet, list[StandIn]]:
        servers = [StandIn(small_model) for _ in range(count)]
        running = serving(*servers)
        urls = running.__enter__()
        given = [f"{ROLLOUT}.name=vllm", f"{ROLLOUT}.server_addresses=[{','.join(urls)}]", f"{ROLLOUT}.dtype=float32"]
        more = [f"{ROLLOUT}.weight_sync=broadcast", "trainer.device=cpu", "agent.max_context_length=2048"]
        cfg = compose(None, [*given, *more, f"trainer.default_local_dir={tmp_path / 'run'}"])
        fleet = make_fleet(cfg, str(small_model), load_tokenizer(str(small_model)).decode)
        opened.append((fleet, running))
        return fleet, servers

    yield make
    for fleet, running in opened:
        fleet.close()
        running.__exit__(None, None, None)
    assert not (tmp_path / "run").exists()


@pytest.fixture
def model(small_model: Path) -> torch.nn.Module:
    return load_fitted(str(small_model), torch.float32)


def moved(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.05)
    return plain_weights(model)


def right(server: StandIn, model: torch.nn.Module) -> bool:
    """Whether a server has the model's weights."""
    mine = dict(model.named_parameters())
    return all(torch.equal(weight, mine[name]) for name, weight in server.model.named_parameters())


def test_all_servers_get_each_version_in_one_group(fleets: Fleets, model: torch.nn.Module) -> None:
    fleet, servers = fleets(3)
    for version in range(4):
        fleet.take_weights(version, moved(model))
        assert all(right(server, model) for server in servers)
        assert {c.version for c in ask(fleet, *KEYS)} == {version}
    joined = [server.calls.count("init_weight_transfer_engine") for server in servers]
    assert joined == [1, 1, 1]
    assert fleet.statistics().taken_out == 0
    assert fleet.statistics().sync_bytes >= sum(p.numel() * 4 for p in model.parameters())


@pytest.mark.parametrize(
    "fault", ["corrupt", *(pytest.param(name, marks=pytest.mark.slow) for name in ("deaf", "hangs"))]
)
def test_a_server_that_does_not_get_them_holds_up_no_other(fault: str, fleets: Fleets, model: torch.nn.Module) -> None:
    fleet, (bad, good) = fleets()
    said: list[str] = []
    fleet.members.warn = said.append
    fleet.take_weights(0, moved(model))
    fleet.take_weights(1, moved(model))
    setattr(bad, fault, True)
    fleet.take_weights(2, moved(model))
    assert (right(good, model), right(bad, model)) == (True, False)
    assert {c.version for c in ask(fleet, *KEYS)} == {2}
    assert [line for line in said if "server 0" in line and "was taken out" in line]
    setattr(bad, fault, False)
    assert until(lambda: len(fleet.members.ready()) == 2, 60)
    assert right(bad, model)
    fleet.take_weights(3, moved(model))
    assert all(right(server, model) for server in (bad, good))
    assert {c.version for c in ask(fleet, *KEYS)} == {3}


def test_the_weights_of_a_run_in_one_process(small_model: Path, tmp_path: Path) -> None:
    work(tmp_path / "alone", small_model).fit()
    with serving(StandIn(small_model), StandIn(small_model)) as urls:
        given = [f"{ROLLOUT}.name=vllm", f"{ROLLOUT}.server_addresses=[{','.join(urls)}]"]
        run = work(tmp_path / "served", small_model, *given, f"{ROLLOUT}.weight_sync=broadcast")
        assert run.fit()["fidelity"] == 1.0
    near(tmp_path / "served", tmp_path / "alone", 0.0)
    assert weights(tmp_path / "served") == weights(tmp_path / "alone")
    assert not (tmp_path / "served" / "servers").exists()


def test_what_cannot_be_together() -> None:
    broadcast = f"{ROLLOUT}.weight_sync=broadcast"
    with pytest.raises(BadInput, match=r"weight_sync=broadcast is about vLLM servers, and there is no vLLM: set"):
        compose(None, [broadcast])
    at = [f"{ROLLOUT}.name=vllm", f"{ROLLOUT}.server_addresses=[http://127.0.0.1:1]", f"{ROLLOUT}.server_storage=/x"]
    with pytest.raises(BadInput, match="weight_sync=broadcast writes none: drop one"):
        compose(None, [*at, broadcast])
