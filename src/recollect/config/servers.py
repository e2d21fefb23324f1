"""Whether vLLM servers sample for a run, and settings that only make sense if they do."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from recollect.config.schema import Config, Rollout

ROLLOUT = "actor_rollout_ref.rollout"
HOW = (
    "install it (pip install 'recollect-rl[vllm]'), or name a Python that has it with "
    f"{ROLLOUT}.server_python, or servers that run already with {ROLLOUT}.server_addresses"
)


def served(rollout: Rollout) -> bool:
    """True when vLLM servers sample: they are asked for, and there is a vLLM."""
    return rollout.name == "vllm" and (bool(rollout.server_addresses or rollout.server_python) or has_vllm())


def broadcasts(rollout: Rollout) -> bool:
    """True when weights get to servers by a broadcast, and not by files."""
    return rollout.weight_sync == "broadcast"


def has_vllm() -> bool:
    """Whether the Python that runs this program has vLLM."""
    return find_spec("vllm") is not None


def problems(cfg: Config) -> Iterator[str]:
    """What cannot work together."""
    rollout = cfg.actor_rollout_ref.rollout
    size = rollout.tensor_model_parallel_size
    asked = {
        "num_servers": rollout.num_servers,
        "server_addresses": rollout.server_addresses,
        "server_python": rollout.server_python,
        "server_storage": rollout.server_storage,
        "weight_sync": rollout.weight_sync if broadcasts(rollout) else "",
    }
    if not served(rollout):
        missing = HOW if rollout.name == "vllm" else f"set {ROLLOUT}.name=vllm"
        if size > 1:
            needs = "needs several GPUs for one sampled model, and only vLLM servers use them"
            yield f"{ROLLOUT}.tensor_model_parallel_size={size} {needs}: {missing}"
        for key, value in asked.items():
            if value:
                yield f"{ROLLOUT}.{key}={value} is about vLLM servers, and there is no vLLM: {missing}"
        return
    if rollout.server_addresses and (rollout.num_servers or rollout.server_python or size > 1):
        name = "num_servers" if rollout.num_servers else "server_python" if rollout.server_python else ""
        name = name or "tensor_model_parallel_size"
        yield f"{ROLLOUT}.{name} is about servers that the run starts, and server_addresses names others: drop one"
    if broadcasts(rollout) and rollout.server_storage:
        yield f"{ROLLOUT}.server_storage is for weights in files, and weight_sync=broadcast writes none: drop one"
    if rollout.temperature != 1 and (rollout.top_p < 1 or rollout.top_k > 0):
        yield (
            f"{ROLLOUT}.temperature={rollout.temperature} with top_p or top_k: vLLM reports no log-probabilities that "
            f"fit both; set {ROLLOUT}.temperature=1, or top_p=1 and top_k=-1, or {ROLLOUT}.name=engine"
        )
