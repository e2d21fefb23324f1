"""What servers did for a run."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class FleetStatistics:
    """What the servers did for this process. They do not tell reading prompts from decoding."""

    steps: int = 0  # completions
    prompt_tokens: int = 0
    computed_prompt_tokens: int = 0  # at most: what servers had cached is not known
    sampled_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0  # in which at least one request was under way
    peak_rows: int = 0
    decoding: int = 0
    waiting: int = 0
    outside: bool = True
    gpu_seconds: float | None = None
    taken_out: int = 0  # servers, each time
    repeated: int = 0  # requests that were given to another server
    syncs: int = 0
    sync_seconds: float = 0.0
    sync_bytes: int = 0  # of the newest version
    _since: float = field(default=0.0, repr=False)  # when the first of the requests under way began

    def count(self, change: int) -> None:
        """A request began (1) or ended (-1)."""
        now = time.monotonic()
        if change > 0 and self.decoding == 0:
            self._since = now
        self.decoding += change
        self.peak_rows = max(self.peak_rows, self.decoding)
        if self.decoding == 0:
            self.decode_seconds += now - self._since

    def completed(self, prompt: int, sampled: int) -> None:
        """A completion of so many tokens was given."""
        self.steps += 1
        self.prompt_tokens += prompt
        self.computed_prompt_tokens += prompt
        self.sampled_tokens += sampled
