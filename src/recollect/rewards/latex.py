"""Plain spellings of mathematics as LaTeX: pi/4, 2√3, ln 2."""

from __future__ import annotations

import re

_NAMES = """alpha beta gamma delta theta lambda mu pi phi omega infty arcsin arccos arctan sinh cosh tanh sin cos tan
cot sec csc ln log exp"""
_NAME = re.compile(rf"(?<![A-Za-z\\])({'|'.join(_NAMES.split())})(?![A-Za-z])")
_ROOT = re.compile(r"√\s*(?:\{([^{}]*)\}|\(([^()]*)\)|(\d+|[A-Za-z]))")
_PART = r"(\{[^{}]*\}|\\[A-Za-z]+|[A-Za-z0-9])"
_SHORT = re.compile(rf"\\([dt]?frac)\s*{_PART}\s*{_PART}")


def latex(text: str) -> str:
    """A text in which names of letters and functions have their backslash, and fractions and roots their braces."""
    text = _NAME.sub(r"\\\1", text)
    text = _ROOT.sub(lambda m: rf"\sqrt{{{next(part for part in m.groups() if part is not None)}}}", text)
    return _SHORT.sub(lambda m: rf"\{m[1]}{_braced(m[2])}{_braced(m[3])}", text)


def _braced(part: str) -> str:
    return part if part.startswith("{") else f"{{{part}}}"
