"""recollect trains language-model agents that remember and use tools.

``recollect.train``, ``sft``, ``stages``, ``load``, ``evaluate`` and ``Run`` do from Python what the command line does.
Each is imported when it is first used, so that ``import recollect`` is instant and does not import torch.
"""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recollect.agents.session import Conversation, Session
    from recollect.library.evaluate_policy import evaluate
    from recollect.library.loaded_policy import LoadedPolicy, load
    from recollect.library.run_view import Run
    from recollect.library.train_from_python import Report, Result, sft, stages, train
    from recollect.registries import agent, estimator, tracker
    from recollect.rewards.decorator import reward
    from recollect.tools.tool_definition import tool
    from recollect.types import BadInput, Message, Score, Task, Trajectory

__version__ = "0.1.0"
_HOMES = {
    **dict.fromkeys(("train", "sft", "stages", "Result", "Report"), "recollect.library.train_from_python"),
    **dict.fromkeys(("load", "LoadedPolicy"), "recollect.library.loaded_policy"),
    **dict.fromkeys(("Conversation", "Session"), "recollect.agents.session"),
    "evaluate": "recollect.library.evaluate_policy",
    "Run": "recollect.library.run_view",
    **dict.fromkeys(("agent", "estimator", "tracker"), "recollect.registries"),
    "reward": "recollect.rewards.decorator",
    "tool": "recollect.tools.tool_definition",
    **dict.fromkeys(("BadInput", "Message", "Score", "Task", "Trajectory"), "recollect.types"),
}
__all__ = [
    "BadInput",
    "Conversation",
    "LoadedPolicy",
    "Message",
    "Report",
    "Result",
    "Run",
    "Score",
    "Session",
    "Task",
    "Trajectory",
    "agent",
    "estimator",
    "evaluate",
    "load",
    "reward",
    "sft",
    "stages",
    "tool",
    "tracker",
    "train",
]

# read by torch's libraries when they are first used
os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # threads that wait do so briefly: others may need the core
# CPU kernels kept for shapes seen before: the 1024 of these libraries hold hundreds of MiB, and are no faster
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
os.environ.setdefault("LRU_CACHE_CAPACITY", "64")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'recollect' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
