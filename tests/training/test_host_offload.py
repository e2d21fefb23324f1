"""Weights that wait in host memory, and budgets that shrink when the memory of a GPU runs out."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator

import pytest
import torch

from recollect.config import Offload, Optim, RefOffload
from recollect.packing.batch import Batch
from recollect.packing.micro_batch import Packed
from recollect.training.learner.host_offload import park, park_optimizer, wake, wake_optimizer
from recollect.training.learner.token_budget import Budget, run_with_budget
from recollect.training.learner.trained_model import TrainedModel, reference_of
from tests.conftest import make_pair
from tests.packing.test_loss_invariance import samples

BOTH = Offload(param_offload=True, optimizer_offload=True)
gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
DEVICES = [pytest.param("cpu"), pytest.param("cuda", marks=gpu)]


def loss(packed: Packed, logp: torch.Tensor, entropy: torch.Tensor) -> torch.Tensor:
    return -(logp * (1 + packed.entry % 3)).sum() / 100


@pytest.fixture(autouse=True)
def _repeatable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On a GPU sums go in any order unless asked, and Adam makes much of the smallest difference."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(torch.cuda.is_available(), warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def where(learner: TrainedModel) -> set[str]:
    return {p.device.type for p in learner.model.parameters()}


def moments(learner: TrainedModel) -> set[str]:
    states = (s for part in learner.optimizer.parts for s in part.state.values())
    return {v.device.type for s in states for v in s.values() if torch.is_tensor(v) and v.ndim}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_offloaded_updates_equal_those_that_stay(device: str, name: str) -> None:
    batch = Batch.of(samples(1))
    packs = batch.packs(range(len(batch.sequences)), 200)
    learners = [
        TrainedModel(make_pair("Qwen3")[1].to(device), Optim(name=name, lr=1e-2), 5, torch.float32, offload=offload)
        for offload in (None, BOTH)
    ]
    stay, move = learners
    ids = [id(p) for p in move.model.parameters()]
    for _ in range(3):
        seen = [learner.logprobs(packs, batch.entries) for learner in learners]
        assert torch.equal(*seen)
        assert where(move) == {"cpu"}
        for learner in learners:
            learner.backward(packs, loss)
        assert where(move) == {"cpu"}
        assert {p.grad.device.type for p in move.model.parameters() if p.grad is not None} == {"cpu"}
        made = [learner.step() for learner in learners]
        assert made[0] == made[1]
        assert where(move) == moments(move) == {"cpu"}
        assert where(stay) == moments(stay) == {device}
    assert [id(p) for p in move.model.parameters()] == ids
    for a, b in zip(stay.model.parameters(), move.model.parameters(), strict=True):
        assert torch.equal(a.cpu(), b.cpu())


@pytest.mark.parametrize("device", DEVICES)
def test_the_outermost_use_keeps_the_weights_awake(device: str) -> None:
    batch = Batch.of(samples(1))
    packs = batch.packs(range(len(batch.sequences)), 200)
    learner = TrainedModel(make_pair("Qwen3")[1].to(device), Optim(), 5, torch.float32, offload=BOTH)
    with learner.awake():
        learner.logprobs(packs, batch.entries)
        assert where(learner) == {device}
    assert where(learner) == {"cpu"}
    with pytest.raises(ZeroDivisionError), learner.awake():
        _ = 1 / 0
    assert where(learner) == {"cpu"}


@pytest.mark.parametrize("device", DEVICES)
def test_state_is_restored_into_a_parked_learner(device: str) -> None:
    batch = Batch.of(samples(1))
    packs = batch.packs(range(len(batch.sequences)), 200)
    make = lambda: TrainedModel(make_pair("Qwen3")[1].to(device), Optim(lr=1e-2), 5, torch.float32, offload=BOTH)
    one, two = make(), make()
    one.backward(packs, loss)
    one.step()
    two.logprobs(packs, batch.entries)
    two.model.load_state_dict(copy.deepcopy(one.model.state_dict()))
    two.load_state(copy.deepcopy(one.state()))
    assert where(two) == moments(two) == {"cpu"}
    for learner in (one, two):
        learner.backward(packs, loss)
        learner.step()
    for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("device", DEVICES)
def test_a_parked_reference_is_the_policy_it_was_made_of(device: str) -> None:
    batch = Batch.of(samples(1))
    packs = batch.packs(range(len(batch.sequences)), 200)
    learner = TrainedModel(make_pair("Qwen3")[1].to(device), Optim(lr=1e-2), 5, torch.float32, offload=BOTH)
    before = learner.logprobs(packs, batch.entries)
    reference = reference_of(learner, RefOffload(param_offload=True))
    learner.backward(packs, loss)
    learner.step()
    assert torch.equal(reference.logprobs(packs, batch.entries), before)
    assert where(reference) == {"cpu"}
    assert reference.device.type == device
    kl = learner.divergence(packs, batch.entries, reference)
    assert kl.device.type == device
    assert kl.max() > 1e-6
    assert where(reference) == where(learner) == {"cpu"}


@pytest.mark.parametrize("device", DEVICES)
def test_parking_moves_data_and_keeps_ties_and_values(device: str) -> None:
    tied = torch.nn.Linear(4, 4, device=device)
    module = torch.nn.ModuleList([tied, torch.nn.Linear(4, 4, device=device)])
    module[1].weight = tied.weight
    module[1](tied(torch.ones(1, 4, device=device))).sum().backward()
    optimizer = TrainedModel(module, Optim(), 1, torch.float32).optimizer
    optimizer.step()
    kept = [(p.detach().cpu().clone(), p.grad.cpu().clone()) for p in module.parameters()]
    home = tied.weight.device
    for awake, there in ((False, torch.device("cpu")), (True, home)):
        if awake:
            wake(module, home)
            wake_optimizer(optimizer, home)
        else:
            park(module)
            park_optimizer(optimizer)
        assert module[1].weight is tied.weight
        for p, (data, grad) in zip(module.parameters(), kept, strict=True):
            assert p.device == p.grad.device == there
            assert torch.equal(p.detach().cpu(), data)
            assert torch.equal(p.grad.cpu(), grad)
    optimizer.step()


def test_a_shrinking_budget_starts_again_and_is_remembered() -> None:
    batch = Batch.of(samples(1))
    rows = range(len(batch.sequences))
    said: list[str] = []
    events: list[tuple[str, int]] = []
    budget = Budget(400, said.append, floor=50)

    def work(packs: list[Packed]) -> int:
        largest = max(len(p.tokens) for p in packs)
        events.append(("work", largest))
        if largest > 110:
            raise torch.OutOfMemoryError("CUDA out of memory (made up)")
        return sum(len(p.entry) for p in packs)

    make = lambda tokens: batch.packs(rows, tokens)
    reset = lambda: events.append(("reset", budget.tokens))
    assert run_with_budget(make, budget, work, reset) == batch.entries
    tried = [n for kind, n in events if kind == "work"]
    assert [kind for kind, _ in events] == ["work", "reset"] * len(said) + ["work"]
    assert len(said) >= 1
    assert f"{budget.tokens} tokens" in said[-1]
    assert tried[-1] <= budget.tokens <= tried[-2] // 2
    events.clear()
    run_with_budget(make, budget, work, reset)
    assert [kind for kind, _ in events] == ["work"]


def test_partial_gradients_of_a_failed_try_do_not_count() -> None:
    batch = Batch.of(samples(1))
    rows = range(len(batch.sequences))
    learner = TrainedModel(make_pair("Qwen3")[1], Optim(), 1, torch.float32)
    budget = Budget(400, floor=50)

    def work(packs: list[Packed]) -> float:
        def value(packed: Packed, logp: torch.Tensor, entropy: torch.Tensor) -> torch.Tensor:
            if packed is packs[-1] and len(packed.tokens) > 150:
                raise torch.OutOfMemoryError("CUDA out of memory (made up)")
            return loss(packed, logp, entropy)

        return learner.backward(packs, value)

    found = run_with_budget(lambda tokens: batch.packs(rows, tokens), budget, work, learner.optimizer.zero_grad)
    assert budget.tokens < 400
    other = TrainedModel(make_pair("Qwen3")[1], Optim(), 1, torch.float32)
    assert found == pytest.approx(other.backward(batch.packs(rows, 10_000), loss), rel=1e-5)
    a, b = (torch.cat([p.grad.flatten() for p in m.model.parameters()]) for m in (learner, other))
    assert (a - b).norm() <= 1e-5 * b.norm()


def test_memory_that_never_suffices_and_other_errors_are_passed_on() -> None:
    batch = Batch.of(samples(1))
    rows, tried = range(len(batch.sequences)), []

    def never(packs: list[Packed]) -> None:
        tried.append(max(len(p.tokens) for p in packs))
        raise torch.OutOfMemoryError("CUDA out of memory (made up)")

    budget = Budget(1 << 40, floor=30)  # no limit: what was tried is halved, not the limit
    with pytest.raises(torch.OutOfMemoryError):
        run_with_budget(lambda tokens: batch.packs(rows, tokens), budget, never)
    assert tried[0] == len(batch.packs(rows, 1 << 40)[0].tokens)
    assert 1 < len(tried) < 6
    assert 30 <= budget.tokens < 60
    with pytest.raises(ZeroDivisionError):
        run_with_budget(lambda tokens: [], Budget(1000), lambda packs: 1 / 0)


def test_what_a_failed_try_held_is_free_before_the_next() -> None:
    held: list[weakref.ref[torch.Tensor]] = []

    def work(packs: list[Packed]) -> bool:
        if held:
            return held[0]() is None
        big = torch.zeros(1000)
        held.append(weakref.ref(big))
        raise torch.OutOfMemoryError("CUDA out of memory (made up)")

    batch = Batch.of(samples(1))
    assert run_with_budget(lambda tokens: batch.packs(range(4), tokens), Budget(1000, floor=10), work)
