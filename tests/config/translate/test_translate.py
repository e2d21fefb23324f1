"""Settings in other systems' words, one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect.config import Config
from recollect.config.compose import compose, composed, flatten, from_yaml, to_yaml
from recollect.types import BadInput

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
TURNS = f"{ROLLOUT}.multi_turn"
HF = ["agent.agent_type=hf", "agent.tools=[calculator]"]


def value(cfg: Config, key: str) -> object:
    from omegaconf import OmegaConf

    return flatten(OmegaConf.structured(cfg))[key]


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("custom_reward_function.path=r.py", "agent.reward_name", "r.py:compute_score"),
        ("custom_reward_function.path=r.py custom_reward_function.name=f", "agent.reward_name", "r.py:f"),
        ("reward.custom_reward_function.path=r.py", "agent.reward_name", "r.py:compute_score"),
        (
            "custom_reward_function.path=r.py +custom_reward_function.reward_kwargs.k=2",
            "agent.reward_name",
            "r.py:compute_score(k=2)",
        ),
        (f"{ACTOR}.optim.warmup_style=cosine", f"{ACTOR}.optim.lr_scheduler_type", "cosine"),
        (f"{ACTOR}.optim.lr_warmup_steps_ratio=0.1", f"{ACTOR}.optim.lr_warmup_steps_ratio", 0.1),
        (f"{ACTOR}.optim.optimizer=AdamW", f"{ACTOR}.optim.name", "adamw"),
        (f"{ACTOR}.optim.clip_grad=0.5", f"{ACTOR}.grad_clip", 0.5),
        (f"{ACTOR}.fsdp_config.dtype=fp32", f"{ACTOR}.dtype", "float32"),
        (f"{ACTOR}.ppo_micro_batch_size=4", f"{ACTOR}.ppo_micro_batch_size_per_gpu", 4),
        (f"{ACTOR}.train_batch_size=8", "data.train_batch_size", 8),
        (f"{ACTOR}.kl_loss_type=k3", f"{ACTOR}.kl_loss_type", "low_var_kl"),
        (f"{ACTOR}.tis_imp_ratio_cap=2", "algorithm.rollout_is", "token"),
        ("algorithm.rollout_correction.rollout_is=token", "algorithm.rollout_is", "token"),
        (f"{ROLLOUT}.enable_prefix_caching=False", f"{ROLLOUT}.prefix_cache_tokens", 0),
        (f"{ROLLOUT}.prompt_length=99", "data.max_prompt_length", 99),
        ("critic.model.fsdp_config.param_offload=True", "critic.fsdp_config.param_offload", True),
        ("critic.fsdp.optimizer_offload=True", "critic.fsdp_config.optimizer_offload", True),
        ("recurrent.enable=False", "recurrent.enable", None),
        ("recurrent.memory.config.context_key=text", "data.context_key", "text"),
        ("trainer.load_checkpoint=there", "trainer.resume_from_path", "there"),
        ("trainer.load_checkpoint=there", "trainer.resume_mode", "resume_path"),
        ("trainer.max_actor_ckpt_to_keep=null", "trainer.max_ckpt_to_keep", None),
        ("agent.init_config.max_model_len=9000", "agent.max_context_length", 9000),
        ("agent.run_config.max_turns=7", "agent.max_turns", 7),
        ("agent.run_config.generation_config.max_tokens=77", "data.max_response_length", 77),
        ("agent.run_config.max_concurrent_chains=5", "agent.max_concurrency", 5),
        ("agent.init_config.backend_config.backend=async_verl", "agent.backend", "async_verl"),
        ("algorithm.adv_estimator=grpo_vectorized", "algorithm.adv_estimator", "grpo"),
        (f"{ROLLOUT}={{n: 3, temperature: 0.5}}", f"{ROLLOUT}.n", 3),
    ],
)
@pytest.mark.parametrize("sign", ["", "+", "++"])
def test_aliases(text: str, key: str, expected: object, sign: str) -> None:
    words = [sign + word.lstrip("+") if not word.endswith("}") else word for word in text.split(" ")]
    words = [text] if "{" in text else words
    assert value(compose("needle", words), key) == expected


@pytest.mark.parametrize(
    ("words", "turns"),
    [
        ([f"{TURNS}.max_assistant_turns=4"], 4),
        ([f"{TURNS}.max_user_turns=4"], 5),  # the last user turn is answered
        ([f"{TURNS}.max_assistant_turns=10", f"{TURNS}.max_user_turns=4"], 5),
        ([f"{TURNS}.max_assistant_turns=null"], 10),
    ],
)
def test_turns(words: list[str], turns: int) -> None:
    assert compose("needle", [*HF, *words]).agent.max_turns == turns


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{TURNS}.enable=True", r"agent\.agent_type=hf"),
        (f"{TURNS}.max_parallel_calls=3", "the agent recurrent has no such setting"),
        (f"{ROLLOUT}.over_sample_rate=0.1", "every attempt is awaited"),
        (f"{ROLLOUT}.ignore_eos=True", "a turn ends where"),
        (f"{ROLLOUT}.engine_kwargs.vllm.swap_space=4", "engine of this process"),
        (f"{ACTOR}.strategy=megatron", "several GPUs"),
        (f"{ACTOR}.megatron.tensor_model_parallel_size=2", "Megatron"),
        (f"{ACTOR}.checkpoint.save_contents=[model]", "always holds"),
        ("reward_model.enable=True", "no reward model"),
        ("data.custom_cls.path=x.py", r"data\.prompt_key"),
        ("data.apply_chat_template_kwargs.enable_thinking=False", "no options"),
        ("critic.enable=True", "gae has a critic"),
        ("trainer.v1.trainer_mode=separate_async", "trainer.max_staleness says"),
        ("async_training.partial_rollout=True", "no run could be repeated"),
        (f"{ROLLOUT}.partial_rollout=True", "no run could be repeated"),
        ("async_training.staleness_threshold=0.1", "trainer.max_staleness says"),
        ("ray_kwargs.ray_init.runtime_env.env_vars.MINE=1", "set the variable"),
        ("trainer.rollout_data_dir=out", "trajectories/"),
        ("agent.train_on_last_turn=True", "all turns"),
        ("agent.run_config.context_config.resource_backend=ray", "sandbox"),
        ("algorithm.filter_groups.enable=True algorithm.filter_groups.max_num_gen_batches=0", "must be positive"),
        (f"{TURNS}.max_asistant_turns=3", "unknown key"),
        ("trainer.nonsense=1", "unknown key"),
        (f"{ROLLOUT}.n=4 {ACTOR}.rollout_n=5", "the same setting; give one of them"),
        ("agent.reward_name=x custom_reward_function.path=r.py", "the same setting; give one of them"),
        (f"{TURNS}.tool_config_path=nowhere.yaml", "no file of tools"),
    ],
)
def test_refusals(text: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        compose("needle", text.split())


@pytest.mark.parametrize("agent", ["mhqa", "domain", "hf", "concat"])
def test_the_window_is_for_every_agent_that_reads_it(agent: str) -> None:
    words = [f"agent.agent_type={agent}", f"{ROLLOUT}.max_model_len=9000"]
    assert compose("needle", words).agent.max_context_length == 9000


def test_the_window_is_not_for_agents_that_do_not_read_it() -> None:
    with pytest.raises(BadInput, match=r"is read by .*hf.*; the agent chat has no such setting"):
        compose("needle", ["agent.agent_type=chat", f"{ROLLOUT}.max_model_len=9000"])


@pytest.mark.parametrize(
    "text",
    [
        f"{TURNS}.enable=False",
        f"{ROLLOUT}.over_sample_rate=0",
        f"{ROLLOUT}.over_sample_rate=0.1 {ROLLOUT}.mode=async",
        f"{ROLLOUT}.mode=sync",
        f"{ACTOR}.checkpoint.contents=[model,optimizer,extra,hf_model]",
        "critic.enable=True algorithm.adv_estimator=gae",
        "critic.enable=False algorithm.adv_estimator=grpo",
        "reward_model.enable=False",
        "data.custom_cls.path=null",
    ],
)
def test_what_asks_for_nothing_is_taken_and_named(text: str) -> None:
    made = composed("needle", text.split())
    assert any(line.startswith("as it is here anyway") and text.split("=")[0] in line for line in made.said)


def test_a_note_says_why_and_changes_nothing() -> None:
    made = composed("needle", ["data.return_raw_chat=True", "trainer.balance_batch=False", "ray_kwargs.x=1"])
    assert made.cfg == compose("needle", [])
    assert [line.partition("=")[0] for line in made.said] == [
        *("data.return_raw_chat", "trainer.balance_batch", "ray_kwargs.x"),
    ]
    assert all(": " in line for line in made.said)


def test_an_environment_that_is_there_already_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "1")
    made = compose("needle", ["ray_kwargs.ray_init.runtime_env.env_vars.MINE=1"])
    assert to_yaml(made) == to_yaml(compose("needle", []))


def test_files_may_use_the_same_words(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "agent: {init_config: {agent_type: hf, tools: [calculator]}, run_config: {max_turns: 3}}\n"
        "data: {train_files: t.json, return_raw_chat: true}\n"
        "actor_rollout_ref: {rollout: {mode: async, multi_turn: {enable: false, format: hermes}}}\n"
    )
    made = composed(str(file), [])
    assert (made.cfg.agent.agent_type, made.cfg.agent.max_turns, made.cfg.agent.tool_parser) == ("hf", 3, "hermes")
    assert len(made.said) == 2
    file.write_text("reward_model: {enable: true}\n")
    with pytest.raises(BadInput, match=r"mine\.yaml: reward_model\.enable=True: there is no reward model"):
        compose(str(file), [])


def test_what_is_stored_is_ours_alone() -> None:
    text = to_yaml(compose("needle", [f"{ROLLOUT}.mode=async", "custom_reward_function.path=r.py"]))
    assert "custom_reward_function" not in text
    assert to_yaml(from_yaml(text)) == text


def test_tools_of_the_two_stage_system(tmp_path: Path) -> None:
    file = tmp_path / "tools.yaml"
    place = "verl.tools.memory.mem_tool"
    file.write_text(f"tools:\n  - class_name: {place}.AddTool\n  - class_name: {place}.RankBM25RetrievalTool\n")
    words = [f"{TURNS}.tool_config_path={file}", f"{ROLLOUT}.agent_name_override=tool_mem_agent"]
    assert compose("ledger", words).memory.search == ["bm25"]
    file.write_text("tools:\n  - class_name: my.Tool\n")
    with pytest.raises(BadInput, match=r"my\.Tool is a class of verl"):
        compose("ledger", words)
    file.write_text("[]")
    with pytest.raises(BadInput, match="a file of tools is a mapping"):
        compose("ledger", words)


def test_fsdp_size_is_answered() -> None:
    from recollect.config.startup_messages import startup_messages

    lines = list(
        startup_messages(
            compose("needle", [f"{ACTOR}.fsdp_config.fsdp_size=8", "critic.model.fsdp_config.fsdp_size=4"])
        )
    )
    assert sum("one device" in line for line in lines) == 2
    nodes = ["trainer.nnodes=2", "trainer.n_gpus_per_node=8"]
    for size, said in ((16, []), (32, ["at most all of the run, 16 ranks"])):
        lines = list(startup_messages(compose("needle", [f"{ACTOR}.fsdp_config.fsdp_size={size}", *nodes])))
        assert [line.rpartition("over ")[2] for line in lines if "fsdp_size" in line] == said
    assert not any(
        "fsdp_size" in line for line in startup_messages(compose("needle", [f"{ACTOR}.fsdp_config.fsdp_size=1"]))
    )


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("data.filter_accuracy=True", "algorithm.filter_groups.enable=True"),
        ("data.path=x", "recollect sft"),
        ("data.multiturn.enable=True", "recollect sft"),
        ("actor_rollout_ref.model.torch_dtype=bfloat16", "weights are kept in float32"),
        ("actor_rollout_ref.actor.fsdp_config.mixed_precision.reduce_dtype=bf16", "summed in float32"),
    ],
)
def test_keys_that_only_scripts_have_are_refused_with_a_reason(setting: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        compose("needle", [setting])


def test_keys_that_only_scripts_have_take_effect() -> None:
    actor = "actor_rollout_ref.actor"
    cfg = compose("needle", [f"{actor}.fsdp_config.mixed_precision.param_dtype=bf16"])
    assert cfg.actor_rollout_ref.actor.dtype == "bfloat16"
    fine = [f"{actor}.fsdp_config.{key}" for key in ("grad_offload=True", "mixed_precision.reduce_dtype=fp32")]
    fine += ["data.filter_accuracy=False", "reward_model.rollout.load_format=auto"]
    nsight = "global_profiler.global_tool_config.nsys.controller_nsight_options.cuda-memory-usage=true"
    assert compose("needle", [*fine, nsight]).actor_rollout_ref.actor.dtype == "auto"
