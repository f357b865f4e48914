"""Extents of dynamic axes that the operators of a network ask for.

    scores [.., p + s] + mask [.., t]                       t becomes p + s
    x [.., s // 20 - 1] + y [.., max(0, s // 20 - 1)]       s becomes s + 39
    x [b, s, 6] reshaped to [1, s, 2, 3]                    b becomes 1
    x [s, 6] reshaped to [-1, 8]                            s becomes 4*s
    x [n, 24, s] reshaped to [-1, 2520]                     s becomes 105
    x [.., h // 8] + y [.., 2*((h + 8) // 16)]              h becomes 16*h
    keys [.., n] + mask [.., min(n, m)]                     m becomes n
    x [.., s, ..] + places [.., max(0, t - p), ..]          t becomes p + s
    Range(l - 1, -l, -1)                                    l becomes l + 1
    x [n, 64] reshaped to [max(1, m), 4, -1, 16]            n becomes m
    x [l, ..] cut to its last row, which is squeezed        l becomes l + 1
    x [.., s - 1, ..] joined with y [.., t, ..]             t becomes s - 1
    patches [.., h//16 * w//16 + 1, ..] + places [.., 197, ..]
                                                            h and w become 224
    x [.., 4*h, ..] + grid [.., 16, ..], of an axis 32*h    32*h becomes 128

An import notes each pair of extents that an operator wants to be equal and that are not for all
sizes (``Unequal``), and takes it for equal to find what comes after. Here a symbol gets the extent
that makes them so, or as many elements more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

import sympy

from byoc.extent import Extent
from byoc.frontends.onnx.dynamic_axes import DynamicAxis
from codegen_cc.dim import (
    Dim,
    above_zero,
    at_most,
    broadcast_shape,
    normal,
    product,
    same,
    symbol,
)

#: Pairs of extents that have to be equal, or one of them 1; ``Elements`` are equal.
Unequal = list[tuple[Dim, Dim]]


class Elements(NamedTuple):
    """How many elements a tensor has, and how many it is reshaped to."""

    found: Dim
    wanted: Dim


class Size(NamedTuple):
    """An extent and the number that it has to be, also where that is 1 or the axis a batch."""

    found: Dim
    wanted: Dim


class Steps(NamedTuple):
    """How many steps a range takes, and as many or none, where the first may be below 0."""

    found: Dim
    wanted: Dim


class Dividend(NamedTuple):
    """What is divided, and as much or none, where it may be below 0."""

    found: Dim
    wanted: Dim


def size_or_pair(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """Two extents that nothing repeats until they are equal."""
    return Size(a, b) if isinstance(a, int) or isinstance(b, int) else (a, b)


#: Most elements that an axis may be asked to have at least.
LONGEST = 4096

#: Most elements that an axis may be asked to have: of sound, half a minute at 32 kHz.
_MOST = 2**20

#: What the axes of images are taken for.
SIDES = ("depth", "height", "width")


def unequal(shapes: Iterable[tuple[Dim, ...]]) -> Unequal:
    """The pairs of extents for which shapes do not broadcast."""
    first, *others = sorted(shapes, key=len, reverse=True)
    return [
        (a, b)
        for other in others
        for a, b in zip(first[len(first) - len(other) :], other, strict=True)
        if broadcast_shape((a,), (b,)) is None
    ]


def unequal_beside(axis: int, shapes: Iterable[tuple[Dim, ...] | None]) -> Unequal:
    """The pairs of extents beside an axis for which shapes cannot be joined along it."""
    known = [shape for shape in shapes if shape is not None]
    first = known[0] if known else ()
    return [
        size_or_pair(a, b)
        for other in known[1:]
        if len(other) == len(first)
        for place, (a, b) in enumerate(zip(first, other, strict=True))
        if place != axis % len(first) and not same(a, b)
    ]


def rows_or_elements(shape: tuple[Dim, ...], wanted: list[Dim]) -> Elements:
    """What has to be equal where ``shape`` is reshaped to ``wanted``.

    Rows that may stay do so, [n, 24, s] as [-1, 2520] and [n, h, w] as [-1, h // 2, 2, w // 2, 2]:
    what counts then is the extent s of one, or how many elements one has.
    """
    of_row = [extent for extent in shape[1:] if not isinstance(extent, int)]
    wanted_row, others = product(wanted[1:]), product(e for e in shape[1:] if isinstance(e, int))
    rows_stay = len(of_row) == 1 and others and not isinstance(wanted[0], int)
    if rows_stay and isinstance(wanted_row, int) and wanted_row % others == 0:
        return Elements(of_row[0], wanted_row // others)
    divided = not isinstance(wanted_row, int) and wanted_row.has(sympy.floor)
    if divided and wanted[0] != shape[0] and not isinstance(wanted[0], int):
        return Elements(product(shape[1:]), wanted_row)
    return Elements(product(shape), product(wanted))


def learned(axes: tuple[DynamicAxis, ...], pairs: Unequal) -> tuple[DynamicAxis, ...]:
    """The axes with extents that make pairs equal, as far as there are such; else as they are."""
    values: dict[sympy.Symbol, Dim] = {}
    missed: set[tuple[type, Dim, Dim]] = set()  # layers of a network repeat what is asked for
    for pair in pairs:
        a, b = (with_values(dim, values) for dim in pair)
        if (type(pair), a, b) in missed:
            continue
        if isinstance(pair, Elements):
            found = None if same(a, b) else _whole(axes, a, b)
        elif isinstance(pair, Size) and (sized := _tie(axes, a, b, batches=True)) is not None:
            found = sized
        elif broadcast_shape((a,), (b,)) is not None:
            continue
        else:
            ways = (_tie, _tie_of_cut, _of_size, _of_multiple, _more, _uncut, _multiple)
            found = next(filter(None, (way(axes, a, b) for way in ways)), None)
        if found is None:
            missed.add((type(pair), a, b))
            continue
        missed.clear()
        for name, extent in found.items():
            # The symbol of an axis s+3 stands for s, and so does that of 2*s.
            factor, offset = _factor(axes, name) or 1, _offset(axes, name) or 0
            put = {symbol(name): normal((_dim(extent) - offset) / sympy.Integer(factor))}
            axes = _renamed(axes, name, extent)
            values = put | {key: with_values(value, put) for key, value in values.items()}
    return axes


def of_numbers(axes: tuple[DynamicAxis, ...], pairs: Unequal) -> tuple[DynamicAxis, ...]:
    """The axes with the sizes that have to be a number, such as what a convolution sums over."""
    plain = (pair for pair in pairs if not isinstance(pair, Elements))
    return learned(axes, [pair for pair in plain if any(isinstance(x, int) for x in pair)])


def _tie(
    axes: tuple[DynamicAxis, ...], a: Dim, b: Dim, batches: bool = False
) -> Mapping[str, Extent | int] | None:
    """A symbol, the last where there are several, and the extent at which a and b are equal.

    Unless ``batches`` do, a batch gets no number: where it may be 1 or that, 1 is the usual one.
    """
    left = {str(axis.extent) for axis in axes if axis.meaning == "batch" and not batches}
    gap, order = sympy.expand(a - b), _order(axes)
    for name in reversed(order):
        own = symbol(name)
        factor, rest = gap.coeff(own), gap.coeff(own, 0)
        if factor not in (1, -1) or rest.has(own) or sympy.expand(gap - factor * own - rest) != 0:
            continue
        extent = _extent(normal(-factor * rest), order)
        if isinstance(extent, int) and name in left:
            continue
        if extent is not None and _offset(axes, name) == 0:
            return {name: extent}
    return None


def _tie_of_cut(axes: tuple[DynamicAxis, ...], a: Dim, b: Dim) -> Mapping[str, Extent | int] | None:
    """The same where one extent is the other cut to that of a second axis: n and min(n, m)."""
    gap = sympy.expand(a - b)
    for cut in gap.atoms(sympy.Max):
        inside = next((part for part in cut.args if part != 0), sympy.Integer(0))
        ways = (cut, cut - inside)  # max(0, d), and max(0, -d)
        if len(inside.free_symbols) < 2:
            continue
        if any(sympy.expand(gap**2 - w**2) == 0 for w in ways):
            return _tie(axes, inside, 0)
        for part in (sympy.Integer(0), inside):  # s beside max(0, t - p), which is t - p then
            found = _tie(axes, gap.xreplace({cut: part}), 0)
            put = {symbol(name): _dim(extent) for name, extent in (found or {}).items()}
            if put and same(with_values(a, put), with_values(b, put)):
                return found
    return None


def _whole(axes: tuple[DynamicAxis, ...], a: Dim, b: Dim) -> Mapping[str, Extent | int] | None:
    """A symbol, and the number, multiple or other symbol at which there are as many elements, a and
    b."""
    if isinstance(b, int):
        sized = _tie(axes, a, b, batches=True) or _of_size(axes, a, b) or _uncut(axes, a, b)
        if sized is not None:
            return sized
    named = {s for s in sympy.sympify(a).free_symbols if str(s) in _order(axes)}
    plain = [s for s in named if _offset(axes, str(s)) == 0]
    ratio = sympy.cancel(sympy.sympify(a) / b)
    for own in plain:
        count = sympy.sympify(1 / ratio.subs(own, 1))
        if count.is_Integer and count > 0 and sympy.expand(ratio * count - own) == 0:
            return {str(own): int(count)}
    above, below = sympy.fraction(ratio)
    if above.free_symbols and below.free_symbols and not ratio.has(sympy.floor, sympy.Max):
        return _tie(axes, above, below)
    return _multiple(axes, a, b) or _alike(axes, a, b)


def _alike(axes: tuple[DynamicAxis, ...], a: Dim, b: Dim) -> Mapping[str, Extent] | None:
    """A symbol that has to be another one of its meaning, where that is no 0: 4*n // max(1, m)."""
    meanings = {name: axis.meaning for axis in axes for name in _names_of(axis)}
    inside = sympy.sympify(a).free_symbols | sympy.sympify(b).free_symbols
    names = [name for name in _order(axes) if symbol(name) in inside]
    for own in (name for name in names if _offset(axes, name) == 0):
        for other in names:
            if other == own or meanings[other] != meanings[own]:
                continue
            put = dict.fromkeys((symbol(own), symbol(other)), symbol(other) + 1)
            if same(with_values(a, put), with_values(b, put)):
                return {own: Extent(other)}
    return None


def _multiple(axes: tuple[DynamicAxis, ...], a: Dim, b: Dim) -> Mapping[str, Extent] | None:
    """A symbol, or all that are divided, as multiples at which a and b are equal.

    Divisions then leave nothing.
    """
    parts = sympy.sympify(a).atoms(sympy.floor) | sympy.sympify(b).atoms(sympy.floor)
    below = {sympy.fraction(sympy.together(part.args[0]))[1] for part in parts}
    factors = {factor for whole in below if whole.is_Integer for factor in sympy.divisors(whole)}
    inside = {str(s) for part in parts for s in part.free_symbols}
    named = [name for name in sorted(inside & {*_order(axes)}) if _factor(axes, name) is not None]
    several = [named] if len(named) > 1 else []
    for names in [*([name] for name in named), *several]:
        for factor in sorted(map(int, factors)):
            put = {symbol(name): factor * symbol(name) for name in names}
            if same(with_values(a, put), with_values(b, put)):
                return {name: Extent(name, _factor(axes, name) * factor) for name in names}
    return None


def _more(axes: tuple[DynamicAxis, ...], a: Dim, b: Dim) -> Mapping[str, Extent] | None:
    """The symbols of a and b with the fewest elements more at which they are equal."""
    inside = {s for dim in (a, b) for s in sympy.sympify(dim).free_symbols}
    names = [name for name in _order(axes) if symbol(name) in inside]
    if len(names) != len(inside) or any(_offset(axes, name) is None for name in names):
        return None

    def equal(one: Dim, other: Dim) -> bool:
        return broadcast_shape((one,), (other,)) is not None

    return _fewest_more(axes, a, b, names, equal)


def _uncut(axes: tuple[DynamicAxis, ...], a: Dim, b: Dim) -> Mapping[str, Extent] | None:
    """The symbols of what a slice cuts off, with the fewest elements more that leave some.

    max(0, n - 1) can then be written as an extent, and an axis be as long.
    """
    cut = {s for dim in (a, b) for part in sympy.sympify(dim).atoms(sympy.Max)
           for s in part.free_symbols}  # fmt: skip
    names = [name for name in _order(axes) if symbol(name) in cut]
    if len(names) != len(cut) or any(_offset(axes, name) is None for name in names):
        return None

    def whole(one: Dim, other: Dim) -> bool:
        return not any(sympy.sympify(dim).has(sympy.Max) for dim in (one, other))

    return _fewest_more(axes, a, b, names, whole)


def _of_size(axes: tuple[DynamicAxis, ...], a: Dim, b: Dim) -> Mapping[str, int] | None:
    """The size at which what is made of an axis, or of an image's equal sides, is a number.

    A table of places fits one number of patches, or of frames, and none tells which image they
    are of: it is taken to be square.
    """
    number, dim = (a, b) if isinstance(a, int) else (b, a)
    if not isinstance(number, int):
        return None
    if isinstance(dim, sympy.floor):  # what -1 is of 2048 elements, beside the rows of a table
        whole, rest = sympy.fraction(sympy.together(dim.args[0]))
        if whole.is_Integer and rest.free_symbols and number > 0 and whole % number == 0:
            return _of_size(axes, int(whole) // number, rest)
    meanings = {a.extent.name: a.meaning for a in axes if isinstance(a.extent, Extent)}
    names = [str(s) for s in sympy.sympify(dim).free_symbols]
    if any(meanings.get(n, "batch") == "batch" or _offset(axes, n) != 0 for n in names):
        return None
    if len(names) > 1 and not all(meanings[name] in SIDES for name in names):
        return None

    def made(size: int) -> Dim:
        return with_values(dim, {symbol(name): size for name in names})

    def least_for(wanted: int) -> int:
        low, high = 0, _MOST
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if at_most(wanted, made(middle)) else (middle, high)
        return high

    least = least_for(number)
    if made(least) != number:
        return None
    # 209 to 224 pixels give as many patches where strides round up, 224 to 239 where they drop.
    most = least_for(number + 1) - 1
    if not at_most(number + 1, made(most + 1)):  # a slice of so many, of any axis that is as long
        return None
    return dict.fromkeys(names, max(least, most, key=lambda size: size & -size))


def _of_multiple(axes: tuple[DynamicAxis, ...], a: Dim, b: Dim) -> Mapping[str, int] | None:
    """The size of an axis 32*h at which what is made of it is a number: 128, where 4*h is 16."""
    number, dim = (a, sympy.sympify(b)) if isinstance(a, int) else (b, sympy.sympify(a))
    if not isinstance(number, int) or len(dim.free_symbols) != 1:
        return None
    (own,) = dim.free_symbols
    times = _factor(axes, str(own)) if str(own) in _order(axes) else None
    share, rest = dim.coeff(own), dim.coeff(own, 0)
    if times in (None, 1) or share == 0 or sympy.expand(dim - share * own - rest) != 0:
        return None
    value = (number - rest) / share
    return {str(own): times * int(value)} if value.is_Integer and value > 0 else None


def _fewest_more(
    axes: tuple[DynamicAxis, ...],
    a: Dim,
    b: Dim,
    names: list[str],
    holds: Callable[[Dim, Dim], bool],
) -> Mapping[str, Extent] | None:
    """Of the names those, with as many elements more, that it takes for something to hold of a and
    b."""

    def fits(more: int, some: Collection[str]) -> bool:
        shifted = {symbol(name): symbol(name) + more for name in some}
        return holds(with_values(a, shifted), with_values(b, shifted))

    if not names or not fits(LONGEST, names):
        return None
    for name in names:  # those that need none stay as they are
        others = [other for other in names if other != name]
        names = others if others and fits(LONGEST, others) else names
    low, high = 0, LONGEST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle, names) else (middle, high)
    return {name: Extent(name, offset=_offset(axes, name) + high) for name in names}


def with_values(dim: Dim, values: Mapping[sympy.Symbol, Dim]) -> Dim:
    """A dimension with values for symbols, extremes in the one form of ``codegen_cc.dim``."""
    put = sympy.sympify(dim).subs(dict(values), simultaneous=True)
    extremes = put.replace(
        sympy.Max, lambda *parts: reduce(lambda x, y: sympy.sympify(x + above_zero(y - x)), parts)
    )
    return normal(extremes)


def _order(axes: Iterable[DynamicAxis]) -> list[str]:
    """The names in the order of the axes, what is past first."""
    ordered = sorted(axes, key=lambda axis: axis.meaning != "past")
    extents = [axis.extent for axis in ordered if isinstance(axis.extent, Extent)]
    return list(dict.fromkeys(name for extent in extents for name in extent.names))


def _offset(axes: Iterable[DynamicAxis], name: str) -> int | None:
    """What is added to the name on all axes that have it; None where they differ, or have more."""
    found = {a.extent for a in axes if isinstance(a.extent, Extent) and name in a.extent.names}
    offset = min(extent.offset for extent in found)
    return offset if found == {Extent(name, offset=offset)} else None


def _factor(axes: Iterable[DynamicAxis], name: str) -> int | None:
    """What the name is multiplied by on all axes that have it; None where they differ, or have
    more."""
    found = {a.extent for a in axes if isinstance(a.extent, Extent) and name in a.extent.names}
    factor = min(extent.factor for extent in found)
    return factor if found == {Extent(name, factor)} else None


def _names_of(axis: DynamicAxis) -> tuple[str, ...]:
    return axis.extent.names if isinstance(axis.extent, Extent) else ()


def _extent(dim: Dim, order: list[str]) -> Extent | int | None:
    """An extent that users could write; None for others."""
    if isinstance(dim, int):
        return dim if dim > 0 else None
    terms = Counter({name: dim.coeff(symbol(name)) for name in order if dim.has(symbol(name))})
    rest = normal(dim - sum(factor * symbol(name) for name, factor in terms.items()))
    if not terms or not isinstance(rest, int) or rest < 0:
        return None
    if not all(factor.is_Integer and factor > 0 for factor in terms.values()):
        return None
    (first, factor), *others = terms.items()
    if others and (rest or any(some != 1 for some in terms.values())):
        return None
    return Extent(first, int(factor), rest, tuple(name for name, _ in others))


def _dim(extent: Extent | int) -> Dim:
    if isinstance(extent, int):
        return extent
    names = [symbol(name) for name in extent.names]
    return normal(extent.factor * names[0] + extent.offset + sum(names[1:]))


def _renamed(
    axes: tuple[DynamicAxis, ...], name: str, extent: Extent | int
) -> tuple[DynamicAxis, ...]:
    """The axes with an extent in place of those that have a name alone, or a number more."""
    return tuple(
        replace(axis, extent=extent)
        if isinstance(axis.extent, Extent) and axis.extent.names == (name,)
        else axis
        for axis in axes
    )
