"""What the virtual machine found wrong with sizes inside a network, in words for its callers."""

from __future__ import annotations

import re

#: How it puts that ``byoc.ir.check_extents`` found an extent below 0.
_BELOW_ZERO = re.compile(
    r"\(0 vs\. (?P<value>-\d+)\) : ErrorContext\(match_cast, ty=R\.Shape\((?P<extents>.*?)\)\)"
)
#: What is left of a known size, as of a table of positions.
_LEFT = re.compile(r"\[(\d+ - |\w+ \* -1 \+ \d)")

#: How it puts that two numbers differ; of shapes alone both are one more
#: (``fitting_extents.require_equal``).
_UNEQUAL = re.compile(
    r"\((?P<found>-?\d+) vs\. (?P<wanted>-?\d+)\) : ErrorContext\(match_cast, ty=R\.(?P<of>\w+)\("
)


def in_words(text: str) -> str:
    """A line that says which sizes do not fit; other lines stay."""
    if small := _BELOW_ZERO.search(text):
        sizes = "smaller" if _LEFT.match(small["extents"]) else "larger"
        extents = f"an extent inside the network, one of {small['extents']}, would be"
        return f"{extents} {small['value']}; pass {sizes} inputs"
    if other := _UNEQUAL.search(text):
        more = other["of"] == "Shape"
        found, wanted = (int(other[name]) - more for name in ("found", "wanted"))
        return (
            f"sizes inside the network do not fit one another: {found} where {wanted} is needed;"
            " pass inputs of other sizes"
        )
    return text
