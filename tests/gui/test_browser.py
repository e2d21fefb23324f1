"""The agent `gui` on a real Chromium page; skipped where there is no Chromium or no Playwright."""

from __future__ import annotations

import asyncio
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

import pytest

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.config.compose import compose
from recollect.gui.browser import BrowserPage, browser_page, find_chromium
from recollect.gui.environment import GuiAction
from recollect.models.load import load_renderer
from recollect.policies.scripted import Expert
from recollect.types import BadInput, Sampling, Task

CFG = compose(None, ["agent.agent_type=gui", "agent.reward_name=gui_goal", "agent.max_tokens_per_turn=200"])
PAGE = """<body style="margin:0"><input id=name style="position:absolute;left:20px;top:20px;width:120px;height:30px">
<button id=ok style="position:absolute;left:20px;top:80px;width:120px;height:40px"
 onclick="document.title = document.getElementById('name').value">Save</button>
<div style="height:3000px"></div></body>"""
BUTTON = "position:absolute;left:0;top:0;width:200px;height:200px"


def task(**more: Any) -> Task:
    fields = {"page": {"html": PAGE, "goal": "document.title === 'Ada'", "width": 320, "height": 240, **more}}
    return Task("t", "Save the name Ada", fields=fields)


@pytest.mark.parametrize(
    "page",
    [
        None,
        {"html": PAGE},
        {"html": PAGE, "goal": "true", "width": 9},
        {"goal": "true", "file": "no"},
        {"goal": "true", "url": "http://127.0.0.1/"},
    ],
)
def test_a_page_that_cannot_be(page: Any) -> None:
    with pytest.raises(BadInput):
        browser_page(Task("t", "q", fields={"page": page}), CFG)


@pytest.fixture
def chromium() -> None:
    pytest.importorskip("playwright")
    if find_chromium() is None:
        pytest.skip("there is no Chromium")


@pytest.mark.usefixtures("chromium")
def test_the_agent_works_a_real_page() -> None:
    renderer = load_renderer("scratch_vision")
    said = ["Action: click(start_box='(80,35)')", "Action: type(content='Ada')", "Action: click(start_box='(80,100)')"]
    player = Expert(renderer, lambda task, trajectory: said[len(trajectory.turns)])
    cfg = compose(None, ["agent.agent_type=gui", "agent.reward_name=gui_goal", "gui.environment=browser"])
    cfg.agent.max_tokens_per_turn = 200
    collector = Collector(cfg, {"*": Binding(player, renderer)})
    (group,) = asyncio.run(collector.collect([task()], 1, Sampling(max_tokens=200), "test"))
    (made,) = group.trajectories
    assert made.failure is None
    assert (made.stop, made.success, made.reward) == ("goal", True, 1.0)
    first, *_, last = made.turns[-1].images
    assert first.digest != last.digest
    assert (first.width, first.height) == (320, 240)


@pytest.mark.usefixtures("chromium")
def test_actions_on_a_page(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(PAGE)
    asked = task(html=None, file="page.html", goal="window.scrollY > 0")
    asked.place = f"{tmp_path / 'rows.jsonl'}, line 1"

    async def work() -> None:
        page = browser_page(asked, CFG)
        try:
            assert not await page.reached()
            assert await page.act(GuiAction("scroll", (100, 200), amount=3)) == ""
            assert await page.reached()
            assert "cannot be pressed" in await page.act(GuiAction("key", text="ctrl nokey"))
            for action in (
                GuiAction("double_click", (80, 35)),
                GuiAction("right_click", (200, 200)),
                GuiAction("middle_click", (200, 200)),
                GuiAction("triple_click", (80, 35)),
                GuiAction("move", (20, 20)),
                GuiAction("scroll", (100, 200), across=-2),
                GuiAction("drag", (10, 200), (60, 220)),
                GuiAction("key", text="ctrl a"),
                GuiAction("wait"),
            ):
                assert await page.act(action) == ""
        finally:
            await page.close()

    asyncio.run(work())


class Site:
    """A server of pages on this machine, and what it was asked for."""

    def __init__(self, pages: dict[str, str]) -> None:
        asked = self.asked = list[str]()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                page = pages.get(self.path, "")
                away = page.startswith("http")
                self.send_response(302 if away else 200)
                self.send_header(*(("Location", page) if away else ("Content-Type", "text/html")))
                self.end_headers()
                self.wfile.write(page.encode())

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: Any) -> None:
        self.server.shutdown()
        self.server.server_close()


def asking(url: str) -> str:
    """A page that asks an address for a picture, for data, for a connection and for another page."""
    return f"""<img src="{url}/picture"><iframe src="{url}/frame"></iframe><script>
    const done = () => {{ window.left = (window.left ?? 3) - 1; }};
    fetch("{url}/data", {{mode: "no-cors"}}).then(done, done);
    fetch("{url}/away", {{mode: "no-cors"}}).then(done, done);
    const socket = new WebSocket("{url.replace("http", "ws")}/socket"); socket.onclose = done;
    </script>"""


async def until(page: BrowserPage) -> None:
    """Wait until the goal is reached."""
    for _ in range(100):
        if await page.reached():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the goal was not reached")


@pytest.mark.usefixtures("chromium")
def test_pages_load_from_the_hosts_that_are_allowed_and_no_other() -> None:
    """The other host is the same machine by its number; a redirect leads there too."""
    pages: dict[str, str] = {}
    with Site({}) as other, Site(pages) as site:
        own, foreign = f"http://localhost:{site.port}", f"http://127.0.0.1:{other.port}"
        pages |= {"/own": asking(own), "/foreign": asking(foreign), "/away": f"{foreign}/redirected"}
        for name in ("/own", "/foreign"):
            page = BrowserPage(f"{own}{name}", "window.left === 0", hosts=["localhost"])
            asyncio.run(asyncio.wait_for(_to_the_end(page), 60))
        assert other.asked == []
        asked = [path for path in site.asked if "favicon" not in path]
        assert sorted(asked) == sorted(["/own", "/picture", "/frame", "/data", "/away", "/socket", "/foreign"])


@pytest.mark.usefixtures("chromium")
def test_without_hosts_nothing_is_loaded() -> None:
    with Site({}) as site:
        asyncio.run(asyncio.wait_for(_to_the_end(of_text(asking(f"http://localhost:{site.port}"))), 60))
        assert site.asked == []


def of_text(html: str) -> BrowserPage:
    return BrowserPage(f"data:text/html,{quote(html)}", "window.left === 0")


async def _to_the_end(page: BrowserPage) -> None:
    try:
        await until(page)
    finally:
        await page.close()


@pytest.mark.usefixtures("chromium")
def test_a_page_of_a_host_whose_links_lead_on_and_open_others() -> None:
    link = lambda to, target="": f'<a href="{to}" target="{target}" style="{BUTTON}">x</a>'
    with Site({"/": link("/two"), "/two": link("/three", "_blank"), "/three": "<title>three</title>"}) as site:
        cfg = compose(None, ["agent.agent_type=gui", "gui.environment=browser", "gui.hosts=[127.0.0.1]"])
        asked = task(html=None, url=f"http://127.0.0.1:{site.port}/", goal="document.title === 'three'")
        page = browser_page(asked, cfg)

        async def work() -> None:
            try:
                for _ in range(2):
                    assert not await page.reached()
                    assert await page.act(GuiAction("click", (50, 50))) == ""
                    await page.reached()  # while the next page comes
                await until(page)
            finally:
                await page.close()

        asyncio.run(asyncio.wait_for(work(), 60))
    assert [path for path in site.asked if "favicon" not in path] == ["/", "/two", "/three"]


@pytest.mark.parametrize("host", ["http://localhost", "localhost:8000", "a b", ""])
def test_a_host_is_a_name(host: str) -> None:
    with pytest.raises(BadInput, match=r"gui.hosts: .* is no host"):
        compose(None, ["agent.agent_type=gui", f"gui.hosts=['{host}']"])
