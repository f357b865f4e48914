"""recurrent: a layer of an RNN, a GRU or an LSTM as one product and one call of ``ext_recurrent``.

The products of the inputs of all steps and both directions are one matrix product.  Columns of its
weight lie as ``ext_recurrent`` reads them, the gates of 16 units side by side, so that the steps
find all sums of a unit together.  Gates are in ONNX's order: z, u, n of a GRU, i, o, f, n of an
LSTM.

Weights may be int8 with a scale for each row.  Those of inputs are multiplied with integers: the
input is quantised by its own range, as DynamicQuantizeLinear does.  So are the others of an LSTM,
with states that each row quantises anew at each step; those of other layers become floats.

In bfloat16 the weights of states are stored so, and widened where they are read: a step of few rows
takes as long as reading them. All else is float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from codegen_cc.dim import Dim, product
from codegen_cc.dtypes import SINGLE
from codegen_cc.dtypes import of as dtype_of
from codegen_cc.node import Node, Result
from codegen_cc.operator import Facts, Kernels, Number, Operator
from codegen_cc.operators.bfloat16 import BFLOAT16, in_bfloat16
from codegen_cc.operators.dtype_rules import c_dtype, one_of
from codegen_cc.operators.operands import all_constant, not_constant
from codegen_cc.operators.packing import FLOAT32_PANELS, PANEL
from codegen_cc.operators.requantise import INT8_PANELS, MOST_PRODUCTS
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Element, Struct
from codegen_cc.plan.tensors import Tensor
from codegen_cc.region.graph import RegionNode, Value

RNN, GRU, LSTM = "rnn", "gru", "lstm"

#: How many gates there are.
GATES = {RNN: 1, GRU: 3, LSTM: 4}

FORWARD, REVERSE, BIDIRECTIONAL = DIRECTIONS = ("forward", "reverse", "bidirectional")

#: Results; the last state of the cell is an LSTM's.
RESULTS = ("output", "last_h", "last_c")

#: What gates apply to their sums, in the order of ``ext_gate_kind``, with the parameters that each
#: has of alpha and beta.
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "sigmoid": (),
    "tanh": (),
    "relu": (),
    "affine": ("alpha", "beta"),
    "leaky_relu": ("alpha",),
    "thresholded_relu": ("alpha",),
    "scaled_tanh": ("alpha", "beta"),
    "hard_sigmoid": ("alpha", "beta"),
    "elu": ("alpha",),
    "softsign": (),
    "softplus": (),
}

#: Functions of a direction: f, g and k of ``ext_recurrent.h``.
FUNCTIONS_EACH = 3

#: Of weights that are int8.
_SCALES = {"weight": "weight_scale", "recurrence": "recurrence_scale"}

_CONSTANTS = ("weight", "recurrence", "bias", "peepholes", *_SCALES.values())


def functions_of(attrs: dict[str, Any], direction: int) -> list[tuple[str, float, float]]:
    """Name, alpha and beta of the functions of a direction."""
    chosen = slice(FUNCTIONS_EACH * direction, FUNCTIONS_EACH * (direction + 1))
    names = ("functions", "alphas", "betas")
    return list(zip(*(attrs[name][chosen] for name in names), strict=True))


def backwards(attrs: dict[str, Any], direction: int) -> bool:
    """Whether a direction runs from the last step to the first."""
    return direction == 1 or attrs["direction"] == REVERSE


def dtypes(node: Node) -> str | None:
    """float32 but for lengths, which are int32, and weights that have scales, int8."""
    for operand in node.operands:
        wanted = "int32" if operand.role == "lengths" else SINGLE
        if node.operand(_SCALES.get(operand.role, "")) is not None:
            wanted = "int8"
        if reason := one_of(operand.role, operand.dtype, (wanted,)):
            return reason
    return one_of("result", node.dtype, (SINGLE,))


def computes(node: Node) -> str | None:
    """None for weights of floats in bfloat16, else the reason."""
    if not in_bfloat16(node):
        return f"to be computed in {node.compute}; need {SINGLE} or {BFLOAT16}"
    if node.operand("recurrence_scale") is not None:
        return f"weights of 8 bits; need {SINGLE}"
    return None


def algorithm(node: Node) -> str:
    """Layers in bfloat16 are told apart in reports."""
    return "recurrent, bf16" if in_bfloat16(node) else "recurrent"


def supports(node: Node) -> str | None:
    """None if the kernel can compute the layer, else the reason."""
    for role in _CONSTANTS:
        operand = node.operand(role)
        if operand is not None and (reason := not_constant(operand)) is not None:
            return reason
    if 0 in (*node.operand("weight").shape, *node.operand("recurrence").shape):
        return f"weight {list(node.operand('weight').shape)}; need an element at least"
    unknown = [name for name in node.attrs["functions"] if name not in FUNCTIONS]
    if unknown:
        return f"function {unknown[0]}; need one of {', '.join(FUNCTIONS)}"
    inputs = node.operand("weight").shape[2]
    if node.operand("weight_scale") is not None and inputs > MOST_PRODUCTS:
        return f"sums of {inputs} products of integers; need at most {MOST_PRODUCTS}"
    return all_constant(node)


# ---------------------------------------------------------------- the calls


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """The products of the inputs, then the steps."""
    attrs = node.node.attrs
    x = _rows_in_order(builder, builder.tensor(node.role("input")))
    sums = _input_sums(node, builder, x)
    wanted = {value for other in builder.region.nodes for value in other.inputs}
    wanted.update(builder.region.outputs)
    y = _output_space(node, builder) if node.outputs[0] in wanted else None
    last = [builder.space(v.shape, v.dtype) if v in wanted else None for v in node.outputs[1:]]
    states = _state_strides(attrs, node.outputs[1])
    time, batch = (1, 0) if attrs["batch_first"] else (0, 1)
    fields: dict[str, object] = {
        "kind": _kind(attrs),
        "directions": node.role("recurrence").shape[0],
        "reverse": int(attrs["direction"] == REVERSE),
        "coupled": int(attrs["coupled"]),
        "steps": x.shape[time],
        "batch": x.shape[batch],
        "units": node.role("recurrence").shape[2],
        "x_step": sums.strides[time],
        "x_row": sums.strides[batch],
    }
    if y is not None:
        axes = {"y_step": time, "y_direction": 2 if attrs["batch_first"] else 1}
        axes["y_row"] = 0 if attrs["batch_first"] else 2
        fields |= {name: y.strides[axis] for name, axis in axes.items()}
    fields |= dict(zip(("state_direction", "state_row"), states, strict=True))
    fields["clip"] = float(attrs["clip"])
    fields["functions"] = [f"EXT_GATE_{name.upper()}" for name in attrs["functions"]]
    fields |= {name: [float(number) for number in attrs[name]] for name in ("alphas", "betas")}
    operands = [_plain(node, builder, role) for role in ("lengths", "initial_h", "initial_c")]
    cell = last[1] if len(last) > 1 else None
    blocks = [Struct("ext_recurrent_params", fields), _weights(node, builder)]
    arguments = [*blocks, sums, *operands, y, last[0], cell]
    writes = [tensor for tensor in (y, *last) if tensor is not None]
    comment = f"{node.node.composite}: {list(x.shape)} -> {list(node.node.shape)}"
    builder.call("ext_recurrent", arguments, writes, comment)
    for value, tensor in zip(node.outputs, (y, *last), strict=True):
        if tensor is not None:
            builder.place(value, tensor)


def _kind(attrs: dict[str, Any]) -> str:
    kind = "EXT_" + attrs["kind"].upper()
    return f"{kind}_RESET_LAST" if attrs["kind"] == GRU and attrs["reset_last"] else kind


def _rows_in_order(builder: PlanBuilder, x: Tensor) -> Tensor:
    """The input as dense rows, steps or batch outermost."""
    order = x.order()
    inside = order is not None and (x.shape[2] == 1 or order[-1] == 2)
    return x if inside else builder.dense(x)


def _input_sums(node: RegionNode, builder: PlanBuilder, x: Tensor) -> Tensor:
    """x w + biases of all steps, [.., .., directions * columns], rows in the order of ``x``."""
    weight = node.role("weight").data
    matrix = (
        _in_blocks(node.node.attrs, weight).reshape(-1, weight.shape[-1]).T
    )  # [inputs, columns]
    columns = matrix.shape[-1]
    order = [axis for axis in x.order() if axis != 2]
    sums = builder.space((*x.shape[:2], columns), SINGLE, (*order, 2))
    fields: dict[str, object] = {
        "m": product(x.shape[:2]),
        "n": columns,
        "k": x.shape[2],
        "a_row": x.shape[2],
        "a_col": 1,
        "y_row": columns,
    }
    params = Struct("ext_matmul_params", fields)
    bias: dict[str, object] = {}
    if node.role("bias") is not None:
        bias["bias"] = builder.constant(_input_bias(node))
    comment = f"{node.node.composite}, inputs: {list(x.shape)} x {list(matrix.shape)}"
    if node.role("weight_scale") is not None:
        integers, zero, factors = _quantised_input(node, builder, x)
        panels = builder.constant(INT8_PANELS.pack(matrix[None]))
        column_sums = builder.constant(matrix.sum(axis=0, dtype=np.int32))
        fields = {"w_sums": column_sums, "scale": factors, **bias, "y_dtype": "EXT_FLOAT32"}
        requantise = Struct("ext_requantise", fields)
        arguments = [params, "EXT_UINT8", zero, integers, panels, requantise, sums]
        builder.call("ext_qmatmul", arguments, sums, comment)
        return sums
    panels = builder.constant(FLOAT32_PANELS.pack(matrix[None]))
    epilogue = Struct("ext_epilogue", bias) if bias else None
    builder.call("ext_matmul_packed", [params, x, panels, epilogue, sums], sums, comment)
    return sums


def _quantised_input(
    node: RegionNode, builder: PlanBuilder, x: Tensor
) -> tuple[Tensor, Element, Tensor]:
    """The input as integers, their zero point, and their scale times those of the columns."""
    integers = builder.space(x.shape, "uint8", x.order())
    scale, zero = builder.space((), SINGLE), builder.space((), "uint8")
    written = [integers, scale, zero]
    builder.call("ext_dynamic_quantize", [x.size, x, *written], written, "inputs as integers")
    each = builder.constant(_in_blocks(node.node.attrs, node.role("weight_scale").data).reshape(-1))
    factors = builder.space(each.shape, each.dtype)
    fields: dict[str, object] = {"kind": "EXT_MUL", "ndim": 1, "shape": [each.size]}
    fields |= {"a_strides": [1], "b_strides": [0]}
    arguments = [Struct("ext_binary_params", fields), each, scale, factors]
    builder.call("ext_binary", arguments, factors, f"scales of {node.node.composite}")
    return integers, Element(zero), factors


def _in_blocks(attrs: dict[str, Any], array: np.ndarray, gates: int | None = None) -> np.ndarray:
    """[directions, gates * units, ...] as [directions, blocks, gates, 16, ...], zero past units."""
    gates = gates or GATES[attrs["kind"]]
    directions, rows, *rest = array.shape
    split = array.reshape(directions, gates, rows // gates, *rest)
    padding = [(0, 0), (0, 0), (0, -(rows // gates) % PANEL), *[(0, 0)] * len(rest)]
    wide = np.pad(split, padding)
    blocks = wide.reshape(directions, gates, -1, PANEL, *rest)
    return np.ascontiguousarray(blocks.swapaxes(1, 2))


def _input_bias(node: RegionNode) -> np.ndarray:
    """Both biases of each column, but for the one that a reset gate multiplies."""
    attrs, bias = node.node.attrs, node.role("bias").data
    one, other = np.split(bias.astype(np.double), 2, axis=1)
    if attrs["kind"] == GRU and attrs["reset_last"]:
        other = other.copy()
        other[:, 2 * other.shape[1] // 3 :] = 0
    return _in_blocks(attrs, (one + other).astype(np.single)).reshape(-1)


def _weights(node: RegionNode, builder: PlanBuilder) -> Struct:
    """The ``ext_recurrent_weights``."""
    attrs, weight, scale = node.node.attrs, node.role("recurrence").data, None
    if node.role("recurrence_scale") is not None:
        scale = node.role("recurrence_scale").data
        if attrs["kind"] != LSTM:
            weight, scale = weight * scale[:, :, None], None
    fields: dict[str, object] = {"dtype": "EXT_FLOAT32" if scale is None else "EXT_INT8"}
    if scale is None:
        panels = _panels(attrs, weight)
        if in_bfloat16(node.node):
            panels = panels.astype(dtype_of(BFLOAT16).numpy)
            fields["dtype"] = c_dtype(BFLOAT16)
        fields["r"] = builder.constant(panels)
    else:
        fields["r"] = builder.constant(_quads(attrs, weight))
        fields["scale"] = builder.constant(_in_blocks(attrs, scale))
        sums = weight.sum(axis=2, dtype=np.int32)
        fields["sums"] = builder.constant(_in_blocks(attrs, sums))
    found = {"bias": _reset_bias(node, builder), "peepholes": _peepholes(node, builder)}
    fields |= {name: tensor for name, tensor in found.items() if tensor is not None}
    return Struct("ext_recurrent_weights", fields)


def _panels(attrs: dict[str, Any], weight: np.ndarray) -> np.ndarray:
    """The recurrent weight: [directions, blocks, units, gates, 16], for a GRU in two parts."""
    blocks = _in_blocks(attrs, weight).transpose(0, 1, 4, 2, 3)
    if _kind(attrs) != "EXT_GRU":
        return np.ascontiguousarray(blocks)
    parts = [blocks[:, :, :, :2], blocks[:, :, :, 2:]]
    flat = [part.reshape(len(blocks), -1) for part in parts]
    return np.ascontiguousarray(np.concatenate(flat, axis=1))


def _quads(attrs: dict[str, Any], weight: np.ndarray) -> np.ndarray:
    """The same of integers: [directions, blocks, ceil(units / 4), gates, 16, 4]."""
    padded = np.pad(weight, ((0, 0), (0, 0), (0, -weight.shape[2] % 4)))
    blocks = _in_blocks(attrs, padded)
    split = blocks.reshape(*blocks.shape[:4], -1, 4)
    return np.ascontiguousarray(split.transpose(0, 1, 4, 2, 3, 5))


def _reset_bias(node: RegionNode, builder: PlanBuilder) -> Tensor | None:
    """The bias that a reset gate multiplies, [directions, blocks, 16]."""
    attrs = node.node.attrs
    if _kind(attrs) != "EXT_GRU_RESET_LAST":
        return None
    weight, bias = node.role("recurrence"), node.role("bias")
    directions, _, units = weight.shape
    own = np.zeros((directions, units), np.single) if bias is None else bias.data[:, 5 * units :]
    return builder.constant(_in_blocks(attrs, own, gates=1))


def _peepholes(node: RegionNode, builder: PlanBuilder) -> Tensor | None:
    value = node.role("peepholes")
    if value is None:
        return None
    return builder.constant(_in_blocks(node.node.attrs, value.data, gates=3))


def _plain(node: RegionNode, builder: PlanBuilder, role: str) -> Tensor | None:
    value = node.role(role)
    return None if value is None else builder.dense(builder.tensor(value))


def _state_strides(attrs: dict[str, Any], state: Value) -> tuple[Dim, Dim]:
    """Between directions and rows of a dense state."""
    _, inner, units = state.shape
    outer = inner * units
    return (units, outer) if attrs["batch_first"] else (outer, units)


def _output_space(node: RegionNode, builder: PlanBuilder) -> Tensor:
    """Space in the order in which a permute that follows is dense, units innermost.

    Layers of two directions are followed by one that puts these side by side.
    """
    value, order = node.output, None
    consumers = builder.consumers.get(value, [])
    if len(consumers) == 1 and consumers[0].node.op == "permute":
        axes = tuple(consumers[0].node.attrs["axes"])
        order = axes if axes[-1] == len(axes) - 1 else None
    return builder.space(value.shape, value.dtype, order)


# ---------------------------------------------------------------- the record


def _numbers(node: Node) -> dict[str, Number]:
    x, recurrent = node.operand("input").shape, node.operand("recurrence").shape
    steps, batch = (x[1], x[0]) if node.attrs["batch_first"] else x[:2]
    sizes = {"steps": steps, "batch": batch, "inputs": x[2]}
    return sizes | {"units": recurrent[2], "directions": recurrent[0]}


def _macs(node: Node) -> Dim:
    sizes = _numbers(node)
    columns = sizes["directions"] * GATES[node.attrs["kind"]] * sizes["units"]
    return sizes["steps"] * sizes["batch"] * columns * (sizes["inputs"] + sizes["units"])


def usual_functions(kind: str) -> list[str]:
    """The functions of one direction that ONNX has by default."""
    return ["tanh" if kind == RNN else "sigmoid", "tanh", "tanh"]


def _samples() -> Iterator[Sample]:
    steps, batch, inputs, units = 12, 2, 24, 32
    for kind in GATES:
        for direction in DIRECTIONS:
            count = 2 if direction == BIDIRECTIONAL else 1
            gates = GATES[kind] * units
            operands = {
                "input": ((steps, batch, inputs), REAL),
                "weight": ((count, gates, inputs), "constant"),
                "recurrence": ((count, gates, units), "constant"),
                "bias": ((count, 2 * gates), "constant"),
            }
            attrs = {
                "kind": kind,
                "direction": direction,
                "functions": usual_functions(kind) * count,
                "alphas": [0.0] * FUNCTIONS_EACH * count,
                "betas": [0.0] * FUNCTIONS_EACH * count,
                "clip": 0.0,
                "coupled": False,
                "reset_last": False,
                "batch_first": False,
            }
            node = sample_node("recurrent", operands, (steps, count, batch, units), **attrs)
            states = (Result((count, batch, units), REAL),) * (2 if kind == LSTM else 1)
            yield Sample(f"{kind}, {direction}", replace(node, further=states))


_ATTRIBUTES = {
    "kind": ", ".join(GATES),
    "direction": ", ".join(DIRECTIONS),
    "functions": "f, g and k of each direction",
    "alphas": "a number for each function",
    "betas": "a number for each function",
    "clip": "a bound of the gates' sums, 0 for none",
    "coupled": "true or false: f = 1 - i of an LSTM",
    "reset_last": "true or false: a GRU's reset gate multiplies the product",
    "batch_first": "true or false",
}

RECURRENT = Operator(
    "recurrent",
    roles=(
        *("input", "weight", "recurrence", "bias", "lengths"),
        *("initial_h", "initial_c", "peepholes", *_SCALES.values()),
    ),
    optional=("bias", "lengths", "initial_h", "initial_c", "peepholes", *_SCALES.values()),
    attributes=_ATTRIBUTES,
    results=RESULTS,
    about="the steps of a recurrent layer, one direction or both; the weights, biases and order of"
    " gates are those of ONNX",
    macs=_macs,
    named_by=("kind",),
    facts=Facts(
        ranks={"input": 3, "weight": 3, "recurrence": 3},
        names=("steps", "batch", "inputs", "units", "directions"),
        numbers=_numbers,
        told_by=dict.fromkeys(_ATTRIBUTES, ()),
    ),
    kernels=Kernels(lower, dtypes, supports, algorithm=algorithm, computes=computes),
    samples=_samples,
)

OPERATORS = (RECURRENT,)
