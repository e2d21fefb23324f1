"""What `--dry-run` says about ranks: who holds how much, and what cannot be."""

from __future__ import annotations

import pytest

from recollect.config.compose import compose
from recollect.types import BadInput
from recollect.workflows.dry_run.predict import Need
from recollect.workflows.dry_run.ranks_layout import ranks_layout, refuse_too_large

ACTOR = "actor_rollout_ref.actor"
NEEDS = [Need("actor", "tiny", 400, 400, 800), Need("rollout", "tiny", 200, cache=50), Need("critic", "tiny", 40)]


def made(*settings: str):  # type: ignore[no-untyped-def]
    return ranks_layout(compose("needle", ["trainer.device=cpu", *settings]), NEEDS)


def test_one_process_has_no_ranks() -> None:
    assert made() is None
    assert made("trainer.n_gpus_per_node=0") is None


def test_ranks_share_what_is_trained() -> None:
    layout = made("trainer.n_gpus_per_node=4")
    assert layout.held == {"actor": 400, "critic": 10}
    assert (layout.each, layout.driver, layout.total) == (410, 250, 4 * 410 + 250)
    assert layout.summary() == {"count": 4, "nodes": 1, "device": "cpu", "fsdp_size": 4, "memory_each": 410}
    rows = layout.rows(str)
    assert rows[0][:3] == ("ranks 0–3", "CPU processes", "1/4 of weights, gradients and moments each")
    assert rows[1] == ("driver", "this process", "samples", "250")


@pytest.mark.parametrize(("size", "who"), [(2, ["ranks 0–1", "ranks 2–3"]), (1, [f"rank {i}" for i in range(4)])])
def test_copies_of_the_weights_are_listed(size: int, who: list[str]) -> None:
    layout = made("trainer.n_gpus_per_node=4", f"actor_rollout_ref.actor.fsdp_config.fsdp_size={size}")
    assert [row[0] for row in layout.rows(str)] == [*who, "driver"]
    assert layout.held["actor"] == 1600 // size


@pytest.mark.parametrize(
    ("size", "where"),
    [
        (-1, {"ranks 0–3": "nodes 0–1, CPU processes of each"}),
        (2, {"ranks 0–1": "node 0, CPU processes", "ranks 2–3": "node 1, CPU processes"}),
        (1, {f"rank {i}": f"node {i // 2}, CPU processes" for i in range(4)}),
    ],
)
def test_ranks_of_two_nodes(size: int, where: dict[str, str]) -> None:
    layout = made("trainer.nnodes=2", "trainer.n_gpus_per_node=2", f"{ACTOR}.fsdp_config.fsdp_size={size}")
    assert {row[0]: row[1] for row in layout.rows(str)[:-1]} == where
    assert layout.total == layout.driver + 2 * layout.each  # one node has two of them


def test_more_ranks_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(BadInput, match="n_gpus_per_node=3: this machine has 2 GPUs"):
        ranks_layout(compose("needle", ["trainer.device=cuda", "trainer.n_gpus_per_node=3"]), NEEDS)
    layout = ranks_layout(compose("needle", ["trainer.device=cuda", "trainer.n_gpus_per_node=2"]), NEEDS)
    assert layout is not None
    assert layout.total == layout.each + layout.driver  # the first GPU has one rank and what samples


def test_ranks_without_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    four = ["trainer.n_gpus_per_node=4", "trainer.device=cpu"]
    layout = made(*four)
    assert layout is not None
    cfg = compose("needle", four)
    refuse_too_large(cfg, layout, NEEDS, layout.total)
    for have, beside in ((layout.total - 1, 0), (layout.total + 9, 10)):
        with pytest.raises(BadInput, match=r"4 ranks and the process that samples would need .* this machine has"):
            refuse_too_large(cfg, layout, NEEDS, have, beside)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    cfg = compose("needle", [*four[:1], "trainer.device=cuda"])
    layout = ranks_layout(cfg, NEEDS)
    assert layout is not None
    refuse_too_large(cfg, layout, NEEDS, 410)  # 1600 / 4, and the critic's 40 / 4
    with pytest.raises(
        BadInput, match=r"a rank would hold .* on its GPU, which has .*: take more ranks \(trainer.n_gpus"
    ):
        refuse_too_large(cfg, layout, NEEDS, 409)
    cfg.actor_rollout_ref.actor.fsdp_config.optimizer_offload = True
    refuse_too_large(cfg, layout, NEEDS, 210)
    with pytest.raises(BadInput, match="a rank would hold"):
        refuse_too_large(cfg, layout, NEEDS, 209)


def test_a_model_that_sees_has_no_ranks() -> None:
    sees = "actor_rollout_ref.model.path=scratch_vision"
    assert ranks_layout(compose("needle", ["trainer.device=cpu", sees]), NEEDS) is None
    with pytest.raises(BadInput, match="scratch_vision reads images, which ranks are sent none of"):
        ranks_layout(compose("needle", ["trainer.device=cpu", "trainer.n_gpus_per_node=2", sees]), NEEDS)
