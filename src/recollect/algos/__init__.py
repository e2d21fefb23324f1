"""The algorithms, as pure functions by name: advantages, losses, divergences, the sum over tokens.

Importing them does not import torch; calling them does.
"""

from recollect.algos.advantage import ADVANTAGES
from recollect.algos.aggregation import aggregate
from recollect.algos.kl import KL
from recollect.algos.loss import LOSSES

__all__ = ["ADVANTAGES", "KL", "LOSSES", "aggregate"]
