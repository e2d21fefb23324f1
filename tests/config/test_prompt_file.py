"""The prompts of an agent as data: what a file may hold, and what is refused in one line."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from recollect.agents.wording import worded
from recollect.config.compose import compose
from recollect.config.prompt_file import prompt_specs, prompts_hash, wording
from recollect.eval.card import card
from recollect.registries import AGENTS
from recollect.types import BadInput, Message

SHOWN = {"question": "q", "section": "s", "memory": "m"}
DEMO = {"question": "Q", "section": "S", "memory": "M", "reply": "R"}


def written(folder: Path, prompts: object, name: str = "prompts.json") -> str:
    file = folder / name
    file.write_text(json.dumps({"prompts": prompts}))
    return f"agent.prompts={file}"


def test_an_instruction_stands_before_what_the_prompt_shows(tmp_path: Path) -> None:
    cfg = compose("needle", [written(tmp_path, {"read": {"instruction": "Keep {all} of it."}})])
    (message,) = worded(wording(cfg, prompt_specs(cfg)["read"]), SHOWN)
    assert message == Message("user", "Keep {all} of it.\n\nQuestion: q\nSection: s\nMemory: m")


def test_demonstrations_are_earlier_turns(tmp_path: Path) -> None:
    cfg = compose("needle", [written(tmp_path, {"read": {"demonstrations": [DEMO]}})])
    assert worded(wording(cfg, prompt_specs(cfg)["read"]), SHOWN) == [
        Message("user", "Question: Q\nSection: S\nMemory: M"),
        Message("assistant", "R"),
        Message("user", "Question: q\nSection: s\nMemory: m"),
    ]


def test_a_template_is_the_whole_prompt_and_yaml_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text('prompts:\n  answer: "{memory} {{x}} {question}"\n')
    cfg = compose("needle", [f"agent.prompts={tmp_path / 'p.yaml'}"])
    assert worded(wording(cfg, prompt_specs(cfg)["answer"]), SHOWN) == [Message("user", "m {x} q")]
    own = compose("needle", [])
    read = prompt_specs(own)["read"]
    assert wording(cfg, read) == wording(own, read)  # what the file leaves out is unchanged


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ({"qa": "x"}, "the prompt qa is unknown; known: read, answer"),
        ({"read": "{section} {memory}"}, "read has no {question}"),
        ({"read": "{question} {section} {memory} {gold}"}, "holds {gold}"),
        ({"read": "{question!r} {question} {section} {memory}"}, "holds {question}"),
        ({"read": 3}, "is neither a text nor"),
        ({"read": {"instructions": "x"}}, "holds instructions; it may hold instruction and demonstrations"),
        ({"read": {"instruction": 3}}, "an instruction that is no text"),
        ({"read": {"demonstrations": {"a": 1}}}, "demonstrations that are no list of objects"),
        ({"read": {"demonstrations": [{"question": "q", "reply": "r"}]}}, "number 1, without section"),
        ({"read": {"demonstrations": [{**DEMO, "gold": "x"}]}}, "number 1, with gold"),
        ({"read": {"demonstrations": [{**DEMO, "reply": 3}]}}, "whose reply is no text"),
        (["x"], "expected an object `prompts`"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, prompts: object, message: str) -> None:
    with pytest.raises(BadInput) as error:
        compose("needle", [written(tmp_path, prompts)])
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no file of prompts at"):
        compose("needle", [f"agent.prompts={tmp_path / 'none.json'}"])
    with pytest.raises(BadInput, match=r"ends in \.json, \.yaml or \.yml"):
        compose("needle", [written(tmp_path, {}, "prompts.txt")])
    with pytest.raises(BadInput, match="takes no prompts of a file; those that do: recurrent, chat"):
        compose("ledger", [written(tmp_path, {})])


def test_a_system_prompt_is_a_text_and_no_template(tmp_path: Path) -> None:
    chat = ["agent.agent_type=chat", "agent.tools=[]", "recurrent.enable=null"]
    cfg = compose("arithmetic", [*chat, written(tmp_path, {"system": {"instruction": "Say {x}."}})])
    assert wording(cfg, prompt_specs(cfg)["system"]).text == "Say {x}."
    with pytest.raises(BadInput, match=r"leave agent\.system_prompt out"):
        compose("arithmetic", [*chat, written(tmp_path, {"system": "x"}), "agent.system_prompt=y"])
    react = ["agent.agent_type=react", "agent.tools=[calculator]", "recurrent.enable=null"]
    demo = {"system": {"demonstrations": [{"question": "q", "reply": "r"}]}}
    with pytest.raises(BadInput, match="takes no demonstrations with the agent react"):
        compose("arithmetic", [*react, written(tmp_path, demo)])


def test_every_default_is_its_instruction_and_its_inputs() -> None:
    for style in ("plain", "instruct"):
        cfg = compose("needle", [f"recurrent.memory.config.style={style}", f"memory.style={style}"])
        for agent in ("recurrent", "conversation_qa"):
            for spec in AGENTS[agent].prompts:
                assert spec.frame is not None
                assert all(f"{{{name}}}" in spec.frame(cfg) for name in spec.inputs(cfg))
                assert bool(spec.instruction(cfg)) == (style == "instruct")


def test_the_card_has_the_hash_of_the_file(tmp_path: Path) -> None:
    given = written(tmp_path, {"read": {"instruction": "é"}})
    cfg = compose("needle", [given])
    found = hashlib.sha256((tmp_path / "prompts.json").read_bytes()).hexdigest()
    assert prompts_hash(cfg) == card(cfg, "tiny", [], [0])["prompts_hash"] == found
    assert card(compose("needle", []), "tiny", [], [0])["prompts_hash"] is None
