"""Trackers: other programs' views of a run's metrics. ``metrics.jsonl`` stays the truth; they follow it.

Each file adds its tracker to the registry; messages name them in this order.
"""

from recollect.runs.trackers import tensorboard, wandb, swanlab, mlflow, trackio  # isort: skip

__all__ = ["mlflow", "swanlab", "tensorboard", "trackio", "wandb"]
