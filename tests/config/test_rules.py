"""Every rule about a value that cannot work fires, and the names that it knows are those that exist."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recollect.config import Config
from recollect.config.compose import compose
from recollect.registries import AGENTS
from recollect.types import BadInput

ACTOR, ROLLOUT, MODEL = (f"actor_rollout_ref.{part}" for part in ("actor", "rollout", "model"))
VLLM = f"{ROLLOUT}.name=vllm {ROLLOUT}.server_python=/opt/vllm/bin/python"

RULES: dict[str, str] = {  # overrides → what the error says
    "agent.agent_type=react": "agent.agent_type=react needs agent.tools",
    "agent.agent_type=react agent.tools=[abacus]": "agent.tools=abacus is unknown; known: calculator",
    "agent.agent_type=code agent.tools=[calculator]": "agent.agent_type=code calls python_executor or code_interpreter",
    "agent.agent_type=search_r1 agent.tools=[answer]": "agent.agent_type=search_r1 calls search or google_search",
    "agent.agent_type=react agent.tools=[search]": "the tool search needs search.corpus",
    "agent.tools=[calculator]": "the agent recurrent uses no tools",
    "agent.backend=async_vllm": "known: async_verl",
    "agent.template=gpt9": "known: qwen2.5, qwen2.5-vl, qwen3, llama3, chatml, chatml-vl, plain",
    "agent.tool_parser=xml": "agent.tool_parser=xml is unknown; known: hermes",
    "agent.max_context_length=0": "agent.max_context_length=0 must be positive",
    "agent.max_context_length=64 agent.max_tokens_per_turn=64": "leaves no room for a prompt",
    "agent.max_turns=0": "agent.max_turns=0 must be positive",
    "agent.reward_name=gui_goal": "the reward gui_goal is about the screens of agent.agent_type=gui, and recurrent has",
    "data.screen.rows=60 data.screen.columns=60 data.screen.scale=16": "data.screen: rows, columns and scale make",
    "data.screen.widgets=33": "data.screen.widgets=33 must be between 2 and 32",
    "gui.history=0": "gui.history=0 must be positive",
    "gui.syntax=words": "gui.syntax=words is unknown; known: ui_tars, qwen",
    "agent.num_chains=0": "other names of it: agent.num_chains",
    "agent.max_tokens_per_turn=0": "agent.max_tokens_per_turn",
    f"{ROLLOUT}.response_length=-3": f"{ROLLOUT}.response_length",
    "reward_model.reward_manager=dapo": "known: naive, thread",
    "data.truncation=top": "known: error, left, right, center",
    "data.val_batch_size=0": "data.val_batch_size=0 must be positive",
    "data.val_max_samples=-2": "data.val_max_samples=-2 must be -1 or more",
    "data.max_prompt_length=0": "data.max_prompt_length=0 must be positive",
    "data.prompt_key=": "data.prompt_key is empty",
    f"{MODEL}.lora_rank=-1": f"{MODEL}.lora_rank=-1 must not be negative",
    f"{MODEL}.lora_alpha=0": f"{MODEL}.lora_alpha=0.0 must be positive",
    f"{MODEL}.lora_dropout=1": f"{MODEL}.lora_dropout=1.0 must be in [0, 1)",
    f"{MODEL}.lora_rank=4 {MODEL}.target_modules=[]": f"{MODEL}.target_modules is empty",
    "critic.model.lora_rank=-1": "critic.model.lora_rank=-1",
    f"{MODEL}.path=": f"{MODEL}.path is empty",
    f"{ACTOR}.policy_loss.loss_mode=trpo": "known: ppo, gspo, cispo, dr_grpo, reinforce",
    f"{ACTOR}.policy_loss.loss_mode=dr_grpo {ACTOR}.loss_agg_mode=trajectory-mean": "dr_grpo means loss_agg_mode=",
    f"{ACTOR}.clip_ratio_low=-1": "must not be negative",
    f"{ACTOR}.clip_ratio_high=-1": "must not be negative",
    f"{ACTOR}.clip_ratio_c=1": "must be larger than 1",
    f"{ACTOR}.loss_scale_factor=0": "must be positive",
    f"{ACTOR}.ppo_micro_batch_size_per_gpu=0": "must be positive",
    f"{ACTOR}.use_dynamic_bsz=False": "needs actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
    f"{ACTOR}.ulysses_sequence_parallel_size=2": "needs several GPUs",
    f"{ACTOR}.fsdp_config.fsdp_size=0": "fsdp_size=0 must be -1",
    f"{ACTOR}.fsdp_config.fsdp_size=-2": "fsdp_size=-2 must be -1",
    "critic.fsdp_config.fsdp_size=0": "critic.fsdp_config.fsdp_size=0",
    f"{ACTOR}.optim.weight_decay=-1": "must not be negative",
    f"{ACTOR}.optim.lr_warmup_steps=-2": "must be -1 or more",
    f"{ACTOR}.optim.lr_warmup_steps_ratio=1.5": "must be between 0 and 1",
    "data.train_max_samples=-2": "must be -1 or more",
    "data.seed=-1": "must not be negative",
    "memory.truncate_side=top": "known: left, middle, right",
    "trainer.save_freq=-1 trainer.best_metric=x": "saves none",
    "trainer.test_freq=-1 trainer.best_metric=x": "makes none",
    f"{ACTOR}.optim.min_lr_ratio=2": "must be between 0 and 1",
    f"{ROLLOUT}.name=tgi": "known: engine, vllm, sglang, trtllm, hf",
    f"{ROLLOUT}.gpu_memory_utilization=1.5": "must be in (0, 1]",
    f"{ROLLOUT}.tensor_model_parallel_size=2": "needs several GPUs",
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=0": "must be positive",
    f"{ROLLOUT}.log_prob_max_token_len_per_gpu=0": "must be positive",
    f"{ROLLOUT}.prefix_cache_tokens=-1": "must not be negative",
    f"{ROLLOUT}.top_k=-2": "must be -1 or more",
    f"{ROLLOUT}.val_kwargs.top_p=0": "val_kwargs.top_p=0.0 must be in (0, 1]",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=0": "must be positive",
    "algorithm.group_by=colour": "known: task, role",
    "algorithm.kl_penalty=k9": "known: low_var_kl, kl, mse, abs, full",
    "algorithm.kl_ctrl.type=wild": "known: fixed, adaptive",
    "algorithm.kl_ctrl.kl_coef=-1": "must not be negative",
    "algorithm.kl_ctrl.target_kl=0": "must be positive",
    "algorithm.kl_ctrl.horizon=0": "must be positive",
    "algorithm.rollout_is=word": "known: token, sequence, null",
    "algorithm.rollout_is_threshold=0": "must be positive",
    "algorithm.gamma=1.1": "algorithm.gamma=1.1 must be between 0 and 1",
    "algorithm.lam=-0.1": "algorithm.lam=-0.1 must be between 0 and 1",
    "algorithm.filter_groups.enable=True algorithm.filter_groups.max_num_gen_batches=0": "must be positive",
    "algorithm.filter_groups.enable=True algorithm.filter_groups.metric=": "filter_groups.metric is empty",
    f"algorithm.filter_groups.enable=True {ROLLOUT}.n=1": "one sample never differs",
    "critic.optim.name=sgd": "critic.optim.name=sgd",
    "critic.loss_agg_mode=all": "critic.loss_agg_mode=all",
    "critic.ppo_epochs=0": "critic.ppo_epochs=0 must be positive",
    "critic.ppo_max_token_len_per_gpu=0": "must be positive",
    "critic.ppo_micro_batch_size_per_gpu=0": "must be positive",
    "critic.cliprange_value=0": "must be positive",
    "critic.grad_clip=0": "must be positive",
    "trainer.critic_warmup=3": "only algorithm.adv_estimator=gae has a critic",
    "algorithm.adv_estimator=gae critic.ppo_mini_batch_size=5": "is not a multiple of critic.ppo_mini_batch_size=5",
    "algorithm.adv_estimator=gae critic.ppo_mini_batch_size=64": "is larger than data.train_batch_size=32",
    "algorithm.adv_estimator=gae critic.model.share_actor=True critic.model.path=other": "not on critic.model.path",
    "algorithm.adv_estimator=gae critic.model.share_actor=True critic.model.lora_rank=4": "there is no model for",
    "algorithm.adv_estimator=gae critic.model.share_actor=True critic.fsdp_config.param_offload=True": "no model for",
    "search.method=best": "search.method=best is unknown",
    "search.endpoint_style=odd": "search.endpoint_style=odd is unknown",
    "search.top_k=0": "search.top_k=0 must be positive",
    "search.endpoint=ftp://x": "starts with http://",
    "trainer.logger=[console,papyrus]": "trainer.logger=papyrus is unknown",
    "trainer.resume_mode=resume_path": "needs trainer.resume_from_path",
    "trainer.resume_from_path=there": "needs trainer.resume_mode=resume_path",
    "trainer.patience=2 trainer.test_freq=1": "needs trainer.best_metric",
    "trainer.patience=2 trainer.best_metric=x": "set trainer.test_freq",
    "trainer.patience=-1": "must not be negative",
    "trainer.val_only=True data.train_files=[a.json]": "nothing to validate on",
    "trainer.total_epochs=0": "must be positive",
    "trainer.save_freq=-2": "must be -1 or more",
    "data.needle.drill=-1": "data.needle.drill=-1 must not be negative",
    "data.needle.chained=1.5": "data.needle.chained=1.5",
    "trainer.test_freq=-2": "must be -1 or more",
    "trainer.nnodes=0": "trainer.nnodes=0 must be positive",
    "trainer.node_wait_s=0": "must be positive",
    f"{ROLLOUT}.nnodes=1": "is about vLLM servers, and none sample",
    f"{VLLM} {ROLLOUT}.n_gpus_per_node=2": "n_gpus_per_node=2 is about nodes for servers alone, and there are none",
    f"{VLLM} {ROLLOUT}.nnodes=1 {ROLLOUT}.server_addresses=[http://a:1]": "is about servers that the run starts",
    f"{VLLM} trainer.nnodes=2 {ROLLOUT}.tensor_model_parallel_size=2": "each of the 2 has 1 GPUs for servers",
    f"{VLLM} {ROLLOUT}.nnodes=1 {ROLLOUT}.gpus=[0]": "names GPUs of this machine, and Ray gives those of its nodes",
    f"{VLLM} trainer.nnodes=2 trainer.gpus=[0]": "names GPUs of this machine, and Ray gives those of its nodes",
    "trainer.n_gpus_per_node=-1": "must not be negative",
    "actor_rollout_ref.nccl_timeout=0": "must be positive",
    "trainer.default_hdfs_dir=hdfs": "set null",
}


@pytest.mark.parametrize("text", RULES)
def test_every_rule_fires(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        compose("needle", text.split())
    assert RULES[text] in str(caught.value)
    assert "\n" not in str(caught.value)


FINE = [
    "agent.agent_type=gui agent.reward_name=gui_goal*0.9+gui_format*0.1",
    "agent.agent_type=mine.py:f agent.reward_name=gui_goal",
    "algorithm.adv_estimator=gae",
    "algorithm.adv_estimator=gae critic.ppo_mini_batch_size=8 trainer.critic_warmup=2",
    "critic.ppo_mini_batch_size=5",  # no critic with grpo: what is said about it is not used
    f"{ACTOR}.fsdp_config.fsdp_size=8",
    f"{ACTOR}.use_dynamic_bsz=False {ACTOR}.ppo_micro_batch_size_per_gpu=2",
    "trainer.n_gpus_per_node=0",
    "trainer.n_gpus_per_node=8",
    "trainer.resume_mode=resume_path trainer.resume_from_path=there",
    "algorithm.rollout_is=null",
    "data.truncation=middle",
    "trainer.logger=[]",
]


@pytest.mark.parametrize("text", FINE)
def test_what_works_is_accepted(text: str) -> None:
    assert isinstance(compose("needle", text.split()), Config)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (
            "actor_rollout_ref.rollout.agent_name_override=tool_mem_agent_xx",
            "agent_name_override=tool_mem_agent_xx is unknown; did you mean tool_mem_agent? known: tool_mem_agent,",
        ),
        ("agent.agent_type=tool_memry", "agent.agent_type=tool_memry is unknown; did you mean tool_memory? known: rec"),
        ("agent.agent_type=guy", "did you mean gui? known: recurrent, chat, hf"),
    ],
)
def test_an_unknown_agent_is_named_with_the_nearest(setting: str, words: str, tmp_path: Path) -> None:
    """Also where the rows hold several questions, which only some agents answer."""
    row = {"context": "a", "questions": [{"question": "q", "answer": "a"}, {"question": "p", "answer": "b"}]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(BadInput) as caught:
        compose(None, [f"data.train_files={tmp_path / 'rows.jsonl'}", setting])
    assert words in str(caught.value)
    assert all(name in str(caught.value) for name in AGENTS)
