"""Inputs that a user fixes when compiling: they become constants of the model.

What depends on them alone is folded then as on any constant. An ``If`` on a fixed flag is its
branch, as in a decoder whose prompt and step were merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from byoc.arguments import as_mapping
from byoc.deploy.metadata import FixedInput, TensorInfo
from byoc.errors import InputError
from byoc.frontends.onnx.given_model import GivenModel
from byoc.frontends.onnx.input_shapes import (
    InputShapes,
    fixed_extent,
    forget_shapes,
    given_shapes,
    model_inputs,
    require_inputs,
    shape_text,
    shared_name,
    take_optional,
    write_extent,
)
from byoc.frontends.onnx.read_model import read
from codegen_cc import dtypes

#: Values by input name, as users give them: numbers, or arrays.
FixedInputs = Mapping[str, Any]

#: Most bytes that one number is written out to. The shape is the file's, which may be a stranger's.
_MAX_BYTES = 1 << 28

#: Which kinds of numbers of Python a dtype takes, by NumPy's letters.
_TAKEN = {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}
_KINDS = {"b": "True or False", "i": "a whole number", "u": "a whole number", "f": "a number"}


def given_values(values: Any) -> dict[str, Any]:
    """Values as a user gives them, None for none. Raises ``InputError`` for other kinds."""
    need = 'a dictionary of numbers or arrays, such as {"use_cache_branch": True}'
    return {} if values is None else dict(as_mapping(values, "fixed_inputs", InputError, need))


def fix_inputs(
    model: onnx.ModelProto, fixed: FixedInputs, shapes: InputShapes
) -> tuple[FixedInput, ...]:
    """Make inputs constants, in place; returns what they were.

    A number is repeated to the input's shape, which ``shapes`` may say. Axes of other inputs that
    share a name with one of an array are as long. Raises ``InputError`` and ``ShapeError``.
    """
    inputs = {value.name: value for value in model_inputs(model)}
    require_inputs(inputs, fixed)
    if not fixed:
        return ()
    found, sizes = [], {}
    for name, given in fixed.items():
        info = inputs[name]
        take_optional(info)
        array = _array(info, given, shapes.get(name))
        for dim, size in zip(info.type.tensor_type.shape.dim, array.shape, strict=False):
            if (symbol := shared_name(dim)) and fixed_extent(dim) is None:
                sizes.setdefault(symbol, set()).add(size)
        found.append(_described(info, array))
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    left = [value for value in model.graph.input if value.name not in fixed]
    _share_sizes(left, {name: min(known) for name, known in sizes.items() if len(known) == 1})
    kept = onnx.GraphProto(input=left)
    del model.graph.input[:]
    model.graph.input.extend(kept.input)
    forget_shapes(model)
    return tuple(found)


def with_fixed_inputs(
    model: GivenModel, fixed: FixedInputs, input_shapes: InputShapes | None
) -> GivenModel:
    """The whole model with these inputs as constants, for engines that know no such option."""
    if not fixed:
        return model
    whole = read(model).whole()
    fix_inputs(whole, fixed, given_shapes(input_shapes))
    return whole


def _array(info: onnx.ValueInfoProto, given: Any, shape: Any) -> np.ndarray:
    """A value in the dtype and of the shape of its input."""
    if not info.type.HasField("tensor_type"):
        raise InputError(f"input {info.name!r} is no tensor; only tensors can be fixed")
    tensor = info.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    array = _of_dtype(info.name, given, dtype)
    known = tensor.HasField("shape")
    dims = list(tensor.shape.dim) if known else []
    extents = [fixed_extent(dim) for dim in dims] if shape is None else list(shape)
    if array.ndim == 0 and (dims or not known):
        if not known or any(not isinstance(extent, int) for extent in extents):
            text = shape_text(info) if known else "none"
            raise InputError(
                f"input {info.name!r} has the shape {text} in the model, and is fixed by one"
                " number; give an array, or its sizes with --input-shapes"
            )
        if prod(extents) * array.itemsize > _MAX_BYTES:
            raise InputError(
                f"input {info.name!r} of shape {shape_text(info)} is too large to fix; its"
                f" {prod(extents) * array.itemsize / 1e9:.1f} GB would be constants"
            )
        array = np.full(extents, array)
    fits = array.ndim == len(extents) and all(
        not isinstance(extent, int) or extent == size
        for extent, size in zip(extents, array.shape, strict=True)
    )
    if known and not fits:
        raise InputError(
            f"input {info.name!r} is fixed by an array of shape {list(array.shape)}; need"
            f" {shape_text(info)}"
        )
    return array


def _of_dtype(name: str, given: Any, dtype: np.dtype) -> np.ndarray:
    """An array of exactly the dtype; numbers of Python become it where they fit."""
    what = f"input {name!r} is of {dtype.name}"
    if dtype.name not in dtypes.DTYPES or dtype.kind not in "biufV":
        raise InputError(f"{what}; only numbers can be fixed")
    if isinstance(given, np.ndarray | np.generic):
        if given.dtype != dtype:
            raise InputError(f"{what} and is fixed to an array of {given.dtype}; need {dtype.name}")
        return np.asarray(given)
    kind = "f" if dtype.kind == "V" else dtype.kind
    try:
        array = np.asarray(given)
    except ValueError:
        array = np.asarray(None)
    with np.errstate(all="ignore"):
        right = array.dtype.kind in _TAKEN[kind]
        cast = array.astype(dtype) if right else array
    if right and kind in "iu":
        right = bool((cast == array).all())
    elif right and kind == "f":
        right = bool((np.isfinite(cast.astype(np.float64)) == np.isfinite(array)).all())
    if not right:
        raise InputError(f"{what} and is fixed to {given!r:.60}; need {_KINDS[kind]} that fits")
    return cast


def _described(info: onnx.ValueInfoProto, array: np.ndarray) -> FixedInput:
    """What a library says of an input that it does not take: also the value, where it is one."""
    told = TensorInfo(info.name, tuple(array.shape), array.dtype.name)
    first = array.reshape(-1)[:1]
    if not array.size or not np.array_equal(array, np.full(array.shape, first)):
        return FixedInput(told, None)
    number = first.astype(np.float64).item() if first.dtype.kind not in "biu" else first.item()
    return FixedInput(told, number if np.isfinite(number) else None)


def _share_sizes(values: list[onnx.ValueInfoProto], sizes: Mapping[str, int]) -> None:
    """Give axes the sizes of fixed ones of their name, in place; one of 0 says nothing of others:
    a cache that is empty now need not stay so."""
    for value in values:
        for dim in value.type.tensor_type.shape.dim:
            if fixed_extent(dim) is None and sizes.get(shared_name(dim)):
                write_extent(dim, sizes[shared_name(dim)])
