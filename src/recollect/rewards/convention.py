"""Whose `answer` a reward is handed, which its parameters say.

A reward of ours asks for `answer`, the agent's, and compares it with `golden_answers`. One of AgentFly's asks for
`final_response` (`prediction` in its earlier versions) and compares that with fields of the data row, `answer` among
them. What could be read either way is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from inspect import Parameter, isclass, signature
from typing import Any, Literal

from recollect.types import BadInput, Task

Convention = Literal["recollect", "agentfly", "verl"]
VERL = "solution_str"  # verl's name for what the agent said
SPOKEN = ("final_response", "prediction")  # AgentFly's names for what the agent said last
TELLING = ("answer", "golden_answers", "task", "tasks", "trajectory", "trajectories", *SPOKEN)


def parameters_of(function: Callable[..., Any]) -> Mapping[str, Parameter]:
    """The parameters of a function. It is looked at once, as a reward is called for every trajectory."""
    return (_known_parameters if isinstance(function, Hashable) else _parameters)(function)


def _parameters(function: Callable[..., Any]) -> Mapping[str, Parameter]:
    return signature(function).parameters


_known_parameters = lru_cache(maxsize=128)(_parameters)


def taken_by_name(function: Callable[..., Any]) -> dict[str, Parameter]:
    """The parameters that a reward asks for by name, without those that are bound to a value already."""
    taken = parameters_of(function)
    bound = function.keywords if isinstance(function, partial) else {}
    return {n: p for n, p in taken.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and n not in bound}


def takes_everything(function: Callable[..., Any]) -> bool:
    """True with ``**kwargs``."""
    return any(p.kind is p.VAR_KEYWORD for p in parameters_of(function).values())


def convention_of(function: Callable[..., Any]) -> Convention:
    """The convention that a reward follows: that of the system by whose name it asks for what the agent said."""
    if VERL in taken_by_name(function):
        return "verl"
    return "agentfly" if any(name in taken_by_name(function) for name in SPOKEN) else "recollect"


def described(function: Callable[..., Any]) -> str:
    """What the convention means for a reward, in words for the start of a run."""
    names = taken_by_name(function)
    if convention_of(function) == "verl":
        return f"asks for `{VERL}`, as verl's rewards do: `ground_truth`, `data_source` and `extra_info` are the row's"
    if convention_of(function) == "agentfly":
        said = next(name for name in SPOKEN if name in names)
        return f"asks for `{said}`, as AgentFly's rewards do: row fields, `answer` included, are the data row's"
    return "gets the agent's answer as `answer`; the accepted answers are `golden_answers`"


def refuse_unclear(function: Callable[..., Any], where: str) -> None:
    """Refuse a reward that cannot be called by name, or whose parameters leave open whose `answer` it wants."""
    if isclass(function):
        raise BadInput(f"{where} is a class: name an instance of it, or a function")
    names = taken_by_name(function)
    for name, parameter in names.items():
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise BadInput(f"{where}: rewards are called by name, and `{name}` is positional only: remove the `/`")
        if is_rollout_context(parameter) and parameter.default is parameter.empty:
            raise BadInput(
                f"{where}: `{name}` is AgentFly's rollout Context, whose environments do not exist here; ask for "
                "`trajectory` or `task` instead"
            )
    positions = any(p.kind is p.VAR_POSITIONAL for p in parameters_of(function).values())
    if positions and not names and not takes_everything(function):
        raise BadInput(f"{where}: rewards are called by name, so *args gets nothing: name `answer` or `final_response`")
    if takes_everything(function) and not any(name in names for name in TELLING):
        raise BadInput(
            f"{where} takes everything as **kwargs, so it is open whose `answer` it means: name `answer` (the agent's) "
            "or `final_response` (then `answer` is the data row's)"
        )
    if convention_of(function) == "agentfly" and {"answer", "task"} <= names.keys():
        raise BadInput(f"{where} asks for {_both(names)} and `task`: {_TWICE}")


def refuse_unclear_rows(function: Callable[..., Any], tasks: Sequence[Task], where: str) -> None:
    """Refuse a reward whose names mean something else, or nothing, in the rows at hand."""
    if convention_of(function) != "agentfly":
        return
    names = taken_by_name(function)
    said = next(name for name in SPOKEN if name in names)
    if any(said in task.fields for task in tasks):
        raise BadInput(
            f"{where} asks for `{said}`, what the agent said last, and the rows have a field of that name: rename "
            "the field, or read it as task.fields"
        )
    if "answer" not in names:
        return
    if "golden_answers" in names and not all("golden_answers" in task.fields for task in tasks):
        raise BadInput(f"{where} asks for {_both(names)} and `golden_answers`: {_TWICE}")
    for task in tasks if names["answer"].default is Parameter.empty else ():
        if "answer" not in task.fields and len(task.answers) != 1:
            raise BadInput(
                f"{where} asks for `{said}` and the row's `answer`, but {task.place or f'the task {task.id}'} has no "
                f"field `answer` and {len(task.answers)} accepted answers; ask for `golden_answers`, their list"
            )


def row_answer(task: Task) -> Mapping[str, str]:
    """`answer` for rows that keep it under another name: the accepted one, where there is just one."""
    return {"answer": task.answers[0]} if len(task.answers) == 1 else {}


def is_rollout_context(parameter: Parameter) -> bool:
    """True for a parameter annotated as AgentFly's Context, which is not a document."""
    return "Context" in _words(parameter.annotation)


def wants_object(parameter: Parameter | None) -> bool:
    """True for a parameter annotated as our Trajectory, which AgentFly's rewards read as messages."""
    return parameter is not None and "Trajectory" in _words(parameter.annotation)


def _words(annotation: Any) -> Iterable[str]:
    text = annotation.__name__ if isclass(annotation) else str(annotation)
    return "".join(c if c.isalnum() or c == "_" else " " for c in text).split()


_TWICE = (
    "with the former `answer` is the data row's, so it would be compared with itself; leave one of the three out "
    "(the agent's answer is trajectory.answer)"
)


def _both(names: Mapping[str, Parameter]) -> str:
    return f"`{next(name for name in SPOKEN if name in names)}`, `answer`"
