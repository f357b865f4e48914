"""The shapes of a model's inputs: those that the caller gives, written into the model."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral  # NumPy's integers as well
from typing import Any

import onnx

from byoc.arguments import as_mapping
from byoc.errors import ShapeError
from byoc.extent import ALLOWED, Extent, parse_extent

#: Shapes by input name, as users give them: sizes, or names for axes that stay symbolic, or
#: multiples of names.
InputShapes = Mapping[str, Sequence[int | str]]

#: Texts in place of names that say nothing, and what each name has.
_UNKNOWN = ("none", "null", "nan", "unk", "unknown")
_NAME = re.compile(r"[^\W\d_]")

#: Elements of a tensor whose bytes a signed number of 64 bits counts, whatever their dtype.
_MOST_ELEMENTS = 2**59


def model_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Inputs that a caller feeds; old files list the weights among the inputs as well."""
    weights = {tensor.name for tensor in model.graph.initializer}
    weights |= {tensor.values.name for tensor in model.graph.sparse_initializer}
    return [value for value in model.graph.input if value.name not in weights]


def given_shapes(shapes: Any) -> InputShapes:
    """Shapes as a user gives them, None for none. Raises ``ShapeError`` for other kinds."""
    need = 'a dictionary of lists, such as {"x": [1, 3, 224, 224]}'
    if shapes is None:
        return {}
    shapes = as_mapping(shapes, "input_shapes", ShapeError, need)
    for name, shape in shapes.items():
        if isinstance(shape, str | bytes | Mapping) or not isinstance(shape, Iterable):
            raise ShapeError(
                f"input {name!r}: its shape is of type {type(shape).__name__}; need a list such as "
                "[1, 3, 224, 224]"
            )
    return {name: tuple(shape) for name, shape in shapes.items()}


@dataclass(frozen=True)
class OpenAxis:
    """An axis of an input that nobody gave an extent."""

    value: onnx.ValueInfoProto
    axis: int

    @property
    def dim(self) -> onnx.TensorShapeProto.Dimension:
        """What the model says of it."""
        return self.value.type.tensor_type.shape.dim[self.axis]


def set_input_shapes(model: onnx.ModelProto, shapes: InputShapes) -> list[OpenAxis]:
    """Write shapes into the model's inputs, in place; returns the axes that have no extent.

    Raises ``ShapeError``.
    """
    inputs = {value.name: value for value in model_inputs(model)}
    for value in inputs.values():
        take_optional(value)
    require_inputs(inputs, shapes)
    symbols: dict[str, int | str | None] = {}
    for name, shape in shapes.items():
        empty = _empty_axes(inputs[name])
        extents = [
            0 if extent == 0 and axis in empty else _extent(name, extent)
            for axis, extent in enumerate(shape)
        ]
        _set_given(inputs[name], extents, symbols)
    left = [
        axis
        for value in inputs.values()
        if value.name not in shapes
        for axis in _set_from_symbols(value, symbols)
    ]
    if shapes or left:
        forget_shapes(model)
    return left


def require_inputs(inputs: Collection[str], named: Iterable[str]) -> None:
    """Raise ``ShapeError`` for a name that is no input's."""
    for name in named:
        if name not in inputs:
            known = ", ".join(repr(known) for known in inputs) or "none"
            raise ShapeError(f"input {name!r} is not in the model; its inputs are {known}")


def forget_shapes(model: onnx.ModelProto) -> None:
    """Drop shapes inferred for dynamic axes, which would contradict static ones, in place."""
    del model.graph.value_info[:]
    for value in model.graph.output:
        if any(fixed_extent(dim) is None for dim in value.type.tensor_type.shape.dim):
            value.type.tensor_type.ClearField("shape")


def take_optional(value: onnx.ValueInfoProto) -> None:
    """Make an optional tensor a tensor: a compiled model has one number of inputs."""
    inner = value.type.optional_type.elem_type
    if inner.HasField("tensor_type"):
        copy = onnx.TypeProto()
        copy.CopyFrom(inner)
        value.type.CopyFrom(copy)


def _empty_axes(value: onnx.ValueInfoProto) -> set[int]:
    """Axes written as 0: some exporters mean unknown, and a caller who says 0 as well means 0."""
    dims = value.type.tensor_type.shape.dim
    return {i for i, dim in enumerate(dims) if dim.HasField("dim_value") and dim.dim_value == 0}


def _extent(name: str, extent: int | str) -> int | str:
    """A positive integer, or the one form of a symbolic extent. Raises ``ShapeError``."""
    if isinstance(extent, str):
        try:
            return str(parse_extent(extent))
        except ValueError as err:
            raise ShapeError(f"input {name!r}: {err} in its shape; need {ALLOWED}") from err
    if isinstance(extent, bool) or not isinstance(extent, Integral) or extent < 1:
        raise ShapeError(f"input {name!r}: extent {extent!r} in its shape; need {ALLOWED}")
    return int(extent)


def fixed_extent(dim: onnx.TensorShapeProto.Dimension) -> int | None:
    """The extent of an axis; None if it is dynamic (a symbol, missing, 0 or -1)."""
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None


def _set_given(
    value: onnx.ValueInfoProto, shape: list[int | str], symbols: dict[str, int | str | None]
) -> None:
    """Give axes the extents that a caller says, whatever the file calls them, and note its names:
    None for one that has several extents."""
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        raise ShapeError(f"input {value.name!r} is no tensor; its shape cannot be set")
    if not tensor.HasField("shape"):
        tensor.shape.CopyFrom(onnx.TensorShapeProto())
        tensor.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in shape)
    dims, given = tensor.shape.dim, f"[{', '.join(map(str, shape))}]"
    if len(dims) != len(shape):
        raise ShapeError(
            f"input {value.name!r}: shape {given} has rank {len(shape)}, the model's is"
            f" {shape_text(value)} of rank {len(dims)}; give {len(dims)} extents"
        )
    least = [size if isinstance(size, int) else parse_extent(size).at(1) for size in shape]
    _require_countable_sizes(value.name, least)
    declared = shape_text(value)
    for axis, (dim, extent) in enumerate(zip(dims, shape, strict=True)):
        fixed = fixed_extent(dim)
        if fixed is not None and fixed != extent:
            raise ShapeError(
                f"input {value.name!r}: axis {axis} of shape {given} is {extent}, the model's is"
                f" fixed to {fixed} in {declared}; give {fixed} there"
            )
        symbol = shared_name(dim)
        if symbol and symbols.setdefault(symbol, extent) != extent:
            symbols[symbol] = None  # a name that some exporters give to axes of several lengths
        write_extent(dim, extent)
        if isinstance(extent, str) and extent.isidentifier():
            symbols.setdefault(extent, extent)


def shared_name(dim: onnx.TensorShapeProto.Dimension) -> str:
    """The name of a dynamic axis, which others of that name share; empty where it has none.

    Exporters write ``?``, ``-1`` or ``None`` for every axis that they know nothing of.
    """
    name = dim.dim_param
    return name if _NAME.search(name) and name.casefold() not in _UNKNOWN else ""


def write_extent(dim: onnx.TensorShapeProto.Dimension, extent: int | str | Extent) -> None:
    """Give an axis a size or a symbol, in place."""
    if isinstance(extent, int):
        dim.dim_value = extent
    else:
        dim.dim_param = str(extent)


def _set_from_symbols(
    value: onnx.ValueInfoProto, symbols: Mapping[str, int | str | None]
) -> list[OpenAxis]:
    """Give axes the extents of others of the same name; returns those that have none."""
    if not value.type.HasField("tensor_type"):
        raise ShapeError(f"input {value.name!r} is no tensor; only tensors can be compiled")
    if not value.type.tensor_type.HasField("shape"):
        raise ShapeError(
            f"input {value.name!r} has no shape in the model;"
            f" give one with --input-shapes {value.name}:[1,3,224,224]"
        )
    left = []
    for place, dim in enumerate(value.type.tensor_type.shape.dim):
        if fixed_extent(dim) is None:
            extent = symbols.get(shared_name(dim))
            if extent is None:
                left.append(OpenAxis(value, place))
            else:
                write_extent(dim, extent)
    return left


def shape_text(value: onnx.ValueInfoProto) -> str:
    """The shape of an input as the model has it, ``?`` for an axis without a name."""
    dims = value.type.tensor_type.shape.dim
    return "[" + ", ".join(str(fixed_extent(dim) or dim.dim_param or "?") for dim in dims) + "]"


def require_countable(model: onnx.ModelProto) -> None:
    """Raise ``ShapeError`` for an input with more elements than TVM's sizes can count."""
    for value in model_inputs(model):
        sizes = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        _require_countable_sizes(value.name, sizes)


def _require_countable_sizes(name: str, sizes: Sequence[int]) -> None:
    if math.prod(max(size, 1) for size in sizes) > _MOST_ELEMENTS:
        raise ShapeError(
            f"input {name!r} of shape {list(sizes)} has more than 2**59 elements; give smaller"
            " sizes, or names to axes that shall stay symbolic"
        )
