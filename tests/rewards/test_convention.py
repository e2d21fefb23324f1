"""Whose `answer` a reward is handed: ours, AgentFly's, or refused."""

from __future__ import annotations

import asyncio
import functools
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from recollect.config.compose import compose
from recollect.rewards import REWARDS, find_reward, reward
from recollect.rewards.arguments import arguments, check_names
from recollect.rewards.before_run import check_reward
from recollect.rewards.convention import convention_of, refuse_unclear
from recollect.rewards.scoring import call, call_batch
from recollect.types import Action, BadInput, Completion, Task, Trajectory, Turn
from tests.rewards.attempts import attempt, task

ROW = task("gold", answer="gold", level=3)
WRONG = attempt("I say wrong", answer="wrong")


class Context:
    """A stand-in for AgentFly's class of that name."""


def value(function: Any, given: Task = ROW, made: Trajectory = WRONG) -> float:
    return asyncio.run(call(function, given, made)).total


# ---- which convention ----


def test_agentflys_own_signature_compares_with_the_row() -> None:
    def math_equal(final_response: str, answer: str, **kwargs: Any) -> float:
        return float(final_response == answer)

    assert value(math_equal) == 0.0, "an answer of the agent's compared with itself would be 1"
    assert value(math_equal, made=attempt("gold", answer="gold")) == 1.0


@pytest.mark.parametrize(
    "function",
    [
        lambda final_response, answer: final_response == answer,
        lambda final_response, answer, trajectory: final_response == answer,
        lambda final_response, **kwargs: final_response == kwargs["answer"],
        lambda answer, **kwargs: kwargs["golden_answers"] == [answer],
        lambda answer, golden_answers: answer in golden_answers,
        lambda prediction, answer: prediction == answer,
        lambda final_response, golden_answers: final_response in golden_answers,
        functools.partial(lambda final_response, answer, level: final_response == answer, level=1),
    ],
)
def test_nothing_is_compared_with_itself(function: Any) -> None:
    assert value(function) == 0.0
    assert value(function, made=attempt("gold", answer="gold")) == 1.0


def test_the_agents_words_do_not_hide_among_kwargs() -> None:
    """Such a reward fails by name instead of rewarding everything."""
    with pytest.raises(KeyError, match="final_response"):
        value(lambda answer, **kwargs: kwargs["final_response"] == answer, made=attempt("x", answer="x"))


def test_what_kwargs_hold() -> None:
    theirs = arguments(lambda final_response, **kwargs: 0, ROW, WRONG)
    assert (theirs["final_response"], theirs["answer"], theirs["level"]) == ("I say wrong", "gold", 3)
    assert "prediction" not in theirs
    assert isinstance(theirs["trajectory"], list)
    ours = arguments(lambda answer, **kwargs: 0, ROW, WRONG)
    assert (ours["answer"], ours["level"], ours["trajectory"]) == ("wrong", 3, WRONG)


def test_objects_and_wrappers_are_read_by_their_own_signature() -> None:
    class Judge:
        async def __call__(self, final_response: str, answer: str) -> float:
            return float(final_response == answer)

    def plain(final_response: str, answer: str) -> float:
        return float(final_response == answer)

    @functools.wraps(plain)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return plain(*args, **kwargs)

    for function in (Judge(), wrapped, Judge().__call__):
        assert convention_of(function) == "agentfly"
        assert value(function) == 0.0


def test_a_bound_name_is_not_asked_for() -> None:
    bound = functools.partial(lambda answer, final_response: answer == final_response, final_response="wrong")
    assert convention_of(bound) == "recollect"
    assert value(bound) == 1.0


def test_lists_of_many_trajectories() -> None:
    def together(trajectories: Any, final_response: Any, answer: Any) -> list[float]:
        return [float(a == b) for a, b in zip(final_response, answer, strict=True)]

    scores = asyncio.run(call_batch(together, [ROW, ROW], [WRONG, attempt("gold", answer="x")]))
    assert [s.total for s in scores] == [0.0, 1.0]


def test_a_sum_mixes_both(tmp_path: Path) -> None:
    text = """
        def theirs(final_response, answer): return float(final_response == answer)
        def ours(answer, golden_answers): return float(answer in golden_answers)
    """
    file = tmp_path / "two.py"
    file.write_text(textwrap.dedent(text))
    total = find_reward(f"[{file}:theirs*0.25,{file}:ours*0.75]")
    assert value(total, made=attempt("gold", answer="x")) == 0.25
    assert value(total, made=attempt("x", answer="gold")) == 0.75


# ---- what is refused ----


class Plain:
    def __init__(self, answer: str = "") -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda **kwargs: 1, "open whose `answer`"),
        (lambda *args, **kwargs: 1, "open whose `answer`"),
        (lambda question, **kwargs: 1, "name `answer`"),
        (lambda final_response, answer, task: 1, "compared with itself"),
        (lambda answer, /: 1, "positional only"),
        (Plain, "is a class: name an instance"),
    ],
)
def test_what_could_be_read_either_way_is_refused(function: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        refuse_unclear(function, "agent.reward_name=r")
    assert "\n" not in str(caught.value)


def test_agentflys_context_is_no_document() -> None:
    def chess(final_response: str, context: Context) -> float:
        return 1.0

    def judged(final_response: str, context: Context | None = None) -> float:
        assert context is None
        return 1.0

    def late(final_response: str, context: "Context") -> float:  # noqa: UP037
        return 1.0

    for function in (chess, late):
        with pytest.raises(BadInput, match="rollout Context"):
            refuse_unclear(function, "r")
    refuse_unclear(judged, "r")
    assert value(judged, Task("t", "q", "a document")) == 1.0


@pytest.mark.parametrize(
    ("function", "tasks", "words"),
    [
        (lambda final_response: 1, [task("g", final_response="x")], "rows have a field of that name"),
        (lambda prediction, answer: 1, [task("g", prediction="x")], "rows have a field of that name"),
        (lambda final_response, answer: 1, [task("a", "b")], "no field `answer` and 2 accepted answers"),
        (lambda final_response, answer: 1, [task("a"), task()], "no field `answer` and 0 accepted answers"),
        (lambda final_response, answer, golden_answers: 1, [task("a", answer="a")], "compared with itself"),
        (lambda final_response, env: 1, [task("a")], "wants env; .*environment of AgentFly"),
        (lambda answer, prediction_: 1, [task("a")], "wants prediction_"),
    ],
)
def test_rows_that_leave_it_open_are_refused(function: Any, tasks: list[Task], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        check_names(function, tasks)


@pytest.mark.parametrize(
    ("row", "settings", "expected"),
    [
        ({"answer": ["a", "b"]}, [], ["a", "b"]),
        ({"answers": ["a"]}, [], "a"),
        ({"solution": "a"}, ["data.answer_key=solution"], "a"),
        ({"reward_model": {"ground_truth": "a"}}, [], "a"),
        ({"answer": "row", "solution": "a"}, ["data.answer_key=solution"], "row"),
        ({"answer": "a", "golden_answers": ["b"]}, [], "a"),
    ],
)
def test_where_the_rows_answer_comes_from(row: dict[str, Any], settings: list[str], expected: Any) -> None:
    from recollect.data.task_rows import as_task

    made = as_task({"question": "q", **row}, "f", 0, compose(None, ["agent.agent_type=chat", *settings]))
    function = lambda final_response, answer: 1
    check_names(function, [made])
    assert arguments(function, made, WRONG)["answer"] == expected


# ---- the trajectory, as AgentFly's rewards read it ----


def with_tools() -> Trajectory:
    said = [Completion((1,), (0.0,), "stop", 0, text) for text in ("<tool_call>…", "It is 4")]
    turns = [Turn("agent", (1,), completion) for completion in said]
    return Trajectory("t", 0, turns, "It is 4", actions=[Action("calculator", {"expression": "2+2"}, "4", turn=1)])


def test_the_messages_of_a_trajectory() -> None:
    seen = arguments(lambda final_response, trajectory: 0, task("4", question="2+2?"), with_tools())
    assert [m["role"] for m in seen["trajectory"]] == ["user", "assistant", "tool", "assistant"]
    assert [m["content"] for m in seen["trajectory"]] == ["2+2?", "<tool_call>…", "4", "It is 4"]
    assert seen["trajectory"][1]["tool_calls"][0]["function"] == {
        "name": "calculator",
        "arguments": {"expression": "2+2"},
    }
    assert seen["final_response"] == "It is 4"


def test_a_tool_that_ended_the_episode_said_the_last_word() -> None:
    made = with_tools()
    made.turns.pop()
    assert arguments(lambda final_response: 0, task("4"), made)["final_response"] == "4"
    assert arguments(lambda final_response: 0, task("4"), Trajectory("t", 0))["final_response"] == ""


def test_the_object_itself_where_it_is_annotated() -> None:
    def mine(final_response: str, trajectory: Trajectory) -> float:
        return 1.0

    made = with_tools()
    assert arguments(mine, task("4"), made)["trajectory"] is made


def test_a_reward_in_agentflys_manner_counts_tools() -> None:
    """A signature of its own rewards: the final response, the row's answer, the conversation."""

    @reward(name="math_tool_in_their_manner", auto_register=False)
    def counts(final_response: str, answer: str, trajectory: list[dict[str, Any]]) -> dict[str, float]:
        used = sum(message["role"] == "tool" for message in trajectory)
        right = final_response.split()[-1] == answer
        return {"reward": 0.0 if not used else 1.0 if right else 0.1, "acc": float(right)}

    assert value(counts, task("4", answer="4"), with_tools()) == 1.0
    assert value(counts, task("5", answer="5"), with_tools()) == 0.1
    assert value(counts, task("4", answer="4"), attempt("It is 4")) == 0.0


# ---- the decorator ----


def test_names_by_keyword(tmp_path: Path) -> None:
    text = """
        from recollect.rewards import reward

        @reward(name="known_as_this")
        def called_that(final_response, answer): return 1.0

        @reward(name="qa_f1_reward")
        def qa_f1_reward(final_response: str, answer: str, trajectory: list) -> float: return 0.5

        @reward(name="kept_apart", auto_register=False)
        def kept_apart(answer): return 1.0
    """
    file = tmp_path / "named.py"
    file.write_text(textwrap.dedent(text))
    try:
        assert find_reward(f"{file}:known_as_this") is find_reward("known_as_this")
        assert value(find_reward(f"{file}:called_that")) == 1.0
        assert value(find_reward(f"{file}:qa_f1_reward")) == 0.5
        assert find_reward("qa_f1_reward").__module__ == "recollect.rewards.text", "ours keeps its name"
        assert "kept_apart" not in REWARDS
    finally:
        REWARDS.pop("known_as_this", None)


# ---- what a run says at its start ----

OWN = """
def theirs(final_response, answer, **kwargs): return float(final_response == answer)
def ours(answer, golden_answers): return float(answer in golden_answers)
def anything(**kwargs): return 1.0
"""


def test_the_start_says_which_convention_was_recognised(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    said: list[str] = []
    check_reward(compose("needle", [f"agent.reward_name=[{file}:theirs,{file}:ours,format*0.1]"]), [ROW], said.append)
    assert len(said) == 2
    assert said[0].startswith(f"agent.reward_name={file}:theirs asks for `final_response`, as AgentFly's rewards do")
    assert said[1].startswith(f"agent.reward_name={file}:ours gets the agent's answer as `answer`")


def test_scores_of_single_questions_are_looked_at_too(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    said: list[str] = []
    check_reward(compose("ledger", [f"memory.scores=[{file}:theirs]"]), [task("g")], said.append)
    assert said[0].startswith(f"memory.scores={file}:theirs asks for `final_response`")
    with pytest.raises(BadInput, match=r"memory\.scores: .*no field `answer`"):
        check_reward(compose("ledger", [f"memory.scores=[{file}:theirs]"]), [task("g", "h")], said.append)


COMMANDS = {
    "train --dry-run": ["train", "needle", "--dry-run"],
    "stages --dry-run": ["stages", "two_stage", "--dry-run"],
    "eval": ["eval", "tiny", "evaluation.lengths=[1]", "evaluation.tasks=[2]"],
    "eval --data": ["eval", "--model", "tiny", "--data", "rows.jsonl", "--out", "found"],
    "rollout": ["rollout", "--domain", "math", "--tasks", "1", "--policy", "expert", "--out", "out.jsonl"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_it_and_refuses(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from recollect.cli import app

    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    row = {"question": "What does mira hold?", "context": "mira holds 472.", "answer": "472"}
    Path("rows.jsonl").write_text(json.dumps(row) + "\n")
    done = CliRunner().invoke(app, [*COMMANDS[command], "agent.reward_name=own.py:theirs"])
    assert done.exit_code == 0, done.output
    shown = " ".join((done.output + capsys.readouterr().out).split())
    assert "own.py:theirs asks for `final_response`, as AgentFly's rewards do" in shown
    refused = CliRunner().invoke(app, [*COMMANDS[command], "agent.reward_name=own.py:anything"])
    assert isinstance(refused.exception, BadInput)


def test_a_reward_that_takes_positions_alone_is_refused() -> None:
    with pytest.raises(BadInput, match=r"\*args gets nothing"):
        refuse_unclear(lambda *args: 1.0, "agent.reward_name=x")
