"""The prompts of an agent as data: its own, or those of the file that ``agent.prompts`` names.

A file holds ``{"prompts": {NAME: PROMPT}}``. A prompt is a template, or an object with an ``instruction``, which stands
before what the prompt shows, and ``demonstrations``, which are shown as earlier turns.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.config.schema import Config
from recollect.files.reading import MB, parse_json, read_text
from recollect.files.yaml import parse_yaml, refuse_endless
from recollect.registries import AGENTS, PromptSpec
from recollect.types import BadInput

MOST = 16 * MB
REPLY = "reply"  # the key of a demonstration under which its answer stands
FORM = "{instruction: …, demonstrations: […]}"


@dataclass(frozen=True)
class DemonstratedTurn:
    """What a prompt showed, and a good reply to it."""

    inputs: Mapping[str, str]
    reply: str


@dataclass(frozen=True)
class Wording:
    """A prompt: a template of what it shows (the text itself, of a system prompt), and turns that are shown before."""

    text: str
    demonstrations: tuple[DemonstratedTurn, ...] = ()


_read: dict[str, tuple[str, Mapping[str, Any]]] = {}  # by path: text and prompts, as the file was when checked


def prompt_specs(cfg: Config) -> Mapping[str, PromptSpec]:
    """The prompts of the agent that may be reworded."""
    spec = AGENTS.of(cfg.agent.agent_type)
    return {prompt.name: prompt for prompt in spec.prompts} if spec is not None else {}


def wording(cfg: Config, spec: PromptSpec) -> Wording:
    """A prompt of an agent: the file's, or its own."""
    given = _prompts(cfg).get(spec.name)
    return Wording(spec.template(cfg)) if given is None else made_wording(spec, given, cfg)


def prompt_entries(cfg: Config) -> dict[str, Any]:
    """All prompts of the agent as a file has them: the file's, and templates of the agent's own."""
    return {name: _prompts(cfg).get(name, spec.template(cfg)) for name, spec in prompt_specs(cfg).items()}


def given_entries(cfg: Config) -> Mapping[str, Any]:
    """The prompts that the file gives."""
    return _prompts(cfg)


def given_wording(cfg: Config, name: str) -> Wording | None:
    """A prompt that the file gives; None where it gives none."""
    return wording(cfg, prompt_specs(cfg)[name]) if name in _prompts(cfg) else None


def made_wording(spec: PromptSpec, given: Any, cfg: Config) -> Wording:
    """The wording that an entry of a file stands for."""
    if isinstance(given, str):
        return Wording(given)
    demos = tuple(
        DemonstratedTurn({key: str(text) for key, text in demo.items() if key != REPLY}, str(demo[REPLY]))
        for demo in given.get("demonstrations") or ()
    )
    told = given.get("instruction")
    return Wording(spec.template(cfg) if told is None else instructed(spec, told, cfg), demos)


def instructed(spec: PromptSpec, told: str, cfg: Config) -> str:
    """The template of an instruction, with what the prompt shows below it."""
    if spec.frame is None:
        return told
    own = told.strip().replace("{", "{{").replace("}", "}}")
    return f"{own}\n\n{spec.frame(cfg)}" if own else spec.frame(cfg)


def prompts_hash(cfg: Config) -> str | None:
    """SHA-256 of the file; None without one."""
    return hashlib.sha256(prompts_text(cfg.agent.prompts).encode()).hexdigest() if cfg.agent.prompts else None


def prompts_text(file: str) -> str:
    """The text of the file."""
    return _entry(file)[0]


def kept_prompts(file: str) -> str:
    """The name of the copy that a run keeps of the file."""
    return f"prompts{Path(file).suffix}"


def problems(cfg: Config) -> Iterator[str]:
    """What is wrong with ``agent.prompts``. The file is read anew; a run keeps what it read here."""
    file, specs = cfg.agent.prompts, prompt_specs(cfg)
    if file is None:
        return
    if not specs:
        able = ", ".join(name for name in AGENTS if AGENTS[name].prompts)
        kind = cfg.agent.agent_type
        yield f"agent.prompts={file}: the agent {kind} takes no prompts of a file; those that do: {able}"
        return
    if cfg.agent.system_prompt and "system" in specs:
        yield f"agent.prompts={file} holds the system prompt: leave agent.system_prompt out"
    _read.pop(file, None)
    for name, given in _prompts(cfg).items():
        if name not in specs:
            yield f"agent.prompts={file}: the prompt {name} is unknown; known: {', '.join(specs)}"
            return
        for problem in _entry_problems(specs[name], given, cfg):
            yield f"agent.prompts={file}: {name} {problem}"


def _prompts(cfg: Config) -> Mapping[str, Any]:
    return _entry(cfg.agent.prompts)[1] if cfg.agent.prompts else {}


def _entry(file: str) -> tuple[str, Mapping[str, Any]]:
    if file not in _read:
        path = Path(file).expanduser()
        text = read_text(path, MOST, "file of prompts")
        found = _parsed(text, path)
        held = found.get("prompts") if isinstance(found, Mapping) else None
        if not isinstance(held, Mapping):
            raise BadInput(f"agent.prompts={file}: expected an object `prompts` with a prompt under each name")
        _read[file] = text, held
    return _read[file]


def _parsed(text: str, path: Path) -> Any:
    if path.suffix in (".yaml", ".yml"):
        refuse_endless(text, str(path))
        return parse_yaml(text, str(path))
    if path.suffix != ".json":
        raise BadInput(f"agent.prompts={path}: a file of prompts ends in .json, .yaml or .yml")
    return parse_json(text, str(path))


def _entry_problems(spec: PromptSpec, given: Any, cfg: Config) -> Iterator[str]:
    if isinstance(given, str):
        yield from _template_problems(spec, given, cfg)
        return
    if not isinstance(given, Mapping):
        yield f"is neither a text nor {FORM}"
        return
    if other := [key for key in given if key not in ("instruction", "demonstrations")]:
        yield f"holds {other[0]}; it may hold instruction and demonstrations"
        return
    told, demos = given.get("instruction"), given.get("demonstrations") or []
    if told is not None and not isinstance(told, str):
        yield "has an instruction that is no text"
    if not isinstance(demos, list) or not all(isinstance(demo, Mapping) for demo in demos):
        yield "has demonstrations that are no list of objects"
    elif demos and not spec.demonstrations:
        yield f"takes no demonstrations with the agent {cfg.agent.agent_type}"
    else:
        for number, demo in enumerate(demos, 1):
            yield from (f"has a demonstration, number {number}, {what}" for what in _demo_problems(spec, demo, cfg))


def _demo_problems(spec: PromptSpec, demo: Mapping[str, Any], cfg: Config) -> Iterator[str]:
    needed = (*spec.inputs(cfg), REPLY)
    if missing := [key for key in needed if key not in demo]:
        yield f"without {missing[0]}"
    elif other := [key for key in demo if key not in (*needed, *spec.also)]:
        yield f"with {other[0]}; it may hold {', '.join((*needed, *spec.also))}"
    elif wrong := [key for key, text in demo.items() if not isinstance(text, str)]:
        yield f"whose {wrong[0]} is no text"


def _template_problems(spec: PromptSpec, text: str, cfg: Config) -> Iterator[str]:
    if spec.frame is None:
        return
    try:
        held = [(field, form, how) for _, field, form, how in string.Formatter().parse(text) if field is not None]
    except ValueError as error:
        yield f"is no template ({error}); write braces of its own twice"
        return
    needed = spec.inputs(cfg)
    names = [field for field, _, _ in held]
    if missing := [name for name in needed if name not in names]:
        yield f"has no {{{missing[0]}}}"
    elif other := [name for name, form, how in held if name not in (*needed, *spec.also) or form or how]:
        yield f"holds {{{other[0]}}}; it may hold {', '.join((*needed, *spec.also))}"
