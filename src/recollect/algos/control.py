"""The weight of the KL penalty from step to step."""

from __future__ import annotations

import math
from dataclasses import dataclass

KINDS = ("fixed", "adaptive")


@dataclass
class KLController:
    """A fixed weight, or one that grows while the divergence is above its target and shrinks while it is below.

    ``coef`` is all that changes: a checkpoint holds this one number.
    """

    coef: float
    kind: str = "fixed"
    target: float = 0.1
    horizon: float = 10_000.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kl_ctrl.type={self.kind}: known are {', '.join(KINDS)}")
        if self.kind == "adaptive" and not (self.target > 0 and self.horizon > 0):
            raise ValueError("adaptive KL control needs target_kl and horizon above 0")

    def update(self, kl: float, n: int) -> float:
        """The weight after ``n`` trajectories of mean divergence ``kl``; unchanged where that is not a number."""
        if self.kind == "adaptive" and not math.isnan(kl):
            error = min(max(kl / self.target - 1, -0.2), 0.2)
            self.coef *= 1 + error * n / self.horizon
        return self.coef
