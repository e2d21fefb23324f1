"""Videos, sound and broken images are refused wherever they come in; none is dropped without a word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from recollect.chat.conversation import read_conversation
from recollect.chat.media import media_in
from recollect.config.compose import compose
from recollect.data.documents import open_document
from recollect.data.task_rows import as_task
from recollect.images.image_files import to_url
from recollect.trajectories.field_names import NotATrajectory
from recollect.trajectories.unify import unify
from recollect.types import BadInput
from tests.seeing import pictures

TEXT = {"type": "text", "text": "What is this?"}
PARTS = [
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,xx"}},
    {"type": "image", "image": "a.png"},
    {"type": "input_image", "image_url": "x"},
    {"type": "image"},
    {"type": "video", "video": "a.mp4"},
    {"type": "input_audio", "input_audio": {}},
    {"image": "a.png"},
]
COLUMNS: list[dict[str, Any]] = [
    {"images": ["a.png"]},
    {"images": [{"bytes": b"x", "path": None}]},
    {"image": "pictures/a.JPG"},
    {"image": {"bytes": b"x"}},
    {"videos": ["a.mp4"]},
    {"audio": "data:audio/wav;base64,xx"},
]
CHAT = compose(None, ["agent.agent_type=chat"])


def messages(part: Any, *more: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [TEXT, part]}, *more]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", ["question", "prompt", "messages"])
def test_a_part_of_a_question(part: Any, name: str) -> None:
    with pytest.raises(BadInput, match=rf"rows.jsonl, line 1: .*(image|a video in `{name}`|sound in `{name}`)"):
        as_task({name: messages(part), "answer": "a"}, "rows.jsonl, line 1", 0, CHAT)


@pytest.mark.parametrize("columns", COLUMNS)
def test_a_column_of_a_row(columns: dict[str, Any]) -> None:
    name = next(iter(columns))
    with pytest.raises(BadInput, match=rf"f.*(image| under `{name}`)"):
        as_task({"question": "<image> What is this?", "answer": "a", **columns}, "f", 0, CHAT)
    with pytest.raises(BadInput, match=rf"f.*(image| under `{name}`)"):
        read_conversation({"prompt": "<image> What?", "response": "a", **columns}, "f")


def test_an_earlier_message_of_a_question() -> None:
    asked = [*messages(PARTS[0]), {"role": "assistant", "content": "A cat."}, {"role": "user", "content": "Sure?"}]
    with pytest.raises(BadInput, match="image"):
        as_task({"question": asked, "answer": "a"}, "f", 0, CHAT)


def test_a_part_that_is_neither_text_nor_image() -> None:
    with pytest.raises(BadInput, match=r"f: a part of a message is .*file"):
        as_task({"question": messages({"type": "file", "file": {"id": 1}}), "answer": "a"}, "f", 0, CHAT)


@pytest.mark.parametrize(
    "row",
    [
        {"messages": messages(PARTS[0], {"role": "assistant", "content": "A cat."})},
        {"messages": messages({**PARTS[1], "text": ""}, {"role": "assistant", "content": "A cat."})},
        {"conversations": [{"from": "human", "value": [TEXT, PARTS[0]]}, {"from": "gpt", "value": "A cat."}]},
        {"prompt": messages(PARTS[0]), "response": "A cat."},
    ],
)
def test_a_conversation_to_imitate(row: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"f.*image"):
        read_conversation(row, "f")


def test_a_trajectory_to_convert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"domain": "mhqa", "messages": messages(PARTS[0], {"role": "assistant", "content": "A cat."})}
    with pytest.raises(NotATrajectory, match="an image in `messages`"):
        unify(row)
    with pytest.raises(NotATrajectory, match="an image under `images`"):
        unify({**row, "messages": [{"role": "user", "content": "<image>?"}, *row["messages"][1:]], "images": ["a.png"]})


def test_a_file_with_images_is_refused_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from recollect.cli import app

    monkeypatch.chdir(tmp_path)
    part = {"type": "image_url", "image_url": {"url": to_url(pictures()[0])}}
    Path("rows.jsonl").write_text(json.dumps({"question": messages(part), "answer": "a"}) + "\n")
    for command in (["train", "--dry-run"], ["train"]):
        done = CliRunner().invoke(app, [*command, "data.train_files=rows.jsonl", "agent.agent_type=chat"])
        assert isinstance(done.exception, BadInput)
        assert "rows.jsonl, line 1: an image in the prompt, and tiny reads text alone" in str(done.exception)
    assert not Path("runs").exists()


@pytest.mark.parametrize("start", [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"GIF89a", b"%PDF-1.7"])
def test_a_document_that_is_no_text(start: bytes, tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_bytes(start + b"\x00rest")
    with pytest.raises(BadInput, match="documents are text"):
        open_document(tmp_path / "d.txt")


@pytest.mark.parametrize(
    "row",
    [
        {"question": "q", "answer": "a", "image": "python:3.12", "video": "a.mp4", "images": [], "audio": None},
        {"question": [{"role": "user", "content": [TEXT, {"type": "text", "text": " Now"}]}], "answer": "a"},
        {"question": "q", "answer": "a", "kind": {"type": "image"}, "img_url": ["http://x/a.png"]},
    ],
)
def test_what_is_no_image_is_taken(row: dict[str, Any]) -> None:
    """The name of a container image, empty columns, captions and addresses in other fields."""
    assert as_task(row, "f", 0, CHAT).question in ("q", "What is this? Now")


def test_dialogue_with_captions_is_text() -> None:
    assert media_in([{"speaker": "A", "text": "Look!", "img_url": ["x"], "blip_caption": "a cat"}]) is None
