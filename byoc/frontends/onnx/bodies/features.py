"""Operators of ai.onnx.ml on numbers, which make features and labels, as others of ONNX's domain.

What the standard leaves open is as in ONNX Runtime. Trees and texts have no body, and are refused
by name.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from byoc.frontends.onnx.bodies.call import Call

#: Keys that every label is compared with.
MOST_KEYS = 4096

_FLOAT = onnx.TensorProto.FLOAT


def scaler(call: Call) -> bool:
    """(x - offset) scale, of each feature; x is [N, C] or [C], and the result float32."""
    offset, scale = (list(call.attrs.get(name, ())) for name in ("offset", "scale"))
    if not _fit(call, offset) or len(offset) != len(scale):
        return False
    x, dtype = call.input(0), call.dtype()
    if dtype.kind != "f":
        x, dtype = call.op("Cast", x, to=_FLOAT), np.dtype(np.float32)
    shifted = call.op("Sub", x, _features(call, offset, dtype))
    scaled = call.op("Mul", shifted, _features(call, scale, dtype))
    call.give(0, scaled if dtype == np.float32 else call.op("Cast", scaled, to=_FLOAT))
    return True


def _fit(call: Call, values: Sequence[float]) -> bool:
    """Whether there is a value for each feature, or one for all."""
    shape = call.shape()
    if shape is None or len(shape) not in (1, 2):
        return False
    return len(values) == 1 or (len(values) > 1 and len(values) == shape[-1])


def _features(call: Call, values: Sequence[float], dtype: np.dtype) -> str:
    """A constant for each feature, or a scalar for all."""
    return call.constant(values[0] if len(values) == 1 else np.array(values), dtype)


def normalizer(call: Call) -> bool:
    """x / norm of its row; rows whose norm is 0 stay. The norm MAX keeps the sign."""
    shape, norm = call.shape(), call.attrs.get("norm", b"MAX").decode()
    reductions = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}
    if shape is None or len(shape) not in (1, 2) or norm not in reductions:
        return False
    x = call.input(0)
    if call.dtype() != np.float32:
        x = call.op("Cast", x, to=_FLOAT)
    size = call.over(reductions[norm], x, [len(shape) - 1], keepdims=1)
    zero, one = (call.constant(number, np.float32) for number in (0, 1))
    safe = call.op("Where", call.op("Equal", size, zero), one, size)
    call.give(0, call.op("Div", x, safe))
    return True


def binarizer(call: Call) -> bool:
    """1 above the threshold, else 0."""
    above = call.op("Greater", call.input(0), call.number(call.attrs.get("threshold", 0.0)))
    call.give(0, call.op("Cast", above, to=call.element()))
    return True


def imputer(call: Call) -> bool:
    """The value of each feature, or one for all, in place of what marks a missing one."""
    real = call.dtype().kind == "f"
    values = list(call.attrs.get("imputed_value_floats" if real else "imputed_value_int64s", ()))
    marked = call.attrs.get("replaced_value_float" if real else "replaced_value_int64", 0)
    if not _fit(call, values):
        return False
    x = call.input(0)
    if real and np.isnan(marked):
        missing = call.op("IsNaN", x)
    else:
        missing = call.op("Equal", x, call.number(marked))
    call.give(0, call.op("Where", missing, _features(call, values, call.dtype()), x))
    return True


def feature_vectorizer(call: Call) -> bool:
    """Columns of all inputs side by side, as float32; each has as many as the node says."""
    sizes = list(call.attrs.get("inputdimensions", ()))
    shapes = [call.shape(place) for place in range(len(call.node.input))]
    if len(sizes) != len(shapes) or any(s is None or len(s) != 2 for s in shapes):
        return False
    if any(shape[1] != size for shape, size in zip(shapes, sizes, strict=True)):
        call.refuse(f"inputs {shapes} for {sizes} columns; need as many as each has")
    parts = [call.single(place) for place in range(len(shapes))]
    call.give(0, call.op("Concat", *parts, axis=1) if len(parts) > 1 else parts[0])
    return True


def array_feature_extractor(call: Call) -> bool:
    """Elements of the last axis, by places; those of a vector are a row."""
    shape, x = call.shape(), call.input(0)
    if not shape:
        return False
    if len(shape) == 1:
        x = call.over("Unsqueeze", x, [0])
    places = call.reshape(call.input(1), -1)
    call.give(0, call.op("Gather", x, places, axis=max(len(shape) - 1, 1)))
    return True


def label_encoder(call: Call) -> bool:
    """The value of the first key that is equal, or the default.

    NaN equals itself where keys are a tensor, from version 4 on; in a list it did not before.
    """
    keys, values = _listed(call, "keys"), _listed(call, "values")
    if keys is None or values is None or not 0 < len(keys) <= MOST_KEYS:
        return False
    if len(keys) != len(values) or keys.dtype != call.dtype() or call.shape() is None:
        return False
    x, rank = call.input(0), len(call.shape())
    wide = call.over("Unsqueeze", x, [rank])
    found = call.op("Equal", wide, call.constant(keys, keys.dtype))
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        if "keys_tensor" not in call.attrs:
            return False
        both = call.op("And", call.op("IsNaN", wide), call.constant(np.isnan(keys), bool))
        found = call.op("Or", found, both)
    # The place of the default is behind all keys: a key that is found comes before it.
    shape = call.op("Shape", wide)
    always = call.op("Expand", call.constant([True], bool), shape)
    joined = call.op("Concat", found, always, axis=rank)
    number = call.op("Cast", joined, to=_FLOAT)
    place = call.op("ArgMax", number, axis=rank, keepdims=0)
    table = np.append(values, np.array([_default(call, values.dtype)], values.dtype))
    call.give(0, call.op("Gather", call.constant(table, values.dtype), place, axis=0))
    return True


#: Endings of the names of lists of numbers, and their dtypes.
_LISTS = {"int64s": np.int64, "floats": np.float32}


def _listed(call: Call, name: str) -> np.ndarray | None:
    """Keys or values as an array; None for texts."""
    tensor = call.attrs.get(f"{name}_tensor")
    if tensor is not None:
        array = numpy_helper.to_array(tensor).ravel()
        return array if array.dtype.kind in "fi" else None
    for ending, dtype in _LISTS.items():
        if f"{name}_{ending}" in call.attrs:
            return np.array(call.attrs[f"{name}_{ending}"], dtype)
    return None


def _default(call: Call, dtype: np.dtype) -> float:
    tensor = call.attrs.get("default_tensor")
    if tensor is not None:
        return numpy_helper.to_array(tensor).ravel()[0]
    if dtype.kind == "i":
        return call.attrs.get("default_int64", -1)
    return call.attrs.get("default_float", -0.0)
