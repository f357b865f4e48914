"""Graphs by NNSmith's generator (core operators), turned into ONNX without PyTorch.

NNSmith solves constraints on shapes with Z3; its own ONNX back end writes what PyTorch exports.
Here each of its operators is one ONNX operator or a few, by the table ``CONVERSIONS``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would like to draw pictures
    from nnsmith.abstract.op import FULL_OPERATOR_SETS, Constant, Input
    from nnsmith.error import ConstraintError
    from nnsmith.graph_gen import model_gen

from tests.fuzz.draft import FLOATS, Draft, Drawn, Unusable

MOST_NODES = 8
SECONDS_TO_DRAW = 5
OPSETS = (13, 15, 17, 18, 20)
#: As PyTorch's exporter has it.
LEAKY_SLOPE = 0.01

Convert = Callable[[Draft, Any, list[str]], str]


def draw(seed: int, special: bool = False) -> Drawn:
    """The graph of a seed."""
    opset = OPSETS[seed // 5 % len(OPSETS)]
    for attempt in range(100):
        number = seed * 100 + attempt
        try:
            generated = model_gen(
                opset=FULL_OPERATOR_SETS["core"],
                method="symbolic-cinit",
                seed=number,
                max_nodes=1 + number % MOST_NODES,
                timeout_ms=SECONDS_TO_DRAW * 1000,
                max_elem_per_tensor=4096,
            )
        except (ConstraintError, AssertionError):
            continue
        draft = Draft(number, opset, special=special)
        try:
            _convert(draft, generated.make_concrete())
            return draft.finish()
        except Unusable:
            continue
    raise RuntimeError(f"seed {seed} gives no graph")


def _convert(draft: Draft, graph: Any) -> None:
    """Add what can be added; operators on values that are not there are left out."""
    names: dict[str, str] = {}
    for instruction in graph.insts:
        op, result = instruction.iexpr.op, instruction.retval()
        if isinstance(op, (Input, Constant)):
            tensor = graph.vars[result]
            dtype = np.dtype(tensor.dtype.numpy()).name
            if dtype not in (*FLOATS, "int32", "int64", "int8", "uint8", "int16", "bool"):
                continue  # complex numbers are none of ONNX Runtime's
            shape = [int(extent) for extent in tensor.shape]
            if isinstance(op, Constant):
                names[result] = draft.constant(draft.array(shape, dtype), fixed=False)
            else:
                names[result] = draft.input(shape, dtype)
            continue
        if any(name not in names for name in instruction.iexpr.args):
            continue
        try:
            names[result] = convert(draft, op, [names[n] for n in instruction.iexpr.args])
        except Unusable:
            continue


def convert(draft: Draft, op: Any, inputs: list[str]) -> str:
    """Add one of NNSmith's operators. Raises ``Unusable``, ``KeyError`` for one of no table."""
    kind = type(op).__name__
    if kind in PLAIN:
        return draft.op(PLAIN[kind], inputs)
    return CONVERSIONS[kind](draft, op, inputs)


PLAIN = {
    **{name: name for name in ("Where", "Add", "Sub", "Mul", "Max", "Min", "Equal", "Greater")},
    **{name: name for name in ("Less", "And", "Or", "Xor", "Div", "Pow", "Sigmoid", "Sin", "Cos")},
    **{name: name for name in ("Asin", "Acos", "Tan", "Atan", "Abs", "Ceil", "Floor", "Round")},
    **{name: name for name in ("Sqrt", "Neg", "MatMul")},
    "ReLU": "Relu",
}


def _ints(draft: Draft, values: Any) -> str:
    return draft.constant(np.array([int(v) for v in values], "int64"))


def _gelu(draft: Draft, op: Any, inputs: list[str]) -> str:
    (x,) = inputs
    if draft.opset >= 20:
        return draft.op("Gelu", [x])
    dtype = draft.dtype(x)
    root, one, half = (draft.constant(np.asarray(v, dtype)) for v in (2**0.5, 1, 0.5))
    inner = draft.op("Add", [draft.op("Erf", [draft.op("Div", [x, root])]), one])
    return draft.op("Mul", [draft.op("Mul", [x, inner]), half])


def _clip(draft: Draft, op: Any, inputs: list[str]) -> str:
    dtype = draft.dtype(inputs[0])
    bound = 1.5 if dtype in FLOATS else 1
    least = 0 if np.dtype(dtype).kind == "u" else -bound
    bounds = [draft.constant(np.asarray(v, dtype)) for v in (least, bound)]
    return draft.op("Clip", [*inputs, *bounds])


def _log2(draft: Draft, op: Any, inputs: list[str]) -> str:
    divisor = draft.constant(np.asarray(np.log(2), draft.dtype(inputs[0])))
    return draft.op("Div", [draft.op("Log", inputs), divisor])


def _pool(kind: str) -> Convert:
    def convert_pool(draft: Draft, op: Any, inputs: list[str]) -> str:
        extra = {"count_include_pad": 1} if kind == "AveragePool" else {}
        kernel = [int(op.kernel_h_size), int(op.kernel_w_size)]
        strides, pads = [int(op.stride)] * 2, [int(op.padding)] * 4
        return draft.op(kind, inputs, kernel_shape=kernel, strides=strides, pads=pads, **extra)

    return convert_pool


def _slice(draft: Draft, op: Any, inputs: list[str]) -> str:
    axis = op.extra_attrs["axis"]
    region, extent = op.extra_attrs["region"], draft.shape(inputs[0])[axis]
    begin, end = int(op.start), int(op.end)
    if region in ("left", "mid"):
        begin -= extent
    if region == "left" and end < extent:
        end -= extent
    return draft.op("Slice", [*inputs, *(_ints(draft, [v]) for v in (begin, end, axis, op.step))])


def _pad(mode: str) -> Convert:
    def convert_pad(draft: Draft, op: Any, inputs: list[str]) -> str:
        rank, pads = draft.rank(inputs[0]), [int(v) for v in op.padding_list]
        before, after = [0] * rank, [0] * rank
        for index in range(len(pads) // 2):  # PyTorch begins with the last axis
            before[rank - 1 - index], after[rank - 1 - index] = pads[2 * index : 2 * index + 2]
        fill = []
        if mode == "constant":
            fill = [draft.constant(np.asarray(0.5, draft.dtype(inputs[0])))]
        return draft.op("Pad", [*inputs, _ints(draft, [*before, *after]), *fill], mode=mode)

    return convert_pad


def _expand(draft: Draft, op: Any, inputs: list[str]) -> str:
    return draft.op("Expand", [*inputs, _ints(draft, op.output_like[0].shape)])


def _batch_norm(draft: Draft, op: Any, inputs: list[str]) -> str:
    channels = int(op.nfeat)
    scale, bias, mean = (draft.weight((channels,)) for _ in range(3))
    variance = draft.constant(np.abs(draft.array((channels,))) + np.float32(0.5))
    return draft.op("BatchNormalization", [*inputs, scale, bias, mean, variance])


def _conv(draft: Draft, op: Any, inputs: list[str]) -> str:
    one = hasattr(op, "kernel_size")
    kernel = [int(op.kernel_size)] if one else [int(op.kernel_h_size), int(op.kernel_w_size)]
    dilations = [int(op.dilation)] if one else [int(op.dilation_h), int(op.dilation_w)]
    form = (int(op.out_channels), int(op.in_channels), *kernel)
    weight = draft.weight(form, float(np.prod(form[1:])) ** -0.5)
    return draft.op(
        "Conv",
        [*inputs, weight, draft.weight(form[:1])],
        kernel_shape=kernel,
        dilations=dilations,
        strides=[int(op.stride)] * len(kernel),
        pads=[int(op.padding)] * (2 * len(kernel)),
    )


def _reshape(draft: Draft, op: Any, inputs: list[str]) -> str:
    return draft.op("Reshape", [*inputs, _ints(draft, op.target_shape)])


def _transpose(draft: Draft, op: Any, inputs: list[str]) -> str:
    order = list(range(draft.rank(inputs[0])))
    a, b = op.extra_attrs["dim0"], op.extra_attrs["dim1"]
    order[a], order[b] = order[b], order[a]
    return draft.op("Transpose", inputs, perm=order)


def _resize(mode: str, transform: str) -> Convert:
    def convert_resize(draft: Draft, op: Any, inputs: list[str]) -> str:
        sizes = _ints(draft, [*draft.shape(inputs[0])[:2], *op.size])
        extra = {"nearest_mode": "floor"} if mode == "nearest" else {}
        extra |= {"cubic_coeff_a": -0.75} if mode == "cubic" else {}
        return draft.op(
            "Resize",
            [*inputs, "", "", sizes],
            mode=mode,
            coordinate_transformation_mode=transform,
            **extra,
        )

    return convert_resize


def _reduce(kind: str) -> Convert:
    def convert_reduction(draft: Draft, op: Any, inputs: list[str]) -> str:
        axis = op.extra_attrs["reduce_dim"]
        if kind in ("ArgMax", "ArgMin"):
            if axis is None:
                flat = draft.op("Reshape", [*inputs, _ints(draft, [-1])])
                return draft.op(kind, [flat], axis=0, keepdims=0)
            return draft.op(kind, inputs, axis=int(axis), keepdims=0)
        if kind == "Squeeze" or kind == "ReduceSum" or draft.opset >= 18:
            axes = [] if axis is None else [_ints(draft, [axis])]
            keep = {} if kind == "Squeeze" else {"keepdims": 0}
            return draft.op(kind, [*inputs, *axes], **keep)
        return draft.op(kind, inputs, axes=None if axis is None else [int(axis)], keepdims=0)

    return convert_reduction


def _triangle(upper: int) -> Convert:
    def convert_triangle(draft: Draft, op: Any, inputs: list[str]) -> str:
        offset = draft.constant(np.array(int(op.diagonal), "int64"))
        return draft.op("Trilu", [*inputs, offset], upper=upper)

    return convert_triangle


def _cast(draft: Draft, op: Any, inputs: list[str]) -> str:
    to = np.dtype(op.extra_attrs["to"].numpy())
    return draft.op("Cast", inputs, to=helper.np_dtype_to_tensor_dtype(to))


def _concat(draft: Draft, op: Any, inputs: list[str]) -> str:
    return draft.op("Concat", inputs, axis=op.extra_attrs["axis"])


CONVERSIONS: dict[str, Convert] = {
    "GELU": _gelu,
    "LeakyReLU": lambda draft, op, inputs: draft.op("LeakyRelu", inputs, alpha=LEAKY_SLOPE),
    "PReLU": lambda draft, op, inputs: draft.op("PRelu", [*inputs, draft.weight((1,))]),
    "Clip": _clip,
    "Log2": _log2,
    "Softmax": lambda draft, op, inputs: draft.op("Softmax", inputs, axis=int(op.dim)),
    "MaxPool2d": _pool("MaxPool"),
    "AvgPool2d": _pool("AveragePool"),
    "Slice": _slice,
    "ConstPad": _pad("constant"),
    "ReplicatePad": _pad("edge"),
    "ReflectPad": _pad("reflect"),
    **{f"ExpandLast{n}": _expand for n in range(1, 5)},
    "BatchNorm2d": _batch_norm,
    "Conv1d": _conv,
    "NCHWConv2d": _conv,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "NearestInterp": _resize("nearest", "asymmetric"),
    "LinearInterp": _resize("linear", "half_pixel"),
    "BilinearInterp": _resize("linear", "pytorch_half_pixel"),
    "BicubicInterp": _resize("cubic", "half_pixel"),
    "TrilinearInterp": _resize("linear", "half_pixel"),
    **{name: _reduce(name) for name in ("ReduceSum", "ReduceMin", "ReduceMax", "ReduceMean")},
    **{name: _reduce(name) for name in ("ReduceProd", "ArgMin", "ArgMax", "Squeeze")},
    "Tril": _triangle(0),
    "Triu": _triangle(1),
    **{f"Concat{n}": _concat for n in range(1, 6)},
    **{f"Cast{n}": _cast for n in ("F32", "F64", "I32", "I64", "Bool")},
}
