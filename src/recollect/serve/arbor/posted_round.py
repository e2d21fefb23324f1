"""The posted groups of a round as groups of trajectories, each completion with the ids that it was sampled with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from recollect.chat import Renderer
from recollect.packing.batch import build_batch
from recollect.serve.arbor.job_settings import Shaping
from recollect.serve.arbor.matching import Match, matched
from recollect.serve.arbor.payloads import PostedCompletion, PostedGroup
from recollect.serve.arbor.rounds import Rounds
from recollect.serve.arbor.sampled import SampledCompletion, SampledStore
from recollect.training.learner.learner import Learner
from recollect.training.rl.gather import Gathered
from recollect.types import Completion, Group, Score, Task, Trajectory, Turn

NEVER = -1  # the version of completions that nobody sampled here


@dataclass
class PostedRound:
    """What a step trains on; it stands in for the sampler of a run."""

    groups: list[Group] = field(default_factory=list)
    used: list[int] = field(default_factory=list)  # places of the sampled completions
    counts: Counter[str] = field(default_factory=Counter)  # completions and tokens by what became of them

    def gather(self, step: int, position: int) -> Gathered:
        """The groups, as if they had just been sampled."""
        return Gathered(self.groups, self.groups, None, 1, as_sampled=True)


@dataclass(frozen=True)
class RoundReader:
    """Makes trajectories of what a client posts to one job."""

    renderer: Renderer
    shaping: Shaping
    temperature: float
    window: int

    def read(self, rounds: Rounds, store: SampledStore) -> PostedRound:
        """All groups of the round."""
        made, posted = PostedRound(), rounds.posted
        flat = [completion for group in posted.values() for completion in group.completions]
        state = rounds.state
        matches = iter(matched(flat, store.items(), store.spent, state.number, state.seen))
        rows = dict(store.items())
        for number, group in posted.items():
            self._group(f"round-{state.number}/{number}", group, [next(matches) for _ in group.completions], rows, made)
        return made

    def _group(
        self,
        name: str,
        group: PostedGroup,
        matches: Sequence[Match],
        rows: Mapping[int, SampledCompletion],
        made: PostedRound,
    ) -> None:
        attempts = []
        for i, (posted, match) in enumerate(zip(group.completions, matches, strict=True)):
            turn, reason = self._turn(posted, match, rows)
            made.counts[reason] += 1
            if turn is None:
                continue
            if match.reason == "matched":
                made.used.append(match.place)
            tokens = len(turn.completion.ids)
            made.counts["trained_tokens"] += tokens if turn.trainable else 0
            made.counts["matched_tokens"] += tokens if turn.trainable and reason == "matched" else 0
            score = Score(self.shaping.reward(posted.reward, tokens))
            attempts.append(Trajectory(name, i, [turn], posted.text, turn.completion.stop, score))
        if attempts:
            question = group.completions[0].messages[-1].content
            made.groups.append(Group(Task(name, question, source="posted"), attempts))

    def _turn(
        self, posted: PostedCompletion, match: Match, rows: Mapping[int, SampledCompletion]
    ) -> tuple[Turn | None, str]:
        """The turn of a completion, if it can be trained, and what became of it."""
        if match.reason in ("repeated", "ambiguous"):
            return None, match.reason
        if match.reason == "tokenised":
            prompt, ids = self.renderer.prompt(posted.messages), self.renderer.reply(posted.text)
            done = Completion(tuple(ids), (0.0,) * len(ids), "stop", NEVER, posted.text)
        else:
            row = rows[match.place]
            prompt, done = list(row.prompt_ids), row.completion
            if row.temperature != self.temperature:
                return None, "other_temperature"
        if not self._fits(len(prompt), len(done.ids)):
            return None, "too_long"
        cut = done.stop == "length" and self.shaping.mask_truncated
        turn = Turn("agent", prompt, done, not cut, self.temperature)
        return turn, "truncated" if cut else match.reason

    def _fits(self, prompt: int, completion: int) -> bool:
        limits = self.shaping
        return (
            prompt + completion <= self.window
            and prompt <= (limits.longest_prompt or prompt)
            and completion <= (limits.longest or completion)
        )


def fill_logprobs(made: PostedRound, learner: Learner) -> None:
    """Completions that were never sampled get the log-probabilities that the policy gives them now."""
    unknown = [t for g in made.groups for t in g.trajectories if t.turns[0].completion.version == NEVER]
    if not unknown:
        return
    batch, trajectories = build_batch([Group(Task("posted", ""), unknown)])
    found = learner.logprobs(batch)
    for i, trajectory in enumerate(trajectories):
        turn = trajectory.turns[0]
        values = tuple(np.asarray(found[batch.trajectories_E == i], float).tolist())
        turn.completion = replace(turn.completion, logprobs=values)
