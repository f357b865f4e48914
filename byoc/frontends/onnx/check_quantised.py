"""Scales, zero points and dtypes that the tensors of an operator of integers cannot have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from byoc.frontends.onnx.quantised_operators import EIGHT_BITS, Places, Quantised, quantised


@dataclass(frozen=True)
class Given:
    """An input of a node: name, dtype, extents (None where unknown) and its value if constant."""

    name: str
    dtype: str
    shape: Sequence[int | None] | None
    value: np.ndarray | None

    @property
    def elements(self) -> int | None:
        """How many elements it has; None where that is unknown."""
        if self.shape is None or None in self.shape:
            return None
        return int(np.prod(self.shape, dtype=np.int64))


def quantisation_problem(
    op_type: str, inputs: Sequence[Given | None], attributes: Mapping[str, Any]
) -> str | None:
    """What is wrong with the quantised tensors of a node, in one line; None where nothing is."""
    known = quantised(op_type, len(inputs), attributes)
    if known is None:
        return None
    problems = (_tensor_problem(inputs, places) for places in known.operands)
    found = next(filter(None, problems), None)
    if found is None and known.result is not None:
        found = _result_problem(op_type, known.result, inputs)
    if found is None and known.bias is not None:
        found = _bias_problem(known, inputs)
    if found is None and known.one_dtype:
        found = _mixed_dtypes(known, inputs)
    return found


def _at(inputs: Sequence[Given | None], place: int | None) -> Given | None:
    return inputs[place] if place is not None and place < len(inputs) else None


def _tensor_problem(inputs: Sequence[Given | None], places: Places) -> str | None:
    value = _at(inputs, places.value)
    zero_point = _at(inputs, places.zero_point)
    if value is None:
        return f"input {places.value} is missing"
    if value.dtype not in EIGHT_BITS:
        return f"input {value.name!r} is {value.dtype}; need int8 or uint8"
    if places.scale is not None and _at(inputs, places.scale) is None:
        return f"the scale of {value.name!r} is missing"
    if zero_point is not None and zero_point.dtype != value.dtype:
        return (
            f"zero point {zero_point.name!r} is {zero_point.dtype} and {value.name!r}"
            f" {value.dtype}; need one dtype"
        )
    return _numbers_problem(inputs, places, value.shape)


def _result_problem(op_type: str, places: Places, inputs: Sequence[Given | None]) -> str | None:
    scale, zero_point = _at(inputs, places.scale), _at(inputs, places.zero_point)
    if scale is None:
        return None if op_type == "QGemm" else "the scale of its result is missing"
    if zero_point is not None and zero_point.dtype not in EIGHT_BITS:
        return f"zero point {zero_point.name!r} is {zero_point.dtype}; need int8 or uint8"
    first = _at(inputs, 0)
    # A result has the rows of the first operand; its extent along the axis is that one's.
    return _numbers_problem(inputs, places, first.shape if first is not None else None)


def _numbers_problem(
    inputs: Sequence[Given | None],
    places: Places,
    shape: Sequence[int | None] | None,
) -> str | None:
    """What is wrong with a scale and a zero point of a tensor of this shape."""
    scale, zero_point = _at(inputs, places.scale), _at(inputs, places.zero_point)
    if scale is not None:
        if not scale.dtype.startswith(("float", "bfloat")):
            return f"scale {scale.name!r} is {scale.dtype}; need floating-point numbers"
        if scale.value is not None:
            values = np.asarray(scale.value, np.float64).ravel()
            divides = places.value is None
            wrong = values[~np.isfinite(values) | (values <= 0 if divides else values < 0)]
            if wrong.size:
                least = "above 0" if divides else "of 0 or more"
                return f"scale {scale.name!r} is {wrong[0]:g}; need finite ones {least}"
    for what, given in (("scale", scale), ("zero point", zero_point)):
        problem = None if given is None else _length_problem(what, given, places.axis, shape)
        if problem:
            return problem
    return None


def _length_problem(
    what: str, given: Given, axis: int | None, shape: Sequence[int | None] | None
) -> str | None:
    count = given.elements
    if count is None or (count == 1 and len(given.shape) <= 1):
        return None
    if axis is None:
        return f"{what} {given.name!r} has {count} elements; need one"
    if shape is None:
        return None
    if not -len(shape) <= axis < len(shape):
        return f"{what} {given.name!r} has {count} elements along axis {axis} of {len(shape)} axes"
    extent = shape[axis]
    if len(given.shape) != 1 or extent not in (None, count):
        elements = "as many as" if extent is None else f"{extent}, those of"
        return (
            f"{what} {given.name!r} is of shape {list(given.shape)}; need one element, or"
            f" {elements} axis {axis % len(shape)}"
        )
    return None


def _bias_problem(known: Quantised, inputs: Sequence[Given | None]) -> str | None:
    bias, weight = _at(inputs, known.bias), _at(inputs, known.operands[1].value)
    if bias is None:
        return None
    if bias.dtype != "int32":
        return f"bias {bias.name!r} is {bias.dtype}; need int32"
    if known.operator != "Conv" or weight.shape is None or bias.shape is None:
        return None  # that of Gemm broadcasts
    channels = weight.shape[0]
    count = bias.shape[0] if len(bias.shape) == 1 else -1
    if None not in (channels, count) and count != channels:
        return f"bias {bias.name!r} is of shape {list(bias.shape)}; need [{channels}]"
    return None


def _mixed_dtypes(known: Quantised, inputs: Sequence[Given | None]) -> str | None:
    places = [operand.value for operand in known.operands]
    if known.result is not None:
        places.append(known.result.zero_point)
    found = [given for given in (_at(inputs, place) for place in places) if given is not None]
    for other in found[1:]:
        if other.dtype != found[0].dtype:
            return (
                f"{found[0].name!r} is {found[0].dtype} and {other.name!r} {other.dtype}; need"
                " one dtype"
            )
    return None
