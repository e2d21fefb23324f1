"""HotpotQA's own rows as tasks: the paragraphs as one document, for agents that read, and as a list.

Both forms of the data set are understood: the original JSON, and the columns of its parquet copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.runtime.error_text import listed
from recollect.types import BadInput


def hotpotqa_row(row: Mapping[str, Any], place: str, index: int) -> dict[str, Any]:
    """question, answer, context (all paragraphs), paragraphs, supporting_facts, type and level."""
    for name in ("question", "answer", "context"):
        if not row.get(name):
            raise BadInput(f"{place}: expected HotpotQA's `{name}`; it has {listed(row)}")
    try:
        paragraphs = [
            {"title": str(title), "text": "".join(sentences).strip()}
            for title, sentences in _pairs(row["context"], "title", "sentences")
        ]
        facts = [
            {"title": str(title), "sent_id": int(number)}
            for title, number in _pairs(row.get("supporting_facts") or [], "title", "sent_id")
        ]
    except (TypeError, ValueError, KeyError) as error:
        raise BadInput(f"{place}: not HotpotQA's context and supporting_facts: {error}") from None
    return {
        "id": str(row.get("_id") or row.get("id") or f"hotpotqa-{index}"),
        "question": row["question"],
        "answer": row["answer"],
        "context": "\n\n".join(f"Document {i}:\n{p['title']}\n{p['text']}" for i, p in enumerate(paragraphs, 1)),
        "paragraphs": paragraphs,
        "supporting_facts": facts,
        "type": str(row.get("type") or ""),
        "level": str(row.get("level") or ""),
        "data_source": "hotpotqa",
    }


def _pairs(value: Any, first: str, second: str) -> list[tuple[Any, Any]]:
    """[[a, b], …], or the same as {first: [a, …], second: [b, …]}."""
    if isinstance(value, Mapping):
        return list(zip(value[first], value[second], strict=True))
    return [(a, b) for a, b in value]
