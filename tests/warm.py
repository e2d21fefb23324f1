"""What commands of `tests.commands` have in memory when they start: all that is imported, and what is looked up once.

Imported by the process that those of commands are forked from, and by nothing else.
"""

from __future__ import annotations

import gc

import torch
from tqdm import tqdm

import recollect.agents.loops
import recollect.cli.command_words
import recollect.config.translate.trl.read
import recollect.samplers.checkpoint_roles
import recollect.workflows.dry_run.dry_run
import recollect.workflows.eval.eval_run
import recollect.workflows.rollout.generate
import recollect.workflows.stages.stage_plan  # noqa: F401
import tests.commands  # noqa: F401
from recollect.config.compose import compose
from recollect.engine.attention_check import load_fitted
from recollect.models.tiny import TINY

torch.set_num_threads(1)
tqdm.monitor_interval = 0  # a process that has threads must not be forked
compose("needle", ["trainer.seed=1"])  # the grammar of overrides is slow the first time
load_fitted(str(TINY), torch.float32)  # … and so are transformers' mappings, and the check of this kind of model
gc.collect()
gc.freeze()  # what collectors look at is copied into each process
