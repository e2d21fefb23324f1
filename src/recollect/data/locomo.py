"""LoCoMo's file as conversations: sessions with dates and speakers, questions with category and evidence.

What makes a question or a session unusable is an error. Smaller defects, which the published file has too, are listed
and the rest is kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from recollect.data.session_dates import in_words, read_date
from recollect.files.reading import read_json
from recollect.types import BadInput

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
ADVERSARIAL = 5
NOT_MENTIONED = "Not mentioned in the conversation"  # the right answer to a question of category 5
_SESSION = re.compile(r"session_(\d+)$")
_DATE = re.compile(r"session_(\d+)_date_time$")


@dataclass(frozen=True)
class LocomoConversation:
    """One conversation of the file."""

    name: str
    speakers: tuple[str, ...]
    sessions: list[dict[str, Any]]  # number, date, and turns with id, speaker and text
    observations: list[dict[str, Any]]  # text, session, and evidence: the ids of turns
    questions: list[dict[str, Any]]  # question, answer, category, evidence
    defects: list[str]

    def task(self, name: str, questions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The row of a task: the conversation is its document, read once for all of these questions."""
        about = {"speakers": list(self.speakers), "conversation": self.name, "observations": self.observations}
        return {"id": name, "source": "locomo", "context": self.sessions, "questions": list(questions), **about}


def read_locomo(path: str | Path) -> list[LocomoConversation]:
    """The conversations of a file in LoCoMo's format."""
    path = Path(path).expanduser()
    rows = read_json(path)
    if not isinstance(rows, list) or not rows:
        raise BadInput(f"{path}: expected a list of conversations, as in locomo10.json")
    made = [_conversation(row, f"{path}, conversation {i}", i) for i, row in enumerate(rows, 1)]
    twice = [name for name, count in Counter(c.name for c in made).items() if count > 1]
    if twice:
        raise BadInput(f"{path}: two conversations are named {twice[0]}; give each a sample_id of its own")
    return made


def _conversation(row: Any, place: str, number: int) -> LocomoConversation:
    talk = row.get("conversation") if isinstance(row, Mapping) else None
    if not isinstance(talk, Mapping) or not isinstance(row.get("qa"), list):
        raise BadInput(f"{place}: expected an object with `conversation` and a list `qa`")
    name = str(row.get("sample_id") or f"conv-{number}")
    place, defects = f"{place} ({name})", list[str]()
    sessions = list(_sessions(talk, place, defects))
    if not sessions:
        raise BadInput(f"{place}: there is no session in it (session_1, session_2, …, each a list of turns)")
    turns = [turn for session in sessions for turn in session["turns"]]
    known = Counter(turn["id"] for turn in turns)
    defects += [f"{count} turns have the id {one}" for one, count in known.items() if count > 1]
    defects += [f"turn {turn['id']} says and shows nothing" for turn in turns if not turn["text"]]
    questions = [_question(q, f"{place}, question {i}", known, defects) for i, q in enumerate(row["qa"], 1)]
    defects += _summaries(questions)
    speakers = tuple(dict.fromkeys(turn["speaker"] for turn in turns))
    observations = list(_observations(row.get("observation"), place))
    lost = [(each, name) for each in observations for name in each["evidence"] if name not in known]
    defects += [
        f"an observation of session {each['session']} names the turn {name}, which is not there" for each, name in lost
    ]
    return LocomoConversation(name, speakers, sessions, observations, questions, [f"{name}: {d}" for d in defects])


def _sessions(talk: Mapping[str, Any], place: str, defects: list[str]) -> Iterator[dict[str, Any]]:
    """The sessions that have turns, in order."""
    found = sorted((int(m[1]), key) for key in talk if (m := _SESSION.fullmatch(str(key))))
    dated = {int(m[1]) for key in talk if (m := _DATE.fullmatch(str(key)))}
    if dated - {number for number, _ in found}:
        defects.append(f"{len(dated)} dates for {len(found)} sessions; those without a session are left out")
    before = date.min
    for number, key in found:
        where, turns = f"{place}, {key}", talk[key]
        if not isinstance(turns, list):
            raise BadInput(f"{where}: expected a list of turns, not a {type(turns).__name__}")
        if not turns:
            defects.append(f"{key} has no turns and is left out")
            continue
        said = talk.get(f"{key}_date_time")
        if said is None:
            raise BadInput(f"{where}: it has no date ({key}_date_time)")
        day = read_date(said, where)
        if day < before:
            defects.append(f"{key} is dated {in_words(day)}, before the session that it follows")
        before = day
        made = [_turn(turn, number, i, where) for i, turn in enumerate(turns, 1)]
        yield {"number": number, "date": said, "turns": made}


def _turn(turn: Any, session: int, number: int, place: str) -> dict[str, str]:
    """A turn; what a picture shows is told in its text."""
    if not isinstance(turn, Mapping) or not isinstance(turn.get("text") or "", str) or not turn.get("speaker"):
        raise BadInput(f"{place}, turn {number}: expected an object with `speaker` and `text`")
    seen = str(turn.get("blip_caption") or "").strip()
    parts = [str(turn.get("text") or "").strip(), f"[image: {seen}]" if seen else ""]
    name = str(turn.get("dia_id") or f"D{session}:{number}")
    return {"id": name, "speaker": str(turn["speaker"]), "text": " ".join(filter(None, parts))}


def _question(row: Any, place: str, known: Container[str], defects: list[str]) -> dict[str, Any]:
    if not isinstance(row, Mapping) or not isinstance(row.get("question"), str) or not row["question"].strip():
        raise BadInput(f"{place}: expected an object with `question`, `answer`, `category` and `evidence`")
    category = row.get("category")
    if type(category) is not int or category not in CATEGORIES:
        named = ", ".join(f"{number} {name}" for number, name in CATEGORIES.items())
        raise BadInput(f"{place}: the category {category!r} is unknown; known: {named}")
    evidence = row.get("evidence") or []
    if not isinstance(evidence, list) or not all(isinstance(e, str) for e in evidence):
        raise BadInput(f"{place}: `evidence` has to be a list of turns' ids such as D1:3")
    short = place.rsplit(", ", 1)[1]
    defects += [f"{short}: there is no turn {e}, which its evidence names" for e in evidence if e not in known]
    defects += [f"{short}: its evidence names {e} twice" for e, count in Counter(evidence).items() if count > 1]
    made = {"question": row["question"], "category": category, "evidence": evidence, **_answer(row, place, category)}
    if not evidence:
        defects.append(f"{short}: it has no evidence")
    if category != ADVERSARIAL and not isinstance(row["answer"], str):
        defects.append(f"{short}: its answer is a number, {row['answer']}")
    return made


def _answer(row: Mapping[str, Any], place: str, category: int) -> dict[str, Any]:
    """What is right; category 5 asks for what was never said, whatever else the file has there."""
    if category == ADVERSARIAL:
        more = {name: str(row[key]) for name, key in OTHERS.items() if row.get(key) is not None}
        return {"answer": NOT_MENTIONED, **more}
    given = row.get("answer")
    if given is None or not str(given).strip():
        raise BadInput(f"{place}: it has no `answer`, which only questions of category 5 may lack")
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise BadInput(f"{place}: `answer` has to be a text or a number, not a {type(given).__name__}")
    return {"answer": str(given)}


OTHERS = {"given_answer": "answer", "adversarial_answer": "adversarial_answer"}  # of category 5


def _summaries(questions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Defects that are counted over all questions."""
    fifth = [q for q in questions if q["category"] == ADVERSARIAL]
    without = sum("given_answer" not in q for q in fifth)
    again = len(questions) - len({str(q["question"]).strip().casefold() for q in questions})
    found = [f"{without} of {len(fifth)} questions of category 5 have no answer; refusing is right"] if without else []
    return found + ([f"{again} {'questions are' if again > 1 else 'question is'} asked twice"] if again else [])


def _observations(given: Any, place: str) -> Iterator[dict[str, Any]]:
    """What the file says about each session, one sentence for each fact, with the turns it was taken from."""
    if given is not None and not isinstance(given, Mapping):
        raise BadInput(f"{place}: `observation` has to be an object, not a {type(given).__name__}")
    for key, speakers in (given or {}).items():
        number = re.match(r"session_(\d+)", str(key))
        if number is None or not isinstance(speakers, Mapping):
            raise BadInput(f"{place}: the observation {key} is not an object named session_1_observation")
        if not all(isinstance(facts, list) for facts in speakers.values()):
            raise BadInput(f"{place}, {key}: expected a list of observations for each speaker")
        for fact in (fact for facts in speakers.values() for fact in facts):
            if not isinstance(fact, list) or len(fact) != 2 or not isinstance(fact[0], str):
                raise BadInput(f"{place}, {key}: an observation is a text and the ids of turns; found {str(fact)[:60]}")
            ids = fact[1] if isinstance(fact[1], list) else [fact[1]]
            evidence = [part for text in ids for part in re.split(r"[,;\s]+", str(text)) if part]
            yield {"text": fact[0], "session": int(number[1]), "evidence": evidence}
