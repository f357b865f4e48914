"""Where slices begin that may be counted from the end of an axis."""

from __future__ import annotations

from tvm import relax

from byoc.frontends.torch.converters.indexing import is_element
from byoc.frontends.torch.values import Value
from codegen_cc.dim import at_most
from codegen_cc.region.relax_dims import relax_dims

#: From here on an end says "to the end".
_TO_THE_END = 1 << 62


def begin_of(start: Value, end: Value, step: int, extent: relax.Expr, taken: relax.Expr) -> Value:
    """Where a slice of so many elements begins, within the axis. Of a size such as ``1 - n`` the
    extents tell that it is counted from the end."""
    begin = from_start(0 if start is None else start, extent)
    if begin is not start or isinstance(start, int) or is_element(start) or is_inside(start):
        return begin
    whole = end is None or (isinstance(end, int) and end >= _TO_THE_END)
    stop = extent if whole else from_start(end, extent)
    if is_element(stop):
        return begin
    covered = stop - (extent + start)
    count = covered if step == 1 else (covered + step - 1) // step
    return extent + start if relax_dims([count]) == relax_dims([taken]) else begin


def from_start(place: Value, extent: relax.Expr) -> Value:
    """A place that may be counted from the end, within the axis."""
    if is_element(place):
        return place
    if not isinstance(place, int):  # the last n elements: n is above 0, as PyTorch's tracer has it
        return extent + place if at_most(relax_dims([place])[0], 0) else place
    known = getattr(extent, "value", None)
    if place < 0:
        return max(place + known, 0) if known is not None else extent + place
    return place if known is None else min(place, known)


def is_inside(begin: Value) -> bool:
    """Whether a slice begins in its axis, however short a call makes that."""
    return isinstance(begin, int) or at_most(0, relax_dims([begin])[0]) is True
