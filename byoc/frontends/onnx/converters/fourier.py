"""Fourier transforms: ONNX has complex numbers as pairs along the last axis, real ones as one."""

from __future__ import annotations

from tvm import relax, tirx

from byoc.frontends.onnx.converters.computed_sizes import known_extent
from byoc.frontends.onnx.converters.node import Node
from byoc.ir.fourier import Form, transform
from codegen_cc.operators.fourier import COMPLEX_NUMBERS, HALF, REAL_NUMBERS


def dft(node: Node) -> relax.Expr:
    """A transform along one axis, of as many elements as it has, or as the node says."""
    shape, axis = node.shape(), node.attrs.get("axis", 1)
    length: int | tirx.Expr | None = None
    if node.opset >= 20:
        axis = -2 if node.inputs[2] is None else _known(node, 2, "axis")
    if node.inputs[1] is not None:
        told = known_extent(node, 1)
        length = _known(node, 1, "length") if told is None else told
    inverse, onesided = (bool(node.attrs.get(name, 0)) for name in ("inverse", "onesided"))
    if shape is None or shape[-1] not in (1, 2) or len(shape) < 2:
        raise ValueError(f"input {shape}; need a rank, and 1 or 2 as the last extent")
    axis %= len(shape)
    if axis == len(shape) - 1:
        raise ValueError("the last axis, which has the parts of a number; need another")
    x, kind = _numbers(node)
    extent = x.ty.shape.values[axis]
    if onesided and inverse:
        if kind != COMPLEX_NUMBERS:
            raise ValueError("real numbers, onesided and inverse; need complex ones")
        length = 2 * (extent - 1) if length is None else length
        y = transform(node.emit, x, Form(HALF, axis, inverse, 2), length)
        return relax.op.expand_dims(y, -1)
    length = extent if length is None else length
    return transform(node.emit, x, Form(kind, axis, inverse, 2 * inverse, onesided), length)


def stft(node: Node) -> relax.Expr:
    """Transforms of frames of a signal [B, L] or [B, L, 1 or 2], of any length L."""
    shape, window = node.shape(), node.inputs[2]
    step = _known(node, 1, "step")
    if node.inputs[3] is not None:
        length: int | tirx.Expr = _known(node, 3, "frame length")
    elif window is None:
        raise ValueError("neither a window nor a frame length; need one of them")
    else:
        (length,) = node.shape(2) or (None,)
    if not isinstance(length, int) or length < 1 or step < 1:
        raise ValueError(f"frames of {length} elements, {step} apart; need fixed positive numbers")
    if shape is None or len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 2)):
        raise ValueError(f"signal {shape}; need [batch, length] or [batch, length, 1 or 2]")
    if isinstance(shape[1], int) and shape[1] < length:
        raise ValueError(f"a signal of {shape[1]} elements; need {length}, those of a frame")
    x, kind = (node.inputs[0], REAL_NUMBERS) if len(shape) == 2 else _numbers(node)
    form = Form(kind, 1, onesided=bool(node.attrs.get("onesided", 1)), step=step)
    return transform(node.emit, x, form, length, window)


def _known(node: Node, place: int, what: str) -> int:
    value = node.constant(place)
    if value is None:
        raise ValueError(f"{what} is computed; need a constant")
    return int(value.item())


def _numbers(node: Node) -> tuple[relax.Expr, str]:
    """The input, and what it is of; real numbers without the last axis."""
    x, shape = node.inputs[0], node.shape()
    if shape[-1] == 2:
        return x, COMPLEX_NUMBERS
    return node.emit(relax.op.squeeze(x, [len(shape) - 1])), REAL_NUMBERS
