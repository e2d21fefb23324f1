"""Small made-up conversations in LoCoMo's format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TURNS = (  # of each session: who says what
    (("Ana", "I went to a pottery class yesterday and made a blue bowl."), ("Ben", "Nice! I adopted a dog named Rex.")),
    (("Ben", "Rex learned to swim last week."), ("Ana", "I sold my bowl and bought a red bicycle.")),
    (("Ana", "We moved to Lisbon last month."), ("Ben", "I will start a bakery next year.")),
)
DATES = ("1:56 pm on 8 May, 2023", "9:05 am on 2 June, 2023", "10:30 pm on 14 August, 2023")
QUESTIONS: tuple[dict[str, Any], ...] = (
    {"question": "What did Ana make, and what did she buy?", "answer": "a bowl, a bicycle", "category": 1},
    {"question": "When did Ana go to a pottery class?", "answer": "7 May 2023", "category": 2, "evidence": ["D1:1"]},
    {"question": "What may Ben be?", "answer": "a baker; he wants to start a bakery", "category": 3},
    {"question": "What is the name of Ben's dog?", "answer": "Rex", "category": 4, "evidence": ["D1:2"]},
    {"question": "What is the name of Ana's cat?", "adversarial_answer": "Rex", "category": 5, "evidence": ["D1:2"]},
)
EVIDENCE = {0: ["D1:1", "D2:2"], 2: ["D3:2"]}


def conversation(name: str = "conv-1", copies: int = 1) -> dict[str, Any]:
    """One conversation of three sessions and ``copies`` times five questions."""
    talk: dict[str, Any] = {"speaker_a": "Ana", "speaker_b": "Ben"}
    observed: dict[str, Any] = {}
    for i, (turns, date) in enumerate(zip(TURNS, DATES, strict=True), 1):
        rows = [{"speaker": who, "dia_id": f"D{i}:{j}", "text": said} for j, (who, said) in enumerate(turns, 1)]
        talk |= {f"session_{i}_date_time": date, f"session_{i}": rows}
        who, said = turns[0]
        observed[f"session_{i}_observation"] = {who: [[f"{who} said: {said}", f"D{i}:1"]]}
    asked = [{"evidence": EVIDENCE.get(i), **row} for i, row in enumerate(QUESTIONS)]
    again = [{**row, "question": f"{row['question']} ({k})"} for k in range(copies) for row in asked]
    return {"sample_id": name, "conversation": talk, "qa": asked if copies == 1 else again, "observation": observed}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    """A file of conversations."""
    path.write_text(json.dumps(list(rows)))
    return path
