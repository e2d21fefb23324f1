"""The note store: its budget holds whatever is written, and what is over is cut where a sentence ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.tools.memory import Full, Memory
from recollect.tools.memory.cut import sentences

count = lambda text: len(text.split())
title = st.sampled_from(["a", "b", "A ", "core", "c d", ""])
text = st.text(alphabet="ab .!\n", max_size=60)
edits = st.lists(st.tuples(st.sampled_from(["add", "update", "delete"]), title, text), max_size=30)


def play(memory: Memory, steps: list[tuple[str, str, str]]) -> None:
    for what, name, content in steps:
        try:
            if what == "delete":
                memory.delete(name)
            else:
                getattr(memory, what)(name, content)
        except (KeyError, Full):
            pass


@given(edits, st.integers(1, 20))
def test_the_budget_holds_after_every_edit(steps: list[tuple[str, str, str]], budget: int) -> None:
    memory = Memory(count, budget)
    for step in steps:
        play(memory, [step])
        assert memory.used() <= budget


@given(edits)
def test_a_snapshot_does_not_change(steps: list[tuple[str, str, str]]) -> None:
    memory = Memory(count, 50)
    play(memory, [("add", "a", "one."), ("add", "core", "first.")])
    then = memory.snapshot()
    play(memory, steps)
    assert (then.core, then.notes) == ("first.", {"a": "one."})


@given(text)
def test_sentences_are_the_text_again(given_text: str) -> None:
    assert "".join(sentences(given_text)) == given_text


def test_what_does_not_fit_is_cut_at_a_sentence() -> None:
    memory = Memory(count, 8)
    lost = memory.add("t", "One two three. Four five six. Seven eight nine ten.")
    assert memory.notes == {"t": "One two three. Four five six."}
    assert lost == "Seven eight nine ten."
    with pytest.raises(Full, match="7 of 8 tokens"):
        memory.add("u", "No sentence of this fits here")
    assert list(memory.notes) == ["t"]


def test_an_update_that_does_not_fit_leaves_the_note_as_it_was() -> None:
    memory = Memory(count, 4)
    memory.add("t", "one two")
    with pytest.raises(Full):
        memory.update("t", "one two three four five six")
    assert memory.notes == {"t": "one two"}


def test_titles_are_unique_and_keep_their_place() -> None:
    memory = Memory(count, 100)
    memory.add("Mira", "1")
    memory.add("kolu", "2")
    for clash in ("mira", " MIRA "):
        with pytest.raises(KeyError):
            memory.add(clash, "3")
    memory.update("mira", "4")
    assert list(memory.notes.items()) == [("Mira", "4"), ("kolu", "2")]
    with pytest.raises(KeyError):
        memory.update("kolu", "5", "Mira")
    memory.update("Mira", "6", "tani")
    assert memory.get("tani") == "6"
    assert memory.get("mira") is None


def test_the_core_text_is_edited_under_its_title() -> None:
    memory = Memory(count, 100)
    memory.add("core", "one")
    memory.add("Core", "two")
    assert memory.core == "one\ntwo"
    memory.update("core", "three")
    assert (memory.get("core"), memory.notes) == ("three", {})
    memory.delete("core")
    assert memory.core == ""
