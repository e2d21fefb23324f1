"""Templates of training rows: fields in braces, filled from a trajectory up to some action."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.chat import TOOL_WRITERS
from recollect.files.yaml import read_mapping
from recollect.trajectories.template_fields import FIELDS, names_in
from recollect.types import BadInput

DEFAULT = Path(__file__).with_name("sft_templates.yaml")
SYNTAXES = ("line", "hermes", "llama", "react", "openai")
TOOL_KEYS = ("prompt", "instruction", "prompted", "response", "response_from", "postprocess")
POSTPROCESS = ("keep_first_bash_block",)
_SOURCE = re.compile(r"action_(?:input|output)(?:\.\w+)*")
_BASH = re.compile(r"```(?:bash|sh|shell)[ \t]*\r?\n.*?```", re.DOTALL)


@dataclass(frozen=True)
class ToolTemplate:
    """A row of a single tool."""

    prompt: str
    response: str
    prompted: str | None = None  # the prompt of a step that was given one itself; None: as of all steps
    source: str | None = None  # where the response is taken from, instead of `response`
    is_instruction: bool = False  # a step's own context, notes and path go before those of the trajectory
    keep_first_bash_block: bool = False

    def shortened(self, response: str) -> str:
        """A response after its postprocessing."""
        block = _BASH.search(response) if self.keep_first_bash_block else None
        return block[0] if block else response


@dataclass(frozen=True)
class Templates:
    """How rows are written."""

    tools: Mapping[str, ToolTemplate]
    system: str
    user: str
    syntax: str
    observation: str
    final: str

    def of(self, tool: str) -> ToolTemplate:
        """The template of a tool."""
        return self.tools.get(tool) or self.tools["default"]


def load(path: str | Path | None) -> Templates:
    """Templates of a file; what it does not name is as in the package's own."""
    own = read_mapping(DEFAULT, "file of templates")
    given = read_mapping(Path(path).expanduser(), "file of templates") if path else {}
    for name in given:
        if name not in own:
            raise BadInput(f"{path}: {name} is unknown; known: {', '.join(own)}")
        if given[name] is not None and not isinstance(given[name], Mapping):
            raise BadInput(f"{path}: {name} has to be a mapping")
    default = own["tools"]["default"]
    tools = {name: _tool(row, name, default, DEFAULT) for name, row in own["tools"].items()}
    tools |= {str(name): _tool(row, name, default, path) for name, row in (given.get("tools") or {}).items()}
    talk = {**own["conversation"], **(given.get("conversation") or {})}
    if extra := talk.keys() - own["conversation"].keys():
        raise BadInput(f"{path}: conversation.{min(extra)} is unknown; known: {', '.join(own['conversation'])}")
    if talk["syntax"] not in SYNTAXES:
        raise BadInput(f"{path}: conversation.syntax={talk['syntax']} is unknown; known: {', '.join(SYNTAXES)}")
    texts = {name: _checked(text, f"conversation.{name}", path) for name, text in talk.items() if name != "syntax"}
    return Templates(tools, syntax=talk["syntax"], **texts)


def _tool(row: Any, name: Any, default: Mapping[str, str], path: Any) -> ToolTemplate:
    place = f"tools.{name}"
    if not isinstance(row, Mapping):
        raise BadInput(f"{path}: {place} has to be a mapping with {', '.join(TOOL_KEYS)}")
    if extra := [k for k in row if k not in TOOL_KEYS]:
        raise BadInput(f"{path}: {place}.{extra[0]} is unknown; known: {', '.join(TOOL_KEYS)}")
    for pair in (("prompt", "instruction"), ("response", "response_from")):
        if row.keys() >= set(pair):
            raise BadInput(f"{path}: {place} has {pair[0]} and {pair[1]}, which say the same; keep one of them")
    texts = {k: _checked(row[k], f"{place}.{k}", path) for k in TOOL_KEYS[:4] if k in row}
    alone = texts.keys() & {"prompt", "instruction"}
    return ToolTemplate(
        texts.get("prompt") or texts.get("instruction") or default["prompt"],
        texts.get("response", default["response"]),
        texts.get("prompted", None if alone else default["prompted"]),
        _source(row.get("response_from"), place, path),
        "instruction" in row,
        _postprocess(row.get("postprocess"), place, path)["keep_first_bash_block"],
    )


def _source(value: Any, place: str, path: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or not _SOURCE.fullmatch(value)):
        raise BadInput(
            f"{path}: {place}.response_from={value} is unknown; it is action_output, action_input, or a field of them "
            "such as action_input.command"
        )
    return value


def _postprocess(value: Any, place: str, path: Any) -> dict[str, bool]:
    given = {} if value is None else value
    if not isinstance(given, Mapping):
        raise BadInput(f"{path}: {place}.postprocess has to be a mapping with {', '.join(POSTPROCESS)}")
    for name, on in given.items():
        if name not in POSTPROCESS:
            raise BadInput(f"{path}: {place}.postprocess.{name} is unknown; known: {', '.join(POSTPROCESS)}")
        if not isinstance(on, bool):
            raise BadInput(f"{path}: {place}.postprocess.{name} has to be true or false")
    return {name: bool(given.get(name)) for name in POSTPROCESS}


def _checked(text: Any, place: str, path: Any) -> str:
    if not isinstance(text, str):
        raise BadInput(f"{path}: {place} has to be a text")
    for name in names_in(text):
        if name is None:
            raise BadInput(f"{path}: {place} has a single brace; fields are {{name}}, a brace itself is doubled")
        if name not in FIELDS:
            raise BadInput(f"{path}: {place} has the unknown field {{{name}}}; known: {', '.join(sorted(FIELDS))}")
    return text


assert set(SYNTAXES) - {"openai"} <= TOOL_WRITERS.keys()
