"""The sampler over servers: the same ids as the engine, weights of one version, failures of servers."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from recollect.config import Rollout
from recollect.config.compose import compose
from recollect.engine import load_fitted, make_engine
from recollect.models.load import load_tokenizer
from recollect.models.lora import plain_weights
from recollect.policies.endpoint import EndpointDown
from recollect.samplers.fleet import members as fleet_members
from recollect.samplers.fleet.fleet import Fleet
from recollect.samplers.fleet.make_fleet import make_fleet
from recollect.samplers.fleet.members import ServersGone
from recollect.samplers.fleet.weights_by_files import WeightsByFiles
from recollect.types import BadInput, Completion, Sampling
from tests.samplers.fleet.standin_vllm import StandIn, serving

PROMPT = list(range(5, 60))
SERVERS = "actor_rollout_ref.rollout"
Fleets = Callable[..., tuple[Fleet, list[StandIn]]]


@pytest.fixture
def fleets(small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleets]:
    """Makes a fleet over so many servers of the small model, without weights yet."""
    monkeypatch.setattr(fleet_members, "PAUSE_S", 0.05)
    opened = []

    def make(count: int = 2, *settings: str) -> tuple[Fleet, list[StandIn]]:
        servers = [StandIn(small_model) for _ in range(count)]
        running = serving(*servers)
        urls = running.__enter__()
        rollout = [f"{SERVERS}.name=vllm", f"{SERVERS}.server_addresses=[{','.join(urls)}]", f"{SERVERS}.dtype=float32"]
        limits = [f"{SERVERS}.server_wait_s=1", f"{SERVERS}.server_timeout_s=20", "trainer.device=cpu"]
        place = [f"trainer.default_local_dir={tmp_path / 'run'}", "agent.max_context_length=2048"]
        cfg = compose(None, [*rollout, *limits, *place, *settings])
        fleet = make_fleet(cfg, str(small_model), load_tokenizer(str(small_model)).decode)
        opened.append((fleet, running))
        return fleet, servers

    yield make
    for fleet, running in opened:
        fleet.close()
        running.__exit__(None, None, None)


@pytest.fixture
def model(small_model: Path) -> torch.nn.Module:
    return load_fitted(str(small_model), torch.float32)


def ask(fleet: Fleet, *keys: str, prompt: list[int] = PROMPT, **options: object) -> list[Completion]:
    sampling = Sampling(max_tokens=6, seed=3, **options)  # type: ignore[arg-type]

    async def all_of_them() -> list[Completion]:
        return await asyncio.gather(*(fleet.generate(prompt, replace(sampling, key=key)) for key in keys))

    return asyncio.run(all_of_them())


KEYS = [f"step-0/task-{t}/{i}/0" for t in range(4) for i in range(3)]


def test_the_same_completions_as_the_engine(fleets: Fleets, model: torch.nn.Module, small_model: Path) -> None:
    fleet, servers = fleets()
    fleet.take_weights(4, plain_weights(model))
    engine = make_engine(model, load_tokenizer(str(small_model)).decode, Rollout(), own=False, threads=1)
    engine.take_weights(4, None)
    ours, theirs = ask(engine, *KEYS), ask(fleet, *KEYS)  # type: ignore[arg-type]
    assert [c.ids for c in ours] == [c.ids for c in theirs]
    assert {c.version for c in theirs} == {4}
    for a, b in zip(ours, theirs, strict=True):
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-5)
        assert (a.stop, a.text) == (b.stop, b.text)
    assert all(server.answered > 0 for server in servers)
    assert fleet.weights_digest() == engine.weights_digest()
    assert (fleet.window, fleet.vocabulary) == (2048, engine.vocabulary)


def test_an_attempt_keeps_its_server(fleets: Fleets, model: torch.nn.Module) -> None:
    fleet, servers = fleets(3)
    fleet.take_weights(0, plain_weights(model))
    for turn in range(4):
        ask(fleet, *(f"step-0/task-{t}/0/{turn}" for t in range(3)))
    assert [s.answered for s in servers] == [4, 4, 4]


def test_new_weights_are_sampled_with_and_old_prefixes_forgotten(fleets: Fleets, model: torch.nn.Module) -> None:
    """Without the reset a server would go on from keys and values that old weights computed."""
    fleet, servers = fleets()
    fleet.take_weights(0, plain_weights(model))
    ask(fleet, *KEYS)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.05)
    fleet.take_weights(1, plain_weights(model))
    fresh, _ = fleets()
    fresh.take_weights(1, plain_weights(model))
    right, found = ask(fresh, *KEYS), ask(fleet, *KEYS)
    assert [c.ids for c in found] == [c.ids for c in right]
    assert all(a.logprobs == pytest.approx(b.logprobs, abs=1e-5) for a, b in zip(found, right, strict=True))
    for server in servers:
        server.keeps_cache = True
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.05)
    fleet.take_weights(2, plain_weights(model))
    fresh.take_weights(2, plain_weights(model))
    right, stale = ask(fresh, *KEYS), ask(fleet, *KEYS)
    assert any(a.logprobs != pytest.approx(b.logprobs, abs=1e-5) for a, b in zip(stale, right, strict=True))


def test_a_completion_of_another_version_is_never_given(fleets: Fleets, model: torch.nn.Module) -> None:
    fleet, (bad, good) = fleets()
    said: list[str] = []
    fleet.members.warn = said.append
    fleet.take_weights(0, plain_weights(model))
    right = [c.ids for c in ask(fleet, *KEYS)]
    bad.label_said = "7-someone-elses"
    assert [c.ids for c in ask(fleet, *KEYS)] == right
    assert any("it sampled with 7-someone-elses" in line for line in said)
    good.label_said = "7-someone-elses"
    with pytest.raises(EndpointDown, match=r"no vLLM server gave a completion|no server is left"):
        ask(fleet, "a/b/0/0")


def test_requests_of_a_server_that_fails_or_hangs_go_to_another(fleets: Fleets, model: torch.nn.Module) -> None:
    fleet, (first, second) = fleets(2, f"{SERVERS}.server_timeout_s=4")
    fleet.take_weights(0, plain_weights(model))
    right = ask(fleet, *KEYS)
    first.fails_after = 0
    assert [c.ids for c in ask(fleet, *KEYS)] == [c.ids for c in right]
    assert (fleet.statistics().taken_out, fleet.statistics().repeated > 0) == (1, True)
    first.fails_after = None
    _until(lambda: len(fleet.members.ready()) == 2)  # it is healthy, and comes back with the current weights
    second.hangs = True
    assert [c.ids for c in ask(fleet, *KEYS)] == [c.ids for c in right]
    assert fleet.statistics().taken_out == 2
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.1)
    fleet.take_weights(1, plain_weights(model))
    assert second.label != first.label  # it hangs, and nobody asks it
    second.hangs = False
    _until(lambda: len(fleet.members.ready()) == 2)
    assert second.label == first.label == fleet.members.current.label  # type: ignore[union-attr]


def test_without_servers_requests_fail_and_attempts_wait(fleets: Fleets, model: torch.nn.Module) -> None:
    fleet, (only,) = fleets(1, f"{SERVERS}.server_timeout_s=2")
    fleet.take_weights(0, plain_weights(model))
    only.hangs = True
    with pytest.raises(EndpointDown):
        ask(fleet, "a/b/0/0")
    assert not asyncio.run(fleet.back(lambda text: None))
    assert "no vLLM server was back within 1 s" in fleet.loss
    with pytest.raises(ServersGone, match="the same command goes on from the newest checkpoint"):
        fleet.take_weights(1, plain_weights(model))
    threading.Timer(0.2, lambda: setattr(only, "hangs", False)).start()
    assert asyncio.run(fleet.back(lambda text: None))
    assert only.label.startswith("1-")


def test_what_a_server_refuses_is_no_failure_of_the_server(fleets: Fleets, model: torch.nn.Module) -> None:
    fleet, _ = fleets()
    fleet.take_weights(0, plain_weights(model))
    with pytest.raises(RuntimeError, match="refused a call with 400: Token id is out of vocabulary"):
        ask(fleet, "a/b/0/0", prompt=[999_999])
    with pytest.raises(ValueError, match="do not fit the servers' window of 2048"):
        ask(fleet, "a/b/0/0", prompt=[5] * 2045)
    assert fleet.statistics().taken_out == 0


def test_damaged_weights_are_not_loaded(fleets: Fleets, model: torch.nn.Module) -> None:
    fleet, (bad, good) = fleets()
    fleet.take_weights(0, plain_weights(model))
    bad.corrupt = True
    fleet.take_weights(1, plain_weights(model))
    assert (bad.label[:2], good.label[:2]) == ("0-", "1-")
    assert {c.version for c in ask(fleet, *KEYS)} == {1}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("blind", r"it does not see .*: set actor_rollout_ref.rollout.server_storage"),
        ("window", r"it takes 100 tokens, and 2048 are needed: --max-model-len 2048"),
        ("dtype", r"it computes in bfloat16, not in float32"),
        ("mode", r"it reports raw_logprobs, and processed_logprobs are needed"),
        ("hidden_size", r"it serves another model: its hidden_size is 17"),
        ("rope", r"it serves another model: its rope_parameters is .*12345"),
        ("eps", r"it serves another model: its rms_norm_eps is 0.5"),
        ("gone", r"nothing answers there"),
    ],
)
def test_servers_that_do_not_fit_are_refused_in_one_line(
    fault: str, words: str, fleets: Fleets, model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_members, "LOOK_S", 0.5)
    fleet, (server, _) = fleets()
    values = {"blind": True, "window": 100, "dtype": "bfloat16", "mode": "raw_logprobs"}
    if fault == "hidden_size":
        server.model.config.hidden_size = 17
    elif fault == "rope":
        server.model.config.rope_parameters = {**server.model.config.rope_parameters, "rope_theta": 12345.0}
    elif fault == "eps":
        server.model.config.rms_norm_eps = 0.5
    elif fault == "gone":
        fleet.members.servers[0].url = "http://127.0.0.1:9"
    else:
        setattr(server, fault, values[fault])
    with pytest.raises(BadInput, match=f"server 0 at http.*: {words}"):
        fleet.take_weights(0, plain_weights(model))


@pytest.mark.parametrize(("taken", "starts"), [(1, 2), (9, 3)])
def test_a_server_whose_port_was_taken_is_started_again(
    taken: int, starts: int, fleets: Fleets, model: torch.nn.Module
) -> None:
    fleet, (server,) = fleets(1)

    class Late:
        """Its port is taken at its first starts."""

        url, starts = "", 0

        def start(self) -> None:
            self.starts += 1
            self.url = server.url if self.starts > taken else "http://127.0.0.1:9"

        def ended(self) -> str | None:
            return None if self.starts > taken else "OSError: [Errno 98] Address already in use (all of it: log)"

        def kill(self) -> None:
            pass

        close = kill

    late = fleet.members.servers[0].process = Late()
    if taken == 1:
        fleet.take_weights(0, plain_weights(model))
        assert {c.version for c in ask(fleet, *KEYS)} == {0}
    else:
        with pytest.raises(BadInput, match=r"it did not start: OSError: .* Address already in use"):
            fleet.take_weights(0, plain_weights(model))
    assert late.starts == starts


def test_weights_that_break_off_are_taken_again(fleets: Fleets, model: torch.nn.Module) -> None:
    """A learner that loses a rank while it hands weights over begins anew."""

    def broken() -> Iterator[tuple[str, torch.Tensor]]:
        yield next(iter(plain_weights(model)))
        raise RuntimeError("a rank was lost")

    fleet, _ = fleets()
    for version in (0, 1):
        with pytest.raises(RuntimeError, match="a rank was lost"):
            fleet.take_weights(version, broken())
        fleet.take_weights(version, plain_weights(model))
        assert {c.version for c in ask(fleet, *KEYS)} == {version}
    assert isinstance(fleet.way, WeightsByFiles)
    assert len([p for p in fleet.way.store.folder.iterdir() if p.is_dir()]) == 2


def test_a_request_that_is_given_up_ends(fleets: Fleets, model: torch.nn.Module) -> None:
    fleet, servers = fleets(1)
    fleet.take_weights(0, plain_weights(model))
    servers[0].hangs = True

    async def give_up() -> None:
        asked = asyncio.ensure_future(fleet.generate(PROMPT, Sampling(max_tokens=4, key="a/b/0/0")))
        await asyncio.sleep(0.1)
        assert fleet.statistics().decoding == 1
        asked.cancel()

    asyncio.run(give_up())
    servers[0].hangs = False
    fleet.take_weights(1, plain_weights(model))
    assert fleet.statistics().decoding == 0
    assert {c.version for c in ask(fleet, *KEYS)} == {1}


LOGPROBS = {"content": [{"logprob": -1.0}]}


def part(**changes: object) -> bytes:
    """A completion with something changed."""
    choice = {"token_ids": [5], "finish_reason": "stop", "logprobs": {"content": [{"logprob": -1.0}]}}
    return json.dumps(
        {"choices": [choice | {"weight_versions": [{"version": "LABEL", "start": 0, "end": 1}]} | changes]}
    ).encode()


HOSTILE = {
    "another id": (part(token_ids=[999_999]), r"it gave the id 999999, and the model has \d+"),
    "too many": (
        part(token_ids=[5] * 9, logprobs={"content": [{"logprob": -1.0}] * 9}),
        "it gave 9 tokens, and 6 were",
    ),
    "no log-probability": (part(logprobs={"content": []}), "its answer is not a whole completion with log-prob"),
    "broken off": (part()[:-20], "its answer is no JSON object"),
    "nested": (b"[" * 100_000, "its answer is no JSON object"),
    "empty": (b"", "its answer is not a whole completion"),
    "a page": (b"<html>502</html>", "its answer is no JSON object"),
    "huge": (b"{" + b" " * (17 << 20), "TooLarge its answer is larger than 16 MiB"),
    "no number": (b'{"choices": [{"token_ids": [NaN]}]}', "its answer is n"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_an_answer_that_is_none_takes_the_server_out(
    kind: str, fleets: Fleets, model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, (bad, _) = fleets()
    fleet.take_weights(0, plain_weights(model))
    right = [c.ids for c in ask(fleet, *KEYS)]
    said: list[str] = []
    fleet.members.warn = said.append
    answer, words = HOSTILE[kind]
    bad.answers = answer.replace(b"LABEL", bad.label.encode())
    assert [c.ids for c in ask(fleet, *KEYS)] == right
    assert re.search(f"server 0 at http.* was taken out .{words}", said[0]), said
    bad.answers = None


def test_a_server_that_says_nonsense_of_itself_is_refused(fleets: Fleets, model: torch.nn.Module) -> None:
    for nonsense in ({"window": "wide"}, {"config": [1, 2]}, {"window": None}):
        fleet, (server, _) = fleets()
        server.nonsense = nonsense
        with pytest.raises(BadInput, match=r"server 0 at http.*: what it says of itself cannot be read"):
            fleet.take_weights(0, plain_weights(model))


def test_two_runs_with_the_same_servers_get_no_token_of_each_other(
    fleets: Fleets, model: torch.nn.Module, small_model: Path, tmp_path: Path
) -> None:
    """They take the servers from each other, which is said; what either of them is given was sampled by its weights."""
    fleet, _ = fleets()
    urls = ",".join(member.url for member in fleet.members.servers)
    more = [f"{SERVERS}.server_addresses=[{urls}]", f"trainer.default_local_dir={tmp_path / 'other'}"]
    other, _ = fleets(1, *more)
    both, right, said = (fleet, other), [], list[str]()
    for mine in both:
        alone, _ = fleets()
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1.1)
        alone.take_weights(0, plain_weights(model))
        mine.take_weights(0, plain_weights(model))
        mine.members.warn = said.append
        right.append([c.ids for c in ask(alone, *KEYS)])
    assert right[0] != right[1]

    def use(number: int) -> int:
        found = 0
        for _ in range(6):
            try:
                assert [c.ids for c in ask(both[number], *KEYS)] == right[number]
                found += 1
            except EndpointDown:
                asyncio.run(both[number].back(said.append))
        return found

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(use, (0, 1)))
    assert sum(found) > 0
    assert any("it sampled with 0-" in line for line in said)


WAKING = ["wake_up weights", "wake_up kv_cache", "reset_prefix_cache"]


def sleeping(fleet: Fleet) -> None:
    """Have the servers sleep, as those that share the learner's GPUs do."""
    for member in fleet.members.servers:
        member.sleeps = True


def test_servers_that_share_the_learners_gpus_sleep_in_updates(fleets: Fleets, model: torch.nn.Module) -> None:
    fleet, (shared, apart) = fleets()
    fleet.members.servers[0].sleeps = True
    fleet.take_weights(0, plain_weights(model))
    right = [c.ids for c in ask(fleet, *KEYS)]
    del shared.calls[:], apart.calls[:]
    fleet.free()
    assert (shared.asleep, apart.asleep, fleet.members.ready()) == (
        {"weights", "kv_cache"},
        set(),
        fleet.members.servers[1:],
    )
    fleet.restore()
    assert (shared.calls, apart.calls) == (["sleep", *WAKING], [])
    assert [c.ids for c in ask(fleet, *KEYS)] == right  # with the weights from before
    fleet.free()
    fleet.restore()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.05)
    fleet.take_weights(1, plain_weights(model))
    assert shared.label == apart.label
    fresh, _ = fleets()
    fresh.take_weights(1, plain_weights(model))
    assert [c.ids for c in ask(fleet, *KEYS)] == [c.ids for c in ask(fresh, *KEYS)]
    assert fleet.statistics().taken_out == 0


def test_nothing_sleeps_while_a_request_is_under_way(fleets: Fleets, model: torch.nn.Module) -> None:
    fleet, (server,) = fleets(1)
    sleeping(fleet)
    fleet.take_weights(0, plain_weights(model))
    server.hangs = True
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, fleet, "a/b/0/0")
        _until(lambda: fleet.statistics().decoding == 1)
        with pytest.raises(AssertionError, match="nothing is being generated"):
            fleet.free()
        server.hangs = False
        assert asked.result()
    assert "sleep" not in server.calls


@pytest.mark.parametrize("fault", ["sleepless", "drowsy"])
def test_a_server_that_does_not_sleep_or_wake_is_replaced(
    fault: str, fleets: Fleets, model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, (bad, good) = fleets()
    sleeping(fleet)
    said: list[str] = []
    fleet.members.warn = said.append
    member, process = fleet.members.servers[0], FakeProcess(bad)
    member.process = process
    fleet.take_weights(0, plain_weights(model))
    right = [c.ids for c in ask(fleet, *KEYS)]
    setattr(bad, fault, True)
    del process.log[:]
    fleet.free()
    time.sleep(0.2)
    assert process.log == (["kill", "kill"] if fault == "sleepless" else [])  # its memory is free, and stays so
    assert good.asleep
    fleet.restore()
    assert any(line.startswith("server 0 at http") and "was taken out" in line for line in said)
    _until(lambda: member.ready)
    assert process.log[-1] == "start"
    assert [c.ids for c in ask(fleet, *KEYS)] == right
    fleet.take_weights(1, plain_weights(model))
    assert bad.label == good.label


def test_a_server_that_is_being_started_is_waited_for_and_then_sleeps(fleets: Fleets, model: torch.nn.Module) -> None:
    """What has begun to take memory is not left to go on while the learner needs it."""
    fleet, (late, _) = fleets()
    sleeping(fleet)
    member, process = fleet.members.servers[0], FakeProcess(late)
    member.process = process
    fleet.take_weights(0, plain_weights(model))
    process.opened = threading.Event()
    late.fails_after = 0
    ask(fleet, *KEYS)
    _until(lambda: process.log[-1] == "start")
    threading.Timer(0.5, process.opened.set).start()
    late.fails_after = None
    fleet.free()
    assert process.opened.is_set()
    assert (member.asleep, late.asleep) == (True, {"weights", "kv_cache"})
    fleet.restore()
    assert len(fleet.members.ready()) == 2


class FakeProcess:
    """The process of a server that a test has started already."""

    def __init__(self, server: StandIn) -> None:
        self.server, self.url, self.log = server, server.url, list[str]()
        self.opened: threading.Event | None = None

    def start(self) -> None:
        self.log.append("start")
        if self.opened is not None:
            self.opened.wait(30)
        self.server.sleepless = self.server.drowsy = self.server.paused = False
        self.server.asleep = set()
        self.server.label = "none"

    def ended(self) -> str | None:
        return None

    def kill(self) -> None:
        self.log.append("kill")

    def close(self) -> None:
        pass


def _until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)
