"""Captions and transcripts of a video: .srt, .vtt, .json and plain text, as lines that begin with a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_TIME = r"(?:(\d+):)?(\d{1,2}):(\d{2})(?:[.,](\d{1,3}))?"
_CUE = re.compile(rf"^[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}.*$", re.MULTILINE)
_TAG = re.compile(r"</?[a-zA-Z][^>\n]*>|\{\\[^}\n]*\}")
_LINE = re.compile(rf"^\W{{0,2}}{_TIME}(?:\s*(?:-|–|-->)\s*{_TIME})?\W{{0,3}}(?=\S)")
TEXTS = ("text", "caption", "content", "sentence", "transcript", "description")
STARTS = ("start", "start_time", "timestamp", "time", "begin", "from", "t")
LISTS = ("captions", "segments", "transcript", "events", "scenes", "results", "data")


@dataclass(frozen=True)
class Caption:
    """What is said or seen from a moment on."""

    start: float | None  # seconds
    text: str

    def __str__(self) -> str:
        return self.text if self.start is None else f"{clock(self.start)} {self.text}"


def clock(seconds: float) -> str:
    """A moment as people write it: 0:05, 1:02:30."""
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def captions_of(text: str) -> list[Caption]:
    """The captions of a file's text, whatever its format."""
    text = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if _CUE.search(text):
        return list(_cues(text))
    if text.lstrip()[:1] in ("[", "{"):
        try:
            return list(_json(json.loads(text)))
        except (ValueError, RecursionError):
            pass  # a text that happens to begin so
    return [_line(line.strip()) for line in text.split("\n") if line.strip()]


def _cues(text: str) -> Iterator[Caption]:
    """The cues of .srt and .vtt: from each time line to the next, without the number that stands before that."""
    found = list(_CUE.finditer(text))
    ends = [*(f.start() for f in found[1:]), len(text)]
    for cue, end in zip(found, ends, strict=True):
        block = re.split(r"\n[ \t]*\n", text[cue.end() : end], maxsplit=1)[0]
        said = " ".join(_TAG.sub("", block).split())
        if said:
            yield Caption(_seconds(*cue.groups()[:4]), said)


def _line(line: str) -> Caption:
    found = _LINE.match(line)
    return Caption(_seconds(*found.groups()[:4]), line[found.end() :]) if found else Caption(None, line)


def _json(value: Any) -> Iterator[Caption]:
    if isinstance(value, Mapping):
        inside = next((value[k] for k in LISTS if isinstance(value.get(k), list)), None)
        said = next((value[k] for k in TEXTS if isinstance(value.get(k), str)), None)
        if inside is not None:
            yield from _json(inside)
        elif said is not None:
            yield Caption(_moment(next((value[k] for k in STARTS if value.get(k) is not None), None)), said.strip())
        else:  # moment → text
            yield from (Caption(_moment(k), str(v).strip()) for k, v in value.items())
    elif isinstance(value, list):
        for item in value:
            yield from _json(item)
    elif value is not None:
        yield Caption(None, str(value).strip())


def _moment(value: Any) -> float | None:
    if isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    found = re.fullmatch(_TIME, str(value).strip())
    if found:
        return _seconds(*found.groups())
    try:
        return float(str(value))
    except ValueError:
        return None


def _seconds(hours: str | None, minutes: str, seconds: str, rest: str | None) -> float:
    return int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds) + float(f"0.{rest or 0}")
