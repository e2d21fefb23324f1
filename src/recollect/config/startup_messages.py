"""What a run says at its start about settings whose meaning differs from verl's, MemAgent's or AgentFly's."""

from __future__ import annotations

from collections.abc import Iterator

from recollect.config import Config
from recollect.config.nodes import ranks_of_node
from recollect.config.servers import HOW, served
from recollect.config.staleness import schedule
from recollect.registries import AGENTS, ESTIMATORS


def startup_messages(cfg: Config) -> Iterator[str]:
    """One line for each such setting."""
    rollout = cfg.actor_rollout_ref.rollout
    if rollout.name == "vllm" and not served(rollout):
        yield f"actor_rollout_ref.rollout.name=vllm: there is no vLLM; the engine of this process samples: {HOW}"
    elif rollout.name not in ("engine", "vllm"):
        name = rollout.name
        yield f"actor_rollout_ref.rollout.name={name}: there is no {name} server; the engine of this process samples"
    if served(rollout) and rollout.val_kwargs.do_sample:
        val = rollout.val_kwargs
        if val.temperature != 1 and (val.top_p < 1 or val.top_k > 0):
            yield (
                "actor_rollout_ref.rollout.val_kwargs: vLLM's log-probabilities of held-out attempts are not exact "
                "with a temperature and top_p or top_k; success rates do not depend on them"
            )
    sizes = {
        "actor_rollout_ref.actor": cfg.actor_rollout_ref.actor.fsdp_config.fsdp_size,
        "critic": cfg.critic.fsdp_config.fsdp_size,
    }
    ranks = ranks_of_node(cfg) * cfg.trainer.nnodes
    for place, size in sizes.items():
        if size > ranks:
            number = f"{ranks} ranks" if ranks > 1 else "one device"
            yield f"{place}.fsdp_config.fsdp_size={size}: weights are spread over at most all of the run, {number}"
    if line := schedule(cfg):
        yield line
    algorithm, n = cfg.algorithm, cfg.actor_rollout_ref.rollout.n
    within = (
        AGENTS.knows(cfg.agent.agent_type, "many_questions") and algorithm.group_by != "question"
    )  # questions of a task are compared too
    *others, last = [name for name in reversed(list(ESTIMATORS)) if not ESTIMATORS[name].compares]
    if n == 1 and ESTIMATORS.knows(algorithm.adv_estimator, "compares") and not within and not cfg.data.offline_files:
        yield (
            f"actor_rollout_ref.rollout.n=1: algorithm.adv_estimator={algorithm.adv_estimator} compares attempts at a "
            f"task, and there is one; nothing is learnt from rewards. Set n to 2 or more, or take {', '.join(others)} "
            f"or {last}"
        )
    kept, said = cfg.memory.budget or 0, cfg.data.max_response_length
    written = cfg.agent.agent_type == "conversation_qa" and cfg.conversation.memory == "recurrent"
    if written and said < kept:
        yield (
            f"memory.budget={kept}, and conversation.memory=recurrent writes its memory in one completion: it has at "
            f"most data.max_response_length={said} tokens"
        )
    if "google_search" in cfg.agent.tools and not (cfg.search.endpoint or cfg.search.corpus):
        yield (
            "agent.tools has google_search, but neither search.endpoint nor search.corpus is set: "
            "every search will be answered with an error"
        )
