"""The endpoint client against a server that misbehaves in every way it should survive."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.config import Config
from recollect.config.aliases import resolve
from recollect.policies.endpoint import Endpoint, EndpointDown, EndpointError, Patience
from recollect.types import BadInput, Completion, Message, Sampling, Task
from tests.policies.outside import Outside, running
from tests.waiting import LONG, until

HELLO = [Message("user", "hello")]
QUICK = Patience(timeout_s=0.5, retries=8, wait_s=1.0)


def ask(endpoint: Endpoint, log: Any = HELLO, **options: Any) -> Completion:
    return asyncio.run(endpoint.chat(log, options.pop("tools", None), Sampling(key="k", **options)))


@pytest.fixture
def outside() -> Iterator[Outside]:
    with running(Outside(lambda body: f"heard {body['messages'][-1]['content']}")) as found:
        yield found


def test_messages_go_as_messages_and_the_name_is_read(outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sesame")
    endpoint = Endpoint(outside.url, key_env="SOME_KEY")
    assert endpoint.check() == "outside"
    log = [Message("system", "be brief"), *HELLO]
    done = ask(endpoint, log, temperature=0.5, top_p=0.9, max_tokens=7, stop=("x",))
    assert (done.text, done.stop, done.logprobs, done.version) == ("heard hello", "stop", (), -1)
    (body,) = outside.bodies
    assert body["messages"] == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    assert (body["model"], body["temperature"], body["top_p"], body["max_tokens"]) == ("outside", 0.5, 0.9, 7)
    assert body["stop"] == ["x"]
    assert outside.headers[0]["Authorization"] == "Bearer sesame"
    ask(endpoint, log, temperature=0.5, top_p=0.9, max_tokens=7, stop=("x",))
    assert outside.bodies[1]["seed"] == body["seed"]
    endpoint.close()


def test_one_connection_serves_loop_after_loop(outside: Outside) -> None:
    endpoint = Endpoint(outside.url)
    assert [ask(endpoint).text for _ in range(3)] == ["heard hello"] * 3  # each asks from an event loop of its own
    endpoint.close()


@pytest.mark.parametrize("kind", ["drop", "stall", "500", "429", "half", "empty"])
def test_a_fault_is_tried_again(kind: str) -> None:
    with running(Outside(lambda body: "fine", faults=0.6, kinds=(kind,), stall_s=1.0)) as outside:
        stalls = kind == "stall"  # found by the clock alone, as is an answer that a busy machine gives too late
        endpoint = Endpoint(outside.url, patience=replace(QUICK, timeout_s=0.5 if stalls else LONG))

        async def many() -> list[str]:
            calls = [endpoint.chat([Message("user", f"hello {i}")], None, Sampling(key=str(i))) for i in range(8)]
            return [done.text for done in await asyncio.gather(*calls)]

        assert asyncio.run(many()) == ["fine"] * 8
        assert outside.failed
        assert endpoint.retried >= len(outside.failed) if stalls else endpoint.retried == len(outside.failed)
        endpoint.close()


def test_a_refusal_is_not_tried_again() -> None:
    with running(Outside(lambda body: "never", faults=1.0, kinds=("400",))) as outside:
        endpoint = Endpoint(outside.url, patience=replace(QUICK, timeout_s=LONG))
        with pytest.raises(EndpointError, match="400: not now"):
            ask(endpoint)
        assert len(outside.bodies) == 1
        endpoint.close()


def test_a_model_that_says_nothing_is_believed() -> None:
    """A server that counts a sampled token has answered, though the reply is empty; one that counts none has not."""
    silent = Outside(lambda body: {"role": "assistant", "content": ""})
    with running(silent) as outside:
        endpoint = Endpoint(outside.url, patience=Patience(retries=1))
        with pytest.raises(EndpointDown, match="empty"):
            ask(endpoint)
        endpoint.close()
    from recollect.policies.endpoint import _choice

    class Answer:
        def json(self) -> Any:
            message = {"role": "assistant", "content": None}
            return {"choices": [{"message": message}], "usage": {"completion_tokens": 1}}

    assert _choice(Answer())[0] is not None


@pytest.mark.parametrize(
    "said",
    [
        [1],
        {"choices": None},
        {"choices": [{"message": None}]},
        {"choices": [{"message": "fine"}]},
        {"choices": [{"message": {"content": ""}}], "usage": "many"},
        {"choices": [{"message": {"content": "", "tool_calls": "find"}}]},
        {"choices": [{"message": {"content": "", "tool_calls": [{"function": "find"}]}}]},
    ],
)
def test_json_that_is_no_completion_is_tried_again(said: Any) -> None:
    from recollect.policies.endpoint import _choice

    class Answer:
        def json(self) -> Any:
            return said

    assert _choice(Answer()) == (None, "its answer is not a whole chat completion")


def test_calls_at_once_are_bounded(outside: Outside) -> None:
    now = most = 0
    gate, lock = threading.Barrier(3, timeout=LONG), threading.Lock()

    def reply(body: dict[str, Any]) -> str:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        gate.wait()  # passes only when three are here at once
        with lock:
            now -= 1
        return "ok"

    outside.reply = reply
    endpoint = Endpoint(outside.url, patience=Patience(concurrency=3))

    async def many() -> None:
        await asyncio.gather(*(endpoint.chat(HELLO, None, Sampling(key=str(i))) for i in range(12)))

    asyncio.run(many())
    assert most == 3
    endpoint.close()


def test_nobody_there_says_what_to_do() -> None:
    with pytest.raises(BadInput, match=r"Connection error to fixed model API .*curl http://127.0.0.1:9/v1/models"):
        Endpoint("http://127.0.0.1:9/v1").check()


def test_an_unknown_name_is_refused_with_those_there(outside: Outside) -> None:
    endpoint = Endpoint(outside.url, "other")
    with pytest.raises(BadInput, match="has no model other; it has outside"):
        endpoint.check()
    endpoint.close()


def test_a_cancelled_call_leaves_no_work_behind() -> None:
    with running(Outside(lambda body: "late", faults=1.0, kinds=("stall",), stall_s=0.5)) as outside:
        endpoint = Endpoint(outside.url, patience=Patience(timeout_s=30, retries=50, concurrency=1))

        async def give_up() -> None:
            job = asyncio.create_task(endpoint.chat(HELLO, None, Sampling()))
            assert await asyncio.to_thread(until, lambda: outside.bodies)
            job.cancel()
            with pytest.raises(asyncio.CancelledError):
                await job
            outside.faults = 0.0
            assert (await endpoint.chat(HELLO, None, Sampling(key="other"))).text == "late"  # the slot is free again

        asyncio.run(give_up())
        assert len(outside.bodies) == 2
        endpoint.close()


def test_tool_agents_work_with_an_endpoint(renderer: Any, outside: Outside) -> None:
    """Schemas go as tools, calls come back as structure, results go back as results of those calls."""

    def reply(body: dict[str, Any]) -> Any:
        last = body["messages"][-1]
        if last["role"] == "tool":
            return f"It is {last['content']}."
        call = {"name": "calculator", "arguments": json.dumps({"expression": "17*3"})}
        calls = [{"id": "call-7", "type": "function", "function": call}]
        return {"role": "assistant", "content": None, "tool_calls": calls}

    outside.reply = reply
    cfg = Config()
    cfg.agent.agent_type, cfg.agent.tools, cfg.agent.reward_name = "hf", ["calculator"], "f1"
    endpoint = Endpoint(outside.url, syntax=renderer.parser)
    collector = Collector(cfg, {"*": Binding(endpoint, renderer, trainable=False)})
    (group,) = asyncio.run(collector.collect([Task("t", "17*3?", answers=("51",))], 1, Sampling(max_tokens=32), "k"))
    (made,) = group.trajectories
    assert made.failure is None, made.failure
    assert made.answer == "It is 51."
    first, second = outside.bodies
    assert first["tools"][0]["function"]["name"] == "calculator"
    assert [m["role"] for m in second["messages"]][-2:] == ["assistant", "tool"]
    assert second["messages"][-1] == {"role": "tool", "tool_call_id": "call-7", "content": "51"}
    assert second["messages"][-2]["tool_calls"][0]["id"] == "call-7"
    assert not any(turn.trainable for turn in made.turns)
    asyncio.run(collector.close())
    endpoint.close()


def test_half_a_character_is_no_failure(renderer: Any) -> None:
    with running(Outside(lambda body: "mira \ud800 holds")) as outside:
        endpoint = Endpoint(outside.url)
        done = ask(endpoint)
        assert done.text == "mira ? holds"
        assert renderer.encode(done.text)
        endpoint.close()


def test_a_memory_behind_an_endpoint_is_given_its_tools(renderer: Any, outside: Outside) -> None:
    """Though the trained model's template cannot show any, the server is sent schemas, and no listing of ours."""
    assert not renderer.shows_tools
    cfg = Config()
    cfg.agent.agent_type, cfg.agent.reward_name = "tool_memory", "memory_qa"
    cfg = resolve(cfg)
    endpoint = Endpoint(outside.url, syntax=renderer.parser)
    collector = Collector(cfg, {"*": Binding(endpoint, renderer, trainable=False)})
    task = Task("t", "What?", ["mira holds 472."], ("472",))
    (group,) = asyncio.run(collector.collect([task], 1, Sampling(max_tokens=32), "k"))
    assert group.trajectories[0].failure is None, group.trajectories[0].failure
    for body, name in zip(outside.bodies, ("memory_add", "memory_bm25_retrieve"), strict=True):
        assert name in [schema["function"]["name"] for schema in body["tools"]]
        assert name not in body["messages"][0]["content"]
    asyncio.run(collector.close())
    endpoint.close()


def test_an_endpoint_that_is_back_in_time_changes_nothing(renderer: Any) -> None:
    """Attempts that it failed are made anew; one that stays away ends the collection with typed failures."""
    from recollect.policies.endpoint import EndpointGone

    async def asks(task: Task, session: Any, cfg: Config) -> str:
        return (await session.generate(task.question)).text

    with running(Outside(lambda body: "ok")) as outside:
        endpoint = Endpoint(outside.url, patience=Patience(timeout_s=LONG, retries=0, wait_s=3.0))
        collector = Collector(Config(), {"*": Binding(endpoint, renderer, trainable=False)})
        collector.agent, outside.limit = asks, 2
        warned: list[str] = []

        def warn(text: str) -> None:
            warned.append(text)
            outside.limit = 0  # and now it is back

        collector.warn = warn
        tasks = [Task(f"t{i}", f"q{i}", answers=("ok",)) for i in range(5)]
        groups = asyncio.run(collector.collect(tasks, 1, Sampling(), "k"))
        assert [t.failure for g in groups for t in g.trajectories] == [None] * 5
        assert "went away" in warned[0]
        outside.limit, collector.warn = len(outside.bodies), lambda text: None
        outside.bodies.append({})
        with pytest.raises(EndpointGone, match="was not back within 3 s") as gone:
            asyncio.run(collector.collect(tasks, 1, Sampling(), "l"))
        assert {t.failure.kind for g in gone.value.groups for t in g.trajectories if t.failure} == {"endpoint"}
        endpoint.close()
