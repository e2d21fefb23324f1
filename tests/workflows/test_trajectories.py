"""The commands convert, reward, sft-data and rollout, as users run them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recollect.config import Config
from recollect.registries import DOMAINS
from recollect.runtime.console import Console
from recollect.types import BadInput, Task
from recollect.workflows.rollout.generate import RolloutRequest, run
from recollect.workflows.rollout.tasks import RolloutTasks, tasks_of
from recollect.workflows.trajectories.convert import convert
from recollect.workflows.trajectories.score import reward
from recollect.workflows.trajectories.sft_data import Choice, preview, sft_data
from tests.commands import run as run_command

QUIET = Console(quiet=True)


def row(i: int, **more: Any) -> dict[str, Any]:
    actions = [{"step": 1, "tool": "search", "input": f"q{i}", "output": f"Ann{i} did it"}]
    actions.append({"step": 2, "tool": "finalize", "input": f"Ann{i}", "output": f"Ann{i}"})
    made = {"task_id": f"t{i}", "domain": "mhqa", "question": f"Who {i}?", "actions": actions}
    return {**made, "final_answer": f"Ann{i}", "success": True, "reward": None, "metadata": {}, **more}


def lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    return path


def read(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# ---- convert ----


def test_good_records_go_on_and_bad_ones_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = lines(tmp_path / "a.jsonl", [row(0), "{broken", {"question": "x"}, row(1)])
    assert convert([str(source)], "mhqa", tmp_path / "o.jsonl", QUIET) == 2
    assert [r["task_id"] for r in read(tmp_path / "o.jsonl")] == ["t0", "t1"]
    told = capsys.readouterr().err
    assert f"{source}, line 2: broken JSON" in told
    assert f"{source}, line 3: there are neither actions nor an answer" in told
    assert "2 of 4 records do not fit" in told


def test_a_json_file_holds_one_object_or_a_list(tmp_path: Path) -> None:
    one, two = lines(tmp_path / "a.jsonl", [row(0)]), lines(tmp_path / "b.jsonl", [row(0), row(1)])
    convert([str(one)], None, tmp_path / "one.json", QUIET)
    convert([str(two)], None, tmp_path / "two.json", QUIET)
    assert json.loads((tmp_path / "one.json").read_text()) == row(0)
    assert json.loads((tmp_path / "two.json").read_text()) == [row(0), row(1)]


def test_a_folder_gets_a_file_for_each_source(tmp_path: Path) -> None:
    for place in ("x/a.json", "y/a.json", "y/b.traj.json", "y/c.jsonl", "y/c.json"):
        (tmp_path / "in" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / place).write_text(json.dumps(row(0, task_id=place)))
    convert([str(tmp_path / "in")], None, tmp_path / "out", QUIET)
    made = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.json*")}
    assert made == {"x/a.json", "y/a.json", "y/b.json", "y/c.jsonl.jsonl", "y/c.json.json"}


def test_nothing_is_written_over(tmp_path: Path) -> None:
    source, out = lines(tmp_path / "a.jsonl", [row(0)]), tmp_path / "o.jsonl"
    out.write_text("mine")
    with pytest.raises(BadInput, match="is there already"):
        convert([str(source)], None, out, QUIET)
    assert out.read_text() == "mine"
    with pytest.raises(BadInput, match="over itself"):
        convert([str(source)], None, source, QUIET, overwrite=True)
    assert read(source) == [row(0)]
    convert([str(source)], None, out, QUIET, overwrite=True)
    assert read(out) == [row(0)]
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".tmp")] == []


def test_equal_ids_are_told_and_kept_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = lines(tmp_path / "a.jsonl", [row(0), row(0, question="other"), row(0), row(1, task_id="t0#2")])
    convert([str(source)], None, tmp_path / "o.jsonl", QUIET)
    made = read(tmp_path / "o.jsonl")
    assert len({r["task_id"] for r in made}) == 4
    assert [r["metadata"].get("duplicate_of") for r in made].count("t0") == 2
    assert made[1]["question"] == "other"
    assert "records have the task_id of an earlier one (t0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "domain", "words"),
    [
        ("a.jsonl", "chess", "chess is unknown"),
        ("no.jsonl", None, "there is no file"),
        ("empty.jsonl", None, "no traj"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, given: str, domain: str | None, words: str) -> None:
    lines(tmp_path / "a.jsonl", [row(0)])
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(BadInput, match=words):
        convert([str(tmp_path / given)], domain, tmp_path / "o.jsonl", QUIET)
    assert not (tmp_path / "o.jsonl").exists()


def test_several_processes_do_the_same_in_the_same_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(i, metadata={"pad": "x" * 2000}) for i in range(3000)]
    rows[7] = rows[2000] = {"bad": 1}
    source = lines(tmp_path / "a.jsonl", rows)
    for workers in (0, 2):
        monkeypatch.setattr("recollect.workflows.trajectories.convert.workers_for", lambda size, n=workers: n)
        assert convert([str(source)], None, tmp_path / f"{workers}.jsonl", QUIET) == 2
    assert (tmp_path / "0.jsonl").read_bytes() == (tmp_path / "2.jsonl").read_bytes()


def test_a_very_long_line(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    long = row(0, metadata={"x": "y" * (12 << 20)})
    lines(source, [long, row(1)])
    assert convert([str(source)], None, tmp_path / "o.jsonl", QUIET) == 0
    assert read(tmp_path / "o.jsonl") == [long, row(1)]


# ---- reward ----


def test_broken_files_do_not_stop_the_analysis(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        reward([str(tmp_path / "*.json")], QUIET, tmp_path / "none.json")
    assert list(tmp_path.iterdir()) == []
    for i in range(30):
        (tmp_path / f"{i}.json").write_text("{" if i == 3 else json.dumps(row(i, success=i % 2 == 0)))
    analysis, problems = reward([str(tmp_path / "*.json")], QUIET, tmp_path / "out" / "analysis.json", min_reward=0.5)
    assert problems == 1
    assert (analysis["scored"], analysis["kept"]) == (29, 15)
    written = json.loads((tmp_path / "out" / "analysis.json").read_text())
    assert {k: v for k, v in written.items() if k != "trajectories"} == analysis
    assert len(written["trajectories"]) == 15
    assert all(r["success"] for r in written["trajectories"])
    found = analysis["statistics"]["mhqa"]
    assert (found["n"], found["checked"], found["success_rate"]) == (29, 29, 15 / 29)
    assert found["total"]["max"] == max(r["total"] for r in written["trajectories"])
    assert list((tmp_path / "out").iterdir()) == [tmp_path / "out" / "analysis.json"]
    with pytest.raises(BadInput, match="is there already"):
        reward([str(tmp_path / "*.json")], QUIET, tmp_path / "out" / "analysis.json")


# ---- sft-data ----


def test_tasks_do_not_leak_and_rows_are_unique(tmp_path: Path) -> None:
    rng = random.Random(0)
    rows = [row(i % 40, task_id=f"x{n}", success=rng.random() < 0.9) for n, i in enumerate(range(200))]
    source = lines(tmp_path / "a.jsonl", rows)
    choice = Choice(val_ratio=0.2, seed=3)
    assert sft_data([str(source)], tmp_path / "one", choice, QUIET) == 0
    assert sft_data([str(lines(tmp_path / "b.jsonl", rows[::-1]))], tmp_path / "two", choice, QUIET) == 0
    for name in ("conversations", "search", "finalize"):
        train, val = (read(tmp_path / "one" / name / f"{part}.jsonl") for part in ("train", "val"))
        asked = lambda r: r["messages"][0]["content"] if "messages" in r else r["prompt"].splitlines()[0]
        assert not {asked(r) for r in train} & {asked(r) for r in val}
        assert len(train) + len(val) == 40
        other = read(tmp_path / "two" / name / "val.jsonl")
        assert {asked(r) for r in val} == {asked(r) for r in other}
    summary = json.loads((tmp_path / "one" / "SUMMARY.json").read_text())
    assert summary["tasks"] == {"train": 32, "val": 8}
    assert summary["datasets"]["search"] == {"train": 32, "val": 8, "duplicates": 160}


def test_templates_are_filled_and_refused(tmp_path: Path) -> None:
    source, mine = lines(tmp_path / "a.jsonl", [row(5)]), tmp_path / "t.yaml"
    mine.write_text("tools: {finalize: {prompt: '{question}|{path}|{context}|{notes}|{{x}}', response: 'A {input}'}}\n")
    sft_data([str(source)], tmp_path / "o", Choice(str(mine), val_ratio=0), QUIET)
    (made,) = read(tmp_path / "o" / "finalize" / "train.jsonl")
    assert (made["prompt"], made["response"]) == ("Who 5?|search|Ann5 did it||{x}", "A Ann5")
    for text, words in (
        ("tools: {a: {prompt: '{nothing}'}}", "unknown field"),
        ("tools: {a: {prompt: 'x } y'}}", "single brace"),
        ("conversation: {syntax: klingon}", "klingon"),
        ("other: 1", "other is unknown"),
        ("- 1", "mapping"),
    ):
        mine.write_text(text)
        (tmp_path / "again.yaml").write_text(text)
        with pytest.raises(BadInput, match=words):
            preview([str(source)], Choice(str(tmp_path / "again.yaml")), 1, QUIET)
        (tmp_path / "again.yaml").unlink()
        from recollect.workflows.trajectories.sft_data import loaded

        loaded.cache_clear()


def test_low_rewards_are_left_out_and_folders_kept(tmp_path: Path) -> None:
    source = lines(tmp_path / "a.jsonl", [row(0, reward=0.2), row(1, reward=0.9), row(2, reward=None, success=False)])
    sft_data([str(source)], tmp_path / "o", Choice(min_reward=0.5, val_ratio=0), QUIET)
    assert [r["task_id"] for r in read(tmp_path / "o" / "conversations" / "train.jsonl")] == ["t1"]
    with pytest.raises(BadInput, match="not empty"):
        sft_data([str(source)], tmp_path / "o", Choice(), QUIET)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x").write_text("keep")
    with pytest.raises(BadInput, match="not empty"):
        sft_data([str(source)], tmp_path / "mine", Choice(), QUIET, overwrite=True)
    assert (tmp_path / "mine" / "x").read_text() == "keep"
    with pytest.raises(BadInput, match="can be trained on"):
        sft_data([str(source)], tmp_path / "p", Choice(min_reward=5), QUIET)
    assert not (tmp_path / "p").exists()


def test_conversations_are_what_the_agent_sees(tmp_path: Path) -> None:
    """Training rows of an expert's attempts have the very ids that its own turns had."""
    from recollect.chat import Renderer
    from recollect.chat.conversation import read_conversation, tokenise
    from recollect.models.load import load_tokenizer

    renderer = Renderer(load_tokenizer("tiny"))
    for domain in ("mhqa", "video", "math", "tau"):
        out = tmp_path / f"{domain}.jsonl"
        assert (
            run(RolloutRequest(RolloutTasks(domain, made_up=6), "expert", out), ["agent.system_prompt=''"], QUIET) == 0
        )
        sft_data([str(out)], tmp_path / domain, Choice(val_ratio=0), QUIET)
        turns = {r["task_id"]: r["metadata"]["turns"] for r in read(out)}
        for made in read(tmp_path / domain / "conversations" / "train.jsonl"):
            ids, mask = tokenise(read_conversation(made, ""), renderer)
            last = turns[made["task_id"]][-1]
            assert ids == [*last["prompt_ids"], *last["ids"]]
            assert sum(mask) == sum(len(t["ids"]) for t in turns[made["task_id"]])


# ---- rollout ----


def test_a_killed_rollout_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = RolloutRequest(RolloutTasks("tau", made_up=5), "expert", tmp_path / "o.jsonl", n=2)
    whole = RolloutRequest(RolloutTasks("tau", made_up=5), "expert", tmp_path / "whole.jsonl", n=2)
    assert run(whole, [], QUIET) == 0
    from recollect.workflows.rollout import generate

    add: Callable[..., None] = generate.Store.add
    seen = []

    def dies(self: Any, *given: Any) -> None:
        add(self, *given)
        seen.append(given)
        if len(seen) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(generate.Store, "add", dies)
    with pytest.raises(KeyboardInterrupt):
        run(request, [], QUIET)
    part = tmp_path / ".o.jsonl.part.jsonl"
    part.write_bytes(part.read_bytes() + b'{"half')
    assert not (tmp_path / "o.jsonl").exists()
    monkeypatch.setattr(generate.Store, "add", add)
    with pytest.raises(BadInput, match="another command"):
        run(RolloutRequest(RolloutTasks("tau", made_up=6), "expert", tmp_path / "o.jsonl", n=2), [], QUIET)
    assert run(request, [], QUIET) == 0
    assert (tmp_path / "o.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert not part.exists()
    with pytest.raises(BadInput, match="is there already"):
        run(request, [], QUIET)


def test_the_guides_questions(tmp_path: Path) -> None:
    captions = tmp_path / "toy.srt"
    captions.write_text(
        "1\n00:00:01,000 --> 00:00:02,000\nA dog runs.\n\n2\n00:00:03,000 --> 00:00:04,000\nIt sleeps.\n"
    )
    asked = RolloutTasks("video", "What happens in the first scene?", captions)
    assert run(RolloutRequest(asked, "expert", tmp_path / "video.traj.json"), [], QUIET) == 0
    made = json.loads((tmp_path / "video.traj.json").read_text())
    assert made["final_answer"] == "A dog runs."
    assert [a["tool"] for a in made["actions"]] == ["load_context", "reason", "finalize"]
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.txt").write_text("Tolkien wrote The Hobbit.\n\nHe also wrote The Silmarillion.")
    cache = f"search.cache_dir={tmp_path / 'cache'}"
    asked = RolloutTasks("mhqa", "Who wrote The Hobbit?", notes, "Tolkien")
    assert run(RolloutRequest(asked, "expert", tmp_path / "mhqa"), [cache], QUIET) == 0
    (file,) = (tmp_path / "mhqa").iterdir()
    assert json.loads(file.read_text())["success"] is True


def test_a_model_behind_a_server_plays_and_one_that_goes_away_is_asked_again(tmp_path: Path) -> None:
    from tests.policies.outside import Outside, running

    def reply(body: dict[str, Any]) -> str:
        turns = [m for m in body["messages"] if m["role"] == "assistant"]
        return ["Let me see.\nreason: 2 and 2", "python: 2 + 2", "finalize: 4"][len(turns)]

    once = "actor_rollout_ref.rollout."
    quick = [f"{once}fixed_model_retries=0", f"{once}fixed_model_wait_s=0.1", f"{once}fixed_model_timeout_s=20"]
    with running(Outside(reply)) as server:
        server.limit = 4  # then it is away
        request = RolloutRequest(
            RolloutTasks("math", "What is 2 + 2?", answer="4"), server.url, tmp_path / "o.json", n=3
        )
        assert run(request, [*quick, "agent.max_concurrency=1"], QUIET) > 0
        assert not (tmp_path / "o.json").exists()
        server.limit = 0
        assert run(request, [*quick, "agent.max_concurrency=1"], QUIET) == 0
        assert all(m["role"] != "system" or "python" in m["content"] for m in server.bodies[0]["messages"])
    rows = json.loads((tmp_path / "o.json").read_text())
    assert [r["task_id"] for r in rows] == ["question#0", "question#1", "question#2"]
    assert all(r["success"] and [a["tool"] for a in r["actions"]] == ["reason", "python", "finalize"] for r in rows)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (RolloutTasks("chess", "x"), "chess"),
        (RolloutTasks("mhqa"), "give one of"),
        (RolloutTasks("mhqa", "x", made_up=3), "give one of"),
        (RolloutTasks("video", "x"), "captions"),
        (RolloutTasks("video", "x", Path("nowhere.srt")), "no such file"),
        (RolloutTasks("mhqa", " ", Path(__file__)), "empty"),
        (RolloutTasks("math", made_up=-1), "--tasks -1: how many"),
    ],
)
def test_what_cannot_be_attempted_is_refused(tmp_path: Path, asked: RolloutTasks, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        run(RolloutRequest(asked, "expert", tmp_path / "o.json"), [], QUIET)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("domain", "row", "words"),
    [
        ("swe", {}, "a swe task needs `files`"),
        ("swe", {"repo": "nowhere"}, "a swe task needs `files`"),
        ("swe", {"files": "a.py"}, "a swe task needs `files`"),
        ("tau", {}, "a tau task needs `database`"),
        ("video", {"context": " "}, "a video task needs its captions under data.context_key=context"),
        ("mhqa", {}, "an mhqa task needs passages under data.context_key=context"),
    ],
)
def test_rows_that_lack_something_are_refused_with_their_place(
    tmp_path: Path, domain: str, row: dict[str, Any], words: str
) -> None:
    whole = {"files": {"a.py": ""}, "database": {}, "context": "00:01 a dog", "question": "q", "answer": "a"}
    rows = [whole, {"question": "q", "answer": "a", **row}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(BadInput, match=rf"t\.jsonl, line 2: {words}.*; it has question, answer"):
        run(
            RolloutRequest(RolloutTasks(domain, data=str(tmp_path / "t.jsonl")), "expert", tmp_path / "o.jsonl"),
            [],
            QUIET,
        )
    assert [p.name for p in tmp_path.iterdir()] == ["t.jsonl"]


def test_names_of_attempts_are_kept_apart() -> None:
    from recollect.workflows.rollout.generate import apart

    assert apart(["a", "b", "A", "a", "a.2"]) == ["a", "b", "A.2", "a.3", "a.2.2"]
    many = ["x"] * 1500
    assert len(set(apart(many))) == 1500


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["rollout", "--domain", "math", "--user", "expert", "--tasks", "1", "--out", "x.jsonl"],
            "--domain math has none",
        ),
        (["sft-data", "x.jsonl", "--preview", "-1"], "--preview -1: how many rows"),
        (["rollout", "--domain", "math", "--tasks", "-1", "--out", "x.jsonl"], "--tasks -1: how many"),
        (["reward", "x.jsonl", "--min-reward", "5"], "--min-reward 5 chooses what --output lists"),
        (["train", "needle", "--min-reward", "0.3", "--cfg"], "data.min_reward=0.3 chooses among stored trajectories"),
    ],
)
def test_options_without_effect_are_refused(tmp_path: Path, words: list[str], said: str) -> None:
    done = run_command(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_domain_says_what_context_and_user_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def board(task: Task, path: Path, cfg: Config) -> Task:
        return replace(task, fields={"board": path.read_text()})

    chess = replace(DOMAINS["math"], name="chess", roles=("agent", "user"), context=board, context_needed="a board!")
    monkeypatch.setitem(DOMAINS, "chess", chess)
    (tmp_path / "board").write_text("e4")
    (task,) = tasks_of(RolloutTasks("chess", question="Next?", context=tmp_path / "board"), Config())
    assert (task.context, task.fields) == (None, {"board": "e4"})
    with pytest.raises(BadInput, match="a board!"):
        tasks_of(RolloutTasks("chess", question="Next?"), Config())
    refused = RolloutRequest(RolloutTasks("math", made_up=1), "expert", tmp_path / "o.jsonl", user="expert")
    with pytest.raises(BadInput, match="plays the user of tau or chess; --domain math has none"):
        run(refused, [], QUIET)
