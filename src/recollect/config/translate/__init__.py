"""Keys of verl, MemAgent, the two-stage memory agent and AgentFly that recollect does not have under that name.

Each has an answer: it is another name for a key here, it is refused with a reason, or it is taken with a note because
no value of it changes a result here. The ``*.yaml`` files list the keys of each system with their defaults, and
``docs/from-verl.md`` is generated from both.
"""

from recollect.config.translate.apply import Translated, translate

__all__ = ["Translated", "translate"]
