"""Extents of symbolic axes as users write them: a name, multiples of one, ``32*h + 16``, or sums.

A network that halves an image five times and adds the parts up again needs multiples of 32; such an
axis is written ``32*h``, and every size inside the network is then a whole multiple of ``h``. The
mask of a decoder is as long as what it has seen and what it reads: ``past + sequence``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_SUM = re.compile(r"\s*[A-Za-z_]\w*(\s*\+\s*[A-Za-z_]\w*)+\s*", re.ASCII)

#: What an extent may be, for messages.
ALLOWED = "positive whole numbers, names for axes that stay symbolic, or multiples as in 32*h"

_FORM = re.compile(
    r"\s*(?:(?P<factor>\d+)\s*\*\s*)?(?P<name>[A-Za-z_]\w*)\s*(?:\*\s*(?P<after>\d+)\s*)?"
    r"(?:(?P<sign>[+-])\s*(?P<offset>\d+)\s*)?",
    re.ASCII,
)


@dataclass(frozen=True)
class Extent:
    """``factor * name + offset`` of a name that stands for 0, 1, 2, ..., plus ``others`` such."""

    name: str
    factor: int = 1
    offset: int = 0
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The text that ``parse_extent`` reads, in one form."""
        factor = "" if self.factor == 1 else f"{self.factor}*"
        names = "+".join((self.name, *self.others))
        return f"{factor}{names}" + (f"{self.offset:+d}" if self.offset else "")

    @property
    def names(self) -> tuple[str, ...]:
        """All names in it."""
        return (self.name, *self.others)

    def at(self, value: int) -> int:
        """The extent where every name stands for ``value``."""
        return self.within(dict.fromkeys(self.names, value))

    def within(self, values: Mapping[str, int]) -> int:
        """The extent where the names stand for these values."""
        return self.factor * values[self.name] + self.offset + sum(values[n] for n in self.others)

    def solve(self, extent: int) -> int | None:
        """What the one name stands for on an axis of this extent; None where it fits no value."""
        value, rest = divmod(extent - self.offset, self.factor)
        return value if rest == 0 and value >= 0 else None

    def missing(self, extent: int, values: Mapping[str, int]) -> tuple[str, int] | None:
        """The one name of a sum that ``values`` lack, and what it stands for, which may be below 0.

        None where they lack none, or more than one.
        """
        unknown = [name for name in self.names if name not in values]
        if len(unknown) != 1 or self.factor != 1:
            return None
        return unknown[0], extent - self.within({**values, unknown[0]: 0})

    def nearest(self, extent: int) -> list[int]:
        """The possible extents just below and just above an impossible one."""
        value = max((extent - self.offset) // self.factor, 0)
        return [self.at(v) for v in (value, value + 1) if v >= 1]


def parse_extent(text: str) -> Extent:
    """Read ``h``, ``32*h``, ``h*32``, ``32*h + 16`` or ``p + s``.

    Raises ``ValueError`` for anything else.
    """
    if _SUM.fullmatch(text):
        first, *others = (name.strip() for name in text.split("+"))
        return Extent(first, others=tuple(others))
    found = _FORM.fullmatch(text)
    if found is None or (found["factor"] and found["after"]):
        raise ValueError(f"{text!r} is neither a name nor a multiple of one")
    offset = int(f"{found['sign'] or ''}{found['offset'] or 0}")
    extent = Extent(found["name"], int(found["factor"] or found["after"] or 1), offset)
    if extent.factor < 1 or extent.at(1) < 1:
        raise ValueError(f"{text!r} is {extent.at(1)} where {extent.name} is 1")
    return extent
