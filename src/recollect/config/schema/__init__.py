"""The typed tree of settings, with the keys that users of verl, MemAgent and AgentFly know.

Every key here takes effect. ``docs/config.md`` is generated from these files: the comment after a field is its meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from recollect.config.schema.agent import Agent, Gui, Judge, MemoryLimits, Recurrent, RecurrentMemory, Sandbox, Search
from recollect.config.schema.algorithm import Algorithm, FilterGroups, KLControl
from recollect.config.schema.data import Data, Ledger, Needle, ScreenTasks
from recollect.config.schema.memory import ConversationMemory, Rag, ToolMemory
from recollect.config.schema.policy import (
    Actor,
    ActorRolloutRef,
    Critic,
    CriticModel,
    Model,
    Offload,
    Optim,
    PolicyLoss,
    Reference,
    RefOffload,
    RewardModel,
    Rollout,
    ValSampling,
)
from recollect.config.schema.trainer import SFT, Evaluation, Trainer

__all__ = [
    "SFT",
    "Actor",
    "ActorRolloutRef",
    "Agent",
    "Algorithm",
    "Config",
    "ConversationMemory",
    "Critic",
    "CriticModel",
    "Data",
    "Evaluation",
    "FilterGroups",
    "Gui",
    "Judge",
    "KLControl",
    "Ledger",
    "MemoryLimits",
    "Model",
    "Needle",
    "Offload",
    "Optim",
    "PolicyLoss",
    "Rag",
    "Recurrent",
    "RecurrentMemory",
    "RefOffload",
    "Reference",
    "RewardModel",
    "Rollout",
    "Sandbox",
    "ScreenTasks",
    "Search",
    "ToolMemory",
    "Trainer",
    "ValSampling",
]


@dataclass
class Config:
    """The whole tree."""

    agent: Agent = field(default_factory=Agent)
    recurrent: Recurrent = field(default_factory=Recurrent)
    memory: ToolMemory = field(default_factory=ToolMemory)
    conversation: ConversationMemory = field(default_factory=ConversationMemory)
    rag: Rag = field(default_factory=Rag)
    data: Data = field(default_factory=Data)
    actor_rollout_ref: ActorRolloutRef = field(default_factory=ActorRolloutRef)
    algorithm: Algorithm = field(default_factory=Algorithm)
    critic: Critic = field(default_factory=Critic)
    reward_model: RewardModel = field(default_factory=RewardModel)
    sft: SFT = field(default_factory=SFT)
    evaluation: Evaluation = field(default_factory=Evaluation)
    trainer: Trainer = field(default_factory=Trainer)
    sandbox: Sandbox = field(default_factory=Sandbox)
    gui: Gui = field(default_factory=Gui)
    search: Search = field(default_factory=Search)
    judge: Judge = field(default_factory=Judge)
    roles: dict[str, str] = field(default_factory=dict)  # NAME: trainable, frozen:DIR, endpoint:URL or serve:DIR
