"""What the agent `gui` asks of an environment: a picture of the screen, and the effect of an action."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from recollect.types import Image

ClickKind = Literal["click", "double_click", "triple_click", "right_click", "middle_click"]
ActionKind = ClickKind | Literal["move", "drag", "type", "key", "scroll", "wait", "finished"]
CLICKS: tuple[ClickKind, ...] = get_args(ClickKind)
Point = tuple[float, float]  # pixels from the left and the top


@dataclass(frozen=True)
class GuiAction:
    """One action, in the screen's own pixels."""

    kind: ActionKind
    point: Point | None = None  # where; None: where the pointer is, or nowhere
    end: Point | None = None  # where a drag ends
    text: str = ""  # what is typed, the keys that are pressed together, or what is said at the end
    amount: int = 0  # of scrolling: steps down; negative: up
    across: int = 0  # steps to the right; negative: to the left

    def shown(self) -> dict[str, Any]:
        """The action for people and files."""
        where = {name: [round(v) for v in p] for name, p in (("point", self.point), ("end", self.end)) if p}
        said = {"text": self.text} if self.text else {}
        steps = {name: n for name, n in (("amount", self.amount), ("across", self.across)) if n}
        return {**where, **said, **steps}


class Environment(Protocol):
    """A screen with a state, for one attempt at one task."""

    async def see(self) -> Image:
        """A picture of the screen as it is now."""
        ...

    async def act(self, action: GuiAction) -> str:
        """Take an action; what was wrong with it, in words for the model, or nothing."""
        ...

    async def reached(self) -> bool:
        """True when the task's goal state is there."""
        ...

    async def ended(self) -> bool:
        """True when nothing more can be done."""
        ...

    async def close(self) -> None:
        """Free what it holds."""
        ...
