"""Recurrent layers: LSTM, GRU and RNN as the operator of ours that computes all of their steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isnan

import numpy as np
from tvm import relax

from byoc.frontends.onnx.converters.node import Node, is_float
from byoc.ir.dataflow import constant, dtype_of, shape_of
from byoc.ir.recurrent import recurrent
from codegen_cc.dim import Dim
from codegen_cc.operators.recurrent import (
    BIDIRECTIONAL,
    DIRECTIONS,
    FUNCTIONS,
    FUNCTIONS_EACH,
    GATES,
    GRU,
    LSTM,
    RNN,
    usual_functions,
)

#: Inputs in ONNX's order: the operand's role, and ONNX's name. The last two are an LSTM's.
_INPUTS = {
    "input": "X",
    "weight": "W",
    "recurrence": "R",
    "bias": "B",
    "lengths": "sequence_lens",
    "initial_h": "initial_h",
    "initial_c": "initial_c",
    "peepholes": "P",
}

#: What has to be given: there is no operator of ONNX's whose default it could have.
_GIVEN = float("nan")

#: ONNX's names of functions, what is left out of alpha and beta, which each takes one of where it
#: has it (ONNX operator specification, RNN): the defaults of the operators of these names.
_FUNCTIONS = {
    "affine": (_GIVEN, _GIVEN),
    "elu": (1.0,),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01,),
    "relu": (),
    "scaledtanh": (_GIVEN, _GIVEN),
    "sigmoid": (),
    "softplus": (),
    "softsign": (),
    "tanh": (),
    "thresholdedrelu": (1.0,),
}

#: How many functions a direction has.
_COUNT = {RNN: 1, GRU: 2, LSTM: 3}


def layer(node: Node) -> relax.Expr:
    """A layer of any direction; the results that a node leaves out at its end are dropped."""
    return _layer(node, node.operator.lower(), _given(node, range(len(_INPUTS))))


def dynamic_quantize_lstm(node: Node) -> relax.Expr:
    """An LSTM with weights [directions, inputs or units, gates * units] of 8 bits.

    The input is quantised by its range, states by that of each row at each step; ONNX Runtime takes
    the range of all rows that a thread has.
    """
    operands = _given(node, [0, *range(3, len(_INPUTS))])
    for role, place in (("weight", 1), ("recurrence", 2)):
        operands |= _quantised_weight(node, role, place, 8 + 2 * (place - 1))
    roles = (*_INPUTS, "weight_scale", "recurrence_scale")
    return _layer(node, LSTM, {role: operands[role] for role in roles if role in operands})


def _quantised_weight(node: Node, role: str, place: int, numbers: int) -> dict[str, relax.Expr]:
    """A weight in ONNX's order with its scales, or as floats where int8 cannot hold it without its
    zero point. The scale is at the place ``numbers``, the zero point behind it: one for each
    direction, or one for each column."""
    what = f"{_INPUTS[role]} of DynamicQuantizeLSTM"
    arrays = [node.constant(at) for at in (place, numbers, numbers + 1)]
    if any(array is None for array in arrays):
        raise ValueError(f"{what}, its scale or zero point is computed; need constants")
    integers, scale, zero = arrays
    directions, _, columns = integers.shape if integers.ndim == 3 else (0, 0, 0)
    for name, array in (("scale", scale), ("zero point", zero)):
        if array.shape not in ((directions,), (directions, columns)):
            raise ValueError(
                f"{what} has shape {list(integers.shape)}, its {name} {list(array.shape)}; need one"
                " for each direction, or for each column of each"
            )
    centred = integers.astype(np.int16) - zero.reshape(directions, 1, -1).astype(np.int16)
    scale = np.broadcast_to(scale.reshape(directions, -1), (directions, columns))
    turned = centred.swapaxes(1, 2)
    if np.abs(centred).max(initial=0) > np.iinfo(np.int8).max:
        return {role: constant(turned.astype(np.single) * scale[:, :, None], "float32")}
    return {role: constant(turned, "int8"), f"{role}_scale": constant(scale, "float32")}


def _given(node: Node, places: Iterable[int]) -> dict[str, relax.Expr]:
    """The inputs at these places that are not left out, by the operand's role."""
    roles = list(_INPUTS)
    there = [p for p in places if p < len(node.inputs) and node.inputs[p] is not None]
    return {roles[place]: node.inputs[place] for place in there}


def _layer(node: Node, kind: str, operands: dict[str, relax.Expr]) -> relax.Expr:
    direction = node.attrs.get("direction", b"forward").decode()
    if direction not in DIRECTIONS:
        raise ValueError(f"direction {direction!r}; need one of {', '.join(DIRECTIONS)}")
    count = 2 if direction == BIDIRECTIONAL else 1
    batch_first = bool(node.attrs.get("layout", 0))
    units = _check_shapes(kind, count, operands, batch_first)
    hidden = node.attrs.get("hidden_size", units)
    if hidden != units:
        raise ValueError(f"hidden_size={hidden} and weights of {units} units")
    functions, alphas, betas = _functions(node, kind, count)
    clip = node.attrs.get("clip")
    if clip is not None and not clip > 0:
        raise ValueError(f"clip={clip:g}; need a number above 0")
    call = recurrent(
        operands,
        kind=kind,
        direction=direction,
        functions=functions,
        alphas=alphas,
        betas=betas,
        clip=float(clip or 0),
        coupled=bool(node.attrs.get("input_forget", 0)) if kind == LSTM else False,
        reset_last=bool(node.attrs.get("linear_before_reset", 0)) if kind == GRU else False,
        batch_first=batch_first,
    )
    made = node.emit(call)
    results = [relax.TupleGetItem(made, i) for i in range(node.outputs)]
    return results[0] if node.outputs == 1 else relax.Tuple(results)


def _check_shapes(
    kind: str, directions: int, operands: dict[str, relax.Expr], batch_first: bool
) -> int:
    """The number of units. Raises ``ValueError`` where shapes or dtypes contradict each other."""
    shapes = {role: shape_of(expr) for role, expr in operands.items()}
    dtype = dtype_of(operands["input"])
    if not is_float(dtype):
        raise ValueError(f"X is {dtype}; need floating-point numbers")
    for role, expr in operands.items():
        wanted = "int32" if role == "lengths" else dtype
        if role in _INPUTS and f"{role}_scale" not in operands and dtype_of(expr) != wanted:
            raise ValueError(f"{_INPUTS[role]} is {dtype_of(expr)}; need {wanted}")
    for role in ("input", "recurrence"):
        shape = shapes[role]
        if shape is None or len(shape) != 3:
            raise ValueError(f"{_INPUTS[role]} has {_shape_text(shape)}; need one of rank 3")
    x, units, gates = shapes["input"], shapes["recurrence"][-1], GATES[kind]
    batch = x[0] if batch_first else x[1]
    state = (batch, directions, units) if batch_first else (directions, batch, units)
    wanted_shapes = {
        "weight": (directions, gates * units, x[2]),
        "recurrence": (directions, gates * units, units),
        "bias": (directions, 2 * gates * units),
        "lengths": (batch,),
        "initial_h": state,
        "initial_c": state,
        "peepholes": (directions, 3 * units),
    }
    for role, wanted in wanted_shapes.items():
        if role in operands and shapes[role] != wanted:
            found = _shape_text(shapes[role])
            raise ValueError(f"{_INPUTS[role]} has {found}; need shape {list(wanted)}")
    return int(units)


def _shape_text(shape: Sequence[Dim] | None) -> str:
    return "no known shape" if shape is None else f"shape {list(shape)}"


def _functions(
    node: Node, kind: str, directions: int
) -> tuple[list[str], list[float], list[float]]:
    """Names, alphas and betas of three functions for each direction.

    Each function that has a parameter takes the next one that is given.
    """
    given = node.attrs.get("activations")
    alphas, betas = (
        list(node.attrs.get(name, ())) for name in ("activation_alpha", "activation_beta")
    )
    count = _COUNT[kind]
    if not given:
        given = [name.encode() for name in usual_functions(kind)[:count]] * directions
    if len(given) != count * directions:
        raise ValueError(f"{len(given)} activations; need {count * directions}")
    chosen = []
    for name in (entry.decode() for entry in given):
        defaults = _FUNCTIONS.get(name.lower())
        if defaults is None:
            raise ValueError(f"activation {name}; need one of {', '.join(_FUNCTIONS)}")
        numbers = _parameters(defaults, alphas, betas)
        if any(map(isnan, numbers)):
            raise ValueError(f"activation {name} without its alpha or beta; ONNX has no default")
        chosen.append((_ours(name), *numbers))
    filled: list[tuple[str, float, float]] = []
    for first in range(0, len(chosen), count):
        rest = [(name, 0.0, 0.0) for name in usual_functions(kind)[count:]]
        filled += [*chosen[first : first + count], *rest]
    assert len(filled) == FUNCTIONS_EACH * directions
    names, a, b = zip(*filled, strict=True)
    return list(names), list(a), list(b)


def _ours(name: str) -> str:
    return next(own for own in FUNCTIONS if own.replace("_", "") == name.lower())


def _parameters(
    defaults: Sequence[float], alphas: list[float], betas: list[float]
) -> tuple[float, float]:
    values = []
    for default, given in zip((*defaults, None, None), (alphas, betas), strict=False):
        if default is None:
            values.append(0.0)
        else:
            values.append(float(np.single(given.pop(0))) if given else default)
    return values[0], values[1]
