"""A page in a real Chromium as an environment. Pages are local: nothing is loaded but from the hosts of gui.hosts.

A task has under `page` the page's `html`, a `file` beside its data file or a `url`, and a `goal`: an expression of
JavaScript that is true when the goal state is there. Chromium is the machine's own; Playwright drives it.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from recollect.config import Config
from recollect.gui.environment import GuiAction
from recollect.images.image_files import read_image
from recollect.runtime.address import is_address
from recollect.runtime.error_text import listed
from recollect.types import BadInput, Image, Task

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
LOCAL = ("file:", "data:", "about:", "blob:")  # how addresses begin that are on this machine
WIDTH, HEIGHT = 640, 480
DEADLINE_MS = 10_000  # of one call
LOADS = 5  # pages that may follow each other while one is asked
GOES_ON = ("context was destroyed", "because of a navigation", "Cannot find context")  # what it says when one does
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

    def __init__(
        self, address: str, goal: str, size: tuple[int, int] = (WIDTH, HEIGHT), hosts: Sequence[str] = ()
    ) -> None:
        self.address, self.goal, self.size, self.hosts = address, goal, size, frozenset(map(str.lower, hosts))
        self._driver: Any = None
        self._browser: Any = None
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
        for _ in range(LOADS):
            page = await self._open()
            try:
                return await page.evaluate(f"Boolean({self.goal})") is True
            except Exception as error:  # Playwright's own
                if not any(sign in str(error) for sign in GOES_ON):
                    raise
            await page.wait_for_load_state("domcontentloaded")
        return False

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
            self._browser = self._driver = None
            if self._profile is not None:
                self._profile.cleanup()
                self._profile = None

    async def _open(self) -> Any:
        """The newest page, as a click may have opened another."""
        if self._browser is not None:
            return self._browser.pages[-1] if self._browser.pages else await self._browser.new_page()
        from playwright.async_api import async_playwright

        width, height = self.size
        rules = ["MAP * ~NOTFOUND", *(f"EXCLUDE {host}" for host in sorted(self.hosts))]
        self._profile = tempfile.TemporaryDirectory(prefix="recollect-browser-", ignore_cleanup_errors=True)
        self._driver = await async_playwright().start()
        self._browser = await self._driver.chromium.launch_persistent_context(
            self._profile.name,
            executable_path=find_chromium(),
            headless=True,
            chromium_sandbox=os.geteuid() != 0,  # which root cannot have
            args=[*FLAGS, f"--host-resolver-rules={','.join(rules)}"],
            viewport={"width": width, "height": height},
            offline=not self.hosts,
            service_workers="block",  # whose requests nobody could look at
            accept_downloads=False,
            timeout=3 * DEADLINE_MS,
        )
        self._browser.set_default_timeout(DEADLINE_MS)
        await self._browser.route("**/*", self._let_through)
        await self._browser.route_web_socket("**/*", self._connect)
        page = self._browser.pages[0] if self._browser.pages else await self._browser.new_page()
        await page.goto(self.address)
        return page

    def _may_load(self, url: str) -> bool:
        """True for what is on this machine, and for hosts that are allowed."""
        return url.startswith(LOCAL) or _host(url) in self.hosts

    async def _let_through(self, route: Any) -> None:
        if self._may_load(route.request.url):
            await route.continue_()
        else:
            await route.abort()

    async def _connect(self, socket: Any) -> None:
        if self._may_load(socket.url):
            socket.connect_to_server()
        else:
            await socket.close()

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


def browser_page(task: Task, cfg: Config) -> BrowserPage:
    """The page that a task describes under `page`."""
    said = task.fields.get("page")
    if not isinstance(said, Mapping) or not isinstance(said.get("goal"), str):
        raise BadInput(f"task {task.id} describes no page: gui.environment=browser wants one with a goal under `page`")
    check_browser()
    sizes = [said.get(name, most) for name, most in (("width", WIDTH), ("height", HEIGHT))]
    if not all(isinstance(n, int) and 50 <= n <= 4000 for n in sizes):
        raise BadInput(f"task {task.id}: a page's width and height are between 50 and 4000 pixels")
    width, height = sizes
    return BrowserPage(_address(said, task, cfg.gui.hosts), said["goal"], (width, height), cfg.gui.hosts)


def _address(said: Mapping[str, Any], task: Task, hosts: Sequence[str]) -> str:
    """Where a page is that a task describes."""
    if isinstance(said.get("html"), str):
        return "data:text/html;charset=utf-8;base64," + _base64(said["html"])
    if isinstance(url := said.get("url"), str):
        if not is_address(url) or (_host(url) or "") not in map(str.lower, hosts):
            raise BadInput(f"task {task.id}: {url[:80]} is on none of the hosts of gui.hosts={listed(hosts)}")
        return url
    path = Path(task.place.partition(", ")[0]).parent / str(said.get("file", ""))
    if not path.is_file():
        raise BadInput(
            f"task {task.id}: there is no page at {path}; give its `html`, `url`, or a `file` beside the data"
        )
    return path.absolute().as_uri()


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


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
