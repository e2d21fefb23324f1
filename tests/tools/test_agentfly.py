"""Options that AgentFly's decorator takes: each has its effect here, or is refused with a reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import PIL.Image
import pytest

from recollect.images.image_files import pixels, to_url
from recollect.tools import Toolbox, tool
from recollect.types import BadInput, ToolResult
from tests.seeing import pictures
from tests.tools.conftest import one


def plus(a: int) -> int:
    """Add one."""
    return a + 1


def test_name_and_description() -> None:
    made = tool(name="increase", description="What the model is told.", auto_register=True)(plus)
    assert (made.name, made.description) == ("increase", "What the model is told.")
    assert made.schema["function"]["description"] == "What the model is told."
    assert tool(name="increase")(plus).description == "Add one."


def test_defaults_of_theirs_change_nothing() -> None:
    theirs: dict[str, Any] = {"stateful": False, "resource_spec": None, "backend": "local", "pool_size": -1}
    made, plain = tool(**theirs, status="success", auto_register=False)(plus), tool(plus)
    assert made == replace(plain, signature=made.signature)
    assert made.schema == plain.schema


def test_a_terminal_tool_ends_the_episode() -> None:
    assert one(Toolbox([tool(status="terminal")(plus)]), "plus", a=1).stop
    assert one(Toolbox([tool(ends=True)(plus)]), "plus", a=1).stop
    assert not one(Toolbox([tool(status="continue")(plus)]), "plus", a=1).stop


def test_a_terminal_tool_that_fails_does_not_end_it() -> None:
    assert not one(Toolbox([tool(status="terminal")(plus)]), "plus", a="no number").stop


def test_pool_size() -> None:
    assert [tool(pool_size=n)(plus).pool for n in (-1, 0, 4)] == [None, None, 4]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stateful": True}, "a tool with state is a class under @tool"),
        ({"env_cls": int}, "environments of AgentFly's do not exist here"),
        ({"resource_spec": object()}, "environments of AgentFly's do not exist here"),
        ({"backend": "ray"}, "tools run in this process"),
        ({"schema": {"type": "object"}}, "made from the signature"),
        ({"status": "done"}, "known: terminal"),
        ({"descripton": "x"}, "no option descripton; it has name, description"),
    ],
)
def test_what_has_no_counterpart_is_refused(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        tool(**options)(plus)


def test_a_file_with_such_a_tool_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "t.py"
    file.write_text(
        "from recollect.tools import tool\n\n\n@tool(name='shop', stateful=True)\n"
        "def shop(item: str):\n    '''Buy.'''\n    return item\n"
    )
    with pytest.raises(BadInput, match="a class under @tool") as caught:
        Toolbox([f"{file}:shop"])
    assert "\n" not in str(caught.value)


class Context:
    """A stand-in for AgentFly's class of that name."""


def test_their_context_is_refused() -> None:
    def shop(item: str, context: Context) -> str:
        """Buy."""
        return item

    with pytest.raises(ValueError, match="rollout Context"):
        tool(shop)


def test_an_observation_is_what_is_shown() -> None:
    @tool
    def look(a: int) -> dict[str, Any]:
        """Look."""
        return {"observation": f"saw {a}", "status": "fine", "cost": 3}

    assert one(Toolbox([look]), "look", a=2).text == "saw 2"


def returning(value: Any) -> Any:
    @tool
    def screen(a: int) -> Any:
        """Look."""
        return value

    return one(Toolbox([screen]), "screen", a=1)


@pytest.mark.parametrize(
    "value",
    [
        {"observation": "a page", "image": "data:image/png;base64,xx"},
        [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}],
        [{"type": "text", "text": "a"}, {"type": "video_url", "video_url": {"url": "x"}}],
        PIL.Image.new("RGB", (0, 20)),
        PIL.Image.new("1", (9000, 9000)),
    ],
)
def test_what_is_no_image_is_not_dropped(value: Any) -> None:
    result = returning(value)
    assert result.outcome == "exception"
    assert any(word in result.text for word in ("image", "video"))


def test_an_image_is_shown_after_the_text() -> None:
    (image, *_), text = pictures(), {"type": "text", "text": "a page"}
    url = to_url(image)
    values = [
        {"observation": "a page", "image": url},
        [text, {"type": "image_url", "image_url": {"url": url}}],
        ToolResult("a page", images=(image,)),
    ]
    for value in values:
        result = returning(value)
        assert (result.outcome, result.text, result.images) == ("ok", "a page", (image,))
    assert returning(pixels(image)).images[0].width == image.width
