"""From a signature to a JSON schema, and from what a model wrote to arguments that fit it."""

from __future__ import annotations

import copy
import inspect
import json
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from recollect.config import Config
from recollect.sandbox.sandbox_session import SandboxSession
from recollect.tools import docstring
from recollect.tools.memory.workspace import MemoryWorkspace
from recollect.types import Task, Trajectory

# parameters of these types come from us, not the model
GIVEN: tuple[type, ...] = (SandboxSession, Task, Trajectory, Config, MemoryWorkspace)


class BadArguments(ValueError):
    """The model's arguments do not fit; the message is for the model."""


@dataclass(frozen=True)
class Signature:
    """What a tool takes."""

    description: str
    parameters: dict[str, Any]  # JSON schema
    model: type[BaseModel] | None = None  # None: arguments are passed on as they are
    names: dict[str, str] = field(default_factory=dict)  # the model's field → the parameter
    given: dict[str, type] = field(default_factory=dict)  # parameters that we fill in
    open: bool = False  # other arguments are taken as well

    def fit(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments converted to the parameters' types; BadArguments says briefly what is wrong."""
        if self.model is None:
            return arguments
        try:
            made = self.model.model_validate(arguments)
        except ValidationError as error:
            raise BadArguments(_explain(error, self.parameters)) from None
        extra = made.__pydantic_extra__ or {}
        return {name: getattr(made, key) for key, name in self.names.items() if key in made.model_fields_set} | extra


def _call_of(kind: type) -> Callable[..., Any] | None:
    return next((vars(c)["__call__"] for c in kind.__mro__ if "__call__" in vars(c)), None)


def read_signature(run: Callable[..., Any]) -> Signature:
    """The signature of a function, or of a class's ``__call__``."""
    is_class = inspect.isclass(run)
    function = _call_of(run) if inspect.isclass(run) else run
    if function is None:
        raise ValueError(f"the class {run.__name__} has no __call__")
    about, said = docstring.read(inspect.getdoc(function))
    if is_class and not about:
        about = docstring.read(run.__doc__)[0]
    hints = typing.get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    given: dict[str, type] = {}
    is_open = False
    parameters = list(inspect.signature(function).parameters.values())
    for i, parameter in enumerate(parameters[1:] if is_class else parameters):
        kind = hints.get(parameter.name, Any)
        if getattr(kind, "__name__", "") == "Context":
            raise ValueError(
                f"{run.__name__}: the parameter {parameter.name} is AgentFly's rollout Context, whose resources do not "
                "exist here; a tool with state is a class under @tool, and a parameter of type SandboxSession is the "
                "sandbox"
            )
        if kind in GIVEN:
            given[parameter.name] = kind
        elif parameter.kind is parameter.VAR_KEYWORD:
            is_open = True
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise ValueError(f"{run.__name__}: the parameter {parameter.name} cannot be given by name")
        else:
            default = ... if parameter.default is parameter.empty else parameter.default
            names[f"p{i}"] = parameter.name
            fields[f"p{i}"] = (
                kind,
                Field(default, alias=parameter.name, description=said.get(parameter.name) or None),
            )
    settings = ConfigDict(
        extra="allow" if is_open else "forbid", coerce_numbers_to_str=True, arbitrary_types_allowed=True
    )
    model = create_model(run.__name__, __config__=settings, **fields)
    return Signature(about, _plain(model.model_json_schema()), model, names, given, is_open)


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without titles, with definitions put where they are used unless they refer to themselves."""
    definitions = schema.pop("$defs", {})
    recursive = _recursive(definitions)

    def clean(node: Any, is_names: bool = False) -> Any:
        if isinstance(node, list):
            return [clean(item) for item in node]
        if not isinstance(node, dict):
            return node
        name = str(node.get("$ref", "")).removeprefix("#/$defs/")
        if name in definitions and name not in recursive:
            return clean({**copy.deepcopy(definitions[name]), **{k: v for k, v in node.items() if k != "$ref"}})
        return {
            key: clean(value, is_names=not is_names and key == "properties")
            for key, value in node.items()
            if is_names or key != "title"
        }

    made = clean(schema)
    made.setdefault("properties", {})
    made.pop("description", None)
    made.pop("additionalProperties", None)
    if recursive:
        made["$defs"] = {name: clean(body) for name, body in definitions.items()}
    return made


def _recursive(definitions: dict[str, Any]) -> set[str]:
    """The definitions that lead back to themselves."""
    leads = {name: set(re.findall(r"#/\$defs/([^\"]+)", json.dumps(body))) for name, body in definitions.items()}
    for _ in leads:
        leads = {name: to.union(*(leads.get(other, set()) for other in to)) for name, to in leads.items()}
    return {name for name, to in leads.items() if name in to}


def _explain(error: ValidationError, parameters: dict[str, Any]) -> str:
    said = []
    for problem in error.errors(include_url=False)[:3]:
        place = ".".join(map(str, problem["loc"]))
        if problem["type"] == "missing":
            said.append(f"{place} is missing")
        elif problem["type"] == "extra_forbidden":
            said.append(f"there is no argument {place}")
        else:
            said.append(f"{place}: {problem['msg'][:1].lower()}{problem['msg'][1:200]}")
    required = parameters.get("required", [])
    takes = [name if name in required else f"{name} (optional)" for name in parameters["properties"]]
    return f"{'; '.join(dict.fromkeys(said))}. It takes: {', '.join(takes) or 'no arguments'}."
