"""The reward of a memory: each question's own, the memory's, and a tool part that cannot be had for nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.config.compose import compose
from recollect.rewards import find_reward
from recollect.rewards.scoring import call
from recollect.tools.memory import Memory
from recollect.tools.memory.tools import ANSWERING, WRITING
from recollect.tools.memory.workspace import MemoryWorkspace, state, usefulness
from recollect.tools.toolbox import Toolbox
from recollect.types import Completion, Task, ToolCall, Trajectory, Turn

QUESTIONS = [
    {"question": "q1?", "answer": "red"},
    {"question": "q2?", "answer": "12", "data_source": "sums"},
    {"question": "q3?", "answer": "the blue door", "data_source": "prose"},
]
TASK = Task("t", "q1?", "text", ("red",), "colours", {"questions": QUESTIONS}, "here")


def score(answers: list[str], events: list[dict[str, Any]] | None = None, *settings: str) -> Any:
    cfg = compose("needle", ["agent.agent_type=tool_memory", "agent.reward_name=memory_qa", *settings])
    turn = lambda i, text: Turn("qa" if i else "memory", (1,), Completion((2,), (0.0,), "stop", 0, text), question=i)
    turns = [turn(0, "noted"), *(turn(i, a) for i, a in enumerate(answers, 1))]
    done = Trajectory("t", 0, turns, "\n".join(answers), answers=answers, events=events or [])
    return asyncio.run(call(find_reward(cfg.agent.reward_name, cfg), TASK, done, plain=True))


def test_each_question_is_scored_as_its_source_says() -> None:
    scores = "memory.scores=[qa_em,math_reward_string_equal@sums,qa_f1_reward@prose]"
    made = score(["Red.", "it is 12", "door blue"], None, scores)
    assert made.questions[1:] == (1.0, 1.0, 1.0)
    assert made.questions[0] == made.total == 1.0
    made = score(["green", "it is 13", "a door"], None, scores)
    assert made.questions[1:] == pytest.approx((0.0, 0.0, 2 / 3))
    assert made.total == made.questions[0] == pytest.approx(2 / 9)
    assert score(["Red.", "it is 12", "door blue"]).questions[1:] == (1.0, 0.0, 0.0)


def test_form_and_calls_add_to_who_earned_them() -> None:
    events = [
        {"question": 0, "useful": True},
        {"question": 0, "useful": False},
        {"question": 2, "useful": True},
        {"question": 3, "useful": None},
    ]
    weights = ("memory.format_weight=0.1", "memory.tool_weight=0.5")
    made = score([r"\boxed{red}", "13", "no"], events, *weights)
    assert made.total == pytest.approx(1 / 3)
    assert made.questions == pytest.approx((1 / 3 + 0.25, 1.1, 0.5, 0.0))
    assert made.roles == pytest.approx({"memory": 1 / 3 + 0.25, "qa": (1.1 + 0.5) / 3})


# ---- earning the tool part without deserving it ----

title = st.sampled_from(["a", "b", "core", "x y"])
content = st.sampled_from(["one.", "two.", "one. two."])
write = st.one_of(
    st.builds(lambda t, c: ToolCall("memory_add", {"title": t, "content": c}), title, content),
    st.builds(lambda t, c: ToolCall("memory_update", {"title": t, "content": c}), title, content),
    st.builds(lambda t: ToolCall("memory_delete", {"title": t}), title),
    st.builds(lambda t: ToolCall("memory_key_retrieve", {"title": t}), title),
    st.just(ToolCall("memory_list", {})),
)
look = st.one_of(
    st.builds(lambda t: ToolCall("memory_key_retrieve", {"title": t}), title), st.just(ToolCall("memory_list", {}))
)
WRITES, LOOKS = Toolbox(WRITING), Toolbox(ANSWERING)


def run(box: Toolbox, workspace: MemoryWorkspace, calls: list[ToolCall]) -> list[dict[str, Any]]:
    async def work() -> None:
        async with box.open(TASK, Trajectory("t", 0), workspace) as opened:
            for call_made in calls:
                await opened.call_all([call_made])

    before = state(workspace.memory)
    asyncio.run(work())
    workspace.settle(before)
    return workspace.events


def fresh() -> Memory:
    return Memory(lambda text: len(text.split()), 100)


def useful(events: list[dict[str, Any]]) -> int:
    return sum(e["useful"] is True for e in events if "after" in e)


@given(st.lists(write, max_size=12))
def test_a_chunk_pays_for_no_more_changes_than_it_leaves(calls: list[ToolCall]) -> None:
    memory = fresh()
    memory.add("a", "one.")
    before = state(memory)
    events = run(WRITES, MemoryWorkspace(memory, 1, held={("a", "one.")}), calls)
    after = state(memory)
    differing = {t for t in {**before, **after} if before.get(t) != after.get(t)}
    assert useful(events) <= len(differing)
    assert 0 <= usefulness(events) <= 1
    if not differing:
        assert useful(events) == 0


@given(st.lists(st.lists(write, max_size=5), min_size=1, max_size=5))
def test_no_state_is_paid_for_twice(chunks: list[list[ToolCall]]) -> None:
    memory, held = fresh(), set()
    paid: list[tuple[str, Any]] = []
    for number, calls in enumerate(chunks, 1):
        workspace = MemoryWorkspace(memory, number, held=held)
        events = run(WRITES, workspace, [c for c in calls if "retrieve" not in c.name])
        paid += [(e["title"], state(memory).get(e["title"])) for e in events if e["useful"] and "after" in e]
    assert len(paid) == len(set(paid))


@given(st.lists(look, max_size=12))
def test_looking_up_pays_once_for_each_note_that_is_there(calls: list[ToolCall]) -> None:
    memory = fresh()
    memory.add("a", "one.")
    memory.add("b", "two.")
    events = run(LOOKS, MemoryWorkspace(memory, question=1), calls)
    found = {c.arguments["title"] for c in calls if c.arguments} & {"a", "b"}
    assert sum(e["useful"] is True for e in events) == len(found)
    assert (
        usefulness(run(LOOKS, MemoryWorkspace(memory, question=1), [c for c in calls if c.name == "memory_list"])) == 0
    )


@given(st.lists(look, max_size=8), look)
def test_one_more_useless_call_never_pays(calls: list[ToolCall], again: ToolCall) -> None:
    memory = fresh()
    memory.add("a", "one.")
    alone = usefulness(run(LOOKS, MemoryWorkspace(memory, question=1), [*calls, again]))
    assert usefulness(run(LOOKS, MemoryWorkspace(memory, question=1), [*calls, again, again])) <= alone


def test_adding_and_deleting_in_turns_earns_nothing() -> None:
    memory, held = fresh(), set()
    add, delete = ToolCall("memory_add", {"title": "a", "content": "one."}), ToolCall("memory_delete", {"title": "a"})
    assert usefulness(run(WRITES, MemoryWorkspace(memory, 1, held=held), [add, delete] * 3)) == 0
    assert usefulness(run(WRITES, MemoryWorkspace(memory, 2, held=held), [add])) == 1
    assert usefulness(run(WRITES, MemoryWorkspace(memory, 3, held=held), [delete])) == 1
    assert usefulness(run(WRITES, MemoryWorkspace(memory, 4, held=held), [add])) == 0
    assert usefulness(run(WRITES, MemoryWorkspace(memory, 5, held=held), [delete])) == 0
