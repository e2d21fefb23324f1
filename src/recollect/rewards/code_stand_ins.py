"""The judge's side of the link: stand-ins for what the program has; the text of this file runs in the sandbox."""

from __future__ import annotations

import builtins
import importlib
import sys
from contextlib import suppress
from typing import Any

from recollect.rewards.code_far import Far, HeldValue, asked_for
from recollect.rewards.code_link import ALIASES, HELPERS, Link
from recollect.rewards.code_objects import HELD, ProgramObject
from recollect.rewards.code_operations import HARMLESS
from recollect.rewards.code_values import bare, become

MOST_LENT = 31  # containers of the program's objects that are watched
UNHELD = 3  # references to one that no test holds


class JudgeLink(Link):
    """The judge's side: stand-ins are of classes with the program's names."""

    def __init__(self, source: int, sink: int) -> None:
        super().__init__(source, sink, {})
        self.classes: dict[str, Any] = {}
        self.stand_ins: dict[int, Any] = {}
        self.lent: list[tuple[int, Any, Any]] = []  # (number, container, what it held) of the program's objects
        self.stdout = sys.stdout

    @property
    def operations(self) -> dict[str, Any]:
        return HARMLESS

    def listens(self) -> bool:
        return sys.stdout is not self.stdout

    def pack_other(self, value: Any, depth: int) -> Any:
        """Values of the tests' own classes cross as those of built-in ones."""
        plain = bare(value)
        return super().pack_other(value, depth) if plain is value else self.pack(plain, depth)

    def far(self, number: int, kind: str, *inside: Any) -> Any:
        """The one stand-in for an object; another one for an object that the tests made and never handed over."""
        old = self.stand_ins.get(number)
        if old is not None and ("_far_made" not in vars(old) or vars(old).keys() & {"_far_passed", "_far_fixed"}):
            old.__dict__.pop("_far_new", None)
            return old
        least = HELD[inside[0]] if inside else ProgramObject
        found = self.classes.get(kind, least)
        made = (found if issubclass(found, least) else least)(self, number, *map(self.unpack, inside[1:]))
        if self.stand_ins.setdefault(number, made) is made:
            made.__dict__["_far_new"] = True
        return made

    def borrow(self, number: int, value: Any) -> Any:
        """A container that an object holds: what the tests do to it, and what the program does, is done to both."""
        for known, held, _ in self.lent:
            if known == number:
                become(held, value)
                return held
        self.lent = [*self.lent[-MOST_LENT:], (number, value, self.pack(value))]
        return value

    def ask(self, what: str, number: int, *values: Any) -> Any:
        lent, self.lent = self.lent, []
        for known, held, before in lent:
            if self.pack(held) != before:
                super().ask("become", known, held)
        self.lent = [(known, held, self.pack(held)) for known, held, _ in lent if sys.getrefcount(held) > UNHELD]
        try:
            return super().ask(what, number, *values)
        finally:
            if what == "call":
                self._refresh()

    def _refresh(self) -> None:
        """Let borrowed containers be what the program has made of them."""
        for place, (known, held, _) in enumerate(self.lent):
            become(held, super().ask("value", known))
            self.lent[place] = known, held, self.pack(held)

    def error(self, name: str, args: list[Any], number: int) -> BaseException:
        made = super().error(name, args, number)
        if isinstance(getattr(made, "_far_error", None), bool):
            made.__dict__.update(_far_link=self, _far_number=number)
        return made

    def names(self, told: list[Any]) -> dict[str, Any]:
        """Every name of the program's, as the tests may use it; none of Python's own, such as its built-ins."""
        told = [row for row in told if not str(row[0]).startswith("__")]
        for name, kind, number, of in told:
            if kind == "class":
                self.classes[str(of[0])] = self.classes[name] = self._class(name, number, *of[1:])
        return {name: found for name, kind, at, of in told if (found := self._name(name, kind, at, of)) is not None}

    def _class(self, name: str, number: int, base: str, parents: list[str], replaced: list[str]) -> FarType:
        space: dict[str, Any] = {str(n): property(_asked(str(n))) for n in replaced if asked_for(str(n))}
        maker = self.named(number)
        maker.__dict__["_far_is_class"] = True
        space |= {"_far_class": maker, "_far_parents": frozenset(map(str, parents))}
        return FarType(name, (HELD[base] if base else ProgramObject,), space)

    def named(self, number: int) -> ProgramObject:
        """The stand-in for something that has a name, and so may be called again with other arguments."""
        found = ProgramObject(self, int(number))
        found.__dict__["_far_named"] = True
        return found

    def _name(self, name: str, kind: str, at: Any, of: str) -> Any:
        if kind == "module":
            return _own(name, str(at), of)
        if kind == "error":
            base = self.shared.get(str(at), getattr(builtins, str(at), None))
            if not (isinstance(base, type) and issubclass(base, Exception)):
                return None
            bases = (base,) if issubclass(base, ProgramError) else (ProgramError, base)
            return self.shared.setdefault(of, type(of, bases, {}))
        if kind == "async":
            return _awaited(self.named(at))
        if kind == "class":
            return self.classes[name]
        if kind == "function":
            return self.named(at)
        return self.ask("value", at)


def _own(name: str, place: str, of: str) -> Any:
    """The judge's own module, or what a module holds, under the name that it has there; else None."""
    if place.partition(".")[0] not in HELPERS or name not in (of or place.rpartition(".")[2], ALIASES.get(place)):
        return None
    with suppress(ImportError, AttributeError):
        found = importlib.import_module(place)
        return getattr(found, of) if of else found
    return None


class FarType(type):
    """The class of stand-ins for a class of the program's: calling it makes an object over there."""

    def __call__(cls, *args: Any, **named: Any) -> Any:
        if args and isinstance(args[0], Link):  # a reference that came over the link
            return super().__call__(*args)
        return cls.__dict__["_far_class"](*args, **named)

    def __getattr__(cls, name: str) -> Any:
        if not asked_for(name):
            raise AttributeError(name)
        found = getattr(cls.__dict__["_far_class"], name)
        return found._far_constant() if isinstance(found, ProgramObject) else found

    def __setattr__(cls, name: str, value: Any) -> None:
        setattr(cls.__dict__["_far_class"], name, value)

    def __getitem__(cls, key: Any) -> Any:
        return cls.__dict__["_far_class"][key]

    def __iter__(cls) -> Any:
        return iter(cls.__dict__["_far_class"])

    def __len__(cls) -> int:
        return len(cls.__dict__["_far_class"])

    def __bool__(cls) -> bool:
        return True

    def __contains__(cls, item: Any) -> bool:
        return item in cls.__dict__["_far_class"]

    def __subclasscheck__(cls, other: type) -> bool:
        return super().__subclasscheck__(other) or cls.__name__ in vars(other).get("_far_parents", ())

    def __instancecheck__(cls, value: Any) -> bool:
        return super().__instancecheck__(value) or cls.__subclasscheck__(type(value))


class ProgramError(Exception):
    """An error of the program's. What it holds beside its arguments is on the other side."""

    _far_error = True

    def __getattr__(self, name: str) -> Any:
        if not asked_for(name) or "_far_link" not in self.__dict__:
            raise AttributeError(name)
        return self.__dict__["_far_link"].ask("get", self.__dict__["_far_number"], name)

    def __str__(self) -> str:
        if "_far_link" not in self.__dict__:
            return super().__str__()
        return str(self.__dict__["_far_link"].ask("str", self.__dict__["_far_number"]))


def _asked(name: str) -> Any:
    return lambda self: HeldValue.__getattr__(self, name)


def _awaited(far: Far) -> Any:
    async def call(*args: Any, **named: Any) -> Any:
        return far(*args, **named)

    return call
