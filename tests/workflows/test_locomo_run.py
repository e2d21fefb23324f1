"""`recollect locomo`: from the file of conversations to weights, a program, an evaluation and baselines."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recollect.config.compose import compose, read_recipe
from recollect.models.checkpoints import find_checkpoint
from recollect.models.program_file import ProgramFile, program_settings, read_program, write_program
from recollect.runtime.console import Console
from recollect.samplers.checkpoint_roles import named
from recollect.types import BadInput
from recollect.workflows.locomo.baseline_table import refusals
from recollect.workflows.locomo.locomo_run import run_locomo
from recollect.workflows.locomo.plan import LocomoPlan, task_files
from tests.commands import run
from tests.data.conversations import conversation, write
from tests.policies.outside import Outside, running

SPLIT = ("--split", "conv-1/conv-2")
MINI = "actor_rollout_ref.actor.ppo_mini_batch_size=4"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, small_model: Path) -> Path:
    """A folder in which the command has trained."""
    folder = tmp_path_factory.mktemp("locomo")
    write(folder / "locomo10.json", *(conversation(f"conv-{n}", 2) for n in (1, 2, 3)))
    done = run("locomo", *SPLIT, "--num-train-steps", "1", "--model", str(small_model), "size=cpu", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_training_leaves_adapter_merged_weights_and_a_program(trained: Path) -> None:
    program = read_program(str(trained / "grpo_optimized_memory_qa.json"))
    assert program.adapter is not None
    assert (program.adapter / "adapter_config.json").is_file()
    assert (program.merged / "model.safetensors").is_file()
    assert not (program.merged / "adapter_config.json").exists()
    assert set(program.prompts) == {"read", "answer"}
    assert program.memory["budget"] == 2000
    assert (trained / "arbor.yaml").read_text() == "inference:\n  gpu_ids: '0'\n\ntraining:\n  gpu_ids: '1,2'\n"


def test_the_program_is_evaluated_and_its_prompts_are_used(trained: Path) -> None:
    file = trained / "grpo_optimized_memory_qa.json"
    assert find_checkpoint(str(file)) == (str(read_program(str(file)).merged), read_program(str(file)).run)
    who = named(str(file), [], [])
    assert who.cfg.agent.prompts == str(file)
    assert who.cfg.agent.agent_type == "conversation_qa"
    other = trained / "other.json"
    other.write_text(json.dumps({"prompts": {"answer": "{question} {memory}"}}))
    assert named(str(file), [], [f"agent.prompts={other}"]).cfg.agent.prompts == str(other)
    done = run("locomo", "--mode", "evaluate", "--num-test", "6", *SPLIT, "-q", cwd=trained)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["agents"]["conversation_qa"]["categories"]["overall"]["locomo_f1"]["n"] == 6


def test_the_laptops_settings_train_on_the_categories_that_were_named(
    trained: Path, small_model: Path, tmp_path: Path
) -> None:
    words = ("--data", str(trained / "locomo10.json"), "--train-categories", "1,4", "--num-train-steps", "1")
    short = (
        "memory.style=plain",
        "data.max_prompt_length=200",
        "data.max_response_length=8",
        "data.train_batch_size=4",
    )
    done = run("locomo", *SPLIT, *words, "--model", str(small_model), "size=laptop", *short, MINI, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (rows,) = tmp_path.glob("grpo_checkpoints/data-*/train.jsonl")
    asked = [q["category"] for line in rows.read_text().splitlines() for q in json.loads(line)["questions"]]
    assert set(asked) == {1, 4}
    assert read_program(str(tmp_path / "grpo_optimized_memory_qa.json")).adapter is not None


def test_baselines_stand_beside_each_other(trained: Path, small_model: Path) -> None:
    words = ("locomo", "--mode", "baselines", "--num-test", "5", "--model", str(small_model), *SPLIT, "-q", "size=cpu")
    done = run(*words, cwd=trained)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert list(found) == [
        *('always "not mentioned"', "no memory", "whole conversation, cut", "RAG over turns", "RAG over sessions"),
        *("RAG over observations", "memory"),
    ]
    assert found['always "not mentioned"']["overall"]["refused"]["accuracy"] == 1.0
    assert {row["overall"]["locomo_f1"]["n"] for row in found.values()} == {5}
    assert "evidence_recall" in found["RAG over turns"]["overall"]
    assert "evidence_recall" not in found["no memory"]["overall"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--mode", "play"), "--mode play is unknown; known: train, evaluate, baselines, judge"),
        (("--mode", "evaluate", "--program", "no.json"), "there is no program at no.json: train first"),
        (("--num-train", "99", *SPLIT, "size=cpu"), "--num-train 99: its part of the split has 10 questions (conv-1)"),
        (("--data", "no.json", "size=cpu"), "no data file at no.json"),
        (("--mode", "evaluate", "--dry-run"), "--dry-run goes with --mode train"),
        (("--training-gpus", "one", *SPLIT, "size=cpu"), "--training-gpus one: give numbers of GPUs"),
        (("--mode", "baselines", "--split", "conv-1/conv-2,conv-3/", "size=cpu"), "no conversation is left"),
        ((*SPLIT, "size=cpu", "agent.agent_type=concat"), "recollect locomo trains conversation_qa"),
    ],
)
def test_what_cannot_work_is_one_line(trained: Path, words: tuple[str, ...], message: str) -> None:
    done = run("locomo", *words, cwd=trained)
    assert done.returncode == 2
    assert message in done.stderr
    assert "\n" not in done.stderr.strip()


def test_a_dry_run_leaves_nothing(trained: Path, tmp_path: Path) -> None:
    done = run("locomo", *SPLIT, "--data", str(trained / "locomo10.json"), "--dry-run", "size=cpu", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_recipe_has_the_settings_of_the_guide() -> None:
    cfg = compose("locomo", [])
    actor, model = cfg.actor_rollout_ref.actor, cfg.actor_rollout_ref.model
    assert (model.lora_rank, model.lora_alpha, actor.kl_loss_coef, actor.optim.lr) == (64, 16.0, 0.04, 2e-5)
    assert actor.use_kl_loss
    assert (actor.optim.lr_scheduler_type, actor.dtype) == ("constant", "bfloat16")
    assert actor.ppo_micro_batch_size_per_gpu == 2
    assert actor.optim.lr_warmup_steps > 0
    assert cfg.data.train_batch_size * cfg.actor_rollout_ref.rollout.n == 2 * 4
    assert (cfg.data.max_prompt_length, cfg.data.max_response_length, cfg.memory.budget) == (4096, 512, 20_000)
    assert cfg.trainer.total_training_steps == 500
    assert "cpu" in read_recipe("locomo")["variants"]["size"]


def test_tasks_are_written_once_and_by_what_was_asked(tmp_path: Path) -> None:
    source = write(tmp_path / "c.json", *(conversation(f"conv-{n}", 4) for n in (1, 2, 3)))
    plan = LocomoPlan("train", str(source), tmp_path / "out", split="conv-1/conv-2")
    first = task_files(plan, lambda line: None)
    for part in ("train", "val"):
        assert len((first / f"{part}.jsonl").read_text().splitlines()) == 20  # one question each
    said: list[str] = []
    assert task_files(plan, said.append) == first
    assert said == []
    written = LocomoPlan("train", str(source), tmp_path / "out", split="conv-1/conv-2", settings=MEMORY)
    counts = [len((task_files(written, said.append) / f"{p}.jsonl").read_text().splitlines()) for p in ("train", "val")]
    assert counts == [3, 1]  # of 8 questions at most; a whole conversation
    test = task_files(LocomoPlan("evaluate", str(source), tmp_path / "out", split="all"), said.append) / "test.jsonl"
    assert refusals(test)["5 adversarial"]["locomo_f1"]["accuracy"] == 1.0


MEMORY = ("conversation.memory=recurrent",)


def test_a_broken_program_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    for text in ("{}", "[]", '{"program": "conversation_qa", "weights": {}, "run": 3}'):
        file.write_text(text)
        with pytest.raises(BadInput, match="is no program"):
            find_checkpoint(str(file))
    write_program(file, ProgramFile(tmp_path / "a", None, tmp_path / "b", {}, {}))
    with pytest.raises(BadInput, match="its merged weights are not at"):
        find_checkpoint(str(file))
    assert program_settings("tiny", ["a=1"]) == ["a=1"]


def test_a_judge_is_measured_on_constructed_answers(tmp_path: Path) -> None:
    def lenient(body: dict[str, Any]) -> str:  # it takes anything that is not another question's answer
        text = body["messages"][-1]["content"]
        said = re.findall(r"<answer>\n(.*?)\n</answer>", text, re.DOTALL)[0]
        gold = re.findall(r"<accepted>\n(.*?)\n</accepted>", text, re.DOTALL)[0]
        return "hm" if gold == "Rex" and said == "Rex" else "RIGHT" if said == gold or "they" in said else "WRONG"

    source = write(tmp_path / "c.json", *(conversation(f"conv-{n}") for n in (1, 2, 3)))
    with running(Outside(lenient)) as outside:
        settings = ("size=cpu", f"judge.url={outside.url}", "judge.wording=lenient")
        plan = LocomoPlan("judge", str(source), tmp_path / "out", split="all", settings=settings)
        found = run_locomo(plan, False, Console(True))
        with pytest.raises(BadInput, match=r"Set judge.url"):
            run_locomo(replace(plan, settings=("size=cpu",)), False, Console(True))
    own = replace(plan, settings=("size=cpu", "judge.url=frozen:tiny", "judge.max_tokens=3"))
    alone = run_locomo(own, False, Console(True))
    assert alone["no verdict"] > 0  # the embedded model is no judge
    assert alone["right"]["accuracy"] < 0.5
    assert found["right"]["accuracy"] == 0.75  # no verdict on Rex
    assert found["vague"]["accuracy"] == 0.0
    assert found["wrong"]["n"] == 0  # all conversations have the same golds
    assert found["no verdict"] == 3
