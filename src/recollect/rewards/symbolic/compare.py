"""The program that compares two expressions with ``math-verify``. It runs by itself, outside the package.

It reads lines of JSON, [gold, said, question], and answers each with 1 or 0. An expression that equals the gold one
still has to be an answer: worked out, not copied from the question, and in the form that the question asks for.
"""

from __future__ import annotations

import json
import logging
import math
import re
import resource
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import sympy
from math_verify import LatexExtractionConfig, parse, verify

SEGMENTS, LONGEST = 20, 300  # expressions of a question that are read, and characters of each
ROOM = 3  # more nodes than the gold's that a simplified expression may have
OPERATOR = re.compile(
    r"\\(i{1,3}nt|oint|sum|prod|lim|partial|nabla|binom|dbinom|tbinom|gcd|lcm|max|min|det|b?mod|pmod|l?floor|l?ceil)\b"
    r"|\\operatorname|\\[dt]?frac\s*\{\s*(?:\\mathrm\s*\{)?\s*d|\\dot\b|\\prime|[A-Za-z)\]}]'|(?<=[0-9A-Za-z)}])!"
)
UNEVALUATED = ("Integral", "Derivative", "Sum", "Product", "Limit", "Subs", "factorial", "binomial")
MARKED = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
MATHEMATICAL = re.compile(r".*[0-9+*/^=\\()].*|[b-zB-HJ-Z]|[-]")


def read(text: str) -> list[Any]:
    """The expressions that math-verify reads from LaTeX, as they are written: nothing is evaluated."""
    return parse(f"${text}$", [LatexExtractionConfig()], parsing_timeout=None)


def tree(text: str) -> Any | None:
    """One expression, or None."""
    found = [e for e in read(text) if isinstance(e, sympy.Basic)]
    return found[0] if found else None


# ---- worked out ----


def operators(text: str) -> Counter[str]:
    """The operators in an expression that ask for a computation."""
    return Counter(m.group(1) or m.group(0) for m in OPERATOR.finditer(text))


def nodes(expression: Any) -> Iterator[Any]:
    """An expression and everything in it, sums and products with all of their terms."""
    return sympy.preorder_traversal(expression)


def flat(node: Any) -> list[Any]:
    """The terms of a sum or the factors of a product, those inside an inner one included."""
    kind = type(node)
    return [part for arg in node.args for part in (flat(arg) if type(arg) is kind else [arg])]


def is_literal(node: Any) -> bool:
    """A number that is written out, or its reciprocal."""
    if isinstance(node, sympy.Pow):
        return isinstance(node.base, sympy.Integer) and node.exp == -1
    if isinstance(node, sympy.Mul):
        return all(map(is_literal, flat(node)))
    return isinstance(node, sympy.Rational | sympy.Float)


def is_worked_out(expression: Any) -> bool:
    """Nothing is left to do in it: no 6 + 6, no x + 0, no 2x/4, no integral, no arctan(1)."""
    return not any(type(n).__name__ in UNEVALUATED or _is_open(n) for n in nodes(expression))


def _is_open(node: Any) -> bool:
    if isinstance(node, sympy.Function) and node.is_number:
        return not node.doit().has(type(node))
    if isinstance(node, sympy.Add):
        numbers = [a for a in flat(node) if is_literal(a)]
        return len(numbers) > 1 or any(n == 0 for n in numbers)
    if isinstance(node, sympy.Mul):
        return _is_open_product(flat(node))
    return isinstance(node, sympy.Pow) and (node.exp in (0, 1) or node.base in (0, 1))


def _is_open_product(factors: list[Any]) -> bool:
    above = [abs(f) for f in factors if isinstance(f, sympy.Rational | sympy.Float) and f != -1]
    below = [f.base for f in factors if isinstance(f, sympy.Pow) and is_literal(f)]
    signs = sum(bool(f.is_number and is_literal(f) and f < 0) for f in factors)
    if len(above) > 1 or len(below) > 1 or signs > 1 or 0 in above or 1 in below:
        return True
    if 1 in above and len(factors) - signs > 1 and not below:  # 1/x is written with a 1
        return not any(isinstance(f, sympy.Pow) and f.exp.could_extract_minus_sign() for f in factors)
    whole = [n for n in above if isinstance(n, sympy.Integer)]
    return bool(whole and below) and math.gcd(int(whole[0]), int(below[0])) > 1


# ---- copied from the question ----


def canonical(node: Any) -> str:
    """An expression whatever the order of its terms and factors, without zeros in sums and ones in products."""
    if isinstance(node, sympy.Add | sympy.Mul):
        empty = 0 if isinstance(node, sympy.Add) else 1
        parts = sorted(canonical(a) for a in flat(node) if a != empty and canonical(a) != str(empty))
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
        asked |= {canonical(n) for n in nodes(whole)} if whole is not None else set()
    return canonical(said) in asked and canonical(gold) not in asked


# ---- the form that is asked for ----


def has_form(said: Any, gold: Any, question: str) -> bool:
    """Whether an expression is factored, expanded or simplified as the gold one is, where the question asks for it."""
    asked = question.lower()
    if re.search(r"\bfactor", asked) and is_factored(gold):
        return factors(said) == factors(gold)
    if re.search(r"\bexpand|\bmultiply out|\bstandard form|\bpolynomial\b", asked) and isinstance(gold, sympy.Add):
        return is_expanded(said) or not is_expanded(gold)
    if re.search(r"\bsimpl|\blowest terms|\brationali[sz]e", asked):
        return is_simplified(said, gold)
    return True


def is_factored(node: Any) -> bool:
    """A product, or a power, with a sum in it."""
    bases = [f.base if isinstance(f, sympy.Pow) else f for f in (flat(node) if isinstance(node, sympy.Mul) else [node])]
    return isinstance(node, sympy.Mul | sympy.Pow) and any(isinstance(b, sympy.Add) for b in bases)


def factors(node: Any) -> Counter[str]:
    """The factors of a product as they are written, each up to a constant; constants are left out."""
    found: Counter[str] = Counter()
    for part in flat(node) if isinstance(node, sympy.Mul) else [node]:
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
    terms = flat(node) if isinstance(node, sympy.Add) else [node]
    plain = node.doit()
    return len(terms) == len(sympy.Add.make_args(sympy.expand(plain)))


def is_simplified(said: Any, gold: Any) -> bool:
    """No more to write than the gold one, like terms added up, roots drawn as far as there."""
    if sum(1 for _ in nodes(said)) > sum(1 for _ in nodes(gold)) + ROOM:
        return False
    if any(isinstance(n, sympy.Add) and len(flat(n)) > len(sympy.Add.make_args(n.doit())) for n in nodes(said)):
        return False
    return not any(map(_is_open_root, nodes(said))) or any(map(_is_open_root, nodes(gold)))


def _is_open_root(node: Any) -> bool:
    """The square root of 12, of which 2 could be drawn."""
    if not isinstance(node, sympy.Pow) or not (node.base.is_Integer and node.exp.is_Rational):
        return False
    root = node.exp.q
    return root > 1 and any(power >= root for power in sympy.factorint(abs(int(node.base))).values())


# ---- the verdict ----


def is_answer(gold: str, said: str, question: str) -> bool:
    """Whether what was said equals the gold expression and is an answer to the question."""
    if operators(said) - operators(gold) or not verify(read(gold), read(said), timeout_seconds=None):
        return False
    wanted, given = tree(gold), tree(said)
    if wanted is None or given is None:
        return True
    if is_worked_out(wanted) and not is_worked_out(given):
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
