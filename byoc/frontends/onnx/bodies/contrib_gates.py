"""Gates and norms of gated linear attention and the like, as onnxruntime-genai writes decoders.

Their definition is ONNX Runtime's (ContribOperators, domain com.microsoft). All compute in float32
and give the dtype of their first input.
"""

from __future__ import annotations

import numpy as np
import onnx

from byoc.frontends.onnx.bodies.call import Call
from byoc.frontends.onnx.bodies.contrib import deviation_of

_FLOAT = onnx.TensorProto.FLOAT
_EPSILON = 1e-5

#: The least |d| of an Engram gate.
_LEAST_DOT = 1e-6


def gated_rms_norm(call: Call) -> bool:
    """x rsqrt(mean(x^2) + epsilon) scale f(gate), the mean over groups as long as the scale."""
    shape, size = call.shape(0), (call.shape(1) or [None])[0]
    kind = call.attrs.get("activation", b"silu").decode()
    if shape is None or not size or not shape[-1] or shape[-1] % size:
        return False
    if kind not in ("silu", "swish", "sigmoid"):
        return False
    x, scale, gate = (call.single(place) for place in range(3))
    y = _grouped_norm(call, x, scale, (shape[-1] // size, size))
    factor = call.op("Sigmoid", gate)
    if kind != "sigmoid":
        factor = call.op("Mul", gate, factor)
    call.give(0, call.as_given(call.op("Mul", y, factor)))
    return True


def branchwise_rms_norm(call: Call) -> bool:
    """RMS norms of branches [..., C, H], or [..., C H] where their number is given."""
    shape, branches = call.shape(0), call.attrs.get("num_branches", 0)
    if shape is None or shape[-1] is None or (branches and shape[-1] % branches):
        return False
    count = branches or (shape[-2] if len(shape) > 1 else None)
    size = shape[-1] // branches if branches else shape[-1]
    if not count or not size:
        return False
    x, scale = call.single(0), ""
    if call.input(1):
        told = call.shape(1)
        if told not in ([count * size], [count, size], [size]):
            return False
        scale = call.single(1)
        if told == [count * size]:
            scale = call.reshape(scale, count, size)
    y = _grouped_norm(call, x, scale, (count, size)) if branches else _norm(call, x, scale)
    call.give(0, call.as_given(y))
    return True


def engram_gate(call: Call) -> bool:
    """sigmoid(sign(d) sqrt(max(|d|, 1e-6))) value,  d = sum(RMS(key) RMS(query)) / sqrt(H)

    for keys and queries [..., C, H]; then the RMS norm of that, if it is asked for.
    """
    shape = call.shape()
    if shape is None or not shape[-1]:
        return False
    key, query = (_norm(call, call.single(i), call.single(i + 3)) for i in (0, 1))
    product = call.over("ReduceSum", call.op("Mul", key, query), [-1], keepdims=1)
    dot = call.op("Mul", product, call.constant(shape[-1] ** -0.5, np.float32))
    size = call.op("Max", call.op("Abs", dot), call.constant(_LEAST_DOT, np.float32))
    signed = call.op("Mul", call.op("Sign", dot), call.op("Sqrt", size))
    value = call.over("Unsqueeze", call.single(2), [-2])
    y = call.op("Mul", call.op("Sigmoid", signed), value)
    call.give(0, call.as_given(y))
    if call.wants(1):
        if not call.input(5):
            return False
        call.give(1, call.as_given(_norm(call, y, call.single(5))))
    return True


def hyper_connection_pre_mix(call: Call) -> bool:
    """reduction_scale sum_c(streams[..., c, :] gate[..., c, :])"""
    apart = _streams(call)
    if apart is None:
        return False
    x, branches, size = apart
    gate = _gate(call, 1, branches, size)
    if gate is None:
        return False
    y = call.over("ReduceSum", call.op("Mul", x, gate), [-2], keepdims=0)
    scale = call.attrs.get("reduction_scale", 1.0)
    if scale != 1:
        y = call.op("Mul", y, call.constant(scale, np.float32))
    call.give(0, call.as_given(y))
    return True


def hyper_connection_post_mix(call: Call) -> bool:
    """sum_c(mix[..., c, :] streams[..., c, :]) + gate block; without a mix streams + gate block."""
    apart = _streams(call)
    gate = None if apart is None else _gate(call, 2, *apart[1:])
    if gate is None:
        return False
    x, branches, size = apart
    if call.input(3):
        rank = len(call.shape(3) or ())
        order = [*range(rank - 2), rank - 1, rank - 2]
        x = call.op("MatMul", call.transpose(call.single(3), *order), x)
    y = call.op("Mul", gate, call.over("Unsqueeze", call.single(1), [-2]))
    y = call.op("Add", x, y)
    if call.attrs.get("num_branches", 0):
        y = call.reshape(y, *[0] * (len(call.shape() or ()) - 1), branches * size)
    call.give(0, call.as_given(y))
    return True


def _streams(call: Call) -> tuple[str, int, int] | None:
    """The streams as [..., C, H], and both of these; None where they are not fixed."""
    shape, branches = call.shape(), call.attrs.get("num_branches", 0)
    if not shape or shape[-1] is None or (branches and shape[-1] % branches):
        return None
    if branches:
        size = shape[-1] // branches
        return (
            call.reshape(call.single(0), *[0] * (len(shape) - 1), branches, size),
            branches,
            size,
        )
    if len(shape) < 2 or not shape[-2]:
        return None
    return call.single(0), shape[-2], shape[-1]


def _gate(call: Call, place: int, branches: int, size: int) -> str | None:
    """A gate of (..., C), (..., C, 1), (..., C, H) or (..., C H), to be multiplied with streams."""
    shape = call.shape(place)
    rank = len(call.shape() or ()) + (1 if call.attrs.get("num_branches", 0) else 0)
    if not shape or len(shape) not in (rank - 1, rank):
        return None
    x = call.single(place)
    if len(shape) == rank:
        return x
    if shape[-1] == branches:
        return call.over("Unsqueeze", x, [-1])
    return call.reshape(x, *[0] * (rank - 2), branches, size)


def gated_add(call: Call) -> bool:
    """x + y gate"""
    x, y, gate = map(call.input, range(3))
    call.give(0, call.op("Add", x, call.op("Mul", y, gate)))
    return True


def scaled_silu(call: Call) -> bool:
    """z sigmoid(z), z = scale x"""
    if call.input(1):
        if call.shape(1) != []:
            return False
        scale = call.op("Cast", call.input(1), to=call.element())
    else:
        scale = call.number(call.attrs.get("alpha", 1.0))
    z = call.op("Mul", call.input(0), scale)
    call.give(0, call.op("Mul", z, call.op("Sigmoid", z)))
    return True


def linear_attention_gate(call: Call) -> bool:
    """decay_scale softplus(a + dt_bias), and the sigmoid of b."""
    a, bias, scale = (call.single(place) for place in range(3))
    decay = call.op("Mul", scale, call.op("Softplus", call.op("Add", a, bias)))
    call.give(0, call.as_given(decay))
    if call.wants(1):
        if not call.input(3):
            return False
        call.give(1, call.as_given(call.op("Sigmoid", call.single(3))))
    return True


def expand_dims(call: Call) -> bool:
    """Unsqueeze at a constant axis."""
    axis = call.known(1)
    if axis is None:
        return False
    call.give(0, call.over("Unsqueeze", call.input(0), [axis]))
    return True


def _norm(call: Call, x: str, scale: str) -> str:
    epsilon = call.constant(call.attrs.get("epsilon", _EPSILON), np.float32)
    y = call.op("Div", x, deviation_of(call, x, [-1], epsilon))
    return call.op("Mul", y, scale) if scale else y


def _grouped_norm(call: Call, x: str, scale: str, groups: tuple[int, int]) -> str:
    """The norm of parts of the last axis: their number and length."""
    if groups[0] == 1:
        return _norm(call, x, call.reshape(scale, -1) if scale else scale)
    rank = len(call.shape() or ())
    parts = call.reshape(x, *([0] * (rank - 1)), *groups)
    y = _norm(call, parts, scale)
    return call.reshape(y, *([0] * (rank - 1)), groups[0] * groups[1])
