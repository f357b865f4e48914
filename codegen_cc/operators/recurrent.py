"""recurrent: a layer of an RNN, a GRU or an LSTM as one product and one call of ``ext_recurrent``.

The products of the inputs of all steps and both directions are one matrix product.  Columns of its
weight lie as ``ext_recurrent`` reads them, the gates of 16 units side by side, so that the steps
find all sums of a unit together.  Gates are in ONNX's order: z, u, n of a GRU, i, o, f, n of an
LSTM.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from codegen_cc.dim import Dim, product
from codegen_cc.dtypes import SINGLE
from codegen_cc.node import Node, Result
from codegen_cc.operator import Facts, Kernels, Number, Operator
from codegen_cc.operators.dtype_rules import as_stored, one_of
from codegen_cc.operators.operands import all_constant, not_constant
from codegen_cc.operators.packing import FLOAT32_PANELS, PANEL
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
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

_CONSTANTS = ("weight", "recurrence", "bias", "peepholes")


def functions_of(attrs: dict[str, Any], direction: int) -> list[tuple[str, float, float]]:
    """Name, alpha and beta of the functions of a direction."""
    chosen = slice(FUNCTIONS_EACH * direction, FUNCTIONS_EACH * (direction + 1))
    names = ("functions", "alphas", "betas")
    return list(zip(*(attrs[name][chosen] for name in names), strict=True))


def backwards(attrs: dict[str, Any], direction: int) -> bool:
    """Whether a direction runs from the last step to the first."""
    return direction == 1 or attrs["direction"] == REVERSE


def dtypes(node: Node) -> str | None:
    """float32 but for lengths, which are int32."""
    for operand in node.operands:
        wanted = "int32" if operand.role == "lengths" else SINGLE
        if reason := one_of(operand.role, operand.dtype, (wanted,)):
            return reason
    return as_stored(node) or one_of("result", node.dtype, (SINGLE,))


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
    operands = [_panels(node, builder), _reset_bias(node, builder), _peepholes(node, builder)]
    operands += [_plain(node, builder, role) for role in ("lengths", "initial_h", "initial_c")]
    cell = last[1] if len(last) > 1 else None
    arguments = [Struct("ext_recurrent_params", fields), sums, *operands, y, last[0], cell]
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
    attrs, weight = node.node.attrs, node.role("weight").data
    matrix = _columns(attrs, weight)
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
    epilogue = None
    if node.role("bias") is not None:
        epilogue = Struct("ext_epilogue", {"bias": builder.constant(_input_bias(node))})
    panels = builder.constant(FLOAT32_PANELS.pack(matrix[None]))
    comment = f"{node.node.composite}, inputs: {list(x.shape)} x {list(matrix.shape)}"
    arguments = [Struct("ext_matmul_params", fields), x, panels, epilogue, sums]
    builder.call("ext_matmul_packed", arguments, sums, comment)
    return sums


def _in_blocks(attrs: dict[str, Any], array: np.ndarray, gates: int | None = None) -> np.ndarray:
    """[directions, gates * units, ...] as [directions, blocks, gates, 16, ...], zero past units."""
    gates = gates or GATES[attrs["kind"]]
    directions, rows, *rest = array.shape
    split = array.reshape(directions, gates, rows // gates, *rest)
    padding = [(0, 0), (0, 0), (0, -(rows // gates) % PANEL), *[(0, 0)] * len(rest)]
    wide = np.pad(split, padding)
    blocks = wide.reshape(directions, gates, -1, PANEL, *rest)
    return np.ascontiguousarray(blocks.swapaxes(1, 2))


def _columns(attrs: dict[str, Any], weight: np.ndarray) -> np.ndarray:
    """The weight [directions, gates * units, inputs] as a matrix [inputs, columns]."""
    return _in_blocks(attrs, weight).reshape(-1, weight.shape[-1]).T


def _input_bias(node: RegionNode) -> np.ndarray:
    """Both biases of each column, but for the one that a reset gate multiplies."""
    attrs, bias = node.node.attrs, node.role("bias").data
    one, other = np.split(bias.astype(np.double), 2, axis=1)
    if attrs["kind"] == GRU and attrs["reset_last"]:
        other = other.copy()
        other[:, 2 * other.shape[1] // 3 :] = 0
    return _in_blocks(attrs, (one + other).astype(np.single)).reshape(-1)


def _panels(node: RegionNode, builder: PlanBuilder) -> Tensor:
    """The recurrent weight: [directions, blocks, units, gates, 16], for a GRU in two parts."""
    attrs = node.node.attrs
    blocks = _in_blocks(attrs, node.role("recurrence").data).transpose(0, 1, 4, 2, 3)
    if _kind(attrs) != "EXT_GRU":
        return builder.constant(np.ascontiguousarray(blocks))
    parts = [blocks[:, :, :, :2], blocks[:, :, :, 2:]]
    flat = [part.reshape(len(blocks), -1) for part in parts]
    return builder.constant(np.ascontiguousarray(np.concatenate(flat, axis=1)))


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
        *("initial_h", "initial_c", "peepholes"),
    ),
    optional=("bias", "lengths", "initial_h", "initial_c", "peepholes"),
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
    kernels=Kernels(lower, dtypes, supports),
    samples=_samples,
)

OPERATORS = (RECURRENT,)
