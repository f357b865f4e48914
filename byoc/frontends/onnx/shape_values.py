"""Arithmetic on shapes of unknown extents, as exporters write it.

To enlarge an image to the size of another, or to number its pixels, a network with symbolic axes
carries nodes such as Shape, Gather, Mul, Concat before its Resize. They compute on a few integers
that are expressions of the symbols, and are evaluated here, so that the importer sees the result as
an expression too. Intermediate floats are exact fractions; where rounding one could differ from
what fp32 gives, the node is not evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import onnx
import sympy
from onnx import numpy_helper

from byoc.frontends.onnx.converters.old_broadcast import has_axis
from byoc.frontends.onnx.shape_elements import (
    FLOATS,
    INTEGERS,
    MAX_ELEMENTS,
    MOVES,
    ShapeValue,
    constant_value,
)
from codegen_cc.dim import Dim, above_zero, at_most, larger, smaller

#: Greatest denominator of a fraction that may be rounded: extents below 2**16, times such fractions
#: of a power of two, are exact in fp32, and so is their floor.
MAX_DENOMINATOR = 256

#: Greatest exponent: more than the axes that an extent is the product of.
MAX_EXPONENT = 8


def results_of(
    node: onnx.NodeProto,
    operands: Sequence[ShapeValue | None],
    opset: int,
    extents: Collection[sympy.Expr] = (),
) -> list[ShapeValue] | list[None]:
    """What ``evaluate`` gives, and the parts of a vector that is split."""
    if node.op_type != "Split" or len(node.output) == 1:
        return [evaluate(node, operands, opset, extents)]
    x, count = operands[0].elements, len(node.output)
    share = -(-x.size // count)
    sizes = [min(share, x.size - share * place) for place in range(count)]
    if len(operands) > 1 and operands[1] is not None:
        sizes = operands[1].integers or [-1]
    sizes = next((list(a.ints) for a in node.attribute if a.name == "split"), sizes)
    if x.ndim != 1 or len(sizes) != count or sum(sizes) != x.size or min(sizes) < 0:
        return [None]
    ends = np.cumsum(sizes)
    return [ShapeValue(x[e - n : e], operands[0].dtype) for e, n in zip(ends, sizes, strict=True)]


def evaluate(
    node: onnx.NodeProto,
    operands: Sequence[ShapeValue | None],
    opset: int,
    extents: Collection[sympy.Expr] = (),
) -> ShapeValue | None:
    """The result of a node with one output; None if it cannot be told exactly.

    ``operands`` stand in the order of the node's inputs, None for those left out. ``extents`` are
    those of tensors: calls for which one is below 0 are refused.
    """
    of_signs = _OF_SIGNS.get(node.op_type)
    rule = partial(of_signs, extents) if of_signs else _RULES.get(node.op_type)
    if rule is None or node.domain not in ("", "ai.onnx") or len(node.output) != 1:
        return None
    if has_axis(node):
        return None
    attrs = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    former = [attrs[name] for name in _ONCE.get(node.op_type, ()) if name in attrs]
    if former:
        operands = [*operands[:1], *(ShapeValue.of(list(numbers)) for numbers in former)]
    try:
        result = rule(attrs, *operands)
    except (AttributeError, IndexError, TypeError, ValueError, ZeroDivisionError):
        return None  # operands of odd rank or type: TVM's converter says what it makes of them
    return result if result is not None and result.elements.size <= MAX_ELEMENTS else None


# ---------------------------------------------------------------------- elementwise

Rule = Callable[..., ShapeValue | None]


def _mapped(
    function: Callable[..., sympy.Expr | None], dtype: str | None, *values: ShapeValue
) -> ShapeValue | None:
    """A function of each element, with broadcasting; None if it is None for any of them."""
    arrays = np.broadcast_arrays(*(value.elements for value in values))
    out = np.empty(arrays[0].shape, object)
    for index in np.ndindex(out.shape):
        out[index] = function(*(array[index] for array in arrays))
        if out[index] is None:
            return None
    return ShapeValue(out, dtype or values[0].dtype)


def _binary(function: Callable[[sympy.Expr, sympy.Expr], sympy.Expr]) -> Rule:
    def rule(_: dict[str, Any], a: ShapeValue, b: ShapeValue) -> ShapeValue | None:
        return _mapped(lambda x, y: sympy.expand(function(x, y)), None, a, b)

    return rule


def _divide(
    extents: Collection[sympy.Expr], _: dict[str, Any], a: ShapeValue, b: ShapeValue
) -> ShapeValue | None:
    def rounded(x: sympy.Expr, y: sympy.Expr) -> sympy.Expr | None:
        if _same_sign(x, y, extents):
            return sympy.floor(x / y)
        return _towards_zero(x, y)

    return _mapped((lambda x, y: x / y) if a.dtype in FLOATS else rounded, None, a, b)


def _towards_zero(x: sympy.Expr, y: sympy.Expr) -> sympy.Expr | None:
    """A quotient of what may be below 0: as h - 1, the steps of a window, never below -y, or
    100 - h, the room around a sound that is padded to 100.

    None where it could be less for small sizes, which others are tried instead of.
    """
    if not (y.is_Integer and y > 0 and x.is_integer):
        return None
    if at_most(1 - y, x):
        return sympy.sympify(above_zero(sympy.floor(x / y)))
    if not at_most(x, x.xreplace(dict.fromkeys(x.free_symbols, sympy.Integer(0)))):
        return None
    above, below = (sympy.sympify(above_zero(part)) for part in (x, -x))
    return sympy.floor(above / y) - sympy.floor(below / y)


def _power(_: dict[str, Any], a: ShapeValue, b: ShapeValue) -> ShapeValue | None:
    if a.dtype not in FLOATS:
        return _mapped(_whole_power, None, a, b)
    # What rounding makes of other powers is not known.
    return _mapped(
        lambda x, y: root_of_square(x) if y == sympy.Rational(1, 2) else None, None, a, b
    )


def root_of_square(x: sympy.Expr) -> sympy.Expr | None:
    """The root of a square of integers, as of the patches of a square image."""
    root = sympy.sqrt(sympy.factor(x))
    return root if root.is_integer and sympy.expand(root**2 - x) == 0 else None


def _whole_power(x: sympy.Expr, y: sympy.Expr) -> sympy.Expr | None:
    """A number times itself; None for exponents that no extent has."""
    if not (y.is_Integer and 0 <= y <= MAX_EXPONENT):
        return None
    return sympy.expand(x**y)


def _modulo(
    extents: Collection[sympy.Expr], attrs: dict[str, Any], a: ShapeValue, b: ShapeValue
) -> ShapeValue | None:
    """What is left of a quotient that is rounded down: ONNX and Python agree where y is above 0."""

    def rest(x: sympy.Expr, y: sympy.Expr) -> sympy.Expr | None:
        if y.is_positive:
            return sympy.expand(x - y * sympy.floor(x / y))
        return sympy.Mod(x, y) if y != 0 and _is_natural(y, extents) else None

    return None if a.dtype in FLOATS or attrs.get("fmod") else _mapped(rest, None, a, b)


def _same_sign(x: sympy.Expr, y: sympy.Expr, extents: Collection[sympy.Expr]) -> bool:
    """Whether x / y rounds down when it rounds towards 0, which is how ONNX divides integers.

    Where a divisor with symbols is 0, there is no quotient to be wrong about.
    """
    return bool(_is_natural(x, extents) and _is_natural(y, extents) and y != 0)


def _is_natural(x: sympy.Expr, extents: Collection[sympy.Expr]) -> bool:
    """Whether a number is 0 or more; SymPy does not know it of -floor(-n/32), which rounds up.

    Of h//20 - 1 it depends on h, but as an extent it is never less.
    """
    if x.is_nonnegative or x in extents:
        return True
    return bool(x.is_integer and at_most(0, x))


def _floor(x: sympy.Expr) -> sympy.Expr | None:
    """The floor of an expression of extents, if fp32 arithmetic would give the same."""
    if x.is_integer:
        return x
    denominators = [sympy.fraction(term)[1] for term in sympy.Add.make_args(sympy.expand(x))]
    if any(not (d.is_Integer and abs(d) <= MAX_DENOMINATOR) for d in denominators):
        return None
    return sympy.floor(x)


def _extreme(pick: Callable[[Dim, Dim], Dim]) -> Callable[..., sympy.Expr | None]:
    def extreme(*elements: sympy.Expr) -> sympy.Expr | None:
        whole = all(element.is_integer for element in elements)
        return sympy.sympify(reduce(pick, elements)) if whole else None

    return extreme


def _elementwise(function: Callable[..., sympy.Expr | None]) -> Rule:
    return lambda _, *values: _mapped(function, None, *values)


_most, _least = _extreme(larger), _extreme(smaller)


def _clip(attrs: dict[str, Any], x: ShapeValue, *bounds: ShapeValue | None) -> ShapeValue | None:
    """Numbers within bounds, as of the best 300 of all; before opset 11 it was for floats."""
    result = None if attrs else x
    for pick, bound in zip((_most, _least), bounds, strict=False):
        if result is not None and bound is not None:
            result = _mapped(pick, None, result, bound)
    return result


def _rounding(function: Callable[[sympy.Expr], sympy.Expr | None]) -> Rule:
    return lambda _, x: _mapped(function, None, x)


def _ceil(x: sympy.Expr) -> sympy.Expr | None:
    low = _floor(-x)
    return None if low is None else -low


def _cast(attrs: dict[str, Any], x: ShapeValue) -> ShapeValue | None:
    dtype = str(onnx.helper.tensor_dtype_to_np_dtype(attrs["to"]))
    if dtype in FLOATS:
        return ShapeValue(x.elements, dtype)
    if dtype == "bool":
        return _mapped(_is_something, dtype, x)
    if dtype not in INTEGERS:
        return None
    return _mapped(lambda e: _floor(e) if e.is_nonnegative or e.is_integer else None, dtype, x)


def _is_something(x: sympy.Expr) -> sympy.Expr | None:
    """Whether a number is not 0; None where the symbols decide it."""
    zero = x.is_zero
    # SymPy does not say of h + 1 that it is not 0, but that it is positive.
    if zero is None and (x.is_positive or sympy.expand(-x).is_positive):
        zero = False
    return None if zero is None else sympy.Integer(not zero)


def _equal(_: dict[str, Any], a: ShapeValue, b: ShapeValue) -> ShapeValue | None:
    def decide(x: sympy.Expr, y: sympy.Expr) -> sympy.Expr | None:
        differ = _is_something(sympy.expand(x - y))
        return None if differ is None else 1 - differ

    return _mapped(decide, "bool", a, b)


def _comparison(or_equal: bool, turned: bool) -> Rule:
    """x < y of integers, perhaps ``or_equal``, or with sides ``turned``."""

    def decide(x: sympy.Expr, y: sympy.Expr) -> sympy.Expr | None:
        if turned:
            x, y = y, x
        if not (x.is_integer and y.is_integer):
            return None
        gap = 0 if or_equal else 1
        if at_most(x + gap, y):
            return sympy.Integer(1)
        return sympy.Integer(0) if at_most(y + 1 - gap, x) else None

    return lambda _, a, b: _mapped(decide, "bool", a, b)


def _where(_: dict[str, Any], c: ShapeValue, a: ShapeValue, b: ShapeValue) -> ShapeValue | None:
    return _mapped(lambda k, x, y: x if k else y, a.dtype, c, a, b)


def _reduction(function: Callable[..., sympy.Expr | None]) -> Rule:
    """A function of all elements of a vector."""

    def rule(
        attrs: dict[str, Any], x: ShapeValue, axes: ShapeValue | None = None
    ) -> ShapeValue | None:
        left_alone = axes is not None and not axes.elements.size
        if x.elements.ndim != 1 or left_alone:
            return None
        total = function(*x.elements.tolist())
        if total is None:
            return None
        return ShapeValue.of([total] if attrs.get("keepdims", 1) else total, x.dtype)

    return rule


def _constant_of_shape(attrs: dict[str, Any], shape: ShapeValue) -> ShapeValue | None:
    value = numpy_helper.to_array(attrs["value"]) if "value" in attrs else np.zeros(1, np.float32)
    return constant_value(np.full(shape.integers, value[0]))


#: Rules that ask for signs, and are given extents first.
_OF_SIGNS = {"Div": _divide, "Mod": _modulo}
#: Attributes that became inputs, in the order of these.
_ONCE = {"Slice": ("starts", "ends", "axes"), "Squeeze": ("axes",), "Unsqueeze": ("axes",)}

_RULES: dict[str, Rule] = {
    **MOVES,
    "Add": _binary(lambda x, y: x + y),
    "Sub": _binary(lambda x, y: x - y),
    "Mul": _binary(lambda x, y: x * y),
    "Pow": _power,
    "Sqrt": _rounding(root_of_square),
    "Max": _elementwise(_most),
    "Min": _elementwise(_least),
    "Clip": _clip,
    "Neg": _rounding(lambda x: -x),
    "Floor": _rounding(_floor),
    "Ceil": _rounding(_ceil),
    "Cast": _cast,
    "Equal": _equal,
    "Less": _comparison(or_equal=False, turned=False),
    "LessOrEqual": _comparison(or_equal=True, turned=False),
    "Greater": _comparison(or_equal=False, turned=True),
    "GreaterOrEqual": _comparison(or_equal=True, turned=True),
    "Not": _rounding(lambda x: 1 - x),
    "And": _elementwise(lambda x, y: x * y),
    "Or": _elementwise(lambda x, y: x + y - x * y),
    "Where": _where,
    "ReduceProd": _reduction(lambda *elements: sympy.expand(sympy.prod(elements))),
    "ReduceSum": _reduction(lambda *elements: sympy.expand(sum(elements))),
    "ReduceMax": _reduction(_most),
    "ReduceMin": _reduction(_least),
    "Size": lambda _, x: ShapeValue.of(x.elements.size),
    "ConstantOfShape": _constant_of_shape,
}
