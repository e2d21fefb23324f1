"""`response_format`: completions that must be JSON, or JSON of a schema, by constrained decoding (llguidance)."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from recollect.chat import Renderer
from recollect.types import BadInput, Grammar

EXTRA = "json"
LONGEST_SCHEMA = 1 << 16  # characters
BREAK = (
    r"\n[ ]{0,24}"  # between two marks there may be a blank, or one line break: some models would write no end of them
)
LAYOUT = {
    "whitespace_pattern": f"({BREAK}|[ ])",
    "key_separator": "[ ]?:[ ]?",
    "item_separator": f"[ ]?,({BREAK}|[ ])?",
}
KINDS = ("text", "json_object", "json_schema")


class NotFollowed(BadInput):
    """What a schema asks for turned out to be too much for the library."""


class JsonMatcher:
    """Follows one completion through a schema."""

    def __init__(self, matcher: Any) -> None:
        self.matcher = matcher

    @property
    def ended(self) -> bool:
        """True when nothing but an end may come."""
        return bool(self.matcher.is_stopped())

    def allowed(self) -> np.ndarray:
        """Which ids may come next; those that end a turn among them where the JSON is whole."""
        words = np.frombuffer(self.matcher.compute_bitmask(), np.int32)
        self._check()
        return words

    def take(self, token: int) -> None:
        """Go on by a sampled id."""
        self.matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self.matcher.is_error():
            raise NotFollowed(f"this schema cannot be followed: {first_line(self.matcher.get_error())}")


class JsonGrammar:
    """A schema that was read once; every completion starts from a copy."""

    def __init__(self, matcher: Any) -> None:
        self.matcher = matcher

    def start(self) -> JsonMatcher:
        """A matcher at the beginning."""
        return JsonMatcher(self.matcher.deep_copy())


def read_response_format(given: Mapping[str, Any], renderer: Renderer, vocabulary: int) -> Grammar | None:
    """The form that a request asks for; None: any text. What cannot be honoured is `BadInput`."""
    kind = given.get("type", "text")
    if kind not in KINDS:
        raise BadInput(f"type must be {', '.join(KINDS)}")
    if kind == "text":
        return None
    schema: Any = {"type": "object"}
    if kind == "json_schema":
        outer = given.get("json_schema")
        schema = outer.get("schema") if isinstance(outer, Mapping) else None
        if not isinstance(schema, Mapping):
            raise BadInput("json_schema must be {name, schema}, with a JSON schema as schema")
    text = json.dumps(schema, ensure_ascii=False)
    if len(text) > LONGEST_SCHEMA:
        raise BadInput(f"a schema may have {LONGEST_SCHEMA} characters")
    if importlib.util.find_spec("llguidance") is None:
        raise BadInput(f"type {kind} needs llguidance on the server (pip install 'recollect-rl[{EXTRA}]'); use text")
    return _grammar(text, renderer, vocabulary)


@lru_cache(maxsize=64)
def _grammar(schema: str, renderer: Renderer, vocabulary: int) -> JsonGrammar:
    library = importlib.import_module("llguidance")
    grammar = library.LLMatcher.grammar_from_json_schema(schema, defaults=LAYOUT)
    matcher = library.LLMatcher(_tokens(renderer, vocabulary), grammar, log_level=0)
    if matcher.is_error():
        raise BadInput(f"this schema cannot be followed: {first_line(matcher.get_error())}")
    found = JsonGrammar(matcher)
    found.start().allowed()  # one that only refers to itself is found out here
    return found


@lru_cache(maxsize=2)
def _tokens(renderer: Renderer, vocabulary: int) -> Any:
    """The tokenizer as the library wants it: with the ids that end a turn, and as many ids as the model has."""
    library = importlib.import_module("llguidance.hf")
    try:
        return library.from_tokenizer(renderer.tokenizer, n_vocab=vocabulary, eos_token=list(renderer.stop_ids))
    except ValueError as error:
        raise BadInput(f"this model's tokenizer cannot be constrained: {first_line(str(error))}") from None


def first_line(text: str) -> str:
    """The first line of what the library says, for a message."""
    return text.strip().partition("\n")[0][:200]
