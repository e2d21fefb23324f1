"""Commands of MemAgent and AgentFly, word for word but for program, model, data, GPU and step counts."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from recollect.config import Config
from recollect.config.compose import compose, from_yaml, to_yaml
from tests import commands
from tests.seeing import save_seeing

MEMAGENT = r"""
python3 -m verl.trainer.main_ppo \
    recurrent.enable=memory \
    recurrent.memory.config.chunk_size=5000 \
    algorithm.adv_estimator=grpo \
    algorithm.grpo_use_adv=False \
    trainer.save_freq=10 \
    actor_rollout_ref.rollout.n=16 \
    actor_rollout_ref.rollout.val_kwargs.n=4 \
    trainer.logger=['console','wandb'] \
    actor_rollout_ref.actor.optim.lr_warmup_steps=20 \
    actor_rollout_ref.actor.clip_ratio_high=0.20 \
    actor_rollout_ref.actor.entropy_coeff=0.000 \
    data.train_files=$TRAIN_PATH \
    data.val_files=$VAL_PATH \
    data.shuffle=False \
    data.filter_overlong_prompts=True \
    data.train_batch_size=32 \
    data.truncation='center' \
    +data.context_key='context' \
    data.max_prompt_length=$MAXLEN \
    data.max_response_length=$MAX_NEW_TOKEN \
    reward_model.reward_manager='thread' \
    actor_rollout_ref.model.path=$MODEL_PATH  \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.model.use_remove_padding=True \
    actor_rollout_ref.actor.ppo_mini_batch_size=8 \
    actor_rollout_ref.actor.use_dynamic_bsz=True \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384 \
    actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=32768 \
    actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=32768 \
    actor_rollout_ref.actor.ulysses_sequence_parallel_size=1 \
    actor_rollout_ref.actor.use_kl_loss=True \
    actor_rollout_ref.actor.kl_loss_coef=0.001 \
    actor_rollout_ref.actor.kl_loss_type=low_var_kl \
    actor_rollout_ref.model.enable_gradient_checkpointing=True \
    actor_rollout_ref.actor.fsdp_config.param_offload=True \
    actor_rollout_ref.actor.fsdp_config.optimizer_offload=True \
    actor_rollout_ref.rollout.enforce_eager=False \
    actor_rollout_ref.rollout.free_cache_engine=False \
    actor_rollout_ref.actor.fsdp_config.fsdp_size=8 \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.temperature=1 \
    actor_rollout_ref.rollout.top_p=1.0 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \
    actor_rollout_ref.rollout.val_kwargs.do_sample=True \
    actor_rollout_ref.rollout.val_kwargs.temperature=1.0 \
    actor_rollout_ref.rollout.val_kwargs.top_p=0.7 \
    actor_rollout_ref.rollout.max_num_batched_tokens=16384\
    actor_rollout_ref.ref.fsdp_config.param_offload=True \
    actor_rollout_ref.rollout.dtype=bfloat16 \
    algorithm.kl_ctrl.kl_coef=0.001 \
    trainer.critic_warmup=0 \
    trainer.project_name=$WAND_PROJECT \
    trainer.experiment_name=${EXP} \
    trainer.val_before_train=True \
    trainer.n_gpus_per_node=$NGPUS_PER_NODE \
    trainer.nnodes=$NNODES \
    trainer.test_freq=5 \
    trainer.default_hdfs_dir=null \
    trainer.default_local_dir=$PROJ_DIR \
    trainer.total_epochs=30
"""
MEMAGENT_SHELL = {
    "MAXLEN": "8192",
    "MAX_NEW_TOKEN": "1024",
    "WAND_PROJECT": "memory-agent",
    "EXP": "memory_agent/0.5B",
    "NNODES": "1",
}

GSM8K = r"""
python -m agentfly.cli train \
    algorithm.adv_estimator=grpo \
    data.train_files="./data/rlhf/math/gsm8k_train.json" \
    data.val_files="./data/rlhf/math/gsm8k_test.json" \
    data.train_batch_size=64 \
    agent.agent_type=hf \
    agent.tools="[calculator]" \
    agent.template=qwen2.5 \
    agent.model_name_or_path=Qwen/Qwen2.5-3B-Instruct \
    agent.max_turns=3 \
    agent.reward_name="math_reward_string_equal" \
    agent.num_chains=8 \
    agent.use_agent=True \
    actor_rollout_ref.actor.optim.lr=5e-7 \
    actor_rollout_ref.model.path=Qwen/Qwen2.5-3B-Instruct \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 \
    actor_rollout_ref.actor.use_kl_loss=True \
    actor_rollout_ref.actor.kl_loss_coef=0.001 \
    actor_rollout_ref.actor.kl_loss_type=mse \
    actor_rollout_ref.actor.entropy_coeff=0.001 \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.response_length=256 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.5 \
    critic.model.path=Qwen/Qwen2.5-3B-Instruct \
    algorithm.kl_ctrl.kl_coef=0.001 \
    trainer.logger=['console','wandb'] \
    trainer.project_name=AgentRL \
    trainer.experiment_name=test_gsm8k \
    trainer.n_gpus_per_node=1 \
    trainer.nnodes=1 \
    trainer.save_freq=50 \
    trainer.test_freq=10 \
    trainer.total_training_steps=100
"""
REACT = r"""
python -m agentfly.cli train \
    algorithm.adv_estimator=reinforce_plus_plus \
    data.train_files="./data/rlhf/qa/train_random_8000.json" \
    data.val_files="./data/rlhf/qa/dev_random_500.json" \
    data.train_batch_size=128 \
    data.val_batch_size=512 \
    agent.agent_type=react \
    agent.tools="[google_search,answer]" \
    agent.model_name_or_path=Qwen/Qwen2.5-3B-Instruct \
    agent.max_turns=4 \
    agent.reward_name="qa_f1_reward" \
    agent.num_chains=1 \
    agent.use_agent=True \
    actor_rollout_ref.actor.optim.lr=5e-7 \
    actor_rollout_ref.model.path=Qwen/Qwen2.5-3B-Instruct \
    actor_rollout_ref.actor.ppo_mini_batch_size=128 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \
    actor_rollout_ref.actor.use_kl_loss=True \
    actor_rollout_ref.actor.kl_loss_coef=0.001 \
    actor_rollout_ref.actor.kl_loss_type=mse \
    actor_rollout_ref.actor.entropy_coeff=0.001 \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.response_length=512 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.5 \
    critic.model.path=Qwen/Qwen2.5-3B-Instruct \
    critic.ppo_mini_batch_size=32 \
    algorithm.kl_ctrl.kl_coef=0.001 \
    trainer.logger=['console','wandb'] \
    trainer.project_name=AgentRL \
    trainer.experiment_name=react_search_agent \
    trainer.n_gpus_per_node=8 \
    trainer.nnodes=1 \
    trainer.save_freq=50 \
    trainer.test_freq=10 \
    trainer.total_training_steps=200 \
    trainer.val_before_train=True
"""
CODE = r"""
python -m agentfly.cli train \
    algorithm.adv_estimator=grpo \
    data.train_files="./data/rlhf/code/train.json" \
    data.val_files="./data/rlhf/code/val.json" \
    data.train_batch_size=64 \
    agent.agent_type=code \
    agent.tools="[python_executor]" \
    agent.model_name_or_path=Qwen/Qwen2.5-3B-Instruct \
    agent.max_turns=5 \
    agent.reward_name="code_reward" \
    agent.num_chains=4 \
    agent.use_agent=True \
    actor_rollout_ref.actor.optim.lr=4e-7 \
    actor_rollout_ref.model.path=Qwen/Qwen2.5-3B-Instruct \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \
    actor_rollout_ref.actor.use_kl_loss=True \
    actor_rollout_ref.actor.kl_loss_coef=0.001 \
    actor_rollout_ref.actor.kl_loss_type=mse \
    actor_rollout_ref.actor.entropy_coeff=0.001 \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.response_length=512 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.5 \
    critic.model.path=Qwen/Qwen2.5-3B-Instruct \
    algorithm.kl_ctrl.kl_coef=0.001 \
    trainer.logger=['console','wandb'] \
    trainer.project_name=AgentRL \
    trainer.experiment_name=code_agent \
    trainer.n_gpus_per_node=4 \
    trainer.nnodes=1 \
    trainer.save_freq=50 \
    trainer.test_freq=10 \
    trainer.total_training_steps=300
"""
AGENTFLY = {"hf": GSM8K, "react": REACT, "code": CODE}
GPU_COUNTS = r"(trainer\.n_gpus_per_node|rollout\.tensor_model_parallel_size)=\d+"


def recollect(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    more = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled", **env}
    return commands.run(*args, cwd=cwd, env=more, timeout=300)


def words_of(command: str, shell: dict[str, str]) -> list[str]:
    """A command as a shell hands it over: lines joined, variables put in, quotes taken off; program name dropped."""
    text = command.strip().replace("\\\n", "")
    text = re.sub(r"\$\{?(\w+)\}?", lambda found: shell[found.group(1)], text)
    return [word for word in shlex.split(text) if "=" in word]


def agentfly_words(kind: str, model: str = "tiny") -> list[str]:
    text = AGENTFLY[kind].replace("Qwen/Qwen2.5-3B-Instruct", model)
    text = re.sub(r'"\./data/\S+_?(train|test|dev|val)\S*\.json"', lambda m: f"{_split(m.group(1))}.json", text)
    return words_of(re.sub(GPU_COUNTS, r"\1=1", text), {})


def _split(word: str) -> str:
    return "train" if word == "train" else "val"


def write_rows(folder: Path, count: int) -> None:
    rows = [{"question": f"What is {i} + {i}?", "answer": str(2 * i)} for i in range(count)]
    (folder / "train.json").write_text(json.dumps(rows))
    (folder / "val.json").write_text(json.dumps(rows[:4]))


def write_documents(folder: Path, count: int) -> None:
    """Rows with the columns of MemAgent's HotpotQA files."""
    import pyarrow
    import pyarrow.parquet as parquet

    rows = [
        {
            "data_source": "hotpotqa",
            "prompt": [{"role": "user", "content": f"What does n{i} hold?"}],
            "context": " ".join(f"n{j} holds {j * 7 % 1000}." for j in range(i, i + 40)),
            "reward_model": {"ground_truth": [str(i * 7 % 1000)], "style": "rule"},
            "extra_info": {"index": i},
        }
        for i in range(count)
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "train.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(rows[:2]), folder / "val.parquet")


def memagent_words(model: str) -> list[str]:
    paths = {"TRAIN_PATH": "train.parquet", "VAL_PATH": "val.parquet", "MODEL_PATH": model, "PROJ_DIR": "results/run"}
    return words_of(MEMAGENT, {**MEMAGENT_SHELL, **paths, "NGPUS_PER_NODE": "1"})


def test_memagents_command_means_what_it_says() -> None:
    cfg = compose(None, memagent_words("tiny"))
    memory, rollout, actor = cfg.recurrent.memory.config, cfg.actor_rollout_ref.rollout, cfg.actor_rollout_ref.actor
    assert (cfg.agent.agent_type, cfg.agent.reward_name) == ("recurrent", "boxed_em")
    assert (memory.chunk_size, memory.style, memory.max_memorization_length) == (5000, "instruct", 1024)
    assert (rollout.max_num_batched_tokens, rollout.n, rollout.dtype) == (16384, 16, "bfloat16")
    assert (actor.fsdp_config.fsdp_size, actor.ppo_mini_batch_size, actor.optim.lr) == (8, 8, 1e-6)
    assert (cfg.trainer.logger, cfg.trainer.default_hdfs_dir) == (["console", "wandb"], None)
    assert (cfg.data.truncation, cfg.data.context_key, cfg.data.max_response_length) == ("center", "context", 1024)


@pytest.fixture(scope="module")
def brief_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random model that soon ends its turn, so that a whole batch of the guide's size is quick."""
    import torch
    from transformers import AutoModelForCausalLM

    from recollect.models.tiny import save_scratch

    out = tmp_path_factory.mktemp("model") / "brief"
    save_scratch(out, 0, width=32, layers=2, heads=2)
    model = AutoModelForCausalLM.from_pretrained(out)
    with torch.no_grad():
        table = model.get_input_embeddings().weight
        table[:, 0] = 1.0  # a direction that every state has, and that the end token has twice
        table[model.config.eos_token_id, 0] = 2.0
    model.save_pretrained(out)
    return str(out)


def test_memagents_command_trains(tmp_path: Path, brief_model: str) -> None:
    """All sizes are the guide's: 32 tasks, 16 samples of each, four updates."""
    write_documents(tmp_path, 32)
    words = [*memagent_words(brief_model), "trainer.total_training_steps=1"]
    done = recollect("train", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "actor_rollout_ref.rollout.name=vllm" in done.stdout
    run = tmp_path / "results" / "run"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in rows if "reward/mean" in r] == [1]
    assert all(r["rollout/failures"] == 0 for r in rows if "reward/mean" in r)
    assert len(list((run / "checkpoints").iterdir())) >= 1
    stored = (run / "config.yaml").read_text()
    assert to_yaml(from_yaml(stored)) == stored


@pytest.mark.parametrize("kind", AGENTFLY)
def test_agentflys_commands_are_accepted(kind: str, tmp_path: Path) -> None:
    write_rows(tmp_path, 128)
    words = agentfly_words(kind)
    cfg = compose(None, words)
    assert (cfg.agent.agent_type, cfg.recurrent.enable) == (kind, None)
    assert cfg.actor_rollout_ref.rollout.n == cfg.agent.num_chains
    assert cfg.data.max_response_length == cfg.actor_rollout_ref.rollout.response_length in (256, 512)
    before = sorted(tmp_path.rglob("*"))
    done = recollect("train", "--dry-run", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "bound to" in done.stdout
    assert ", ".join(cfg.agent.tools) in done.stdout
    assert sorted(tmp_path.rglob("*")) == before


def write_kind(folder: Path, kind: str, count: int) -> list[str]:
    """Data of the shape that a command reads, and what has to be added to the command: somewhere to search."""
    write_rows(folder, count)
    if kind == "code":
        rows = [
            {"question": f"Write double(x); double({i}).", "tests": [f"assert double({i}) == {2 * i}"]}
            for i in range(count)
        ]
        for name, part in (("train", rows), ("val", rows[:4])):
            (folder / f"{name}.json").write_text(json.dumps(part))
    if kind != "react":
        return []
    passages = [{"title": f"Sum {i}", "text": f"{i} + {i} is {2 * i}."} for i in range(count)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(p) + "\n" for p in passages))
    return ["search.corpus=corpus.jsonl"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", AGENTFLY)
def test_agentflys_commands_train(kind: str, tmp_path: Path, brief_model: str) -> None:
    """All sizes are the guide's but for the number of steps: 64 or 128 tasks, 8, 1 or 4 chains."""
    more = write_kind(tmp_path, kind, 128)
    words = [*agentfly_words(kind, brief_model), *more, "trainer.total_training_steps=1"]
    done = recollect("train", *words, cwd=tmp_path, RECOLLECT_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs" / "AgentRL").iterdir()
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    (step,) = (r for r in rows if "reward/mean" in r)
    assert step["rollout/failures"] == 0
    assert json.loads((run / "report.json").read_text())["fidelity"] == 1


SCREENS = {  # what the guide's first command has in other words for an agent that sees
    "data.train_batch_size=64": "data.train_batch_size=2",
    "agent.agent_type=hf": "agent.agent_type=gui",
    "agent.tools=[calculator]": "agent.max_tokens_per_turn=8",
    "agent.template=qwen2.5": "agent.template=qwen2.5-vl",
    "agent.reward_name=math_reward_string_equal": "agent.reward_name=gui_goal",
    "agent.num_chains=8": "agent.num_chains=2",
    "actor_rollout_ref.actor.ppo_mini_batch_size=64": "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "trainer.total_training_steps=100": "trainer.total_training_steps=1",
}


@pytest.fixture
def gui_words(tmp_path: Path) -> list[str]:
    """The guide's options for an agent that sees, with a random small Qwen2.5-VL and made-up screens as files."""
    from recollect.tasks.screens import make_task

    tasks = [make_task(compose(None, ["agent.agent_type=gui"]), 0, i, "train") for i in range(2)]
    rows = json.dumps([{"question": t.question, "answer": "", **t.fields} for t in tasks])
    for name in ("train", "val"):
        (tmp_path / f"{name}.json").write_text(rows)
    words = [SCREENS.get(word, word) for word in agentfly_words("hf", str(save_seeing(tmp_path / "model")))]
    assert set(SCREENS.values()) <= set(words)
    return words


def test_agentflys_options_for_screens_are_accepted(gui_words: list[str], tmp_path: Path) -> None:
    done = recollect("train", "--dry-run", *gui_words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "reward  gui_goal" in done.stdout
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_agentflys_options_for_screens_train(gui_words: list[str], tmp_path: Path) -> None:
    done = recollect("train", *gui_words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs" / "AgentRL").iterdir()
    report = json.loads((run / "report.json").read_text())
    (step,) = (r for r in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if "reward/mean" in r)
    assert (report["fidelity"], step["rollout/failures"]) == (1, 0)
    assert list((run / "trajectories" / "images").glob("*.png"))
    assert (run / "checkpoints" / "step-1" / "preprocessor_config.json").is_file()


def test_a_search_with_nothing_configured_says_so_and_runs(tmp_path: Path) -> None:
    """The guide's command as it stands: the searches fail, each as something that the model reads."""
    from recollect.config.startup_messages import startup_messages
    from recollect.tools.search import google_search_maker

    cfg = compose(None, agentfly_words("react"))
    assert any("google_search" in line for line in startup_messages(cfg))
    with pytest.raises(RuntimeError, match=r"neither search\.endpoint nor"):
        google_search_maker(cfg)("mira")


@pytest.mark.parametrize("kind", AGENTFLY)
def test_init_args_are_the_same_keys(kind: str, tmp_path: Path) -> None:
    words = agentfly_words(kind)
    names = ("model_name_or_path", "template", "agent_type", "tools", "reward_name")
    longer = [re.sub(rf"^agent\.({'|'.join(names)})=", r"+agent.init_args.\1=", word) for word in words]
    assert longer != words
    assert compose(None, longer) == compose(None, words)


def test_the_words_are_those_of_the_shell() -> None:
    script = "printf '%s\\n' " + MEMAGENT.split("main_ppo ", 1)[1]
    shell = {**MEMAGENT_SHELL, "TRAIN_PATH": "t", "VAL_PATH": "v", "MODEL_PATH": "m", "NGPUS_PER_NODE": "1"}
    shell["PROJ_DIR"] = "p"
    said = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, env={**os.environ, **shell}
    )
    assert said.stdout.splitlines() == words_of(MEMAGENT, shell)


def test_several_gpus_are_refused_with_a_sentence() -> None:
    words = words_of(REACT.replace("Qwen/Qwen2.5-3B-Instruct", "tiny"), {})
    with pytest.raises(ValueError, match=r"tensor_model_parallel_size=2 needs several GPUs"):
        compose(None, words)
    assert isinstance(compose(None, [re.sub(GPU_COUNTS, r"\1=1", word) for word in words]), Config)
