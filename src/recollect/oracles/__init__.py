"""Scripted teachers that know a task's answer (`sft.data=oracle`), for every agent that has one.

An oracle plays the roles of an agent through the agent's own loop, so that what is imitated has the very prompts that
the model will see. It says what a model in its place could know: a reader keeps a sentence that stands before it.
"""

from recollect.oracles.known import Known, known_of
from recollect.oracles.oracle_of_agent import ORACLES, OracleSpec
from recollect.oracles.play import Oracle, oracle_roles

__all__ = ["ORACLES", "Known", "Oracle", "OracleSpec", "known_of", "oracle_roles"]
