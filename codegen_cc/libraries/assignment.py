"""``WHAT=VALUE`` texts, by which users give a value to operators or to named nodes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

from codegen_cc.operator import known_operators

T = TypeVar("T")


def split_text(text: str) -> list[str]:
    """The parts between commas, without blanks around them."""
    return [part.strip() for part in text.split(",")]


def parse(spec: str) -> tuple[str, str] | None:
    """``(what, value)`` of ``WHAT=VALUE``, with an empty ``what`` of ``VALUE``; None for others."""
    what, equals, value = spec.rpartition("=")
    return None if not value or (equals and not what) else (what, value)


def assigned(pairs: Sequence[tuple[str, T]], names: Iterable[str]) -> T | None:
    """The value of the first pattern that fits one of the names, or None."""
    if not pairs:
        return None
    known = tuple(names)
    fitting = (value for pattern, value in pairs if any(_fits(pattern, name) for name in known))
    return next(fitting, None)


def unknown_pattern(pairs: Iterable[tuple[str, object]], names: Iterable[str]) -> str | None:
    """What is wrong with the first pattern that fits no operator and none of the names, or None."""
    known = list(dict.fromkeys(names))
    for pattern, value in pairs:
        if not any(_fits(pattern, name) for name in known):
            close = difflib.get_close_matches(pattern, [*known_operators(), *known], 3)
            hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
            return f"{pattern}={value}: no operator and no node is called {pattern!r}{hint}"
    return None


def _fits(pattern: str, name: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)
