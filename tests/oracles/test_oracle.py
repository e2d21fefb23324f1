"""`sft.data=oracle`: scripted teachers play the agent's own loop on tasks with known answers."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from recollect.chat import Renderer
from recollect.config import Config
from recollect.config.compose import compose
from recollect.data.task_rows import load_tasks
from recollect.models.tiny import build_tokenizer
from recollect.oracles.known import known_of
from recollect.oracles.reading_oracle import around
from recollect.training.sft.oracle import BalancedBatches, kinds_of, played
from recollect.training.sft.sources import batches_of, check_source
from recollect.types import BadInput, Group, Sample, Task
from recollect.workflows.data.locomo_files import LocomoOptions, write_locomo
from tests.commands import run
from tests.data.conversations import conversation
from tests.data.conversations import write as write_conversations

LIMITS = "recurrent.memory.config"
SMALL = [f"{LIMITS}.chunk_size=40", f"{LIMITS}.max_memorization_length=30", f"{LIMITS}.split=sentence"]


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(build_tokenizer())


def document(i: int, n: int = 6) -> dict[str, Any]:
    """A question about one of several sentences; another sentence holds the same number."""
    lines = [f"box {j} holds item {j}{j}." for j in range(n)]
    lines[i % n] = f"the key of room {i} weighs {i} pounds."
    return {
        "id": f"d{i}",
        "question": f"How much does the key of room {i} weigh?",
        "answers": [f"{i} pounds"],
        "context": " ".join(lines),
    }


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def settings(files: str, *more: str) -> Config:
    given = [f"data.train_files={files}", "sft.data=oracle", "agent.reward_name=qa_f1_reward"]
    return compose(None, [*given, "data.max_response_length=300", *SMALL, *more])


def solved(cfg: Config, renderer: Renderer) -> list[Group]:
    """The oracle's attempts at the training tasks."""
    return played(cfg, renderer, load_tasks(cfg, cfg.data.train_files))


def said(group: Group) -> list[tuple[str, str]]:
    (trajectory,) = group.trajectories
    assert trajectory.failure is None, trajectory.failure
    return [(turn.role, turn.completion.text) for turn in trajectory.turns]


def test_the_reader_keeps_the_sentence_and_answers_from_it(tmp_path: Path, renderer: Renderer) -> None:
    files = write(tmp_path / "t.jsonl", [document(i) for i in range(6)])
    for i, group in enumerate(solved(settings(files), renderer)):
        sentence = f"- the key of room {i} weighs {i} pounds."
        turns = said(group)
        memories = [text for role, text in turns if role == "memory"]
        assert len(memories) > 1
        assert memories[-1] == sentence
        first = memories.index(sentence)
        assert memories == ["none"] * first + [sentence] * (len(memories) - first)
        assert turns[-1] == ("qa", f"\\boxed{{{i} pounds}}")
        assert group.trajectories[0].reward == 1


def test_prompts_are_those_that_the_agent_shows_a_model(tmp_path: Path, renderer: Renderer) -> None:
    """Every completion ends the turn, and a memory stands in the next prompt as it was said."""
    files = write(tmp_path / "t.jsonl", [document(1)])
    (group,) = solved(settings(files, f"{LIMITS}.style=instruct"), renderer)
    turns = group.trajectories[0].turns
    for before, after in pairwise(turns):
        assert before.completion.ids[-1] == renderer.end_id
        assert f"<memory>\n{before.completion.text}\n</memory>" in renderer.decode(after.prompt_ids)


def test_a_long_sentence_is_cut_around_its_answer(tmp_path: Path, renderer: Renderer) -> None:
    long = f"{'very ' * 30}far away the key weighs 7 pounds {'and more ' * 30}."
    row = {"id": "a", "question": "How heavy is the key?", "answers": ["7 pounds"], "context": f"So it is. {long}"}
    files = write(tmp_path / "t.jsonl", [row])
    (group,) = solved(settings(files, f"{LIMITS}.chunk_size=400"), renderer)
    memory = said(group)[-2][1]
    assert "7 pounds" in memory
    assert memory.removeprefix("- ") in long
    assert len(renderer.encode(memory)) < 30
    assert group.trajectories[0].reward == 1


def test_around_takes_whole_words_only() -> None:
    text = "alpha beta gamma delta epsilon zeta eta theta iota kappa"
    part = around(text, "epsilon", lambda shown: len(shown) <= 60)
    assert part == text
    part = around(text, "epsilon", lambda shown: len(shown) <= 50)
    assert "epsilon" in part
    assert set(part.split()) <= set(text.split())
    assert around(text, "omega", lambda shown: len(shown) <= 50) == ""


def test_what_the_row_says_is_needed_goes_before_what_is_found() -> None:
    text = "Rome fell in 476. The 476 bus goes to Rome."
    row = {"evidence": ["The 476 bus goes to Rome."]}
    (known,) = known_of(Task("a", "Which bus goes to Rome?", text, ("476",), fields=row))
    assert known.evidence == ("The 476 bus goes to Rome.",)
    (known,) = known_of(Task("a", "When did Rome fall?", text, ("476",)))
    assert known.evidence == ("Rome fell in 476.",)
    (known,) = known_of(Task("a", "Who?", text, ("47",)))
    assert known.evidence == ()


def test_kinds_of_turns_are_trained_equally_often(tmp_path: Path, renderer: Renderer) -> None:
    files = write(tmp_path / "t.jsonl", [document(i) for i in range(12)])
    lines: list[str] = []
    batches = batches_of(settings(files, "sft.batch_size=16"), renderer, say=lines.append)
    for index in (0, 3):
        kinds = [kinds_by_text(sample, renderer) for sample in batches[index]]
        assert sorted(kinds) == sorted(["answer", "found", "keep", "nothing"] * 4)
    assert any(line.startswith("SFT on an oracle: ") and "12 found" in line for line in lines)


def kinds_by_text(sample: Sample, renderer: Renderer) -> str:
    """The kind of a sequence from its text alone."""
    prompt, reply = (renderer.decode(sample.ids[m].tolist()).strip() for m in (~sample.mask, sample.mask))
    if reply.startswith("\\boxed"):
        return "answer"
    if reply == "none":
        return "nothing"
    return "keep" if prompt.count(reply) and f"<memory>\n{reply}" in prompt else "found"


def test_batches_depend_on_their_number_alone() -> None:
    import numpy as np

    def sample(i: int) -> Sample:
        return Sample(np.array([i]), np.array([True]), np.zeros(1, np.float32), i, 0)

    make = lambda: BalancedBatches({"a": [sample(i) for i in range(5)], "b": [sample(9)], "c": []}, 4, 0)
    one, two = make(), make()
    seen = [[int(s.ids[0]) for s in one[i]] for i in (2, 0, 1, 2)]
    assert seen[0] == seen[3] == [int(s.ids[0]) for s in two[2]]
    assert [row.count(9) for row in seen] == [2, 2, 2, 2]
    assert len({i for i in range(3) for i in [int(s.ids[0]) for s in one[i]]}) == 6
    assert one.per_epoch == 2


def test_notes_are_taken_and_looked_up(tmp_path: Path, renderer: Renderer) -> None:
    row = document(2)
    asked = [{"question": q["question"], "answer": q["answers"][0]} for q in (document(2), document(3))]
    row = {"id": "m", "questions": asked, "context": f"{row['context']} {document(3)['context']}"}
    more = ["agent.agent_type=tool_memory", "memory.chunk_size=40", "memory.style=instruct", "agent.tool_parser=hermes"]
    files = write(tmp_path / "t.jsonl", [row])
    cfg = settings(files, *more, "agent.reward_name=memory_qa", "memory.scores=[qa_em]")
    (group,) = solved(cfg, renderer)
    turns = said(group)
    assert group.trajectories[0].reward == 1
    notes = [action for action in group.trajectories[0].actions if action.tool == "memory_add"]
    assert [note.input["content"] for note in notes] == [f"the key of room {i} weighs {i} pounds." for i in (2, 3)]
    assert {action.tool for action in group.trajectories[0].actions} == {"memory_add", "memory_bm25_retrieve"}
    assert ("memory", "There is nothing to note.") in turns


SOLUTION = "She sold 48/2 = <<48/2=24>>24 clips in May.\nIn all 48+24 = <<48+24=72>>72 clips."
PROBLEM = {"id": "g", "question": "How many clips?", "answer": "72", "solution": SOLUTION}


@pytest.mark.parametrize("parser", ["hermes", "llama", "line", "compact", "react"])
def test_annotations_become_calls_of_the_calculator(parser: str, tmp_path: Path, renderer: Renderer) -> None:
    more = ["agent.agent_type=hf", "agent.tools=[calculator]", f"agent.tool_parser={parser}"]
    cfg = settings(write(tmp_path / "t.jsonl", [PROBLEM]), *more, "agent.reward_name=math_reward_string_equal")
    (group,) = solved(cfg, renderer)
    (trajectory,) = group.trajectories
    assert [(a.input["expression"], a.output) for a in trajectory.actions] == [("48/2", "24"), ("48+24", "72")]
    turns = said(group)
    if parser != "llama":  # whose calls stand alone
        assert turns[0][1].startswith("She sold 48/2 =\n")
        assert turns[1][1].startswith("24 clips in May.\nIn all 48+24 =\n")
    assert turns[2][1] == "72 clips.\n\\boxed{72}"
    assert trajectory.reward == 1


def test_without_tools_the_solution_is_worked_out(tmp_path: Path, renderer: Renderer) -> None:
    cfg = settings(write(tmp_path / "t.jsonl", [PROBLEM]), "agent.agent_type=chat")
    (group,) = solved(cfg, renderer)
    assert said(group) == [("agent", "She sold 48/2 = 24 clips in May.\nIn all 48+24 = 72 clips.\n\\boxed{72}")]


def test_a_search_with_the_question_then_the_answer(tmp_path: Path, renderer: Renderer) -> None:
    rows = [document(i) for i in range(3)]
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for row in rows:
        (corpus / f"{row['id']}.txt").write_text(row["context"])
    lost = {"id": "x", "question": "Who wrote it?", "answers": ["nobody here"]}
    files = write(tmp_path / "t.jsonl", [*({**r, "context": None} for r in rows), lost])
    more = ["agent.agent_type=react", "agent.tools=[search]", f"search.corpus={corpus}", f"search.cache_dir={tmp_path}"]
    found = solved(settings(files, *more, "data.max_response_length=300"), renderer)
    for row, group in zip(rows, found, strict=False):
        first, last = (text for _, text in said(group))
        assert first.endswith(f'Action: search\nAction Input: {{"query": "{row["question"]}"}}')
        assert last.endswith(f"Final Answer: {row['answers'][0]}")
        assert group.trajectories[0].reward == 1
    assert found[-1].trajectories[0].reward == 0
    assert len(found[-1].trajectories[0].actions) == 2
    lines: list[str] = []
    batches_of(settings(files, *more, "data.max_response_length=300"), renderer, say=lines.append)
    assert "4 rows, 1 under the reward" in lines[-1]


@pytest.mark.parametrize("agent", ["concat", "rag"])
def test_baselines_answer_what_they_see(agent: str, tmp_path: Path, renderer: Renderer) -> None:
    cfg = settings(write(tmp_path / "t.jsonl", [document(4)]), f"agent.agent_type={agent}")
    (group,) = solved(cfg, renderer)
    assert said(group) == [("qa", "\\boxed{4 pounds}")]


def test_kinds_are_told_apart(renderer: Renderer) -> None:
    assert kinds_of([], renderer, "none") == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["data.train_files=[]"], "oracle plays the tasks of data.train_files"),
        (["agent.agent_type=code", "agent.tools=[python_executor]"], "no oracle plays agent.agent_type=code"),
        (["agent.agent_type=hf", "agent.tool_parser=json:loads"], "and not for json:loads"),
    ],
)
def test_what_cannot_work_is_refused(more: list[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=words):
        check_source(settings(write(tmp_path / "t.jsonl", [document(0)]), *more))


def test_nothing_to_imitate_is_one_line(tmp_path: Path, renderer: Renderer) -> None:
    row = {"id": "a", "question": "Who?", "answers": ["Zeno"], "context": "Nothing is said here."}
    with pytest.raises(BadInput, match="solves none of the 1 tasks: no document holds its answer"):
        batches_of(settings(write(tmp_path / "t.jsonl", [row])), renderer)


def test_the_command_imitates_and_goes_on_with_rl(tmp_path: Path) -> None:
    files = write(tmp_path / "t.jsonl", [document(i) for i in range(8)])
    given = [
        f"data.train_files={files}",
        f"data.val_files={files}",
        "sft.data=oracle",
        "sft.steps=2",
        "sft.batch_size=4",
        "sft.test_freq=1",
    ]
    given += ["data.train_batch_size=2", "actor_rollout_ref.rollout.n=2", "agent.reward_name=qa_f1_reward", *SMALL]
    given += [f"{LIMITS}.style=plain", f"{LIMITS}.max_prompt_length=40", f"{LIMITS}.max_final_response_length=12"]
    out = tmp_path / "run"
    done = run("train", *given, "trainer.total_training_steps=1", f"trainer.default_local_dir={out}")
    assert done.returncode == 0, done.stderr
    assert "SFT on an oracle" in done.stdout
    assert "held-out conversations after 2: loss" in done.stdout
    phases = {json.loads(line).get("phase") for line in (out / "metrics.jsonl").read_text().splitlines()}
    assert {"base", "sft"} <= phases


CONVERSATION = ("agent.agent_type=conversation_qa", "agent.reward_name=memory_qa", "memory.scores=[locomo_f1]")


def test_an_oracle_says_the_answers_about_a_conversation(tmp_path: Path, renderer: Renderer) -> None:
    source = write_conversations(tmp_path / "locomo.json", conversation("conv-1"))
    write_locomo(source, tmp_path / "data", LocomoOptions("all"), str)
    files = str(tmp_path / "data" / "test.jsonl")
    (group,) = solved(settings(files, *CONVERSATION), renderer)
    (trajectory,) = group.trajectories
    wanted = ["a bowl, a bicycle", "7 May 2023", "a baker; he wants to start a bakery", "Rex"]
    assert sorted(text for _, text in said(group)) == sorted([*wanted, "Not mentioned in the conversation"])
    assert trajectory.answers is not None
    assert trajectory.answers[:4] == wanted
    assert trajectory.reward > 0.8
    prompt = next(t for t in trajectory.turns if t.completion.text == "7 May 2023").prompt_ids
    assert "Ana: I went to a pottery class" in renderer.decode(prompt)
    with pytest.raises(BadInput, match=r"does not write conversation\.memory=recurrent"):
        solved(settings(files, *CONVERSATION, "conversation.memory=recurrent"), renderer)
