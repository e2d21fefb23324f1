"""Answers to `actor_rollout_ref.rollout.*`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.config.translate.data_keys import TOOLS
from recollect.config.translate.key_answer import Alias, Answer, Given, Refused, Same
from recollect.config.translate.policy_keys import CUT, GPUS
from recollect.config.translate.tools_keys import settings_of

R = "actor_rollout_ref.rollout"
ENGINE = "vLLM servers and the engine of this process take the settings of actor_rollout_ref.rollout alone"
SPEED = "it is about a server's speed or memory; what is sampled is the same"
TRANSPORT = (
    "how weights reach vLLM servers is said by rollout.weight_sync; the engine of this process has them in memory"
)
PROXY = "recurrent.async_utils.ChatCompletionProxy"  # MemAgent's, which only passes requests on


def _in_agent_loops(key: str, value: Any, given: Given) -> bool:
    return given.get(f"{R}.mode") == "async"


def _no_limit(value: Any, plus: int = 0) -> Mapping[str, Any]:
    """Turns of the agent; in verl 0 means no limit, as null does."""
    return {"agent.max_turns": value + plus} if value else {}


ANSWERS: Mapping[str, Answer] = {
    f"{R}.mode": Refused("attempts run side by side, and a step waits for all of them", fine=("sync", "async")),
    f"{R}.chat_scheduler": Refused("agents are functions: agent.agent_type=FILE.py:FUNCTION", fine=(PROXY,)),
    f"{R}.prompt_length": Alias("data.max_prompt_length"),
    f"{R}.max_tokens": Alias("agent.max_tokens_per_turn"),
    f"{R}.max_model_len": Alias("agent.max_context_length", fact="limits_context"),
    f"{R}.chat_template": Refused("choose a template with agent.template"),
    f"{R}.ignore_eos": Refused("a turn ends where the model ends it"),
    f"{R}.do_sample": Refused("training needs samples; validation is greedy unless val_kwargs.do_sample"),
    f"{R}.use_fire_sampling": Refused("it is not there; rollout.temperature is for all tokens"),
    f"{R}.logprobs_mode": Refused("log-probabilities are those of the distribution that was sampled from"),
    f"{R}.over_sample_rate": Refused(
        "every attempt is awaited, as in verl's agent loops (rollout.mode=async); none is cut off", when=_in_agent_loops
    ),
    f"{R}.enable_prefix_caching": Alias(
        f"{R}.prefix_cache_tokens",
        "False is 0 tokens",
        expand=lambda value, given: {f"{R}.prefix_cache_tokens": 0} if value is False else {},
    ),
    f"{R}.log_prob_micro_batch_size": Alias(f"{R}.log_prob_micro_batch_size_per_gpu", "it counts for each GPU"),
    f"{R}.log_prob_use_dynamic_bsz": Same(CUT),
    f"{R}.calculate_log_probs": Same("log-probabilities of sampled tokens are always kept"),
    f"{R}.full_determinism": Same("runs are always repeatable"),
    **{
        f"{R}.{name}": Same(SPEED)
        for name in (
            *("cudagraph_capture_sizes", "enable_chunked_prefill", "scheduling_policy", "load_format"),
            *("disable_log_stats", "multi_stage_wake_up", "skip_tokenizer_init", "layered_summon"),
        )
    },
    **{
        f"{R}.{name}": Refused(GPUS, fine=(1,))
        for name in ("data_parallel_size", "expert_parallel_size", "pipeline_model_parallel_size")
    },
    f"{R}.partial_rollout": Alias("trainer.partial_rollout"),
    f"{R}.nnodes": Alias(f"{R}.nnodes", "nodes for servers alone; 0: they are where the learner is"),
    f"{R}.n_gpus_per_node": Alias(f"{R}.n_gpus_per_node", "of each node for servers"),
    f"{R}.disaggregation.*": Refused(GPUS),
    f"{R}.engine_kwargs.vllm.disable_mm_preprocessor_cache": Same("a picture is read once in any case"),
    f"{R}.engine_kwargs.*": Refused(ENGINE),
    f"{R}.update_weights_bucket_megabytes": Same(TRANSPORT),
    f"{R}.checkpoint_engine.*": Same(TRANSPORT),
    f"{R}.multi_turn.enable": Refused(
        "how many turns there are is the agent's: agent.agent_type=hf, agent.tools, agent.max_turns"
    ),
    f"{R}.multi_turn.max_assistant_turns": Alias(
        "agent.max_turns", expand=lambda value, given: _no_limit(value), least=True
    ),
    f"{R}.multi_turn.max_user_turns": Alias(
        "agent.max_turns", "one more than it", expand=lambda value, given: _no_limit(value, 1), least=True
    ),
    f"{R}.multi_turn.max_parallel_calls": Alias("memory.max_calls", fact="limits_calls"),
    f"{R}.multi_turn.max_tool_response_length": Alias("memory.max_length", fact="limits_calls"),
    f"{R}.multi_turn.tool_response_truncate_side": Alias("memory.truncate_side", fact="limits_calls"),
    f"{R}.multi_turn.tool_config_path": Alias(
        "memory.search",
        "the file's tools: those of the memory agent, search (agent.tools) or a sandbox (code_interpreter)",
        expand=lambda value, given: settings_of(f"{R}.multi_turn.tool_config_path", value),
    ),
    f"{R}.multi_turn.function_tool_path": Refused(TOOLS),
    f"{R}.multi_turn.interaction_config_path": Refused("nobody but tools answers the agent"),
    f"{R}.multi_turn.use_inference_chat_template": Same(
        "sampled ids are trained as they are, whatever a template would write"
    ),
    f"{R}.multi_turn.tokenization_sanity_check_mode": Same(
        "sampled ids are never tokenised again, so there is nothing to check"
    ),
    f"{R}.multi_turn.format": Alias("agent.tool_parser", words={"llama3_json": "llama"}, fact="native_calls"),
    f"{R}.multi_turn.num_repeat_rollouts": Refused("attempts at a task are rollout.n"),
    f"{R}.agent.num_workers": Same("agents run in one event loop"),
    f"{R}.agent.*": Refused("agents are named with agent.agent_type, or rollout.agent_name_override"),
    f"{R}.trace.*": Refused("trajectories are stored in the run directory, and sent nowhere"),
    f"{R}.skip_rollout": Refused("stored trajectories are learnt from with data.offline_files"),
    f"{R}.skip_dump_dir": Refused("stored trajectories are learnt from with data.offline_files"),
    f"{R}.skip.*": Refused("stored trajectories are learnt from with data.offline_files"),
    f"{R}.prometheus.*": Refused("metrics are in metrics.jsonl, and in the trackers of trainer.logger"),
    f"{R}.enable_rollout_routing_replay": Refused("the routing of experts is not replayed"),
    f"{R}.moe_load_balance_metrics_interval": Refused("the load of experts is not measured"),
    f"{R}.quantization": Refused("the engine samples in bfloat16 or float32: rollout.dtype"),
    f"{R}.quantization_config_file": Refused("the engine samples in bfloat16 or float32: rollout.dtype"),
    f"{R}.qat": Refused("weights are not quantised in training"),
    f"{R}.qat.*": Refused("weights are not quantised in training"),
    f"{R}.mtp": Refused("layers that predict several tokens are not sampled with"),
    f"{R}.mtp.*": Refused("layers that predict several tokens are not sampled with"),
    f"{R}.limit_images": Same("a prompt holds as many pictures as fit; a row may have 64"),
}
