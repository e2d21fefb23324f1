"""Images in contents and columns: marks in the texts, and the images in their order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recollect.images import content
from recollect.images.content import shared_out, without_images
from recollect.images.image_files import to_url
from recollect.types import IMAGE_MARK, BadInput
from tests.seeing import pictures

A, B, C = pictures()
MARK = IMAGE_MARK


@pytest.fixture
def place(tmp_path: Path) -> str:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(A.data)
    (tmp_path / "b.png").write_bytes(B.data)
    return f"{tmp_path / 'rows.jsonl'}, line 1"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": to_url(A)}},
        {"type": "image_url", "image_url": to_url(A)},
        {"type": "input_image", "image_url": to_url(A)},
        {"type": "image", "image": "pictures/a.png"},
        {"type": "image", "image": {"bytes": A.data, "path": None}},
        {"image": "pictures/a.png"},
        {"type": "image", "path": "pictures/a.png"},
        {"type": "image", "url": to_url(A)},
    ],
)
def test_a_part_of_a_message(part: Any, place: str) -> None:
    asked = [{"role": "user", "content": [{"type": "text", "text": "See "}, part, {"type": "text", "text": "?"}]}]
    row, images = without_images({"prompt": asked, "answer": "a"}, ("question", "prompt"), place)
    assert row["prompt"][0]["content"] == f"See {MARK}?"
    assert images == (A,)
    assert images[0] is A


def test_the_column_of_verl(place: str) -> None:
    messages = [{"role": "user", "content": "<image>What is in <image>?"}]
    columns: list[Any] = [
        [{"bytes": A.data}, {"bytes": B.data, "path": "x"}],
        ["pictures/a.png", "b.png"],
        [to_url(A), B.data],
        [{"image": "pictures/a.png"}, {"image_url": {"url": to_url(B)}}],
    ]
    for column in columns:
        row, images = without_images({"prompt": messages, "images": column}, ("prompt",), place)
        assert row == {"prompt": [{"role": "user", "content": f"{MARK}What is in {MARK}?"}]}
        assert images == (A, B)


def test_parts_without_an_image_take_those_of_the_column(place: str) -> None:
    parts = [{"type": "image"}, {"type": "text", "text": "and"}, {"type": "image"}]
    row, images = without_images(
        {"messages": [{"role": "user", "content": parts}], "images": [A.data, B.data]}, ["messages"], place
    )
    assert row["messages"][0]["content"] == f"{MARK}and{MARK}"
    assert images == (A, B)


def test_images_without_marks_stand_before_the_last_words(place: str) -> None:
    row, images = without_images({"question": "How many?", "image": "b.png"}, ("question",), place)
    assert (row, images) == ({"question": f"{MARK}How many?"}, (B,))
    said = [{"from": "human", "value": "One?"}, {"from": "gpt", "value": "No."}, {"from": "human", "value": "Two?"}]
    row, _ = without_images({"conversations": said, "images": [A.data]}, ("conversations",), place)
    assert [m["value"] for m in row["conversations"]] == ["One?", "No.", f"{MARK}Two?"]


def test_a_row_without_images_is_as_it_was() -> None:
    row = {"question": f"What is {MARK} or <image>?", "images": [], "image": "python:3.12"}
    assert without_images(row, ("question",), "f") == (row, ())


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"question": "<image><image>?", "images": [A.data]}, r"more marks for images than images \(1\)"),
        ({"question": "<image>?", "images": [A.data, B.data]}, "2 images in a column, and 1 marks"),
        ({"question": "?", "images": ["c.png"]}, "cannot be read"),
        ({"question": "?", "images": ["http://x/c.png"]}, "not fetched"),
        ({"question": [{"role": "user", "content": [{"type": "image", "image": 7}]}]}, "and not '7'"),
        ({"answer": "a", "images": [A.data]}, "no words of the user"),
        ({"question": "?", "images": [{"image": "b.png", "max_pixels": 50176}]}, "max_pixels of one image; .*config"),
        ({"question": [{"type": "image", "image": A.data, "resized_width": 28}]}, "resized_width of one image"),
        ({"question": "?", "images": [A.data] * 70}, "more than 64 images"),
        ({"question": [{"role": "assistant", "content": [{"type": "image", "image": A.data}]}]}, "a reply holds an"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(row: dict[str, Any], why: str, place: str) -> None:
    with pytest.raises(BadInput, match=why) as caught:
        without_images(row, ("question",), place)
    assert str(caught.value).startswith(place)


def test_all_images_of_a_row_have_a_bound_together(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setattr(content, "MOST_IN_ALL", A.width * A.height + 1)
    with pytest.raises(BadInput, match=r"more than .* pixels together"):
        without_images({"question": "?", "images": [A.data, B.data]}, ("question",), place)


def test_images_are_shared_out_by_marks() -> None:
    assert list(shared_out([MARK, "", f"{MARK}{MARK}"], (A, B, C))) == [(A,), (), (B, C)]
