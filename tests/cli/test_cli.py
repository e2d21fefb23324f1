"""The command line as a user meets it: commands that work; bad input with one line, exit code 2, nothing written."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recollect.cli import app
from tests import commands

FAST = [
    "data.train_batch_size=2",
    "actor_rollout_ref.rollout.n=2",
    "data.needle.chunks=2",
    "data.val_max_samples=4",
    "evaluation.lengths=[1,2]",
    "evaluation.tasks=[4,2]",
    "trainer.total_training_steps=2",
]


def recollect(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return commands.run(*args, cwd=cwd, env={"HF_HUB_OFFLINE": "1"})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, small_model: Path) -> Path:
    """A short run of `recollect train`."""
    out = tmp_path_factory.mktemp("cli") / "run"
    done = recollect("train", f"actor_rollout_ref.model.path={small_model}", f"trainer.default_local_dir={out}", *FAST)
    assert done.returncode == 0, done.stderr
    assert "Held-out success" in done.stdout
    return out


def test_help_is_quick_and_teaches() -> None:
    took, command = [], [sys.executable, "-m", "recollect", "--help"]
    for _ in range(3):  # processor time, the least of three: other processes may hold the cores
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(took) < 1.5  # 0.2 s on a quiet machine, see benchmarks/startup.py
    for word in ("train", "sft", "eval", "ask", "model", "recipes"):
        assert word in done.stdout
    assert "hotpotqa_memory" in recollect("train", "--help").stdout


def test_every_example_of_help_has_a_line_of_its_own() -> None:
    """Help wraps paragraphs, so a list of examples has to be kept from that."""
    for command in app.registered_commands:
        written = [line.strip() for line in (command.callback.__doc__ or "").splitlines()] if command.callback else []
        name = command.name or command.callback.__name__  # type: ignore[union-attr]
        shown = [line.strip() for line in CliRunner().invoke(app, [name, "--help"]).output.splitlines()]
        examples = [line for line in written if line.startswith("recollect ")]
        assert [line for line in examples if line not in shown] == [], name


def test_a_run_leaves_what_other_programs_rely_on(finished: Path) -> None:
    rows = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    steps = [r for r in rows if "reward/mean" in r]
    assert [r["step"] for r in steps] == [1, 2]
    wanted = {f"reward/{k}" for k in ("mean", "std", "min", "max")}
    wanted |= {f"actor/{k}" for k in ("policy_loss", "kl", "entropy", "grad_norm", "lr")}
    wanted |= {f"rollout/{k}" for k in ("turns", "tokens", "failures")}
    wanted |= {f"time/{k}" for k in ("rollout", "update", "total")} | {"tokens_per_second", "step"}
    assert wanted <= steps[0].keys()
    for row in steps:
        parts = [row[f"time/rollout/{k}"] for k in ("prefill", "decode", "agents", "waiting")]
        assert sum(parts) == pytest.approx(row["time/rollout"], rel=0.01)
        assert min(parts[:3]) > 0
        assert row["tokens_per_second/rollout"] > row["tokens_per_second"] > 0
    assert any("val/needle/accuracy" in r and "val/needle/low" in r and "val/needle/high" in r for r in rows)
    report = json.loads((finished / "report.json").read_text())
    assert report["held_out"].keys() == {"base", "sft", "rl"}
    assert report["held_out"]["sft"] is None
    assert [r["multiple"] for r in report["by_length"]] == [1, 2]
    assert report["by_length"][0].keys() == {"multiple", "chunks", "accuracy", "low", "high", "n"}
    assert report["seconds"].keys() == {"total", "sft", "rollout", "update", "eval"}
    assert report["fidelity"] == 1.0
    assert report["reward"] == {"first": steps[0]["reward/mean"], "last": steps[1]["reward/mean"]}
    assert report["trained_tokens"] > 0
    assert (finished / "report.md").read_text().count("| section | memory after it |") == 3
    for name in ("reward", "held_out", "by_length"):
        assert (finished / "plots" / f"{name}.png").stat().st_size > 5000
    assert (finished / "config.yaml").is_file()
    assert sorted((finished / "trajectories").glob("step-*.jsonl.zst"))


def test_checkpoints_are_plain_model_folders(finished: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    newest = finished / "checkpoints" / "step-2"
    assert AutoModelForCausalLM.from_pretrained(newest).config.model_type == "qwen3"
    assert AutoTokenizer.from_pretrained(newest).chat_template


def test_a_finished_run_is_shown_again_and_not_trained_again(finished: Path, small_model: Path) -> None:
    before = (finished / "metrics.jsonl").read_bytes()
    args = ["train", f"actor_rollout_ref.model.path={small_model}", f"trainer.default_local_dir={finished}", *FAST]
    done = recollect(*args)
    assert done.returncode == 0
    assert "complete" in done.stdout
    assert (finished / "metrics.jsonl").read_bytes() == before


def test_eval_and_ask_work_on_a_run_and_on_a_checkpoint(finished: Path, tmp_path: Path) -> None:
    done = recollect("eval", str(finished), "evaluation.tasks=[3,2]")
    assert done.returncode == 0, done.stderr
    assert json.loads((finished / "eval" / "step-2.json").read_text())["by_length"][0]["n"] == 3
    document = tmp_path / "doc.txt"
    document.write_bytes(b"mira holds 472. \x00\xff\xfe kolu holds 913.\r\n" * 20)
    asked = recollect(
        "ask", str(finished / "checkpoints" / "step-2"), "--document", str(document), "What does mira hold?"
    )
    assert asked.returncode == 0, asked.stderr


def test_quiet_prints_no_progress(finished: Path) -> None:
    done = recollect("eval", str(finished), "--quiet", "evaluation.tasks=[2,2]")
    assert json.loads(done.stdout)["failures"] == 0


def test_sft_alone_and_from_a_runs_trajectories(finished: Path, small_model: Path, tmp_path: Path) -> None:
    model = f"actor_rollout_ref.model.path={small_model}"
    common = [model, "sft.steps=3", "sft.batch_size=6", "data.needle.chunks=2", "data.val_max_samples=4"]
    for i, data in enumerate(("expert", "skill", str(finished))):
        out = tmp_path / str(i)
        done = recollect("sft", "needle", f"trainer.default_local_dir={out}", f"sft.data={data}", *common)
        assert done.returncode == 0, done.stderr
        assert (out / "model" / "config.json").is_file()
    rows = tmp_path / "chat.jsonl"
    turn = [{"role": "user", "content": "What does mira hold?"}, {"role": "assistant", "content": " 472"}]
    rows.write_text("\n".join(json.dumps({"messages": turn * 2}) for _ in range(6)))
    done = recollect("sft", "needle", f"trainer.default_local_dir={tmp_path / 'chat'}", f"sft.data={rows}", *common)
    assert done.returncode == 0, done.stderr
    none = recollect(
        "sft", f"trainer.default_local_dir={tmp_path / 'x'}", f"sft.data={finished}", "sft.min_reward=2", *common
    )
    assert (none.returncode, "nothing to train on" in none.stderr) == (2, True)
    assert not (tmp_path / "x").exists()


def test_model_tiny_is_a_plain_folder(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    out = tmp_path / "tiny"
    assert recollect("model", "tiny", "--out", str(out)).returncode == 0
    model = AutoModelForCausalLM.from_pretrained(out)
    assert sum(p.numel() for p in model.parameters()) < 4_000_000
    assert (out / "README.md").is_file()
    assert sum(f.stat().st_size for f in out.glob("*.safetensors")) <= 8_000_000
    again = recollect("model", "tiny", "--out", str(out))
    assert (again.returncode, "not empty" in again.stderr) == (2, True)


def test_a_run_of_ones_own_data_agent_and_reward(small_model: Path, tmp_path: Path) -> None:
    rows = [
        {"question": f"What does n{i} hold?", "context": f"n{i} holds {i}. " * 9, "answer": str(i)} for i in range(6)
    ]
    (tmp_path / "train.json").write_text(json.dumps(rows))
    (tmp_path / "val.jsonl").write_text("\n".join(map(json.dumps, rows[:3])))
    (tmp_path / "mine.py").write_text(
        "async def agent(task, session, cfg):\n"
        "    done = await session.generate(task.question, role='qa', max_tokens=8)\n"
        "    return done.text\n"
        "def reward(answer, task, question):\n"
        "    assert question == task.question\n"
        "    return {'reward': len(answer) % 3, 'length': len(answer)}\n"
    )
    done = recollect(
        "train",
        f"actor_rollout_ref.model.path={small_model}",
        "trainer.default_local_dir=out",
        "data.train_files=train.json",
        "data.val_files=[val.jsonl]",
        "agent.agent_type=mine.py:agent",
        "agent.reward_name=mine.py:reward",
        *FAST,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["by_length"] == []
    assert report["held_out"]["rl"] is not None


def test_cfg_config_and_dry_run(tmp_path: Path) -> None:
    shown = recollect("train", "needle", "--cfg", "trainer.seed=4", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    (tmp_path / "mine.yaml").write_text(shown.stdout)
    again = recollect("train", "--config", "mine.yaml", "--cfg", cwd=tmp_path)
    assert again.stdout == shown.stdout
    assert "seed: 4" in shown.stdout
    other = recollect("sft", "--config", "mine.yaml", "--cfg", "+trainer.seed=5", cwd=tmp_path)
    assert other.stdout == shown.stdout.replace("seed: 4", "seed: 5")
    for args in (["needle", "--config", "mine.yaml"], ["--config", "nowhere.yaml"]):
        done = recollect("train", *args, cwd=tmp_path)
        assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1)
    dry = recollect("train", "--dry-run", "actor_rollout_ref.rollout.name=hf", cwd=tmp_path)
    assert dry.returncode == 0, dry.stderr
    for words in ("32 tasks × 8 samples", "memory", "boxed_em", "rollout.name=hf", "nothing was started"):
        assert words in dry.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["mine.yaml"]


def test_a_chat_agent_trains(small_model: Path, tmp_path: Path) -> None:
    rows = [{"question": "What is it? " * (1 + 30 * (i > 3)), "context": "c", "answer": str(i)} for i in range(6)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    done = recollect(
        "train",
        f"agent.init_args.model_name_or_path={small_model}",
        "agent.use_agent=False",
        "agent.reward_name=qa_f1_reward",
        "agent.max_tokens_per_turn=8",
        "agent.num_chains=2",
        "reward_model.reward_manager=naive",
        "data.train_files=rows.json",
        "data.train_batch_size=2",
        "data.max_prompt_length=99",
        "data.filter_overlong_prompts=True",
        "trainer.total_training_steps=1",
        "trainer.default_local_dir=out",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "left out 2 of 6 training tasks: longer than 99 tokens" in done.stdout
    assert "the agent chat asks the question alone" in done.stdout
    (row,) = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert (row["rollout/turns"], row["rollout/failures"]) == (1, 0)


BAD = {
    "unknown key": (["trainer.total_training_stepz=3"], "trainer.total_training_steps"),
    "not key=value": (["needle", "oops"], "key=value"),
    "unknown recipe": (["neddle"], "needle"),
    "missing file": (["data.train_files=nowhere.json"], "nowhere.json"),
    "broken JSON": (["data.train_files=broken.json"], "line 3"),
    "broken JSONL": (["data.train_files=broken.jsonl"], "line 2"),
    "empty data": (["data.train_files=empty.json"], "empty"),
    "row without the prompt field": (["data.train_files=noquestion.json"], "row 2: no text under data.prompt_key"),
    "mistyped prompt key": (["data.train_files=zero.json", "data.prompt_key=qestion"], "it has question, context"),
    "no cluster": (["trainer.nnodes=2"], "trainer.nnodes=2 needs a Ray cluster"),
    "two names, two values": (["agent.num_chains=2", "actor_rollout_ref.rollout.n=3"], "give one of them"),
    "a secret in an unknown key": (["trainer.api_key=sk-abcdefghijklmnop123"], "unknown key trainer.api_key"),
    "a secret as a word": (["sk-abcdefghijklmnop123"], "no recipe …"),
    "no document": (["data.train_files=nodoc.json"], "context"),
    "document of zero length": (["data.train_files=zero.json"], "empty document"),
    "chunk_size of zero": (["recurrent.memory.config.chunk_size=0"], "chunk_size=0 must be positive"),
    "chunk larger than the window": (["recurrent.memory.config.chunk_size=20000"], "window of 16384"),
    "not a model folder": (["actor_rollout_ref.model.path=."], "config.json"),
    "no model folder": (["actor_rollout_ref.model.path=./nothing"], "no model folder"),
    "wrong type": (["trainer.seed=abc"], "trainer.seed"),
    "unknown agent": (["agent.agent_type=recurent"], "recurrent"),
    "unknown reward": (["agent.reward_name=boxed"], "boxed_em"),
    "unknown estimator": (["algorithm.adv_estimator=grop"], "grpo"),
    "mini-batch over batch": (["actor_rollout_ref.actor.ppo_mini_batch_size=999"], "larger than"),
    "no GPU": (["trainer.device=cuda"], "no GPU"),
    "foreign directory": (["trainer.default_local_dir=foreign"], "not a run of recollect"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_says_what_is_wrong_and_writes_nothing(case: str, tmp_path: Path) -> None:
    import torch

    if case == "no GPU" and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    row = {"question": "q", "context": "c", "answer": "a"}
    (tmp_path / "broken.json").write_text('[\n{"question": "q"},\n{"question" "q"}]')
    (tmp_path / "broken.jsonl").write_text(json.dumps(row) + "\n{oops\n")
    (tmp_path / "empty.json").write_text("[]")
    (tmp_path / "nodoc.json").write_text(json.dumps([{"question": "q", "answer": "a"}]))
    (tmp_path / "noquestion.json").write_text(json.dumps([row, {"context": "c", "answer": "a"}]))
    (tmp_path / "zero.json").write_text(json.dumps([{**row, "context": ""}]))
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").write_text("do not touch")
    before = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*"))
    args, expected = BAD[case]
    done = recollect("train", *args, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert expected in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "sk-abc" not in done.stderr
    assert sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*")) == before


def test_another_configuration_in_the_run_directory_is_refused(finished: Path, small_model: Path) -> None:
    before = (finished / "config.yaml").read_bytes()
    model = f"actor_rollout_ref.model.path={small_model}"
    done = recollect("train", model, f"trainer.default_local_dir={finished}", *FAST, "trainer.seed=5")
    assert done.returncode == 2
    assert "trainer.seed is 0 there and 5 here" in done.stderr
    assert (finished / "config.yaml").read_bytes() == before


def test_ask_refuses_bad_documents(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    for document in ("empty.txt", "missing.txt", "."):
        done = recollect("ask", str(finished), "--document", document, "What?", cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_a_failing_part_stops_the_run_and_is_named(small_model: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def reward(answer):\n    raise RuntimeError('the scorer is down')\n")
    model = f"actor_rollout_ref.model.path={small_model}"
    done = recollect(
        "train", model, "agent.reward_name=bad.py:reward", "trainer.default_local_dir=o", *FAST, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "the scorer is down" in done.stderr


def test_the_exit_code_says_what_happened(tmp_path: Path) -> None:
    good = json.dumps({"question": "q", "final_answer": "a"})
    (tmp_path / "some.jsonl").write_text(f"{good}\n{{oops\n")
    (tmp_path / "all.jsonl").write_text(f"{good}\n")
    for file, code in (("some", 1), ("all", 0)):
        done = recollect("convert", f"{file}.jsonl", "--domain", "mhqa", "--out", f"{file}.json", cwd=tmp_path)
        assert done.returncode == code, done.stderr
        assert json.loads((tmp_path / f"{file}.json").read_text())["final_answer"] == "a"
    assert recollect("reward", "some.jsonl", "--domain", "mhqa", cwd=tmp_path).returncode == 1
    unknown = recollect("convert", "all.jsonl", "--nonsense")
    assert (unknown.returncode, unknown.stderr.startswith("recollect: No such option")) == (2, True)
    alone = recollect()
    assert (alone.returncode, "\n  convert " in alone.stdout) == (2, True)
