"""The program that compares two expressions with ``math-verify``. It runs by itself, outside the package.

It reads lines of JSON, [gold, said, question], and answers each with 1 or 0. An expression that equals the gold one
still has to be an answer: worked out, not copied from the question, and in the form that the question asks for.
"""

from __future__ import annotations

import json
import logging
import re
import resource
import sys
from collections import Counter
from typing import Any

import sympy
from math_verify import LatexExtractionConfig, parse, verify

if __package__:
    from recollect.rewards.symbolic import worked_out
else:  # run as a program, beside its own files
    import worked_out  # type: ignore[import-not-found, no-redef]

SEGMENTS, LONGEST = 20, 300  # expressions of a question that are read, and characters of each
ROOM = 3  # more nodes than the gold's that a simplified expression may have
EXPAND = re.compile(r"\b(expand|multiply|distribut|standard form|polynomial\b|remove (the )?(bracket|parenthes))")
SIMPLIFY = re.compile(r"\b(simpl|reduce|lowest terms|rationali[sz]e|radical form|surd)")
MARKED = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
MATHEMATICAL = re.compile(r".*[0-9+*/^=\\()].*|[b-zB-HJ-Z]|[-]")


def read(text: str) -> list[Any]:
    """The expressions that math-verify reads from LaTeX, as they are written: nothing is evaluated."""
    return parse(f"${text}$", [LatexExtractionConfig()], parsing_timeout=None)


def tree(text: str) -> Any | None:
    """One expression, or None."""
    found = [e for e in read(text) if isinstance(e, sympy.Basic)]
    return found[0] if found else None


# ---- copied from the question ----


def canonical(node: Any) -> str:
    """An expression whatever the order of its terms and factors, without zeros in sums and ones in products."""
    if isinstance(node, sympy.Add | sympy.Mul):
        empty = 0 if isinstance(node, sympy.Add) else 1
        parts = sorted(canonical(a) for a in worked_out.flat(node) if a != empty and canonical(a) != str(empty))
        return parts[0] if len(parts) == 1 else f"{type(node).__name__}({','.join(parts)})" if parts else str(empty)
    if isinstance(node, sympy.Pow) and node.exp == 1:
        return canonical(node.base)
    if isinstance(node, sympy.Pow) and node.base == 1:
        return "1"
    if not getattr(node, "args", ()):
        return str(node)
    return f"{type(node).__name__}({','.join(canonical(a) for a in node.args)})"


def expressions_in(question: str) -> list[str]:
    """The mathematics of a question: what stands between marks of LaTeX, or runs of what looks like it."""
    marked = [next(filter(None, m.groups())) for m in MARKED.finditer(question)]
    runs, run = [], []
    for word in [*MARKED.sub(" ; ", question).split(), ""]:
        if MATHEMATICAL.fullmatch(word.rstrip(".,;:?!")):
            run.append(word)
        if run and (not word or run[-1] is not word or word[-1] in ".,;:?!"):
            runs.append(" ".join(run).rstrip(".,;:?!"))
            run = []
    return [text for text in [*marked, *runs] if len(text) <= LONGEST][:SEGMENTS]


def is_copied(said: Any, gold: Any, question: str) -> bool:
    """Whether the expression stands in the question while the gold one does not."""
    asked = set()
    for text in expressions_in(question):
        try:
            whole = tree(text)
        except Exception:  # not every run of signs is an expression
            continue
        asked |= {canonical(n) for n in worked_out.nodes(whole)} if whole is not None else set()
    return canonical(said) in asked and canonical(gold) not in asked


# ---- the form that is asked for ----


def has_form(said: Any, gold: Any, question: str) -> bool:
    """Whether an expression is factored, expanded or simplified as the gold one is, where the question asks for it."""
    asked = question.lower()
    if re.search(r"\bfactor", asked) and is_factored(gold):
        return factors(said) == factors(gold)
    if EXPAND.search(asked) and isinstance(gold, sympy.Add):
        return is_expanded(said) or not is_expanded(gold)
    if SIMPLIFY.search(asked):
        return is_simplified(said, gold)
    return True


def is_factored(node: Any) -> bool:
    """A product, or a power, with a sum in it."""
    bases = [
        f.base if isinstance(f, sympy.Pow) else f
        for f in (worked_out.flat(node) if isinstance(node, sympy.Mul) else [node])
    ]
    return isinstance(node, sympy.Mul | sympy.Pow) and any(isinstance(b, sympy.Add) for b in bases)


def factors(node: Any) -> Counter[str]:
    """The factors of a product as they are written, each up to a constant; constants are left out."""
    found: Counter[str] = Counter()
    for part in worked_out.flat(node) if isinstance(node, sympy.Mul) else [node]:
        base, times = part.as_base_exp() if isinstance(part, sympy.Pow) else (part, sympy.Integer(1))
        plain = sympy.expand(base.doit())
        if plain.free_symbols:
            found[str(sympy.expand(plain / _leading(plain)))] += int(times) if times.is_Integer else 1
    return found


def _leading(expression: Any) -> Any:
    try:
        return sympy.LC(expression) or 1
    except sympy.PolynomialError:
        return 1


def is_expanded(node: Any) -> bool:
    """A sum of products without sums in them, like terms added up."""
    terms = worked_out.flat(node) if isinstance(node, sympy.Add) else [node]
    parts = [part for term in terms for part in (worked_out.bare(term) if isinstance(term, sympy.Mul) else [term])]
    raised = map(worked_out.base_and_power, parts)
    if any(isinstance(base, sympy.Add) and power.is_Integer and power > 0 for base, power in raised):
        return False
    return len(terms) == len(sympy.Add.make_args(sympy.expand(node.doit())))


def is_simplified(said: Any, gold: Any) -> bool:
    """No more to write than the gold one, like terms added up, roots drawn as far and above the line as there."""
    if size(said) > size(gold) + ROOM:
        return False
    if any(isinstance(n, sympy.Add) and worked_out.has_like(n) for n in worked_out.nodes(said)):
        return False
    return not any(
        any(map(left, worked_out.nodes(said))) and not any(map(left, worked_out.nodes(gold))) for left in LEFT
    )


def size(node: Any) -> int:
    """How much there is to write, without ones and signs."""
    if isinstance(node, sympy.Pow):
        base, power = worked_out.base_and_power(node)
        return size(base) + (1 + size(power) if power not in (1, -1) else 1)
    parts = [size(part) for part in getattr(node, "args", ()) if part not in (1, -1)]
    return sum(parts) + (len(parts) != 1 or not isinstance(node, sympy.Mul))


def _is_open_root(node: Any) -> bool:
    """The square root of 12, of which 2 could be drawn, of 3/4 or of 0.5."""
    if isinstance(node, sympy.Pow) and isinstance(node.base, sympy.Float):
        return True
    return _is_root(node) and canonical(sympy.Pow(node.base, node.exp)) != canonical(node)


def _is_root(node: Any) -> bool:
    if not isinstance(node, sympy.Pow) or not isinstance(node.base, sympy.Rational):
        return False
    power = node.exp.doit()
    return bool(power.is_Rational and not power.is_Integer)


def _is_root_below(node: Any) -> bool:
    """A root of a number below a fraction line: 1/sqrt(2)."""
    base, power = worked_out.base_and_power(node)
    return bool(base.is_Rational and power.is_Rational and power < 0 and not power.is_Integer)


def _is_product_of_roots(node: Any) -> bool:
    """sqrt(2) sqrt(3), which is one root."""
    return isinstance(node, sympy.Mul) and sum(map(_is_root, worked_out.flat(node))) > 1


LEFT = (_is_open_root, _is_root_below, _is_product_of_roots)  # what simplifying does not leave


# ---- the verdict ----


def is_exact(said: Any, gold: Any) -> bool:
    """Whether decimals stand for their value: 0.25 pi is pi/4, and 0.785398 is not. Gold decimals may be rounded."""
    decimals = said.atoms(sympy.Float)
    if not decimals or gold.atoms(sympy.Float) or not hasattr(said, "is_number"):
        return True
    exact = said.xreplace({number: sympy.Rational(str(number)) for number in decimals})
    return not gold.is_number or bool((exact.doit() - gold.doit()).equals(0))


def is_answer(gold: str, said: str, question: str) -> bool:
    """Whether what was said equals the gold expression and is an answer to the question."""
    if not worked_out.leaves_no_more(said, gold) or not verify(read(gold), read(said), timeout_seconds=None):
        return False
    wanted, given = tree(gold), tree(said)
    if wanted is None or given is None:
        return True
    if not is_exact(given, wanted):
        return False
    if worked_out.is_worked_out(wanted) and not worked_out.is_worked_out(given):
        return False
    return not is_copied(given, wanted, question) and has_form(given, wanted, question)


def main(memory: int) -> None:
    """Answer line by line, in so many bytes of memory."""
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    read("1")
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            equal = is_answer(*json.loads(line))
        except Exception:
            equal = False
        print(int(bool(equal)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
