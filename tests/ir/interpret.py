"""What partitioned modules compute, without any kernel of ours.

``run_with_tvm`` lets TVM compile a module. ``Interpreter`` computes what node descriptors say, in
numpy and fp64, so that a descriptor which misstates its composite shows.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from byoc.partition.prune import prune
from codegen_cc.node import (
    CONSTANT_FUNCTION,
    CONSTANTS_ATTRIBUTE,
    NODE_ATTRIBUTE,
    Node,
    Step,
)
from tests.unary_functions import apply_function

from .resize import resize2d

#: Code that runs once: to optimise it takes two thirds of the time of a test.
REFERENCE_TARGET = {"kind": "llvm", "opt-level": 0}


def run_with_tvm(mod: tvm.IRModule, *inputs: np.ndarray) -> list[np.ndarray]:
    """Compile for the CPU and run ``main``; the results as a list."""
    executable = tvm.compile(mod, tvm.target.Target(REFERENCE_TARGET))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(array) for array in inputs))
    results = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    return [tensor.numpy() for tensor in results]


def without_regions(mod: tvm.IRModule) -> tvm.IRModule:
    """Put the operators of all regions back in their place; constants must still be there."""
    return prune(mod, verdict=lambda nodes: "test")


def _windows(node: Node, x: np.ndarray, size: list[int], fill: float) -> np.ndarray:
    """[batch, channel, row, column, tap row, tap column] of a padded image."""
    attrs = node.attrs
    top, left, bottom, right = attrs["padding"]
    reach = [(taps - 1) * d + 1 for taps, d in zip(size, attrs["dilation"], strict=True)]
    # Room for windows that ceil_mode lets begin inside the padding and end beyond it.
    room = [s - 1 for s in attrs["strides"]] if attrs.get("ceil_mode") else [0, 0]
    pads = ((0, 0), (0, 0), (top, bottom + room[0]), (left, right + room[1]))
    padded = np.pad(x, pads, constant_values=fill)
    views = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(2, 3))
    down, across = attrs["strides"]
    views = views[:, :, ::down, ::across, :: attrs["dilation"][0], :: attrs["dilation"][1]]
    return views[:, :, : node.shape[2], : node.shape[3]]


def _conv2d(node: Node, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    groups = node.attrs["groups"]
    views = _windows(node, x, list(w.shape[2:]), 0.0)
    parts = [
        np.einsum("nchwij,ocij->nohw", image, weight)
        for image, weight in zip(
            np.split(views, groups, axis=1), np.split(w, groups, axis=0), strict=True
        )
    ]
    return np.concatenate(parts, axis=1)


def _conv3d(node: Node, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    attrs = node.attrs
    pads = [(0, 0), (0, 0), *zip(attrs["padding"][:3], attrs["padding"][3:], strict=True)]
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], attrs["dilation"], strict=True)]
    views = np.lib.stride_tricks.sliding_window_view(np.pad(x, pads), reach, axis=(2, 3, 4))
    a, b, c = attrs["strides"]
    i, j, k = attrs["dilation"]
    views = views[:, :, ::a, ::b, ::c, ::i, ::j, ::k]
    groups = attrs["groups"]
    parts = [
        np.einsum("ncdhwijk,ocijk->nodhw", volume, weight)
        for volume, weight in zip(
            np.split(views, groups, axis=1), np.split(w, groups, axis=0), strict=True
        )
    ]
    return np.concatenate(parts, axis=1)


def _conv2d_transpose(node: Node, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Every input pixel adds its weighted window to the result; padding is cut off at the end."""
    attrs, groups = node.attrs, node.attrs["groups"]
    (down, across), (dy, dx) = attrs["strides"], attrs["dilation"]
    top, left = attrs["padding"][:2]
    height, width = node.shape[2:]
    whole = np.zeros((*node.shape[:2], height + 4 * top + 99, width + 4 * left + 99))
    for g, (image, weight, out) in enumerate(
        zip(
            np.split(x, groups, axis=1),
            np.split(w, groups, axis=0),
            np.split(whole, groups, axis=1),
            strict=True,
        )
    ):
        assert g < groups
        for i in range(w.shape[2]):
            for j in range(w.shape[3]):
                part = np.einsum("nchw,co->nohw", image, weight[:, :, i, j])
                rows = slice(i * dy, i * dy + part.shape[2] * down, down)
                columns = slice(j * dx, j * dx + part.shape[3] * across, across)
                out[:, :, rows, columns] += part
    return whole[:, :, top : top + height, left : left + width]


def _pool(node: Node, x: np.ndarray) -> np.ndarray:
    size = node.attrs["pool_size"]
    if node.op == "max_pool2d":
        return _windows(node, x, size, np.finfo("float32").min).max(axis=(-2, -1))
    total = _windows(node, x, size, 0.0).sum(axis=(-2, -1))
    if node.attrs["count_include_pad"]:
        return total / np.prod(size)
    return total / _windows(node, np.ones_like(x), size, 0.0).sum(axis=(-2, -1))


def _layer_norm(node: Node, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    axes = tuple(node.attrs["axes"])
    centred = x - x.mean(axes, keepdims=True)
    variance = (centred**2).mean(axes, keepdims=True)
    return centred / np.sqrt(variance + node.attrs["epsilon"]) * gamma + beta


def _group_norm(node: Node, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    parts = x.reshape(x.shape[0], node.attrs["groups"], -1)
    centred = parts - parts.mean(2, keepdims=True)
    variance = (centred**2).mean(2, keepdims=True)
    normal = (centred / np.sqrt(variance + node.attrs["epsilon"])).reshape(x.shape)
    wide = (-1, *(1,) * (x.ndim - 2))
    return normal * gamma.reshape(wide) + beta.reshape(wide)


def _grouped_matmul(x: np.ndarray, group: np.ndarray, *matrices: np.ndarray) -> np.ndarray:
    made = np.zeros((len(x), matrices[0].shape[1]))
    for number, matrix in enumerate(matrices):
        own = group[:, 0] == number
        made[own] = x[own] @ matrix
    return made


def _rotary(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray) -> np.ndarray:
    first, second = np.split(x, 2, axis=-1)
    wide = cosine.shape[-1] == x.shape[-1]
    cosine, sine = (t if wide else np.concatenate([t, t], -1) for t in (cosine, sine))
    return x * cosine + np.concatenate([-second, first], -1) * sine


def _rms_norm(node: Node, x: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    square = (x**2).mean(tuple(node.attrs["axes"]), keepdims=True)
    return x / np.sqrt(square + node.attrs["epsilon"]) * gamma


def _lrn(node: Node, x: np.ndarray) -> np.ndarray:
    attrs, size = node.attrs, node.attrs["size"]
    widths = [(0, 0), ((size - 1) // 2, size // 2)] + [(0, 0)] * (x.ndim - 2)
    squares = np.pad(x**2, widths)
    mean = sum(squares[:, k : k + x.shape[1]] for k in range(size)) / size
    return x / (attrs["bias"] + attrs["alpha"] * mean) ** attrs["beta"]


def _quantize(node: Node, x: np.ndarray, *parameters: np.ndarray) -> np.ndarray:
    scale, zero = (_along(node, value, x.ndim) for value in parameters)
    limits = np.iinfo(node.dtype)
    whole = np.rint(np.float32(x) / np.float32(scale)) + zero
    whole = np.where(np.isnan(whole), limits.min, whole)
    return np.clip(whole, limits.min, limits.max).astype(node.dtype)


def _dequantize(node: Node, x: np.ndarray, *parameters: np.ndarray) -> np.ndarray:
    scale, zero = (_along(node, value, x.ndim) for value in parameters)
    return (x.astype("int64") - zero) * scale


def _along(node: Node, values: np.ndarray, rank: int) -> np.ndarray:
    """Scales or zero points, to be repeated along all axes but their own."""
    return values.reshape([-1 if axis == node.attrs["axis"] else 1 for axis in range(rank)])


def _attention(
    node: Node, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | float = 0.0
) -> np.ndarray:
    scores = np.einsum("bhsd,bhtd->bhst", q, k) * node.attrs["scale"] + mask
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    weights = powers / powers.sum(-1, keepdims=True)
    hidden = {1: np.isnan(weights), 2: np.isneginf(scores).all(-1, keepdims=True)}
    if guard := node.attrs.get("guarded", 0):
        weights = np.where(hidden[guard], 0.0, weights)
    return np.einsum("bhst,bhte->bhse", weights, v)


def _running(node: Node, x: np.ndarray) -> np.ndarray:
    axis = node.attrs["axis"]
    x = np.flip(x, axis) if node.attrs["reverse"] else x
    if node.op == "cumprod":
        sums = np.cumprod(x, axis)
        if node.attrs["exclusive"]:
            first = np.ones_like(np.take(x, [0], axis))
            sums = np.concatenate([first, np.delete(sums, -1, axis)], axis)
    else:
        sums = np.cumsum(x, axis)
        if node.attrs["exclusive"]:
            sums = sums - x
    return np.flip(sums, axis) if node.attrs["reverse"] else sums


def _pointed_at(node: Node, x: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, ...]:
    """Where the elements are that indices point at."""
    if "axis" in node.attrs:
        places = list(np.indices(indices.shape))
        places[node.attrs["axis"]] = indices
        return tuple(places)
    first = node.attrs.get("batch_dims", 0)
    return (*np.indices(indices.shape[:-1])[:first], *np.moveaxis(indices, -1, 0))


def _scatter(node: Node, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
    places, result = _pointed_at(node, x, indices), x.copy()
    if node.attrs["reduction"] == "update":
        result[places] = updates
    else:
        {"add": np.add, "mul": np.multiply}[node.attrs["reduction"]].at(result, places, updates)
    return result


def _argreduce(node: Node, x: np.ndarray) -> np.ndarray:
    function = {"argmax": np.argmax, "argmin": np.argmin}[node.attrs["kind"]]
    return function(x, axis=node.attrs["axis"], keepdims=node.attrs["keepdims"])


def _pad(node: Node, x: np.ndarray) -> np.ndarray:
    rank = x.ndim
    widths = list(zip(node.attrs["pads"][:rank], node.attrs["pads"][rank:], strict=True))
    if node.attrs["mode"] == "constant":
        return np.pad(x, widths, constant_values=node.attrs["value"])
    return np.pad(x, widths, mode=node.attrs["mode"])


def _softmax(node: Node, x: np.ndarray) -> np.ndarray:
    axis = node.attrs["axis"]
    shifted = x - x.max(axis, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))
    return logs if node.attrs["log"] else np.exp(logs)


_BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "pow": np.power,
    "prelu": lambda x, slope: np.where(x < 0, x * slope, x),
    "mod": np.fmod,
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "floor_div": np.floor_divide,
    "floor_mod": np.remainder,
}
_REDUCE = {
    "sum": np.sum,
    "mean": np.mean,
    "min": np.min,
    "max": np.max,
    "prod": np.prod,
    "sum_squares": lambda x, **how: np.sum(x * x, **how),
    "mean_squares": lambda x, **how: np.mean(x * x, **how),
}
_COMPARE = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
_LOGICAL = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _cast(x: np.ndarray, dtype: str) -> np.ndarray:
    """Floats as whole numbers that wrap, 0 where there is none."""
    if x.dtype.kind == "f" and np.dtype(dtype).kind in "iu":
        x = np.where(np.isfinite(x), x, 0).astype(np.int64)
    return x.astype(dtype)


def apply_node(node: Node, operands: list[np.ndarray]) -> np.ndarray:
    """The node's result, epilogue included; fp32 is computed in fp64, other dtypes in their own."""
    arrays = [np.asarray(array) for array in operands]
    for array, operand in zip(arrays, node.operands, strict=True):
        assert array.shape == operand.shape, (node, operand)
        assert array.dtype.kind == np.dtype(operand.dtype).kind, (node, operand)
    arrays = [a.astype("float64") if a.dtype.kind == "f" else a for a in arrays]
    attrs, x = node.attrs, arrays[0] if arrays else None
    operations = {
        "conv2d": lambda: _conv2d(node, *arrays[:2]),
        "matmul": lambda: np.matmul(*arrays[:2]),
        "max_pool2d": lambda: _pool(node, x),
        "avg_pool2d": lambda: _pool(node, x),
        "reduce": lambda: _REDUCE[attrs["kind"]](
            x, axis=tuple(attrs["axes"]), keepdims=attrs["keepdims"]
        ),
        "softmax": lambda: _softmax(node, x),
        "layer_norm": lambda: _layer_norm(node, *arrays),
        "unary": lambda: apply_function(attrs["kind"], attrs["alpha"], attrs["beta"], x),
        "binary": lambda: _BINARY[attrs["kind"]](*arrays[:2]),
        "reshape": lambda: x.reshape(node.shape),
        "permute": lambda: x.transpose(attrs["axes"]),
        "concat": lambda: np.concatenate(arrays, axis=attrs["axis"]),
        "slice": lambda: x[tuple(map(slice, attrs["begin"], attrs["end"], attrs["strides"]))],
        "broadcast_to": lambda: np.broadcast_to(x, node.shape),
        "conv2d_transpose": lambda: _conv2d_transpose(node, *arrays[:2]),
        "conv3d": lambda: _conv3d(node, *arrays[:2]),
        "group_norm": lambda: _group_norm(node, *arrays[:3]),
        "rms_norm": lambda: _rms_norm(node, *arrays),
        "rotary": lambda: _rotary(*arrays),
        "distances": lambda: (np.abs if attrs["kind"] == "absolute" else np.square)(
            arrays[0] - arrays[1]
        ).sum(attrs["axis"]),
        "grouped_matmul": lambda: _grouped_matmul(*arrays),
        "quantize": lambda: _quantize(node, *arrays),
        "dequantize": lambda: _dequantize(node, *arrays),
        "lrn": lambda: _lrn(node, *arrays),
        "attention": lambda: _attention(node, *arrays),
        "compare": lambda: _COMPARE[attrs["kind"]](*arrays),
        "logical": lambda: _LOGICAL[attrs["kind"]](*arrays),
        "where": lambda: np.where(*arrays),
        "cast": lambda: _cast(x, node.dtype),
        "take": lambda: np.take(x, arrays[1], axis=attrs["axis"]),
        **dict.fromkeys(("gather_elements", "gather_nd"), lambda: x[_pointed_at(node, *arrays)]),
        **dict.fromkeys(("scatter_elements", "scatter_nd"), lambda: _scatter(node, *arrays)),
        "arange": lambda: np.arange(*node.shape, dtype=node.dtype),
        "sizes": lambda: np.array(attrs["sizes"], node.dtype),
        "argreduce": lambda: _argreduce(node, x),
        "cumsum": lambda: _running(node, x),
        "cumprod": lambda: _running(node, x),
        "pad": lambda: _pad(node, x),
        "resize2d": lambda: resize2d(node, x),
    }
    with np.errstate(all="ignore"):
        value = operations[node.op]()
    extra = {o.role: a for o, a in zip(node.operands, arrays, strict=True)}
    for step in node.epilogue:
        value = _step(node, step, value, extra)
    assert value.shape == node.shape, node
    assert value.dtype.kind == np.dtype(node.dtype).kind, (node, value.dtype)
    return value


def _step(node: Node, step: Step, value: np.ndarray, extra: dict[str, np.ndarray]) -> np.ndarray:
    if step.kind == "bias":
        dims = (-1,) if node.op == "matmul" else (1, -1) + (1,) * (len(node.shape) - 2)
        return value + extra["bias"].reshape(dims)
    if step.kind == "residual":
        return value + extra["residual"]
    if step.kind == "factor":
        return value * extra["factor"]
    return apply_function(step.kind, step.alpha, step.beta, value)


class Interpreter:
    """Runs a partitioned module in which every operator was offloaded."""

    def __init__(self, mod: tvm.IRModule) -> None:
        self.mod = mod

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        """``main`` of these inputs; results in fp64."""
        result = self._function(self.mod["main"], list(inputs))
        return list(result) if isinstance(result, tuple) else [result]

    def _function(self, func: relax.Function, arguments: list[object]) -> object:
        values: dict[relax.Expr, object] = dict(zip(func.params, arguments, strict=True))
        self.constants = (func.attrs or {}).get(CONSTANTS_ATTRIBUTE, ())
        for block in func.body.blocks:
            for binding in block.bindings:
                values[binding.var] = self._value(binding.value, values)
        return self._value(func.body.body, values)

    def _value(self, expr: relax.Expr, values: dict[relax.Expr, object]) -> object:
        if isinstance(expr, tvm.ir.GenericConst):
            return expr.value.numpy()
        if isinstance(expr, relax.Var):
            return values[expr]
        if isinstance(expr, relax.Function):
            return Node.from_json(str(expr.attrs[NODE_ATTRIBUTE]))
        if isinstance(expr, relax.Tuple):
            return tuple(self._value(item, values) for item in expr.fields)
        if isinstance(expr, relax.TupleGetItem):
            return self._value(expr.tuple_value, values)[expr.index]
        assert isinstance(expr, relax.Call)
        if isinstance(expr.op, tvm.ir.Op):
            return self._constant(expr)
        arguments = [self._value(argument, values) for argument in expr.args]
        if isinstance(expr.op, tvm.ir.GlobalVar):
            return self._function(self.mod[expr.op], arguments)
        assert isinstance(expr.op, relax.Var), f"{expr.op} was not offloaded"
        return apply_node(values[expr.op], arguments)

    def _constant(self, call: relax.Call) -> np.ndarray:
        """A constant that the partitioner detached from the region."""
        assert call.op.name == "relax.call_pure_packed", f"{call.op.name} was not offloaded"
        assert call.args[0].global_symbol == CONSTANT_FUNCTION
        return self.constants[int(call.args[1].values[0])].numpy()
