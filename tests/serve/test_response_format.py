"""`response_format`: every completion is JSON of its schema, whatever the model would like to say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from recollect.config.compose import compose
from recollect.samplers.bindings import RoleBinder
from recollect.serve import response_format
from recollect.serve.server import ServeLimits, Server
from tests.serve.test_server import QUESTION, Running, ask

PERSON = {
    "type": "object",
    "properties": {"name": {"enum": ["mira", "kolu"]}, "holds": {"type": "integer", "minimum": 0, "maximum": 999}},
    "required": ["name", "holds"],
    "additionalProperties": False,
}


def schema(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": of, "strict": True}}


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    found = RoleBinder(compose(None, ["trainer.threads=1", "trainer.device=cpu"]), None).loaded("tiny")
    made = Running(Server(found.sampler, found.renderer, "tiny", ServeLimits(max_tokens=400)))
    yield made
    made.stop()


def refused(running: Running, given: dict[str, Any], **more: Any) -> str:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(running.client(), response_format=given, max_tokens=4, **more)
    assert caught.value.param == "response_format"
    return str(caught.value.body["message"])  # type: ignore[index]


def test_without_the_extra_it_says_what_is_missing(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_format.importlib.util, "find_spec", lambda name: None)
    assert "pip install 'recollect-rl[json]'" in refused(running, {"type": "json_object"})
    assert ask(running.client(), response_format={"type": "text"}, max_tokens=2).choices


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"type": "xml"}, "type must be text, json_object, json_schema"),
        ({"type": "json_schema"}, "must be {name, schema}"),
        ({"type": "json_schema", "json_schema": {"name": "it", "schema": "object"}}, "must be {name, schema}"),
        (schema({"enum": ["x" * 70_000]}), "65536 characters"),
    ],
)
def test_bad_formats(running: Running, given: dict[str, Any], says: str) -> None:
    assert says in refused(running, given)


class Failing:
    """Stands in for the library's matcher: after two tokens it gives up."""

    def __init__(self) -> None:
        self.left = 2

    def deep_copy(self) -> Failing:
        return Failing()

    def is_stopped(self) -> bool:
        return False

    def is_error(self) -> bool:
        return self.left == 0

    def get_error(self) -> str:
        return "too many expressions\nand more"

    def compute_bitmask(self) -> bytes:
        return b"\xff" * 8192

    def consume_token(self, token: int) -> None:
        self.left -= 1


def test_what_turns_out_to_be_too_much_is_the_fault_of_the_request(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_format.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(response_format, "_grammar", lambda *given: response_format.JsonGrammar(Failing()))
    said = "response_format: this schema cannot be followed: too many expressions"
    assert refused(running, {"type": "json_object"}) == said
    with pytest.raises(openai.APIError, match=said):
        list(ask(running.client(), response_format={"type": "json_object"}, max_tokens=4, stream=True))
    assert ask(running.client(), max_tokens=2).choices


class TestWithTheLibrary:
    @pytest.fixture(autouse=True)
    def _library(self) -> None:
        pytest.importorskip("llguidance")

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            (schema({"type": "strange"}), "Invalid type"),
            (schema({"type": "string", "pattern": "(?=a)"}), "cannot be followed"),
            (schema({"$ref": "http://127.0.0.1/x"}), "cannot be followed"),
            (schema({"$ref": "#"}), "cannot be followed"),
            (
                schema({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
                "cannot",
            ),
            (schema({"type": "string", "minLength": 29_999, "pattern": "^.*$"}), "cannot be followed"),
        ],
    )
    def test_schemas_that_cannot_be_followed(self, running: Running, given: dict[str, Any], says: str) -> None:
        assert says in refused(running, given)

    def test_not_by_a_sampler_that_takes_no_form(self, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(type(running.server.sampler), "keeps_form", False, raising=False)
        assert "servers that take no form" in refused(running, {"type": "json_object"})

    def test_not_with_tools(self, running: Running) -> None:
        tool: Any = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}
        assert "together with tools" in refused(running, {"type": "json_object"}, tools=[tool])
        assert "ignore_eos" in refused(running, {"type": "json_object"}, extra_body={"ignore_eos": True})

    @pytest.mark.parametrize("temperature", [0.0, 1.0, 2.0])
    def test_every_completion_follows_its_schema(self, running: Running, temperature: float) -> None:
        done = ask(
            running.client(), QUESTION, response_format=schema(PERSON), max_tokens=200, n=8, temperature=temperature
        )
        for choice in done.choices:
            made = json.loads(choice.message.content)
            assert choice.finish_reason == "stop"
            assert list(made) == ["name", "holds"]
            assert made["name"] in ("mira", "kolu")
            assert 0 <= made["holds"] <= 999

    def test_any_object(self, running: Running) -> None:
        done = ask(running.client(), response_format={"type": "json_object"}, max_tokens=400, n=8, temperature=1.5)
        for choice in done.choices:
            assert choice.message.content.startswith("{")
            if choice.finish_reason == "stop":
                assert isinstance(json.loads(choice.message.content), dict)
        assert any(choice.finish_reason == "stop" for choice in done.choices)

    def test_a_seed_repeats_and_a_stream_says_the_same(self, running: Running) -> None:
        options: dict[str, Any] = {"response_format": schema(PERSON), "max_tokens": 200, "seed": 5, "temperature": 1.2}
        first, second = (ask(running.client(), **options).choices[0].message.content for _ in range(2))
        pieces = ask(running.client(), stream=True, **options)
        streamed = "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
        assert first == second == streamed

    def test_log_probabilities_are_the_models_own(self, running: Running) -> None:
        """What it would not have said is improbable, though the form leaves nothing else."""
        only = schema({"const": "zzqj"})
        done = ask(running.client(), QUESTION, response_format=only, max_tokens=50, logprobs=True, temperature=0)
        logprobs = [piece.logprob for piece in done.choices[0].logprobs.content]
        assert done.choices[0].message.content == '"zzqj"'
        assert sum(logprobs) < -20

    def test_others_are_answered_as_before(self, running: Running) -> None:
        free = {"max_tokens": 12, "temperature": 0.8, "seed": 3}
        before = ask(running.client(), QUESTION, **free).choices[0].message.content
        ask(running.client(), QUESTION, response_format=schema(PERSON), max_tokens=200)
        assert ask(running.client(), QUESTION, **free).choices[0].message.content == before
