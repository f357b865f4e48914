"""Extents of symbolic axes as users write them: a name, or multiples of one, ``32*h + 16``.

A network that halves an image five times and adds the parts up again needs multiples of 32; such an
axis is written ``32*h``, and every size inside the network is then a whole multiple of ``h``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: What an extent may be, for messages.
ALLOWED = "positive whole numbers, names for axes that stay symbolic, or multiples as in 32*h"

_FORM = re.compile(
    r"\s*(?:(?P<factor>\d+)\s*\*\s*)?(?P<name>[A-Za-z_]\w*)\s*(?:\*\s*(?P<after>\d+)\s*)?"
    r"(?:(?P<sign>[+-])\s*(?P<offset>\d+)\s*)?",
    re.ASCII,
)


@dataclass(frozen=True)
class Extent:
    """``factor * name + offset`` of a name that stands for 0, 1, 2, ..."""

    name: str
    factor: int = 1
    offset: int = 0

    def __str__(self) -> str:
        """The text that ``parse_extent`` reads, in one form."""
        factor = "" if self.factor == 1 else f"{self.factor}*"
        return f"{factor}{self.name}" + (f"{self.offset:+d}" if self.offset else "")

    def at(self, value: int) -> int:
        """The extent where the name stands for ``value``."""
        return self.factor * value + self.offset

    def solve(self, extent: int) -> int | None:
        """What the name stands for on an axis of this extent; None where it fits no value."""
        value, rest = divmod(extent - self.offset, self.factor)
        return value if rest == 0 and value >= 0 else None

    def nearest(self, extent: int) -> list[int]:
        """The possible extents just below and just above an impossible one."""
        value = max((extent - self.offset) // self.factor, 0)
        return [self.at(v) for v in (value, value + 1) if v >= 1]


def parse_extent(text: str) -> Extent:
    """Read ``h``, ``32*h``, ``h*32`` or ``32*h + 16``. Raises ``ValueError`` for anything else."""
    found = _FORM.fullmatch(text)
    if found is None or (found["factor"] and found["after"]):
        raise ValueError(f"{text!r} is neither a name nor a multiple of one")
    offset = int(f"{found['sign'] or ''}{found['offset'] or 0}")
    extent = Extent(found["name"], int(found["factor"] or found["after"] or 1), offset)
    if extent.factor < 1 or extent.at(1) < 1:
        raise ValueError(f"{text!r} is {extent.at(1)} where {extent.name} is 1")
    return extent
