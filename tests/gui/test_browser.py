"""The agent `gui` on a real Chromium page; skipped where there is no Chromium or no Playwright."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.config.compose import compose
from recollect.gui.browser import browser_page, find_chromium
from recollect.gui.environment import GuiAction
from recollect.models.load import load_renderer
from recollect.policies.scripted import Expert
from recollect.types import BadInput, Sampling, Task

CFG = compose(None, ["agent.agent_type=gui", "agent.reward_name=gui_goal", "agent.max_tokens_per_turn=200"])
PAGE = """<body style="margin:0"><input id=name style="position:absolute;left:20px;top:20px;width:120px;height:30px">
<button id=ok style="position:absolute;left:20px;top:80px;width:120px;height:40px"
 onclick="document.title = document.getElementById('name').value">Save</button>
<div style="height:3000px"></div><img src="http://127.0.0.1:9/x.png" onerror="window.blocked = true"></body>"""


def task(**more: Any) -> Task:
    fields = {"page": {"html": PAGE, "goal": "document.title === 'Ada'", "width": 320, "height": 240, **more}}
    return Task("t", "Save the name Ada", fields=fields)


@pytest.mark.parametrize(
    "page", [None, {"html": PAGE}, {"html": PAGE, "goal": "true", "width": 9}, {"goal": "true", "file": "no"}]
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
def test_actions_on_a_page_and_nothing_from_the_network(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(PAGE)
    asked = task(html=None, file="page.html", goal="window.scrollY > 0 && window.blocked")
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
