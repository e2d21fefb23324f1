"""Objects of the program's, as the judge's tests see them; the text of this file runs in the sandbox.

Their operators are the program's own, so no answer counts that it would also give for wrong values: the judge asks
about the right operand among decoys, in random order.
"""

from __future__ import annotations

import json
import os
import random
from contextlib import suppress
from typing import Any

from recollect.rewards.code_far import Far, HeldValue
from recollect.rewards.code_operations import ARITHMETIC
from recollect.rewards.code_values import BASES, MADE, bare, name_of
from recollect.rewards.decoys import decoy, decoys, meaningless, unrelated

SECRET = [b""]  # drawn by the judge after the program's process has parted from it
PLAIN = (int, float, complex, str, bytes, bytearray, bool, type(None))
ORDERS = {"lt": ("gt", "lt"), "gt": ("lt", "gt"), "le": ("gt", "lt"), "ge": ("lt", "gt")}
"""Order → what must not hold with it: of the same two, and of the two swapped."""


class ProgramObject(Far):
    """An object of the program's. What its operators say counts where they tell right from wrong."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        handed = _objects([*args, *named.values(), self.__dict__.get("_far_owner")])
        links = self.__dict__.get("_far_is_class") or not self.__dict__.get("_far_named")
        for value in handed:
            value.__dict__.update({"_far_passed": True, **({"_far_linked": True} if links else {})})
        kept = [_copied(v) for v in args], {k: _copied(v) for k, v in named.items()}
        made = super().__call__(*args, **named)
        if isinstance(made, ProgramObject):
            made = self._far_known(made, handed, bool(args or named))
            if self.__dict__.get("_far_named"):
                made.__dict__.setdefault("_far_made", (self, *kept))
        return made

    def _far_known(self, made: ProgramObject, handed: list[ProgramObject], given: bool) -> ProgramObject:
        """The stand-in for what a call gave.

        Lists and sets take the same stand-in for equal and ask no further. So an object that was there before has the
        same one only if it was handed over, or is the only one of its kind.
        """
        if made.__dict__.pop("_far_new", False):
            return made
        for value in handed:
            if value._far_number == made._far_number:
                return value
        first = self._far_link.stand_ins[made._far_number]
        linked = handed and vars(first).get("_far_linked") and not self.__dict__.get("_far_is_class")
        only = not given and vars(first).get("_far_made", (None,))[0] is self
        if linked or only or vars(first).get("_far_fixed"):
            first.__dict__["_far_again"] = True
            return first
        return type(made)(made._far_link, made._far_number)

    def _far_constant(self) -> ProgramObject:
        """The one stand-in for an object that a class holds, such as a member of an enumeration."""
        first: ProgramObject = self._far_link.stand_ins[self._far_number]
        first.__dict__.update(_far_fixed=True, _far_again=True)
        return first

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, ProgramObject):
            found.__dict__.setdefault("_far_owner", self)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ProgramObject):
            value.__dict__.update(_far_passed=True, _far_linked=True)
        super().__setattr__(name, value)

    def __enter__(self) -> Any:
        self.__dict__["_far_passed"] = True
        return self._far_ask("enter")

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Leave; an error of the test's is never taken back."""
        self._far_ask("exit", kind.__name__ if kind else "", [str(v) for v in error.args] if error else [])

    def __eq__(self, other: Any) -> bool:
        if other is self and not (self.__dict__.get("_far_again") or self.__dict__.get("_far_derived")):
            return True
        other = bare(other) if isinstance(other, HeldValue) else other
        if not (isinstance(other, ProgramObject) or is_plain(other)):
            return NotImplemented
        if self.__dict__.get("_far_derived") and not isinstance(other, ProgramObject):
            raise TypeError("an object that was computed with a plain value is not compared with one")
        return _equal(self, other)

    def __hash__(self) -> int:
        return int(self._far_ask("hash"))

    def __bool__(self) -> bool:
        return self._far_plain("bool") is True

    def __abs__(self) -> Any:
        return self._far_plain("abs")

    def __neg__(self) -> Any:
        return self._far_plain("neg")

    def __contains__(self, item: Any) -> bool:
        with suppress(TypeError):
            return any(found is item or found == item for found in self)
        rng = _random()
        asked = [(True, item), *((False, unrelated(rng)) for _ in range(8))]
        rng.shuffle(asked)
        said = [(right, _says(self, "contains", value)) for right, value in asked]
        if all(yes for _, yes in said):
            raise TypeError("it holds everything")
        return any(yes for right, yes in said if right)

    def _far_plain(self, what: str) -> Any:
        """What one operand gives; plain only where no plain value was computed with."""
        found = _alone(self._far_ask(what))
        tainted = bool(self.__dict__.get("_far_derived"))
        if isinstance(found, ProgramObject):
            found.__dict__["_far_derived"] = tainted
        elif tainted:
            raise TypeError("an object that was computed with a plain value stays one")
        return found

    def _far_order(self, what: str, other: Any) -> bool:
        """An order among objects that has a direction."""
        if not isinstance(other, ProgramObject):
            return NotImplemented
        same, swapped = ORDERS[what]
        asked = [("", self, what, other), ("not", self, same, other), ("not", other, swapped, self)]
        asked *= 2
        _random().shuffle(asked)
        said = {(mark, _says(left, name, right)) for mark, left, name, right in asked}
        if {("", True), ("", False)} <= said or {("", True), ("not", True)} <= said:
            raise TypeError("its order has no direction")
        return ("", True) in said

    def _far_combined(self, what: str, other: Any) -> Any:
        """What an operator of arithmetic gives: an object, or a plain value that depends on the operand."""
        found = _alone(self._far_ask(what, other))
        plain = not isinstance(other, ProgramObject)
        if isinstance(found, ProgramObject):
            found.__dict__["_far_derived"] = plain or bool(self.__dict__.get("_far_derived"))
            return found
        wrong = decoys(other, _random()) if plain else _others(other)
        same = sum(_shown(self, what, value) == repr(found) for value in wrong)
        if not wrong or meaningless(same, len(wrong)):
            raise TypeError("its arithmetic does not depend on what it is given")
        return found


def _objects(value: Any) -> list[ProgramObject]:
    """The program's objects in a value."""
    if isinstance(value, ProgramObject):
        return [value]
    inside = value.values() if type(value) is dict else value if type(value) in (list, tuple, set, frozenset) else ()
    return [found for inner in inside for found in _objects(inner)]


def _alone(value: Any) -> Any:
    """What an operator gave: an object has a stand-in of its own there, and a value is without its class."""
    if isinstance(value, ProgramObject):
        return type(value)(value._far_link, value._far_number)
    return bare(value) if isinstance(value, HeldValue) else value


def _operator(what: str, method: str) -> Any:
    return lambda self, other: getattr(self, method)(what, other)


for _name in ORDERS:
    setattr(ProgramObject, f"__{_name}__", _operator(_name, "_far_order"))
for _name in (*ARITHMETIC, *(f"r{name}" for name in ARITHMETIC)):
    setattr(ProgramObject, f"__{_name}__", _operator(_name, "_far_combined"))


HELD: dict[str, Any] = {
    name: type(f"Program_{name}", (HeldValue, base), {"_far_base": base}) for name, base in BASES.items()
}  # stand-ins for values of classes that derive from built-in ones


def is_plain(value: Any) -> bool:
    """Whether a value is made of built-in types alone."""
    if type(value) in (list, tuple, set, frozenset):
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(is_plain(k) and is_plain(v) for k, v in value.items())
    return type(value) in PLAIN or isinstance(value, HeldValue) or name_of(type(value)) in MADE


def _equal(left: ProgramObject, right: Any) -> bool:
    """What the program says of two, if it says otherwise of most decoys.

    Of an object that the tests made and never handed over, an equal one that is made again has to be accepted too.
    """
    fixed, moved = (
        (left, right) if not isinstance(right, ProgramObject) or "_far_made" in vars(right) else (right, left)
    )
    rng = _random(fixed._far_link.pack(moved)) if is_plain(moved) else _random()
    row: list[tuple[str, Any]] = [("right", moved)]
    if is_plain(moved):
        row += [("wrong", value) for value in decoys(moved, rng)]
    elif "_far_made" in vars(moved):
        row += [("wrong", value) for value in _others(moved)]
        row += [] if moved.__dict__.get("_far_passed") else [("again", _remade(moved, []))]
    row += [("wrong", unrelated(rng)) for _ in range(4)]
    rng.shuffle(row)
    said = [(mark, _says(fixed, "eq", value)) for mark, value in row]
    wrong = [yes for mark, yes in said if mark == "wrong"]
    accepted = all(yes for mark, yes in said if mark != "wrong")
    for _ in range(4 if accepted and meaningless(sum(wrong), len(wrong)) else 0):  # such as modulo 7: ask more
        more = decoys(moved, rng) if is_plain(moved) else _others(moved) if "_far_made" in vars(moved) else []
        wrong += [_says(fixed, "eq", value) for value in more]
    if accepted and meaningless(sum(wrong), len(wrong)):
        raise TypeError("it equals everything")
    return accepted


def _says(left: ProgramObject, what: str, right: Any) -> bool:
    """Whether the program says yes; an error of its own is none."""
    if right is None and what != "eq":
        return False
    with suppress(Exception):
        return left._far_ask(what, right) is True
    return False


def _shown(left: ProgramObject, what: str, right: Any) -> str:
    with suppress(Exception):
        return repr(_alone(left._far_ask(what, right)))
    return ""


def _others(value: ProgramObject) -> list[ProgramObject]:
    """Objects that are made like this one, from other arguments: all others, or one other where that fails."""
    if "_far_made" not in vars(value):
        return []
    _, args, named = value.__dict__["_far_made"]
    values = {**dict(enumerate(args)), **named}
    places = [k for k, v in values.items() if is_plain(v) or (isinstance(v, ProgramObject) and "_far_made" in vars(v))]
    found = [made for _ in range(8 * bool(places)) if (made := _remade(value, places)) is not None]
    return found or [made for place in places * 4 if (made := _remade(value, [place])) is not None]


def _remade(value: ProgramObject, places: list[Any]) -> ProgramObject | None:
    """An object that is made like this one, from others of its arguments; None where that cannot be."""
    maker, args, named = value.__dict__["_far_made"]
    rng = _random()
    values = {**dict(enumerate(args)), **named}
    for place in places:
        old = values[place]
        values[place] = (_others(old) or [old])[0] if isinstance(old, ProgramObject) else decoy(old, rng)
    with suppress(Exception):
        made = maker(*(_copied(values[i]) for i in range(len(args))), **{k: _copied(values[k]) for k in named})
        return made if isinstance(made, ProgramObject) else None
    return None


def _copied(value: Any) -> Any:
    """A value whose containers are its own."""
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(map(_copied, value))
    return {k: _copied(v) for k, v in value.items()} if type(value) is dict else value


def _random(*told: Any) -> random.Random:
    """A source of numbers; for the same value the same, so that comparing again tells the program nothing new."""
    return random.Random(SECRET[0] + json.dumps(told).encode() if told else os.urandom(16))
