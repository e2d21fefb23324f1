"""Verdicts of a judge that were given before, by judge, model and prompt; kept in a file if one is named."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Coroutine
from functools import cache
from pathlib import Path
from typing import Any

from recollect.files.output import writing
from recollect.files.reading import lines
from recollect.types import BadInput


def verdict_key(url: str, model: str | None, prompt: str) -> str:
    """What a verdict depends on, as a digest."""
    return hashlib.blake2b(json.dumps([url, model, prompt]).encode(errors="replace"), digest_size=16).hexdigest()


class Verdicts:
    """Key → whether the answer was right. Lines that a kill cut, or that hold no verdict, are passed over."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.known: dict[str, bool] = {}
        self._asked: dict[tuple[int, str], asyncio.Task[bool]] = {}  # by event loop and key
        for line in lines(path) if path is not None and path.exists() else ():
            try:
                row = json.loads(line)
                self.known[str(row["key"])] = bool(row["right"])
            except (ValueError, KeyError, TypeError):
                continue

    async def once(self, key: str, ask: Callable[[], Coroutine[Any, Any, bool]]) -> bool:
        """The verdict of a key; those who want one at the same time wait for the same call."""
        if key in self.known:
            return self.known[key]
        place = id(asyncio.get_running_loop()), key
        if place not in self._asked:
            self._asked[place] = asked = asyncio.ensure_future(ask())
            asked.add_done_callback(lambda done: self._asked.pop(place, None))
        right = await asyncio.shield(self._asked[place])
        if key not in self.known:
            self.add(key, right)
        return right

    def add(self, key: str, right: bool) -> None:
        """Remember a verdict; with a file it is written there."""
        self.known[key] = right
        if self.path is not None:
            with writing(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write("\n" * self._torn() + json.dumps({"key": key, "right": right}) + "\n")

    def _torn(self) -> bool:
        """True when the file does not end in a line break: a kill has cut its last line."""
        assert self.path is not None
        if not self.path.exists() or not (size := self.path.stat().st_size):
            return False
        with self.path.open("rb") as file:
            file.seek(size - 1)
            return file.read() != b"\n"


@cache
def verdicts_of(file: str | None) -> Verdicts:
    """The verdicts of a file, or of this process; one object for all calls."""
    if file is None:
        return Verdicts(None)
    path = Path(file).expanduser()
    if path.suffix != ".jsonl" or path.is_dir():
        raise BadInput(f"judge.cache={file} is no .jsonl file")
    path.parent.mkdir(parents=True, exist_ok=True)
    return Verdicts(path)
