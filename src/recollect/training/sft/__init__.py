"""Supervised training: imitate the scripted expert, stored trajectories, or conversations from files."""

from recollect.training.sft.sources import batches_of
from recollect.training.sft.updates import Supervised

__all__ = ["Supervised", "batches_of"]
