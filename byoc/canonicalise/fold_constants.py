"""Evaluate operators whose operands are all constants, with numpy.

Reshape, transpose and slice of a weight are the common cases and share or move its bytes once;
TVM's FoldConstant would compile a function for each.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from ..dataflow import Block, Constant, array_of, constant, op_name, shape_of

Folder = Callable[[relax.Call, list[np.ndarray]], np.ndarray | None]


def _to_shape(call: relax.Call, arrays: list[np.ndarray]) -> np.ndarray:
    return arrays[0].reshape(shape_of(call))


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
    if indices.size and not -extent <= indices.min() <= indices.max() < extent:
        return None  # what happens then depends on TVM's mode
    return np.take(source, indices, axis=axis)


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


FOLDERS: dict[str, Folder] = {
    "relax.reshape": _to_shape,
    "relax.squeeze": _to_shape,
    "relax.expand_dims": _to_shape,
    "relax.flatten": _to_shape,
    "relax.permute_dims": _permute,
    "relax.broadcast_to": lambda call, arrays: np.broadcast_to(arrays[0], shape_of(call)),
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
    "relax.divide": _divide,
    "relax.less": _arithmetic(np.less),
    "relax.greater": _arithmetic(np.greater),
    "relax.equal": _arithmetic(np.equal),
    "relax.sqrt": _arithmetic(np.sqrt),
    "relax.negative": _arithmetic(np.negative),
}

#: Dtypes that numpy computes in the same way as TVM.
DTYPES = ("float32", "float64", "int32", "int64", "bool")


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
        folder = FOLDERS.get(op_name(value) or "")
        if folder is None or shape_of(value) is None:
            continue
        arrays = _operands(value)
        if arrays is None:
            continue
        result = folder(value, arrays)
        dtype = str(value.ty.dtype)
        if result is not None and result.shape == shape_of(value):
            block.alias(var, constant(result, dtype))


def _extents(block: Block, value: relax.Expr) -> tuple[int, ...] | None:
    """The numbers in ``shape_to_tensor(shape_of(x))`` if x has a static shape."""
    if op_name(value) != "relax.shape_to_tensor":
        return None
    inquiry = block.call(value.args[0], "relax.shape_of")
    return shape_of(inquiry.args[0]) if inquiry is not None else None


def _operands(call: relax.Call) -> list[np.ndarray] | None:
    """The values of all tensor operands; None if one is no constant of a known dtype."""
    arrays: list[np.ndarray] = []
    for argument in call.args:
        if isinstance(argument, relax.ShapeExpr):
            continue
        for item in argument.fields if isinstance(argument, relax.Tuple) else [argument]:
            if not isinstance(item, Constant) or str(item.ty.dtype) not in DTYPES:
                return None
            arrays.append(array_of(item))
    return arrays or None
