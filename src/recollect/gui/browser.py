"""A page in a real Chromium as an environment. Pages are local: nothing is loaded from a network.

A task has under `page` the page's `html`, or a `file` beside its data file, and a `goal`: an expression of JavaScript
that is true when the goal state is there. Chromium is the machine's own; Playwright drives it.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recollect.config import Config
from recollect.gui.environment import GuiAction
from recollect.images.image_files import read_image
from recollect.types import BadInput, Image, Task

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
LOCAL = ("file:", "data:", "about:", "blob:")  # how addresses begin that are on this machine
WIDTH, HEIGHT = 640, 480
DEADLINE_MS = 10_000  # of one call
WAIT_S = 0.5
NOTCH = 100  # pixels of a step of scrolling
CLICKS = {
    "right_click": ("right", 1),
    "middle_click": ("middle", 1),
    "double_click": ("left", 2),
    "triple_click": ("left", 3),
}
KEYS = {
    "ctrl": "Control",
    "alt": "Alt",
    "shift": "Shift",
    "enter": "Enter",
    "return": "Enter",
    "tab": "Tab",
    "esc": "Escape",
    "escape": "Escape",
    "backspace": "Backspace",
    "delete": "Delete",
    "space": " ",
    "up": "ArrowUp",
    "home": "Home",
    "down": "ArrowDown",
    "left": "ArrowLeft",
    "right": "ArrowRight",
    "pageup": "PageUp",
    "pagedown": "PageDown",
    "end": "End",
}


def find_chromium() -> str | None:
    """The machine's Chromium."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class BrowserPage:
    """A page of one attempt, in a browser of its own, which starts when it is first seen. It is an `Environment`."""

    def __init__(self, address: str, goal: str, width: int = WIDTH, height: int = HEIGHT) -> None:
        self.address, self.goal, self.size = address, goal, (width, height)
        self._driver: Any = None
        self._browser: Any = None
        self._page: Any = None
        self._profile: tempfile.TemporaryDirectory[str] | None = None

    async def see(self) -> Image:
        """A picture of the page as it is now."""
        page = await self._open()
        return read_image(await page.screenshot(type="png"), "a screenshot")

    async def act(self, action: GuiAction) -> str:
        """Take an action; what was wrong with it, or nothing."""
        page = await self._open()
        if action.kind == "wait":
            await asyncio.sleep(WAIT_S)
        elif action.kind == "type":
            await page.keyboard.type(action.text)
        elif action.kind == "key":
            return await self._press(page, action.text)
        elif action.kind != "finished":
            await self._point(page.mouse, action)
        return ""

    async def reached(self) -> bool:
        """True when the task's expression is."""
        return await (await self._open()).evaluate(f"Boolean({self.goal})") is True

    async def ended(self) -> bool:
        """A page goes on until its goal is reached."""
        return False

    async def close(self) -> None:
        """End the browser and remove its profile."""
        try:
            if self._browser is not None:
                await self._browser.close()
            if self._driver is not None:
                await self._driver.stop()
        finally:
            self._page = self._browser = self._driver = None
            if self._profile is not None:
                self._profile.cleanup()
                self._profile = None

    async def _open(self) -> Any:
        if self._page is not None:
            return self._page
        from playwright.async_api import async_playwright

        width, height = self.size
        self._profile = tempfile.TemporaryDirectory(prefix="recollect-browser-", ignore_cleanup_errors=True)
        self._driver = await async_playwright().start()
        self._browser = await self._driver.chromium.launch_persistent_context(
            self._profile.name,
            executable_path=find_chromium(),
            headless=True,
            chromium_sandbox=os.geteuid() != 0,  # which root cannot have
            args=list(FLAGS),
            viewport={"width": width, "height": height},
            offline=True,
            accept_downloads=False,
            timeout=3 * DEADLINE_MS,
        )
        self._browser.set_default_timeout(DEADLINE_MS)
        await self._browser.route("**/*", _local_alone)
        self._page = self._browser.pages[0] if self._browser.pages else await self._browser.new_page()
        await self._page.goto(self.address)
        return self._page

    async def _press(self, page: Any, keys: str) -> str:
        names = [KEYS.get(key.lower(), key) for key in keys.replace("+", " ").split()]
        try:
            await page.keyboard.press("+".join(names))
        except Exception as error:  # Playwright's own, about a key that there is not
            return f"the keys {keys[:40]} cannot be pressed ({' '.join(str(error).split())[:80]})"
        return ""

    async def _point(self, mouse: Any, action: GuiAction) -> None:
        x, y = action.point or (self.size[0] / 2, self.size[1] / 2)
        if action.kind == "scroll":
            await mouse.move(x, y)
            await mouse.wheel(NOTCH * action.across, NOTCH * action.amount)
            await asyncio.sleep(0.1)  # until the page has moved
        elif action.kind == "move":
            await mouse.move(x, y)
        elif action.kind == "drag":
            assert action.end is not None
            await mouse.move(x, y)
            await mouse.down()
            await mouse.move(*action.end, steps=5)
            await mouse.up()
        else:
            button, count = CLICKS.get(action.kind, ("left", 1))
            await mouse.click(x, y, button=button, click_count=count)


async def _local_alone(route: Any) -> None:
    """Let through what is on this machine, and nothing else."""
    if route.request.url.startswith(LOCAL):
        await route.continue_()
    else:
        await route.abort()


def browser_page(task: Task, cfg: Config) -> BrowserPage:
    """The page that a task describes under `page`."""
    said = task.fields.get("page")
    if not isinstance(said, Mapping) or not isinstance(said.get("goal"), str):
        raise BadInput(f"task {task.id} describes no page: gui.environment=browser wants one with a goal under `page`")
    check_browser()
    sizes = [said.get(name, most) for name, most in (("width", WIDTH), ("height", HEIGHT))]
    if not all(isinstance(n, int) and 50 <= n <= 4000 for n in sizes):
        raise BadInput(f"task {task.id}: a page's width and height are between 50 and 4000 pixels")
    if isinstance(said.get("html"), str):
        return BrowserPage("data:text/html;charset=utf-8;base64," + _base64(said["html"]), said["goal"], *sizes)
    path = Path(task.place.partition(", ")[0]).parent / str(said.get("file", ""))
    if not path.is_file():
        raise BadInput(f"task {task.id}: there is no page at {path}; give its `html`, or a `file` beside the data")
    return BrowserPage(path.absolute().as_uri(), said["goal"], *sizes)


def check_browser() -> None:
    """Refuse to begin without a browser and what drives it."""
    try:
        import playwright  # noqa: F401
    except ImportError:
        raise BadInput("gui.environment=browser needs Playwright: pip install 'recollect-rl[browser]'") from None
    if find_chromium() is None:
        raise BadInput(f"gui.environment=browser needs a Chromium; none of {', '.join(NAMES)} is on the PATH")


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
