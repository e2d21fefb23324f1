"""What a run says about the metrics of a step when they show that something is wrong."""

from __future__ import annotations

from collections.abc import Mapping

from recollect.config import Config
from recollect.runtime.console import Console

MOSTLY_CUT = 0.5  # share of turns that end at their limit from which a run says so
DRIFT = 0.5  # mean distance of log-probabilities between sampling and training from which a run warns


class Advice:
    """Looks at each step's row. Stored trajectories were sampled by others, and nothing is said about them."""

    def __init__(self, cfg: Config, console: Console) -> None:
        self.cfg, self.console = cfg, console
        self.said_cut = False

    def look(self, row: Mapping[str, float]) -> None:
        """Say what is wrong with a step."""
        if not self.cfg.data.offline_files:
            self._compare(row)
            self._cut(row)

    def _compare(self, row: Mapping[str, float]) -> None:
        """Warn when the sampler and the learner differ too much: what is learnt then cannot be trusted."""
        drift = row.get("actor/logprob_drift", 0.0)
        if row["step"] == 1 and not drift <= DRIFT:
            self.console.warn(
                f"log-probabilities differ by {drift:.2f} on average between sampling and training "
                "(actor/logprob_drift): try float32 for actor_rollout_ref.rollout.dtype and .actor.dtype"
            )

    def _cut(self, row: Mapping[str, float]) -> None:
        """Say once when most turns end at their limit: what a model would have said after it earns nothing."""
        if self.said_cut or row["rollout/cut"] <= MOSTLY_CUT:
            return
        self.said_cut = True
        recurrent = self.cfg.agent.agent_type == "recurrent"
        keys = "recurrent.memory.config.max_memorization_length" if recurrent else "data.max_response_length"
        self.console.say(
            f"{row['rollout/cut']:.0%} of the turns of step {row['step']:.0f} were cut at their limit (rollout/cut): "
            f"raise it ({keys}), or teach the model to end its turns first (sft.steps)"
        )
