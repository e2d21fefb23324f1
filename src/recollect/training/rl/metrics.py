"""The row of metrics that a step leaves."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch

from recollect.agents.rollout import failures
from recollect.samplers.fleet.fleet_statistics import FleetStatistics
from recollect.samplers.sampler import SamplerStatistics
from recollect.training.rl.gather import Gathered, has_signal
from recollect.types import Group, Trajectory

ACTOR = ("policy_loss", "kl", "entropy", "grad_norm", "lr", "skipped_updates")  # in every row, 0 without an update

FOUND = (
    "clip_fraction",
    "logprob_drift",
    "policy_kl",
    "importance",
    "importance_capped",
)  # where an update has found them


def role_tokens(groups: Sequence[Group]) -> Counter[tuple[str, str]]:
    """How many sampled tokens of each role are trained on and how many are not, failed attempts left out."""
    count: Counter[tuple[str, str]] = Counter()
    for turn in (turn for g in groups for t in g.trajectories if t.valid for turn in t.turns):
        count[turn.role, "trained" if turn.trainable else "untrained"] += len(turn.completion.ids)
    return count


def rollout_times(before: SamplerStatistics, after: SamplerStatistics, waited: float, whole: float) -> dict[str, float]:
    """Where the seconds of a rollout went: sampling, waiting, and the agents' own work."""
    prefill, decode = after.prefill_seconds - before.prefill_seconds, after.decode_seconds - before.decode_seconds
    if after.outside:  # this process waited meanwhile
        waited = max(0.0, waited - prefill - decode)
    busy = {}
    if before.gpu_seconds is not None and after.gpu_seconds is not None:
        busy["gpu/busy"] = (after.gpu_seconds - before.gpu_seconds) / whole
    return busy | {
        "time/rollout/prefill": prefill,
        "time/rollout/decode": decode,
        "time/rollout/waiting": waited,
        "time/rollout/agents": max(0.0, whole - prefill - decode - waited),
    }


def server_metrics(before: SamplerStatistics, after: SamplerStatistics) -> dict[str, float]:
    """What happened to the servers that sample, if servers do."""
    if not isinstance(before, FleetStatistics) or not isinstance(after, FleetStatistics):
        return {}
    return {
        "servers/sync_bytes": float(after.sync_bytes),
        "servers/taken_out": float(after.taken_out - before.taken_out),
        "servers/repeated": float(after.repeated - before.repeated),
    }


def step_metrics(made: Gathered, changed: dict[str, float], by_role: bool = False) -> dict[str, float]:
    """The metrics of a step, but for its times. Rewards are those of everything that was sampled."""
    trajectories = [t for g in made.sampled for t in g.trajectories]
    completions = [turn.completion for t in trajectories for turn in t.turns]
    rewards = np.array([t.reward for t in trajectories if t.valid])
    lengths = np.array([sum(len(turn.completion.ids) for turn in t.turns) for t in trajectories])
    failed, stops = failures(made.sampled), Counter(t.stop or "failed" for t in trajectories)
    parts = sorted({name for t in trajectories if t.score for name in t.score.parts})
    row = {
        "reward/mean": float(rewards.mean()),
        "reward/std": float(rewards.std()),
        "reward/min": float(rewards.min()),
        "reward/max": float(rewards.max()),
        **{f"reward/part/{name}": _part(trajectories, name) for name in parts},
        **{f"actor/{name}": changed.get(name, 0.0) for name in ACTOR},
        **{f"actor/{name}": changed[name] for name in FOUND if name in changed},
        "actor/tokens_computed": changed.get("tokens_computed", 0.0) * changed.get("updates", 0.0),
        "rollout/turns": float(np.mean([len(t.turns) for t in trajectories])),
        "rollout/tokens": float(lengths.sum()),
        "rollout/response_length": float(lengths.mean()),
        "rollout/response_length_max": float(lengths.max()),
        "rollout/cut": float(np.mean([c.stop == "length" for c in completions])) if completions else 0.0,
        "rollout/failures": float(sum(failed.values())),
        **{f"rollout/failures/{kind}": float(count) for kind, count in sorted(failed.items())},
        **{f"rollout/stop/{reason}": count / len(trajectories) for reason, count in sorted(stops.items())},
        **tool_metrics(trajectories),
        **{f"tokens/{role}/{kind}": float(n) for (role, kind), n in sorted(role_tokens(made.groups).items())},
        "rollout/groups_without_signal": float(np.mean([not has_signal(g, "reward", by_role) for g in made.sampled])),
        "rollout/gen_batches": float(made.batches),
        **memory_row(),
    }
    return row | {name: value for name, value in changed.items() if "/" in name}


def memory_row() -> dict[str, float]:
    """Peak memory in MiB: of this process so far, and of the GPU since the last call."""
    row = {"memory/resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        row["memory/gpu_mb"] = torch.cuda.max_memory_allocated() / 2**20
        torch.cuda.reset_peak_memory_stats()
    return row


def tool_metrics(trajectories: list[Trajectory]) -> dict[str, float]:
    """Calls of tools per trajectory, by outcome and by tool; nothing when no tool was called."""
    total: Counter[str] = Counter()
    for trajectory in trajectories:
        total.update(trajectory.tool_calls)
    return {f"tools/{name.removeprefix('tool/')}": n / len(trajectories) for name, n in sorted(total.items())}


def _part(trajectories: list[Trajectory], name: str) -> float:
    values = [t.score.parts[name] for t in trajectories if t.score and name in t.score.parts]
    return float(np.mean(values))
