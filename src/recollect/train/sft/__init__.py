"""Supervised training: imitate the scripted expert, stored trajectories, or conversations from files."""

from recollect.train.sft.loop import Supervised
from recollect.train.sft.sources import batches_of

__all__ = ["Supervised", "batches_of"]
