"""Trajectories made by hypothesis, and the same ones written in other formats."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from recollect.registries import DOMAINS

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)
words = st.text(st.characters(codec="utf-8", categories=["L", "N"]), min_size=1, max_size=8)
leaves = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts
)
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
actions = st.lists(
    st.fixed_dictionaries(
        {"step": st.integers(-5, 100), "tool": words, "input": anything, "output": anything},
    ),
    max_size=5,
)
unified = st.fixed_dictionaries(
    {
        "task_id": texts.filter(bool),
        "domain": st.sampled_from(list(DOMAINS)),
        "question": texts,
        "actions": actions,
        "final_answer": st.none() | texts,
        "success": st.none() | st.booleans(),
        "reward": st.none() | st.floats(-10, 10) | st.integers(-3, 3),
        "metadata": st.dictionaries(words.filter(lambda w: w not in ("system", "asked")), anything, max_size=3),
    }
)


def as_openai(record: dict[str, Any]) -> dict[str, Any]:
    """The same trajectory as chat messages with tool calls."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": record["question"]}]
    for i, action in enumerate(record["actions"]):
        call = {"name": action["tool"], "arguments": json.dumps({"input": action["input"]})}
        messages.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{i}", "type": "function", "function": call}],
            }
        )
        messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": action["output"]})
    if record["final_answer"] is not None:
        messages.append({"role": "assistant", "content": record["final_answer"]})
    return {**{k: record[k] for k in ("task_id", "domain", "success", "reward")}, "messages": messages}


def as_sharegpt(record: dict[str, Any]) -> dict[str, Any]:
    """The same trajectory as ShareGPT conversations."""
    turns = [{"from": "human", "value": record["question"]}]
    for action in record["actions"]:
        value = json.dumps({"name": action["tool"], "arguments": {"input": action["input"]}})
        turns += [{"from": "function_call", "value": value}, {"from": "observation", "value": action["output"]}]
    if record["final_answer"] is not None:
        turns.append({"from": "gpt", "value": record["final_answer"]})
    return {**{k: record[k] for k in ("task_id", "domain", "success", "reward")}, "conversations": turns}
