"""Operators that compute each element by itself."""

from __future__ import annotations

import numpy as np
from tvm import relax, te, tirx
from tvm.relax.frontend.onnx.onnx_frontend import get_type

from byoc.frontends.onnx.converters.node import Node, in_float32, is_float
from byoc.ir.dataflow import array_of, dtype_of, shape_of
from codegen_cc.dim import broadcast_shape


def power(node: Node) -> relax.Expr:
    """The base's dtype; integers through float64, as ONNX Runtime does."""
    base, exponent = node.inputs
    to, of = node.dtype(0), node.dtype(1)
    if to == of and is_float(to):
        return node.tvm()
    within = to if is_float(to) else "float64"
    result = relax.op.power(*(relax.op.astype(x, within) for x in (base, exponent)))
    return result if within == to else relax.op.astype(result, to)


def extreme(node: Node) -> relax.Expr:
    """Max, Min of integers, two after two; TVM copies them all into one tensor first."""
    if is_float(node.dtype()):
        return node.tvm()
    choose = {"Max": relax.op.maximum, "Min": relax.op.minimum}[node.operator]
    result = node.inputs[0]
    for other in node.inputs[1:]:
        result = node.emit(choose(result, other))
    return result


def mod(node: Node) -> relax.Expr:
    """Of fractions with fmod=0: the sign of the divisor, of a zero too, as Python's ``%``."""
    if node.attrs.get("fmod", 0) or not is_float(node.dtype()):
        return node.tvm()
    value, divisor = node.inputs
    zero = relax.const(0, node.dtype())
    rest = node.emit(relax.op.mod(value, divisor))
    below = node.emit(relax.op.less(divisor, zero))
    turn = relax.op.logical_xor(relax.op.less(rest, zero), below)
    signed = relax.op.where(below, relax.const(-0.0, node.dtype()), zero)
    moved = relax.op.where(turn, relax.op.add(rest, divisor), rest)
    return relax.op.where(relax.op.equal(rest, zero), signed, moved)


def div(node: Node) -> relax.Expr:
    """Of integers, by constants with 0 too, which TVM refuses (see ``division_by_zero``)."""
    divisor = node.constant(1)
    tensor = isinstance(node.inputs[0].ty, relax.TensorType)
    if divisor is None or not tensor or is_float(node.dtype()) or divisor.all():
        return node.tvm()
    return relax.op.divide(*node.inputs)


def bit_shift(node: Node) -> relax.Expr:
    """By as many bits as there are, or more, nothing is left but the sign; C leaves that open."""
    value, by = node.inputs
    dtype = node.dtype()
    bits, zero = relax.const(np.iinfo(dtype).bits, dtype), relax.const(0, dtype)
    inside = relax.op.less(by, bits)
    if dtype.startswith("int"):
        inside = relax.op.logical_and(inside, relax.op.greater_equal(by, zero))
    inside = node.emit(inside)
    node.inputs[1] = node.emit(relax.op.where(inside, by, zero))
    rest = zero
    if dtype.startswith("int") and node.attrs["direction"] == b"RIGHT":
        rest = relax.op.where(relax.op.less(value, zero), relax.const(-1, dtype), zero)
    return relax.op.where(inside, node.emit(node.tvm()), rest)


def is_inf(node: Node) -> relax.Expr:
    """Infinities of the signs that are asked for."""
    found, zero = node.tvm(), relax.const(0, node.dtype())
    if not node.attrs.get("detect_negative", 1):
        found = relax.op.logical_and(found, relax.op.greater(node.inputs[0], zero))
    if not node.attrs.get("detect_positive", 1):
        found = relax.op.logical_and(found, relax.op.less(node.inputs[0], zero))
    return found


def prelu(node: Node) -> relax.Expr:
    """Before opset 7 a vector of slopes is one per channel; later it broadcasts as ever."""
    slopes, image = node.shape(1), node.shape(0)
    if node.opset < 7 and slopes is not None and len(slopes) == 1 and slopes[0] != 1:
        if image is None:
            raise ValueError("an image of unknown rank; need one whose shape is known")
        channels = node.inputs[1].ty.shape.values[0]
        slope = relax.op.reshape(node.inputs[1], (channels, *(1 for _ in image[2:])))
        node.inputs[1] = node.emit(slope)
    elif slopes is not None and image is not None and broadcast_shape(image, slopes) != image:
        raise ValueError(
            f"slopes {list(slopes)} of an image {list(image)}; need slopes that broadcast to it at"
            " every size"
        )
    return node.tvm()


def dropout(node: Node) -> relax.Expr:
    """Inference drops nothing, and a ratio of 0 neither."""
    image = node.inputs[0]
    ratio = node.constant(1) if len(node.inputs) > 1 else None
    if ratio is not None and not ratio.any():
        node.inputs[2]  # whether it trains
    if node.outputs == 1:
        return image
    kept = relax.op.full(image.ty.shape, relax.const(True, "bool"), "bool")
    return relax.Tuple([image, kept if node.opset >= 10 else relax.op.ones_like(image)])


def fast_gelu(node: Node) -> relax.Expr:
    """GELU by the hyperbolic tangent, of a sum where there is a bias."""
    x, bias = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    return relax.op.nn.gelu_tanh(x if bias is None else relax.op.add(x, bias))


def bit_cast(node: Node) -> relax.Expr:
    """The same bits, as numbers of another dtype of that size."""
    to = get_type(node.attrs["to"])
    sizes = [8 if kind == "bool" else int(kind.lstrip("bfloatuin")) for kind in (node.dtype(), to)]
    if sizes[0] != sizes[1]:
        raise ValueError(f"{node.dtype()} as {to}; need dtypes of one size")

    def loops(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *at: tirx.reinterpret(to, x(*at)), name="bits")

    return node.bb.emit_te(loops, node.inputs[0])


def cast(node: Node) -> relax.Expr:
    """Of powers of two without a sign, TVM makes NaN infinity, and the smallest one 0."""
    if dtype_of(node.inputs[0]) != "float8_e8m0fnu":
        return node.tvm()
    value = node.emit(relax.op.astype(node.inputs[0], "float32"))
    nan, least = relax.const(np.nan, "float32"), relax.const(2.0**-127, "float32")
    value = node.emit(relax.op.where(node.emit(relax.op.isinf(value)), nan, value))
    is_none = node.emit(relax.op.equal(value, relax.const(0.0, "float32")))
    node.inputs[0] = node.emit(relax.op.where(is_none, least, value))
    return node.tvm()


def sign(node: Node) -> relax.Expr:
    """Of numbers without a sign: 0 or 1."""
    if not node.dtype().startswith("uint"):
        return node.tvm()
    return relax.op.minimum(node.inputs[0], relax.const(1, node.dtype()))


def shrink(node: Node) -> relax.Expr:
    """``x + bias`` below ``-lambd``, else ``x - bias`` above ``lambd``, else 0.

    Of integers and float16 in float32, as ONNX Runtime does: the attributes are of that.
    """
    to = node.dtype()
    within = to if to == "float64" else "float32"
    value = node.emit(relax.op.astype(node.inputs[0], within)) if to != within else node.inputs[0]
    limit, bias = node.attrs.get("lambd", 0.5), node.attrs.get("bias", 0.0)
    low, high, moved, zero = (relax.const(x, within) for x in (-limit, limit, bias, 0))
    above = relax.op.where(relax.op.greater(value, high), relax.op.subtract(value, moved), zero)
    result = node.emit(
        relax.op.where(relax.op.less(value, low), relax.op.add(value, moved), node.emit(above))
    )
    if to.startswith("uint"):  # what lies below 0 wraps around
        result = node.emit(relax.op.astype(result, "int64"))
    return result if to == within else relax.op.astype(result, to)


def thresholded_relu(node: Node) -> relax.Expr:
    """Chosen, where TVM multiplies infinity by 0."""
    image, dtype = node.inputs[0], node.dtype()
    above = relax.op.greater(image, relax.const(node.attrs.get("alpha", 1.0), dtype))
    return relax.op.where(node.emit(above), image, relax.const(0, dtype))


def elu(node: Node) -> relax.Expr:
    """Elu and Selu of other dtypes than float32, the only one that TVM has constants of."""
    dtype = node.dtype()
    if dtype != "float64":
        return in_float32(node)
    selu = node.operator == "Selu"
    alpha = node.attrs.get("alpha", 1.67326319217681884765625 if selu else 1.0)
    zero, one = relax.const(0, dtype), relax.const(1, dtype)
    x = node.inputs[0]
    below = relax.op.subtract(relax.op.exp(relax.op.minimum(x, zero)), one)
    scaled = relax.op.multiply(relax.const(alpha, dtype), below)
    result = relax.op.where(relax.op.less(x, zero), scaled, x)
    if not selu:
        return result
    gamma = node.attrs.get("gamma", 1.05070102214813232421875)
    return relax.op.multiply(relax.const(gamma, dtype), result)


def _number(node: Node, bound: relax.Expr, none: float) -> relax.Expr:
    """A computed bound as a scalar, and ``none`` where it is NaN."""
    if shape_of(bound) != ():
        bound = node.emit(relax.op.reshape(bound, ()))
    if not is_float(dtype := dtype_of(bound)):
        return bound
    missing = node.emit(relax.op.isnan(bound))
    return node.emit(relax.op.where(missing, relax.const(none, dtype), bound))


#: From this opset on the bounds of Clip are inputs. Before, they are attributes; one that is not
#: given is the least or the greatest float then, so that infinities are clipped, too.
_BOUNDS_AS_INPUTS = 11


def clip(node: Node) -> relax.Expr:
    """Maximum and minimum, one after the other: TVM writes loop nests that are hard to read.

    ONNX Runtime takes a bound that is NaN for none.
    """
    value = node.inputs[0]
    if not isinstance(value.ty, relax.TensorType):
        return node.tvm()
    sides = ((1, "min", relax.op.maximum, -np.inf), (2, "max", relax.op.minimum, np.inf))
    for place, name, operator, none in sides:
        bound = node.inputs[place] if len(node.inputs) > place else None
        known = node.attrs.get(name) if bound is None else array_of(bound)
        if known is None and bound is None and node.opset < _BOUNDS_AS_INPUTS:
            known = np.copysign(np.finfo(np.float32).max, none)
        if known is not None:
            with np.errstate(over="ignore"):  # of 16 bits
                known = np.asarray(known, node.dtype()).reshape(())
            if np.isnan(known) or known == none:
                continue
            bound = relax.const(known, node.dtype())
        elif bound is not None:
            bound = _number(node, bound, none)
        if bound is not None:
            value = node.emit(operator(value, bound))
    return value
