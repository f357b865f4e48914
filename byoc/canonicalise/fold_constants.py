"""Evaluate operators whose operands are all constants, with numpy.

Reshape, transpose and slice of a weight are the common cases and share or move its bytes once;
TVM's FoldConstant would compile a function for each.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import tvm
from tvm import relax

from byoc.canonicalise.dequantised_weights import dequantised, is_kept
from byoc.ir.dataflow import Block, Constant, array_of, constant, op_name, static_shape_of
from byoc.ir.walk import items_of, operands_of
from codegen_cc.dim import is_static, slice_bounds
from codegen_cc.dtypes import KERNEL_NUMBERS
from codegen_cc.region.relax_dims import relax_dims

Folder = Callable[[relax.Call, list[np.ndarray]], np.ndarray | None]


def _to_shape(call: relax.Call, arrays: list[np.ndarray]) -> np.ndarray:
    return arrays[0].reshape(static_shape_of(call))


def _permute(call: relax.Call, arrays: list[np.ndarray]) -> np.ndarray:
    axes = call.attrs.axes
    return np.transpose(arrays[0], None if axes is None else [int(axis) for axis in axes])


def _concat(call: relax.Call, arrays: list[np.ndarray]) -> np.ndarray:
    axis = call.attrs.axis
    if axis is None:
        return np.concatenate([array.ravel() for array in arrays])
    return np.concatenate(arrays, axis=int(axis))


def _take(call: relax.Call, arrays: list[np.ndarray]) -> np.ndarray | None:
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    source, indices = arrays
    extent = source.size if axis is None else source.shape[axis]
    first = 0 if call.attrs.mode == "nan" else -extent
    if indices.size and not first <= indices.min() <= indices.max() < extent:
        return None  # what happens then depends on TVM's mode
    return np.take(source, indices, axis=axis)


def _slice(call: relax.Call, arrays: list[np.ndarray]) -> np.ndarray | None:
    """Bounds of numbers alone, clamped to the axis."""
    lists = [relax_dims(items_of(values)) for values in call.args[1:]]
    if not all(map(is_static, lists)):
        return None
    axes, begins, ends, steps = (*lists, (1,) * len(lists[0]))[:4]
    if min(steps, default=1) <= 0:
        return None
    (array,) = arrays
    cut = [slice(None)] * array.ndim
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        cut[axis] = slice(*slice_bounds(begin, end, array.shape[axis], step), step)
    return array[tuple(cut)]


def _arithmetic(function: Callable[..., np.ndarray]) -> Folder:
    def fold(call: relax.Call, arrays: list[np.ndarray]) -> np.ndarray:
        with np.errstate(all="ignore"):
            return function(*arrays)

    return fold


def _divide(call: relax.Call, arrays: list[np.ndarray]) -> np.ndarray | None:
    if not str(call.ty.dtype).startswith("float"):
        return None  # TVM truncates integers
    with np.errstate(all="ignore"):
        return np.divide(*arrays)


def _extreme(function: Callable[..., np.ndarray]) -> Folder:
    """The greatest or least along axes: of infinities too, which TVM's reductions begin below."""

    def fold(call: relax.Call, arrays: list[np.ndarray]) -> np.ndarray | None:
        axes = call.attrs.axis
        if 0 in arrays[0].shape:
            return None
        axis = None if axes is None else tuple(map(int, axes))
        return np.asarray(function(arrays[0], axis=axis, keepdims=bool(call.attrs.keepdims)))

    return fold


def _mean(call: relax.Call, arrays: list[np.ndarray]) -> np.ndarray | None:
    """Of floats, summed in double precision: standardised weights have many."""
    dtype, axes = str(call.ty.dtype), call.attrs.axis
    if 0 in arrays[0].shape or dtype not in ("float32", "float64"):
        return None
    axis = None if axes is None else tuple(map(int, axes))
    keepdims = bool(call.attrs.keepdims)
    return np.asarray(np.mean(arrays[0], axis=axis, keepdims=keepdims, dtype="float64"), dtype)


def _in_double(function: Callable[..., np.ndarray]) -> Folder:
    """Of floats, computed in double precision and rounded once."""

    def fold(call: relax.Call, arrays: list[np.ndarray]) -> np.ndarray | None:
        dtype = str(call.ty.dtype)
        if dtype not in ("float32", "float64") or any(a.dtype != dtype for a in arrays):
            return None
        with np.errstate(all="ignore"):
            return function(*(array.astype("float64") for array in arrays)).astype(dtype)

    return fold


def _pad(call: relax.Call, arrays: list[np.ndarray]) -> np.ndarray | None:
    if call.attrs.pad_mode != "constant":
        return None
    widths = np.reshape([int(width) for width in call.attrs.pad_width], (-1, 2))
    return np.pad(arrays[0], widths, constant_values=float(call.attrs.pad_value))


def _fill(call: relax.Call, arrays: list[np.ndarray]) -> np.ndarray:
    """``full`` has its value as an operand, ``zeros`` and ``ones`` have it in their name."""
    name = op_name(call)
    value = arrays[-1] if "full" in name else 1 if "ones" in name else 0
    return np.full(static_shape_of(call), value, str(call.ty.dtype))


def _arange(call: relax.Call, arrays: list[np.ndarray]) -> np.ndarray | None:
    numbers = [getattr(argument, "value", None) for argument in call.args]
    if not all(isinstance(number, int | float) for number in numbers):
        return None
    return np.arange(*numbers, dtype=str(call.ty.dtype))


def _triangle(call: relax.Call, arrays: list[np.ndarray]) -> np.ndarray | None:
    diagonal = getattr(call.args[1], "value", None)
    function = np.tril if op_name(call) == "relax.tril" else np.triu
    return function(arrays[0], diagonal) if isinstance(diagonal, int) else None


#: Operators that need no constant operand: their result depends on shapes and numbers alone.
GENERATORS: dict[str, Folder] = {
    "relax.zeros": _fill,
    "relax.ones": _fill,
    "relax.zeros_like": _fill,
    "relax.ones_like": _fill,
    "relax.arange": _arange,
}

FOLDERS: dict[str, Folder] = {
    "relax.full": _fill,
    "relax.full_like": _fill,
    "relax.tril": _triangle,
    "relax.triu": _triangle,
    "relax.less_equal": _arithmetic(np.less_equal),
    "relax.greater_equal": _arithmetic(np.greater_equal),
    "relax.not_equal": _arithmetic(np.not_equal),
    "relax.logical_and": _arithmetic(np.logical_and),
    "relax.logical_or": _arithmetic(np.logical_or),
    "relax.logical_not": _arithmetic(np.logical_not),
    "relax.reshape": _to_shape,
    "relax.squeeze": _to_shape,
    "relax.expand_dims": _to_shape,
    "relax.flatten": _to_shape,
    "relax.permute_dims": _permute,
    "relax.strided_slice": _slice,
    "relax.broadcast_to": lambda call, arrays: np.broadcast_to(arrays[0], static_shape_of(call)),
    "relax.concat": _concat,
    "relax.take": _take,
    "relax.stack": lambda call, arrays: np.stack(arrays, axis=int(call.attrs.axis)),
    "relax.astype": lambda call, arrays: arrays[0].astype(str(call.attrs.dtype)),
    "relax.isnan": _arithmetic(np.isnan),
    "relax.where": _arithmetic(np.where),
    "relax.add": _arithmetic(np.add),
    "relax.subtract": _arithmetic(np.subtract),
    "relax.multiply": _arithmetic(np.multiply),
    "relax.maximum": _arithmetic(np.maximum),
    "relax.minimum": _arithmetic(np.minimum),
    "relax.nn.pad": _pad,
    "relax.max": _extreme(np.max),
    "relax.min": _extreme(np.min),
    "relax.mean": _mean,
    "relax.divide": _divide,
    "relax.less": _arithmetic(np.less),
    "relax.greater": _arithmetic(np.greater),
    "relax.equal": _arithmetic(np.equal),
    "relax.sqrt": _arithmetic(np.sqrt),
    "relax.negative": _arithmetic(np.negative),
    "relax.matmul": _in_double(np.matmul),
    "relax.nn.relu": _in_double(lambda x: np.maximum(x, 0.0)),
    "relax.sigmoid": _in_double(lambda x: 1.0 / (1.0 + np.exp(-x))),
    "relax.tanh": _in_double(np.tanh),
    "relax.exp": _in_double(np.exp),
    "relax.log": _in_double(np.log),
    "relax.sin": _in_double(np.sin),
    "relax.cos": _in_double(np.cos),
    "relax.dequantize": dequantised,
}

#: Bytes of a result that may be larger than twice its operands.
MAX_GROWN = 1 << 26

#: Dtypes that numpy computes in the same way as TVM.
DTYPES = (*KERNEL_NUMBERS, "float64")


def fold_constants(block: Block) -> None:
    """Replace every variable bound to a constant expression by its value, in one sweep."""
    for var in block.ordered():
        value = block.values.get(var)
        if value is None:
            continue
        if isinstance(value, Constant | relax.Var):
            block.alias(var, value)
            continue
        extents = _extents(block, value)
        if extents is not None:
            block.alias(var, constant(np.array(extents), "int64"))
            continue
        name = op_name(value) or ""
        folder = FOLDERS.get(name) or GENERATORS.get(name)
        if folder is None or static_shape_of(value) is None or str(value.ty.dtype) not in DTYPES:
            continue
        if is_kept(block, var):
            continue
        arrays = [] if name in GENERATORS else _operands(value)
        if arrays is None or is_far_larger(value, sum(array.nbytes for array in arrays)):
            continue
        result = folder(value, arrays)
        dtype = str(value.ty.dtype)
        if result is not None and result.shape == static_shape_of(value):
            block.alias(var, constant(result, dtype))


def is_far_larger(call: relax.Call, operands: int) -> bool:
    """Whether a result is too large to be stored in place of operands of so many bytes.

    Weights in another form are as large as before. A few numbers may ask for gigabytes.
    """
    shape = static_shape_of(call)
    if shape is None:
        return False
    nbytes = prod(shape) * np.dtype(str(call.ty.dtype)).itemsize
    return nbytes > max(MAX_GROWN, 2 * operands)


def _extents(block: Block, value: relax.Expr) -> tuple[int, ...] | None:
    """The numbers in ``shape_to_tensor`` of a static shape, or of that of x."""
    if op_name(value) != "relax.shape_to_tensor":
        return None
    if isinstance(value.args[0], relax.ShapeExpr):
        numbers = value.args[0].values
        fixed = all(isinstance(number, tvm.tirx.IntImm) for number in numbers)
        return tuple(map(int, numbers)) if fixed else None
    inquiry = block.call(value.args[0], "relax.shape_of")
    return static_shape_of(inquiry.args[0]) if inquiry is not None else None


def _operands(call: relax.Call) -> list[np.ndarray] | None:
    """The values of all tensor operands; None if one is no constant of a known dtype."""
    arrays: list[np.ndarray] = []
    for item in operands_of(call):
        if isinstance(item, relax.ShapeExpr | tvm.tirx.IntImm):
            continue
        if not isinstance(item, Constant) or str(item.ty.dtype) not in DTYPES:
            return None
        arrays.append(array_of(item))
    return arrays or None
