"""Answers to rewards: `custom_reward_function`, `reward`, `reward_model`, `reward_manager`, `sandbox_fusion`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.config.translate.key_answer import Alias, Answer, Given, Refused, Same

NO_MODEL = (
    "there is no reward model: rewards are functions (agent.reward_name), or a judge behind an address (judge.url)"
)
SANDBOX = "programs run in the sandbox of this machine: sandbox.*"
MANAGER = "rewards are functions: agent.reward_name=FILE.py:FUNCTION"
CUSTOM = ("custom_reward_function.", "reward.custom_reward_function.")
DEFAULT = "compute_score"


def custom(value: Any, given: Given) -> Mapping[str, Any]:
    """`agent.reward_name` of a file, a function in it, and its options; nothing without a file."""
    part = {key.removeprefix(place): given[key] for place in CUSTOM for key in given if key.startswith(place)}
    if not part.get("path"):
        return {}
    options = [f"{k.removeprefix('reward_kwargs.')}={v}" for k, v in part.items() if k.startswith("reward_kwargs.")]
    called = f"({','.join(options)})" if options else ""
    return {"agent.reward_name": f"{part['path']}:{part.get('name') or DEFAULT}{called}"}


ANSWERS: Mapping[str, Answer] = {
    **{
        f"{place}{name}": Alias("agent.reward_name", "path:name, with reward_kwargs as options", expand=custom)
        for place in CUSTOM
        for name in ("path", "name", "reward_kwargs.*")
    },
    **{
        f"{place}reward_kwargs": Refused("give its options one by one: reward_kwargs.NAME=VALUE", fine=({},))
        for place in CUSTOM
    },
    "reward_model.reward_manager": Alias("reward_model.reward_manager"),
    "reward_manager.name": Alias("reward_model.reward_manager"),
    "reward.reward_manager.name": Alias("reward_model.reward_manager"),
    "reward_manager.*": Refused(MANAGER),
    "reward.reward_manager.*": Refused(MANAGER),
    "reward.num_workers": Same(
        "agent.max_concurrency and reward_model.reward_manager say how many rewards run at once"
    ),
    "reward_model.rollout.load_format": Refused(NO_MODEL, fine=("auto",)),
    "reward_model.launch_reward_fn_async": Same("a reward is computed as soon as its attempt ends"),
    "reward_model.sandbox_fusion.*": Refused(SANDBOX),
    "reward.sandbox_fusion.*": Refused(SANDBOX),
    "sandbox_fusion.*": Refused(SANDBOX),
    "reward_model.reward_kwargs.*": Refused("a length penalty is a reward of its own: see docs/rewards.md"),
    "reward_model.overlong_buffer.*": Refused("a length penalty is a reward of its own: see docs/rewards.md"),
    "reward_model.use_reward_loop": Same("a reward is computed as soon as its attempt ends"),
    "reward_model.num_workers": Same("agent.max_concurrency and reward_model.reward_manager say how many run at once"),
    "reward_model.*": Refused(NO_MODEL),
    "reward.*": Refused(NO_MODEL),
}
