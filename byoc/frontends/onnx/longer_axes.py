"""Axes that are cut to the length of another one, and so are as long or longer.

    x [n, ..] cut to the length of y [m, ..], and y     n becomes m + more

As tables of examples come, of which the first have labels.  ``learned_axes`` would make both
equal, which nothing is left of behind the cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import sympy

from byoc.extent import Extent
from byoc.frontends.onnx.dynamic_axes import DynamicAxis
from byoc.frontends.onnx.graph_names import take_name
from byoc.frontends.onnx.learned_axes import Unequal, with_values
from codegen_cc.dim import Dim, same, symbol

#: What the rest of an axis is called.
_REST = "more"


def longer(axes: tuple[DynamicAxis, ...], pairs: Unequal) -> tuple[DynamicAxis, ...]:
    """The axes with such extents for those that pairs of unequal extents tell; else as they are."""
    plain = {
        axis.extent.name: axis
        for axis in axes
        if isinstance(axis.extent, Extent) and axis.extent == Extent(axis.extent.name)
    }
    taken = {name for axis in axes if isinstance(axis.extent, Extent) for name in axis.extent.names}
    rest = take_name(_REST, taken)
    for pair in pairs:
        for long, short in _cut_to(pair, plain):
            value = {symbol(long): symbol(short) + symbol(rest)}
            if same(*(with_values(dim, value) for dim in pair)):
                extent = Extent(short, others=(rest,))
                return tuple(
                    replace(axis, extent=extent) if axis.extent == Extent(long) else axis
                    for axis in axes
                )
    return axes


def _cut_to(pair: tuple[Dim, Dim], plain: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of names, of which one is cut to the other, in both orders."""
    gap = sympy.expand(sympy.sympify(pair[0]) - sympy.sympify(pair[1]))
    named = {symbol(name): name for name in plain}
    found = []
    for cut in gap.atoms(sympy.Max):
        inside = {s for part in cut.args for s in sympy.sympify(part).free_symbols}
        if len(inside) == 2 and inside <= named.keys():
            one, other = sorted(named[s] for s in inside)
            found += [(one, other), (other, one)]
    return found
