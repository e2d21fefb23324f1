"""An object of another process, as this one sees it; the text of this file runs in the sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recollect.rewards.code_link import Link


def asked_for(name: str) -> bool:
    """Whether an attribute is looked up on the other side."""
    return not name.startswith(("_far", "__")) or name in ("__name__", "__doc__")


class Far:
    """An object of the other process. It has no order, equals only itself, and is neither true nor false."""

    def __init__(self, link: Link, number: int) -> None:
        self.__dict__.update(_far_link=link, _far_number=number)

    def _far_ask(self, what: str, *values: Any) -> Any:
        return self._far_link.ask(what, self._far_number, *values)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._far_ask("call", list(args), named)

    def __getattr__(self, name: str) -> Any:
        if not asked_for(name):
            raise AttributeError(name)
        return self._far_ask("get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._far_ask("set", name, value)

    def __getitem__(self, key: Any) -> Any:
        return self._far_ask("item", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._far_ask("put", key, value)

    def __delitem__(self, key: Any) -> None:
        self._far_ask("drop", key)

    def __len__(self) -> int:
        return int(self._far_ask("len"))

    def __iter__(self) -> Any:
        walker = self._far_ask("iter")
        if not isinstance(walker, Far):
            yield from walker
            return
        while found := walker._far_ask("next"):
            yield found[0]

    def __next__(self) -> Any:
        found = self._far_ask("next")
        if not found:
            raise StopIteration
        return found[0]

    def __str__(self) -> str:
        return str(self._far_ask("str"))

    def __repr__(self) -> str:
        return str(self._far_ask("repr"))

    def __bool__(self) -> bool:
        raise TypeError("an object of the program's is neither true nor false")

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Far) and other._far_number == self._far_number

    __hash__ = object.__hash__


class HeldValue:
    """A value of a class that derives from a built-in one: the value is here, what else it has is on the other side."""

    _far_base: Any = object

    def __new__(cls, link: Link, number: int, value: Any) -> Any:
        made = cls._far_base.__new__(cls, value)
        made.__dict__.update(_far_link=link, _far_number=number)
        return made

    def __init__(self, *_: Any) -> None:
        """Made by then."""

    def __getattr__(self, name: str) -> Any:
        if not asked_for(name):
            raise AttributeError(name)
        return self.__dict__["_far_link"].ask("get", self.__dict__["_far_number"], name)

    def __str__(self) -> str:
        return str(self.__dict__["_far_link"].ask("str", self.__dict__["_far_number"]))

    def __repr__(self) -> str:
        return str(self.__dict__["_far_link"].ask("repr", self.__dict__["_far_number"]))
