"""GSM8K's own rows as tasks: the final number is the answer, the worked solution is kept beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.runtime.error_text import listed
from recollect.types import BadInput


def calculations(solution: str) -> int:
    """How many calculations a worked solution has, as GSM8K annotates them."""
    return solution.count("<<")


def gsm8k_row(row: Mapping[str, Any], place: str, index: int) -> dict[str, Any]:
    """question, answer (the number after ####, without commas) and solution."""
    question, worked = row.get("question"), row.get("answer")
    if not isinstance(question, str) or not isinstance(worked, str):
        raise BadInput(f"{place}: expected GSM8K's `question` and `answer`; it has {listed(row)}")
    solution, mark, final = worked.rpartition("####")
    if not mark or not final.strip():
        raise BadInput(f"{place}: the answer does not end with '#### number'")
    return {
        "id": f"gsm8k-{index}",
        "question": question,
        "answer": final.strip().replace(",", ""),
        "solution": solution.strip(),
        "data_source": "gsm8k",
    }
