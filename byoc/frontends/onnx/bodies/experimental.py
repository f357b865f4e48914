"""Operators that ONNX had on trial up to opset 9, written out as others of ONNX's domain.

Converters of CoreML, Caffe2 and MXNet wrote them, and ONNX Runtime computes them to this day; their
definition is its own.
"""

from __future__ import annotations

import numpy as np

from byoc.frontends.onnx.bodies.call import Call

#: The greatest bound of a slice: up to the end of any axis.
_END = np.iinfo(np.int64).max


def _line(call: Call, value: str, factor: float, summand: float) -> str:
    """factor value + summand"""
    if factor != 1.0:
        value = call.op("Mul", value, call.number(factor))
    return value if summand == 0.0 else call.op("Add", value, call.number(summand))


def _numbers(call: Call) -> tuple[float, float]:
    """alpha and beta, which have no usual values."""
    missing = [name for name in ("alpha", "beta") if name not in call.attrs]
    if missing:
        call.refuse(f"it has no attribute {' and '.join(missing)}; give it one")
    return float(call.attrs["alpha"]), float(call.attrs["beta"])


def affine(call: Call) -> bool:
    """alpha x + beta"""
    alpha, beta = _numbers(call)
    call.give(0, _line(call, call.input(0), alpha, beta))
    return True


def scaled_tanh(call: Call) -> bool:
    """alpha tanh(beta x)"""
    alpha, beta = _numbers(call)
    call.give(0, _line(call, call.op("Tanh", _line(call, call.input(0), beta, 0.0)), alpha, 0.0))
    return True


def parametric_softplus(call: Call) -> bool:
    """alpha log(1 + exp(beta x))"""
    alpha, beta = _numbers(call)
    inner = call.op("Softplus", _line(call, call.input(0), beta, 0.0))
    call.give(0, _line(call, inner, alpha, 0.0))
    return True


def image_scaler(call: Call) -> bool:
    """scale x + bias, of each channel its own."""
    shape, bias = call.shape(), call.attrs.get("bias", ())
    if shape is None or len(shape) != 4 or (shape[1] is not None and shape[1] != len(bias)):
        return False
    channels = call.constant(np.reshape(bias, (1, -1, 1, 1)), call.dtype())
    scaled = _line(call, call.input(0), float(call.attrs.get("scale", 1.0)), 0.0)
    call.give(0, call.op("Add", scaled, channels))
    return True


def crop(call: Call) -> bool:
    """An image without its border (left, top, right, bottom); of it ``scale`` rows and columns."""
    shape, border, size = call.shape(), call.attrs.get("border", ()), call.attrs.get("scale", ())
    if shape is None or len(shape) != 4 or len(border) != 4 or len(size) not in (0, 2):
        return False
    left, top, right, bottom = border
    if min(border) < 0:
        return False
    if size:
        ends = [top + size[0], left + size[1]]
    else:
        ends = [-end if end else _END for end in (bottom, right)]
    rows = call.slice(call.input(0), 2, top, ends[0])
    call.give(0, call.slice(rows, 3, left, ends[1]))
    return True


def dynamic_slice(call: Call) -> bool:
    """Slice, whose bounds became inputs in opset 10."""
    if call.opset >= 10:
        call.give(0, call.op("Slice", *call.node.input))
        return True
    starts, ends = call.array(1), call.array(2)
    axes = call.array(3) if call.input(3) else None
    if starts is None or ends is None or (call.input(3) and axes is None):
        call.refuse("its bounds are computed; Slice takes such from opset 10 on")
    along = None if axes is None else axes.ravel().tolist()
    given = {"starts": starts.ravel().tolist(), "ends": ends.ravel().tolist(), "axes": along}
    call.give(0, call.op("Slice", call.input(0), **given))
    return True


def batch_normalization(call: Call) -> bool:
    """With ``spatial`` 0, up to opset 8: each place of an image has statistics of its own."""
    if call.attrs.get("spatial", 1):
        return False
    x, scale, bias, mean, variance = (call.input(place) for place in range(5))
    epsilon = call.number(call.attrs.get("epsilon", 1e-5), 4)
    deviation = call.op("Sqrt", call.op("Add", variance, epsilon))
    factor = call.op("Div", scale, deviation)
    shift = call.op("Sub", bias, call.op("Mul", mean, factor))
    call.give(0, call.op("Add", call.op("Mul", x, factor), shift))
    return True
