"""A screen that an attempt is under way on: the environment, and how the model's numbers and words are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from recollect.config import Config
from recollect.gui.action_syntax import Frame
from recollect.gui.browser import browser_page, check_browser
from recollect.gui.environment import Environment
from recollect.gui.screen_row import read_screen
from recollect.images.patches import Patches
from recollect.runtime.plugins import find
from recollect.types import BadInput, Image, Task

THOUSANDTHS = 1000.0


@dataclass
class OnScreen:
    """What the agent works on."""

    environment: Environment
    frame: Frame
    syntax: str


def frame_of(image: Image, patches: Patches | None, coordinates: str) -> Frame:
    """How a model's numbers are read: pixels of the picture as its processor scales it, or thousandths of it."""
    if coordinates == "thousandths":
        return Frame(image.width, image.height, (THOUSANDTHS, THOUSANDTHS))
    seen = (image.width, image.height) if patches is None else patches.scaled(image.width, image.height)
    return Frame(image.width, image.height, (float(seen[0]), float(seen[1])))


def made_up_screen(task: Task, cfg: Config) -> Environment:
    """The screen that a task describes under `screen`."""
    said = task.fields.get("screen")
    if not isinstance(said, dict):
        raise BadInput(f"task {task.id} describes no screen: gui.environment=screen wants one under `screen`")
    try:
        return read_screen(said)
    except ValueError as error:
        raise BadInput(f"task {task.id} describes no screen that can be made: {error}") from None


ENVIRONMENTS: dict[str, Callable[[Task, Config], Any]] = {"screen": made_up_screen, "browser": browser_page}


def check_environment(cfg: Config) -> None:
    """Refuse an environment that there is not, before a run."""
    if find(cfg.gui.environment, ENVIRONMENTS, "gui.environment") is browser_page:
        check_browser()


def task_problem(cfg: Config, task: Task) -> str:
    """Why a built-in environment cannot be made of a task; empty: it can, or the environment is the user's own."""
    make = ENVIRONMENTS.get(cfg.gui.environment)
    try:
        if make is not None:
            make(task, cfg)
    except BadInput as error:
        return str(error)
    return ""


def open_environment(task: Task, cfg: Config) -> Environment:
    """The environment of gui.environment for an attempt at a task."""
    made: Environment = find(cfg.gui.environment, ENVIRONMENTS, "gui.environment")(task, cfg)
    return made
