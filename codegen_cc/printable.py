"""Text that came with a model, made safe for a terminal: the one place where that is done.

A name may hold escape sequences that move the cursor, rename the window or hide what follows, marks
that turn the direction of writing, or halves of surrogate pairs that cannot be written at all.
"""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """``text`` with escapes as in Python in place of what is not printable and not in ``keep``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
