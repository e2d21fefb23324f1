"""Schemas from signatures and docstrings, and arguments that a model wrote fitted to them."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field

from recollect.tools import docstring
from recollect.tools.signature import BadArguments
from recollect.tools.tool_definition import tool
from recollect.types import Task


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    title: str = "origin"


class Node(BaseModel):
    value: int
    below: list[Node] = []


@tool
def everything(
    name: str,
    count: int,
    mode: Literal["fast", "slow"] = "fast",
    tags: Optional[list[str]] = None,  # noqa: UP045
    table: dict[str, float] | None = None,
    either: int | str = 0,
    colour: Colour = Colour.RED,
    point: Point | None = None,
    bounded: Annotated[int, Field(ge=0, le=9)] = 3,
    anything: Any = None,
    task: Task = None,  # type: ignore[assignment]
) -> str:
    """Do everything.

    It really does.

    Args:
        name: Who it is
            for.
        count (int): How many.
        mode: Which way.

    Returns:
        Nothing of note.
    """
    return f"{name}"


def test_the_schema_of_openai() -> None:
    function = everything.schema["function"]
    assert everything.schema["type"] == "function"
    assert function["name"] == "everything"
    assert function["description"] == "Do everything.\n\nIt really does."
    assert function["parameters"]["required"] == ["name", "count"]
    properties = function["parameters"]["properties"]
    assert properties["name"] == {"type": "string", "description": "Who it is for."}
    assert properties["count"] == {"type": "integer", "description": "How many."}
    assert properties["mode"] == {
        "type": "string",
        "enum": ["fast", "slow"],
        "default": "fast",
        "description": "Which way.",
    }
    assert properties["tags"]["anyOf"] == [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]
    assert properties["table"]["anyOf"][0] == {"type": "object", "additionalProperties": {"type": "number"}}
    assert properties["either"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert properties["colour"]["enum"] == ["red", "blue"]
    assert set(properties["point"]["anyOf"][0]["properties"]) == {"x", "title"}  # a field may be called title
    assert properties["bounded"]["maximum"] == 9
    assert "task" not in properties
    assert "$defs" not in str(function)


def test_a_model_that_holds_itself_keeps_its_definition() -> None:
    def tree(root: Node) -> None:
        """Grow."""

    parameters = tool(tree).schema["function"]["parameters"]
    assert "$ref" in str(parameters["$defs"]["Node"])


def test_arguments_are_converted_and_only_the_given_ones_are_passed() -> None:
    made = everything.signature.fit({"name": 5, "count": "3", "colour": "blue", "point": {"x": "1"}, "tags": ["a"]})
    assert made == {"name": "5", "count": 3, "colour": Colour.BLUE, "point": Point(x=1), "tags": ["a"]}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "a"}, "count is missing"),
        ({"name": "a", "count": "many"}, "count: input should be a valid integer"),
        ({"name": "a", "count": 1, "colr": 2}, "there is no argument colr"),
        ({"name": "a", "count": 1, "mode": "odd"}, "mode: input should be 'fast' or 'slow'"),
        ({"name": "a", "count": 1, "bounded": 99}, "bounded: input should be less than or equal to 9"),
        ({"name": None, "count": 1}, "name: input should be a valid string"),
    ],
)
def test_wrong_arguments_are_explained_briefly(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(BadArguments) as caught:
        everything.signature.fit(arguments)
    assert words in str(caught.value)
    assert "It takes: name, count, mode (optional)" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_names_that_pydantic_keeps_for_itself_are_allowed() -> None:
    @tool
    def odd(schema: str, copy: int, model_config: bool, _hidden: str = "x", **rest: Any) -> dict[str, Any]:
        """Odd names."""
        return {"schema": schema, "copy": copy, "model_config": model_config, **rest}

    made = odd.signature.fit({"schema": "s", "copy": 1, "model_config": True, "more": 4})
    assert odd(**made) == {"schema": "s", "copy": 1, "model_config": True, "more": 4}


def test_the_class_and_the_name() -> None:
    @tool(name="counter", timeout=3, max_length=50, pool=2)
    class Counter:
        """Counts."""

        def __call__(self, by: int = 1) -> int:
            """Add.

            Args:
                by: How much.
            """
            return by

    assert Counter.schema["function"]["name"] == "counter"
    assert Counter.description == "Add."
    assert Counter.schema["function"]["parameters"]["properties"]["by"]["description"] == "How much."
    assert (Counter.timeout, Counter.max_length, Counter.pool, Counter.stateful) == (3, 50, 2, True)
    with pytest.raises(ValueError, match="scope"):
        tool(scope="world")(lambda: 0)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="by name"):
        tool(lambda *args: 0)


DOCS = {
    "google": """Do it.

    Args:
        a: The first,
            on two lines.
        b (int, optional): The second.

    Returns:
        c: no
    """,
    "numpy": """Do it.

    Parameters
    ----------
    a : int
        The first,
        on two lines.
    b : str, optional
        The second.

    Returns
    -------
    c : int
        no
    """,
    "sphinx": """Do it.

    :param a: The first,
        on two lines.
    :type a: int
    :param int b: The second.
    :returns: no
    """,
}


@pytest.mark.parametrize("style", DOCS)
def test_docstrings(style: str) -> None:
    about, said = docstring.read(DOCS[style])
    assert about == "Do it."
    assert said == {"a": "The first, on two lines.", "b": "The second."}
