"""The ranks of a learner, seen from the driver. When one is lost all start again and are brought to where they were."""

from __future__ import annotations

import itertools
import shutil
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from recollect.dist.place import RankPlace
from recollect.dist.ranks import Passed, RankFailed, RankLost, RankNodes, Ranks
from recollect.training.learner.ranks.journal import Journal, RankCall
from recollect.training.learner.ranks.rank_settings import RankSettings
from recollect.training.learner.token_budget import FLOOR
from recollect.types import BadInput

WORKER = "recollect.training.learner.ranks.rank_worker:LearnerRank"
MOST_LOSSES = 3  # of ranks in one call; then something is wrong with it


class RanksGone(BadInput):
    """Ranks were lost and could not be brought back; a saved run goes on from its newest checkpoint."""


class LearnerRanks:
    """Ranks, and what it takes to make them again. ``opened`` is the folder of the model that they load."""

    def __init__(
        self,
        settings: RankSettings,
        place: RankPlace,
        opened: AbstractContextManager[str],
        warn: Callable[[str], None],
        nodes: RankNodes | None = None,
    ) -> None:
        stack = ExitStack()
        weakref.finalize(self, stack.close)  # a folder that was made for this lasts as long as it may be read
        self.settings = replace(settings, path=stack.enter_context(opened))
        self.place, self.warn, self.nodes = place, warn, nodes
        self.journal = Journal()
        self._numbers = itertools.count(1)
        try:
            self._start()
        except RankLost as error:
            raise RanksGone(str(error)) from None

    def _start(self) -> None:
        self.ranks = Ranks(WORKER, self.settings, self.place, self.nodes)

    def number(self) -> int:
        """A number for a new object."""
        return next(self._numbers)

    def do(
        self,
        call: RankCall,
        changes: bool = False,
        passed: Passed | None = None,
        again: Callable[[], Any] = lambda: None,
    ) -> Any:
        """Make a call, and where ranks are lost meanwhile make it again; ``again`` clears up before that."""
        lost = 0
        while True:
            try:
                found = self.ranks.call(call.target, call.name, call.given, call.made, passed)
                break
            except RankLost as error:
                lost += 1
                self.restart(error, lost)
                again()
        if changes:
            self.journal.note(call)
        return found

    def stream(self, call: RankCall) -> Iterator[Any]:
        """What a call yields in the first rank. The caller starts again where that fails (`restart`)."""
        return self.ranks.stream(call.target, call.name, call.given)

    def restart(self, why: RankLost, times: int = 1) -> None:
        """Start new ranks and bring them to where the lost ones were."""
        if why.memory:
            self._halve(why)
        elif times > MOST_LOSSES:
            raise RanksGone(f"{why}, for the {times}th time in one call; a saved run goes on with the same command")
        if not self.journal.complete:
            raise RanksGone(f"{why}; the last checkpoint is too long ago to go on by itself; start the command again")
        place = "the beginning" if self.journal.kept is None else self.journal.kept.name
        smaller = ", with half as many tokens in a pass" if why.memory else ""
        self.warn(f"{why}; all ranks start again from {place}{smaller}")
        try:
            self._start()
            for call in self.journal.replay(self.settings.cfg.actor_rollout_ref.model.lora_rank > 0):
                self.ranks.call(call.target, call.name, call.given, call.made)
        except RankLost as error:
            self.restart(error, times + 1)
        except RankFailed as error:
            raise RanksGone(f"{why}; new ranks could not go on from {place}: {error}") from None

    def _halve(self, why: RankLost) -> None:
        tokens = self.settings.cfg.actor_rollout_ref.actor.ppo_max_token_len_per_gpu
        if tokens >> self.settings.halvings <= FLOOR:
            raise RanksGone(f"{why}; passes cannot be made smaller")
        self.settings = replace(self.settings, halvings=self.settings.halvings + 1)

    def close(self) -> None:
        """End the ranks."""
        self.ranks.close()


def emptied(folder: Path) -> None:
    """Remove what lost ranks have written of a checkpoint."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
