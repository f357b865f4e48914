"""Dimensions: integers, or expressions of symbols that the caller's shapes decide at run time.

A symbolic dimension is a SymPy expression of integer symbols of 0 or more, such as ``n`` or
``floor((h + 1)/2)``.  Sums and products of dimensions stay canonical, so that two equal strides
compare equal whichever way they came about.  Whatever depends on an order that the symbols' values
decide is written with one function, ``Max(0, d)``:

    max(a, b) = a + Max(0, b - a)        min(a, b) = a - Max(0, a - b)

and of ``d`` and ``-d`` always the same one stands in it, as Max(0, -d) = Max(0, d) - d. So the two
halves of an axis that is cut at 3, n - Max(0, n - 3) and Max(0, n - 3), are n again when added.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from math import lcm

import sympy

Dim = int | sympy.Expr

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

#: Functions in the texts of dimensions; no symbol has their name.
FUNCTIONS = {"floor": sympy.floor, "Mod": sympy.Mod, "Max": sympy.Max}

#: Values that stand for the symbols where a decision only needs *some* order of magnitude.
_SURROGATE = 10007

#: No extent is as large: bounds of slices that mean the end of an axis are.
BEYOND = 10**9

#: Most extremes in an expression of which a sign is looked for, in each of their cases.
MAX_CASES = 4


def symbol(name: str) -> sympy.Symbol:
    """The dimension of that name. Raises ``ValueError`` where it is no C identifier."""
    if not _NAME.match(name):
        raise ValueError(f"dimension name {name!r}; need letters, digits and underscores")
    return sympy.Symbol(name, integer=True, nonnegative=True)


def parse_dim(value: int | str) -> Dim:
    """Read a dimension back from JSON: an integer, or the text of an expression."""
    return value if isinstance(value, int) else _parsed(value)


@lru_cache(4096)
def _parsed(value: str) -> Dim:
    names = {n: symbol(n) for n in re.findall(r"[A-Za-z_]\w*", value) if n not in FUNCTIONS}
    parsed = sympy.parse_expr(value, local_dict={**names, **FUNCTIONS})
    return int(parsed) if parsed.is_Integer else parsed


def dim_json(dim: Dim) -> int | str:
    """A dimension as JSON holds it."""
    return dim if isinstance(dim, int) else _text(dim)


@lru_cache(4096)
def _text(dim: sympy.Expr) -> str:
    return str(dim)


def product(dims: Iterable[Dim]) -> Dim:
    """The product of dimensions, expanded."""
    result: Dim = 1
    for dim in dims:
        result = result * dim
    return result if isinstance(result, int) else normal(result)


def normal(dim: Dim) -> Dim:
    """The canonical form: an ``int`` where it is one, else expanded."""
    if isinstance(dim, int):
        return dim
    expanded = sympy.expand(dim)
    if expanded.is_Integer:
        return int(expanded)
    return _rounded_once(expanded) if expanded.has(sympy.floor) else expanded


@lru_cache(4096)
def _rounded_once(dim: sympy.Expr) -> Dim:
    """An expression whose roundings have one form, whichever steps led to them.

    floor(h/2 - 1/2) + 1 is floor(h/2 + 1/2), and floor(floor(n/20)/2) is floor(n/40).
    """
    found = sympy.expand(dim.replace(sympy.floor, _rounded_down))
    return int(found) if found.is_Integer else found


def _rounded_down(value: sympy.Expr) -> sympy.Expr:
    """floor(value), with the least fraction from 0 to 1 in it, and no rounding that changes
    nothing."""
    value = sympy.expand(value)
    inner = [term for term in sympy.Add.make_args(value) if term.has(sympy.floor)]
    factor, *rounded = inner[0].as_coeff_mul() if len(inner) == 1 else (0,)
    if factor and len(rounded[0]) == 1 and isinstance(rounded[0][0], sympy.floor):
        others = value - inner[0]
        # floor((floor(x) + k) / q) is floor((x + k) / q) for integers k and q.
        if factor.p == 1 and sympy.expand(others * factor.q).is_integer:
            value = sympy.expand(rounded[0][0].args[0] * factor + others)
    number, rest = value.as_coeff_Add()
    terms = [term.as_coeff_Mul() for term in sympy.Add.make_args(rest)]
    fractions = all(scale.is_Rational and part.is_integer for scale, part in terms)
    if fractions and rest != 0 and all(scale < 0 for scale, _ in terms):
        # -floor(-n/8) is n/8 rounded up, floor(n/8 + 7/8).
        steps = lcm(number.q, *(scale.q for scale, _ in terms))
        return -_rounded_down(sympy.expand(sympy.Rational(steps - 1, steps) - value))
    if fractions:
        # floor(h/2 + 15/16) is floor(h/2 + 1/2): less than a half changes nothing.
        steps = lcm(*(scale.q for scale, _ in terms))
        least = sympy.floor(number * steps) / steps
        if least != number:
            return _rounded_down(sympy.expand(rest + least))
    whole = sympy.floor(number)
    return sympy.floor(rest + number - whole) + whole


def ceil_div(a: Dim, b: int) -> Dim:
    """``a / b`` rounded up, as Relax writes it: floor((a + b - 1) / b)."""
    return normal(a) if b == 1 else normal((a + b - 1) // b)


def quotient(a: Dim, b: Dim) -> Dim:
    """``a / b`` rounded down, without the factors that both have; 0 where the divisor is 0."""
    above, below = sympy.fraction(sympy.cancel(sympy.sympify(a) / b)) if b != 0 else (0, 1)
    divisor = below if below.is_positive else larger(1, below)
    return normal(sympy.floor(above / divisor))


def rounded_quotient(a: Dim, b: Dim) -> sympy.Expr:
    """``a / b`` rounded down, as it is written: ``b`` is not 0."""
    return sympy.floor(sympy.Rational(1, 1) * a / b)


def remainder(a: Dim, b: Dim) -> Dim:
    """``a mod b``; of a known divisor by the quotient, which is the one form of both."""
    if isinstance(b, int) and b:
        return a - b * sympy.floor(a / sympy.Integer(b))
    return sympy.Mod(a, b)


def same(a: Dim, b: Dim) -> bool:
    """Whether two dimensions are equal for all values of their symbols."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return normal(a - b) == 0


def at_most(a: Dim, b: Dim) -> bool | None:
    """Whether ``a <= b`` for all values of the symbols; None where that depends on them."""
    gap = sympy.sympify(normal(b - a))
    if gap.is_Integer:
        return bool(gap >= 0)
    if _never_negative(gap):
        return True
    return False if _never_negative(sympy.expand(-gap - 1)) else None


@lru_cache(4096)
def _never_negative(dim: sympy.Expr) -> bool:
    """Whether an expression is 0 or more, in both cases of every Max(0, d) in it.

    Where Max(0, d) is 0, -d is 0 or more, else d is: what is left without that is looked at too.
    """
    if dim.is_nonnegative or _bounded_below(dim) or _of_rounded_parts(dim):
        return True
    extremes = sympy.sympify(dim).atoms(sympy.Max)
    if not extremes or len(extremes) > MAX_CASES:
        return False
    outer = max(
        extremes, key=lambda one: (sympy.count_ops(one), dim.coeff(one).is_negative is True)
    )
    inner = next((value for value in outer.args if value != 0), sympy.Integer(0))
    factor = dim.coeff(outer)
    times = {sympy.Integer(1), abs(factor)} if factor.is_Integer else {sympy.Integer(1)}
    cases = ((sympy.Integer(0), -inner), (inner, inner))
    return all(
        _never_negative(case) or any(_never_negative(sympy.expand(case - n * known)) for n in times)
        for value, known in cases
        for case in (sympy.expand(dim.xreplace({outer: value})),)
    )


def _bounded_below(dim: sympy.Expr) -> bool:
    """Whether a bound of an integer is above -1: one without its roundings and remainders.

    (p - q + 1) / q <= floor(p / q) <= p / q, for a p that is an integer, and p mod q lies
    between 0 and q.
    """
    bound = dim
    for _ in range(MAX_CASES):
        rounded = bound.atoms(sympy.floor, sympy.Mod)
        if not rounded:
            return bool(bound.is_nonnegative or (bound + 1).is_positive)
        outer = max(rounded, key=sympy.count_ops)
        factor, rest = bound.coeff(outer), bound.coeff(outer, 0)
        if rest.has(outer) or sympy.expand(bound - rest - factor * outer) != 0:
            return False
        least = _least_of_rounded(outer, factor)
        if least is None:
            return False
        bound = sympy.expand(rest + least)
    return False


def _least_of_rounded(rounded: sympy.Expr, factor: sympy.Expr) -> sympy.Expr | None:
    """A lower bound of a factor times a rounding or a remainder; None where none is known."""
    if not (factor.is_nonnegative or factor.is_nonpositive):
        return None
    if isinstance(rounded, sympy.Mod):
        divisor = rounded.args[1]
        if _never_negative(divisor):
            return sympy.Integer(0) if factor.is_nonnegative else factor * divisor
        if _never_negative(sympy.expand(-divisor)):
            return factor * divisor if factor.is_nonnegative else sympy.Integer(0)
        return None
    above, below = sympy.fraction(sympy.together(rounded.args[0]))
    if not (below.is_Integer and above.is_integer):
        return None
    return factor * (above - below + 1 if factor.is_nonnegative else above) / below


def _of_rounded_parts(dim: sympy.Expr) -> bool:
    """Whether an expression is a sum of products of what is 0 or more, counted from its roundings.

    With floor((h - 1)/2) = p - 1 and floor((w - 1)/2) = q - 1, the pixels of an image that a
    convolution halved are p q, which expanded they do not look like.
    """
    parts = {}
    for place, rounded in enumerate(dim.atoms(sympy.floor)):
        above, below = sympy.fraction(sympy.together(rounded.args[0]))
        least, rest = sympy.expand(above).as_coeff_Add()
        if not (below.is_Integer and least.is_Integer and rest.is_nonnegative):
            return False
        part = sympy.Dummy(f"part{place}", integer=True, nonnegative=True)
        parts[rounded] = part + least // below
    return bool(parts and sympy.expand(dim.xreplace(parts)).is_nonnegative)


@lru_cache(4096)
def above_zero(dim: Dim) -> Dim:
    """``max(0, dim)``, in the one form that the head of this file tells."""
    dim = normal(dim)
    if isinstance(dim, int):
        return max(0, dim)
    if at_most(0, dim):
        return dim
    if at_most(dim, 0):
        return 0
    content, dim = dim.as_content_primitive()
    if content != 1:
        return normal(content * above_zero(dim))
    if dim.could_extract_minus_sign():
        return normal(dim + sympy.Max(0, normal(-dim)))
    return sympy.Max(0, dim)


def unclamped(dim: Dim) -> Dim:
    """A dimension with every Max(0, d) in it as d, which it is unless a size is too small."""
    while isinstance(dim, sympy.Expr) and (extremes := dim.atoms(sympy.Max)):
        inner = min(extremes, key=sympy.count_ops)
        dim = dim.xreplace({inner: next((arg for arg in inner.args if arg != 0), inner.args[0])})
    return normal(dim)


def larger(a: Dim, b: Dim) -> Dim:
    """The greater of two dimensions."""
    if (bound := _beyond(a, b)) is not None:
        return bound
    return normal(a + above_zero(b - a))


def smaller(a: Dim, b: Dim) -> Dim:
    """The lesser of two dimensions."""
    if (bound := _beyond(a, b)) is not None:
        return a if b is bound else b
    return normal(a - above_zero(a - b))


def _beyond(*dims: Dim) -> int | None:
    """The one of two dimensions that is greater than every extent, if the other is none such."""
    found = [dim for dim in dims if isinstance(dim, int) and dim >= BEYOND]
    return found[0] if len(found) == 1 else None


def slice_bounds(begin: Dim, end: Dim, extent: Dim, step: int = 1) -> tuple[Dim, Dim]:
    """Begin and end of a slice with a positive step, clamped as Python does it.

    It has ``ceil_div(end - begin, step)`` elements, and both lie on the axis, unless none are left
    for sizes that are too small.
    """
    return _clamped(_from_start(begin, extent), _from_start(end, extent), extent, step)


def has_to_begin_inside(begin: Dim, end: Dim, extent: Dim, step: int, taken: Dim) -> bool:
    """Whether a slice has ``taken`` elements as its bounds are, and others when they are clamped:
    ``x[n - 1:]`` of ``2 * n - 1``, whose beginning is outside where ``n`` is 0."""
    if is_static([begin]) or at_most(0, begin) or ceil_div(end - begin, step) != taken:
        return False
    first, last = slice_bounds(begin, end, extent, step)
    return ceil_div(last - first, step) != taken


def backward_bounds(begin: Dim, end: Dim, extent: Dim, step: int) -> tuple[Dim, Dim]:
    """The same for a negative step, counted on the axis turned round, where ``-step`` is taken.

    A begin before the first element is taken as that one (ONNX operator specification, Slice), not
    as Python's end of all.
    """
    first = smaller(_from_end(begin, extent), normal(extent - 1))
    return _clamped(first, _from_end(end, extent), extent, -step)


def _clamped(begin: Dim, end: Dim, extent: Dim, step: int) -> tuple[Dim, Dim]:
    begin = larger(0, begin)
    first, last = smaller(begin, extent), smaller(end, extent)
    length = normal(last - begin)
    if at_most(1 - step, length):
        first = begin
    elif at_most(begin, end):  # so min(begin, extent) is at most min(end, extent)
        length = normal(last - first)
    else:
        length = above_zero(length)
        if isinstance(begin, int) and not at_most(0, extent):
            first = begin  # from behind the axis none is taken, and nested extremes tell nothing
    return (first, normal(first + length)) if length != 0 else (0, 0)


def _from_end(bound: Dim, extent: Dim) -> Dim:
    """A bound of a slice counted from the last element on, perhaps outside of the axis."""
    if isinstance(bound, int) and abs(bound) >= BEYOND:
        return 0 if bound > 0 else extent
    return normal(extent - 1 - _from_start(bound, extent))


def _from_start(bound: Dim, extent: Dim) -> Dim:
    """A bound of a slice counted from the start, perhaps outside of the axis on either side."""
    if isinstance(bound, int) and abs(bound) >= BEYOND:
        return extent if bound > 0 else 0
    inside = at_most(0, bound)
    if inside or same(bound + 1, extent):  # the latter is -1 where nothing is left anyway
        return bound
    if inside is False:
        return normal(bound + extent)
    negative = above_zero(-bound) - above_zero(-bound - 1)  # 1 where it is, else 0
    return normal(bound + extent * negative)


def broadcast_shape(*shapes: tuple[Dim, ...]) -> tuple[Dim, ...] | None:
    """The shape that shapes broadcast to by NumPy's rules; None where the symbols decide that."""
    rank = max(map(len, shapes))
    result: list[Dim] = []
    for extents in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        wide = [extent for extent in extents if extent != 1]
        if not all(same(extent, wide[0]) for extent in wide):
            return None
        result.append(wide[0] if wide else 1)
    return tuple(result)


def is_static(dims: Iterable[Dim]) -> bool:
    """Whether all dimensions are plain integers."""
    return all(isinstance(dim, int) for dim in dims)


def estimate(dim: Dim) -> int:
    """A number in place of a dimension, for choices that any order would do for."""
    if isinstance(dim, int):
        return dim
    values = {s: _SURROGATE + 2 * i for i, s in enumerate(symbols([dim]))}
    return int(dim.subs(values))


def at_unit(dim: Dim) -> int:
    """The value of a dimension where every symbol is 1: work per item, for reports.

    It is 0 where a window is larger than that. Where the dimension is divided by something that is
    0 there, as half of a symbol, every symbol is as large as it takes.
    """
    if isinstance(dim, int):
        return dim
    for size in (1, 2, 4, 64):
        found = dim.subs({s: size for s in symbols([dim])})
        if found.is_finite:
            return max(0, int(found))
    return 0


def at_one_window(dim: Dim) -> int:
    """The same where every symbol is 1, or as much as it is divided by: work per item and window.

    An axis of a signal is divided where it becomes frames; it is at least as long as one of them.
    """
    if isinstance(dim, int):
        return dim
    values = {s: sympy.Integer(1) for s in symbols([dim])}
    for rounded in dim.atoms(sympy.floor):
        divisor = sympy.fraction(sympy.together(rounded.args[0]))[1]
        for part in rounded.free_symbols if divisor.is_Integer else ():
            values[part] = max(values[part], divisor)
    return max(0, int(dim.subs(values)))


def symbols(dims: Iterable[Dim]) -> list[sympy.Symbol]:
    """The symbols of dimensions, by name."""
    found = {s for dim in dims if not isinstance(dim, int) for s in dim.free_symbols}
    return sorted(found, key=lambda s: s.name)


def c_name(dim: sympy.Symbol) -> str:
    """The C variable that holds a symbol; no other name in generated code begins so."""
    return f"dim_{dim.name}"


@lru_cache(4096)  # each stands in many calls
def c_text(dim: Dim) -> str:
    """A dimension as a C expression of the ``int64_t`` variables of its symbols."""
    if isinstance(dim, int):
        return str(dim)
    if isinstance(dim, sympy.Symbol):
        return c_name(dim)
    if isinstance(dim, sympy.Integer):
        return str(int(dim))
    if isinstance(dim, sympy.floor):
        above, below = (sympy.expand(e) for e in sympy.fraction(sympy.together(dim.args[0])))
        if above.is_nonnegative and below.is_positive:
            return f"({c_text(above)} / {c_text(below)})"
        return f"ext_floordiv({c_text(above)}, {c_text(below)})"
    if isinstance(dim, sympy.Mod):
        if dim.args[0].is_nonnegative and dim.args[1].is_positive:
            return f"({c_text(dim.args[0])} % {c_text(dim.args[1])})"
        return f"ext_floormod({c_text(dim.args[0])}, {c_text(dim.args[1])})"
    if isinstance(dim, sympy.Max) and len(dim.args) == 2:
        return f"ext_larger({c_text(dim.args[0])}, {c_text(dim.args[1])})"
    if isinstance(dim, sympy.Pow) and dim.exp.is_Integer and dim.exp > 0:
        return "(" + " * ".join([c_text(dim.base)] * int(dim.exp)) + ")"
    if isinstance(dim, sympy.Add | sympy.Mul):
        sign = " + " if isinstance(dim, sympy.Add) else " * "
        return "(" + sign.join(c_text(argument) for argument in dim.args) + ")"
    raise ValueError(f"dimension {dim} cannot be written in C")
