"""The command line of a vLLM server, from a configuration, and the environment that it runs in."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from recollect.config import Rollout
from recollect.dist.machine import Launch, free_port
from recollect.samplers.fleet.server_process import INSIDE
from recollect.types import Sampling

EXTENSION = "recollect_vllm.WorkerExtension"
GIB = 1 << 30


@dataclass(frozen=True)
class ServerPlan:
    """One server that the run starts."""

    folder: str  # of the model's configuration and tokenizer; weights come with the first sync
    rollout: Rollout
    dtype: str
    window: int
    cache_bytes: int | None  # for keys and values on a CPU; None: gpu_memory_utilization says
    devices: tuple[str, ...] = ()  # GPUs that it sees; none: a CPU
    node: int | None = None  # which node of the servers it is on, where GPUs are counted anew; None: this machine
    threads: int = 0  # CPU threads, where it has no GPU
    sleeps: bool = False  # during updates, because the learner has GPUs of its devices; never on a CPU
    seed: int = 0


def logprobs_mode(sampling: Sampling) -> str:
    """What vLLM reports for a sampled id so that it is its log-probability at the temperature, nothing left out.

    Processed ones know the temperature, but also what top-p and top-k leave out; raw ones know neither.
    """
    return "raw_logprobs" if truncates(sampling.top_p, sampling.top_k) else "processed_logprobs"


def truncates(top_p: float, top_k: int) -> bool:
    """Whether some ids are left out."""
    return top_p < 1 or top_k > 0


def server_options(plan: ServerPlan) -> list[str]:
    """The options of `vllm serve` that a run needs, without address."""
    rollout = plan.rollout
    sampling = Sampling(rollout.temperature, rollout.top_p, rollout.top_k)
    options = [
        *("--dtype", plan.dtype, "--seed", str(plan.seed), "--served-model-name", "policy"),
        *("--max-model-len", str(plan.window), "--max-num-seqs", str(rollout.max_num_seqs)),
        *("--max-num-batched-tokens", str(max(rollout.max_num_batched_tokens, rollout.max_num_seqs))),
        *("--tensor-parallel-size", str(rollout.tensor_model_parallel_size)),
        *("--generation-config", "vllm", "--logprobs-mode", logprobs_mode(sampling), "--enable-scale-out"),
        *("--weight-transfer-config", json.dumps({"backend": "recollect"}), "--worker-extension-cls", EXTENSION),
        *("--disable-uvicorn-access-log", "--disable-log-stats"),
    ]
    if plan.cache_bytes is None:
        options += ["--gpu-memory-utilization", str(rollout.gpu_memory_utilization)]
    else:
        options += ["--kv-cache-memory-bytes", str(plan.cache_bytes)]
    options += ["--enforce-eager"] if rollout.enforce_eager else []
    options += ["--enable-sleep-mode"] if plan.sleeps else []
    options += ["--no-enable-prefix-caching"] if rollout.prefix_cache_tokens == 0 else []
    return options


def python_of(rollout: Rollout) -> str:
    """The Python that has vLLM."""
    return str(Path(rollout.server_python).expanduser()) if rollout.server_python else sys.executable


def launch(plan: ServerPlan, address: str) -> Launch:
    """What to start where the server will be. It listens there alone: its routes for training have no key."""
    port = free_port(address)
    return Launch(tuple(command(plan, address, port)), environment(plan, address), port)


def command(plan: ServerPlan, address: str, port: int) -> list[str]:
    """The whole command line."""
    start = [
        python_of(plan.rollout),
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        plan.folder,
        "--load-format",
        "dummy",
    ]
    return [*start, "--host", address, "--port", str(port), *server_options(plan)]


def environment(plan: ServerPlan, address: str, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of this process with what a server needs."""
    found = dict(os.environ if given is None else given)
    own = not plan.rollout.server_python
    for name in [n for n in found if n.startswith("PYTHON") and not own]:
        del found[name]  # another Python finds its packages by itself
    paths = [str(INSIDE), *([found["PYTHONPATH"]] if found.get("PYTHONPATH") else [])]
    found |= {
        "PYTHONPATH": os.pathsep.join(paths),
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_HOST_IP": address,
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",  # the model's folder is all it needs
    }
    if plan.devices:
        given_here = [name for name in found.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        counted = plan.node is not None and given_here
        names = [given_here[int(device)] for device in plan.devices] if counted else plan.devices
        found["CUDA_VISIBLE_DEVICES"] = ",".join(names)
    elif plan.threads:
        found.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")  # several servers would bind the same cores
        found["OMP_NUM_THREADS"] = str(plan.threads)
    return found


def written_for_people(plan: ServerPlan, model: str) -> str:
    """The command with which people start such a server themselves."""
    options = " ".join(f"'{o}'" if set(o) & set('{}" ') else o for o in server_options(plan))
    paths = f"VLLM_SERVER_DEV_MODE=1 PYTHONPATH={Path(INSIDE)}"
    return f"{paths} vllm serve {model} --host 127.0.0.1 --port 8000 {options}"
