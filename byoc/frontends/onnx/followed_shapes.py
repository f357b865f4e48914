"""Types of results whose shapes a model computes from the shapes of other values.

``onnx.shape_inference`` sees one node at a time and constants alone. Of ``Reshape(x, [n, 4, 8])``,
whose ``n`` is an axis of an input, it tells the rank. Here the vector is followed from the axes
that it was made of, as far as ``shape_values`` can, so that 4 and 8, and the name of ``n``, become
part of the type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import sympy

from byoc.frontends.onnx.honoured import ONNX_DOMAINS
from byoc.frontends.onnx.shape_elements import ShapeValue, constant_value
from byoc.frontends.onnx.shape_values import evaluate

#: Which input of an operator is the shape of its result, or where it begins.
_SHAPE_INPUT = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0, "Slice": 2}


class FollowedShapes:
    """The values that are made of shapes, by name; an axis that no name tells is a symbol too.

    Such as what a convolution with strides leaves of an open length. It has one symbol, by the
    tensor's name and the axis, which stays that of the tensor turned around.
    """

    def __init__(
        self,
        values: Mapping[str, ShapeValue] | None = None,
        unnamed: Mapping[tuple[str, int], sympy.Dummy] | None = None,
    ) -> None:
        self._values = dict(values or {})
        self._unnamed = dict(unnamed or {})

    def copy(self) -> FollowedShapes:
        """As many values, for a graph inside of this one."""
        return FollowedShapes(self._values, self._unnamed)

    def _dims(self, name: str, type_: onnx.TypeProto | None) -> list[Any] | None:
        """Integers, symbols of the names, and the symbols of the other axes of a tensor."""
        dims = _dims(type_)
        for axis, dim in enumerate(dims or ()):
            if isinstance(dim, sympy.Dummy):
                dims[axis] = self._unnamed.setdefault((name, axis), dim)
        return dims

    def _turn(self, node: onnx.NodeProto, source: onnx.TypeProto | None) -> None:
        """Note that the axes of a Transpose are those of its operand in another order."""
        dims = self._dims(node.input[0], source)
        order = next((a.ints for a in node.attribute if a.name == "perm"), None)
        if dims is None or (order is not None and len(order) != len(dims)):
            return
        for axis, before in enumerate(order or range(len(dims))[::-1]):
            if isinstance(dims[before], sympy.Dummy):
                self._unnamed[node.output[0], axis] = dims[before]

    def follow(
        self,
        node: onnx.NodeProto,
        types: Mapping[str, onnx.TypeProto],
        constant: Callable[[str], np.ndarray | None],
        opset: int,
    ) -> None:
        """Note the value of a node on shapes, whose operands have these types."""
        if node.domain not in ONNX_DOMAINS:
            return
        value = None
        if node.op_type == "Shape":
            value = _shape_value(node, self._dims(node.input[0], types.get(node.input[0])))
        elif any(name in self._values for name in node.input):
            operands = [self._operand(name, constant) if name else None for name in node.input]
            pairs = zip(node.input, operands, strict=True)
            if all(operand is not None or not name for name, operand in pairs):
                value = evaluate(node, operands, opset)
        if value is not None:
            self._values[node.output[0]] = value

    def number(self, name: str) -> np.ndarray | None:
        """A value that turned out to depend on no unknown axis; None for others."""
        value = self._values.get(name)
        if value is None or value.integers is None or "float" in value.dtype:
            return None
        return np.array(value.integers, value.dtype).reshape(value.elements.shape)

    def is_extent(self, name: str, tensor: str, type_: onnx.TypeProto, axis: int) -> bool:
        """Whether a value is known to be the extent of a tensor of some type along an axis."""
        value, dims = self._values.get(name), self._dims(tensor, type_)
        if value is None or dims is None or value.elements.size != 1:
            return False
        return bool(value.elements.reshape(()).item() == dims[axis])

    def is_count(self, name: str, type_: onnx.TypeProto) -> bool:
        """Whether a value is known to be how many elements a tensor has."""
        value, dims = self._values.get(name), _dims(type_)
        if value is None or dims is None or value.elements.size != 1:
            return False
        return bool(value.elements.reshape(()).item() == sympy.prod(dims))

    def _operand(
        self, name: str, constant: Callable[[str], np.ndarray | None]
    ) -> ShapeValue | None:
        array = None if name in self._values else constant(name)
        return self._values.get(name) if array is None else constant_value(array)

    def tell(
        self,
        node: onnx.NodeProto,
        result: onnx.TypeProto,
        source: onnx.TypeProto | None,
        constant: Callable[[str], np.ndarray | None],
    ) -> None:
        """Write into the type of a node's result what its shape says, in place.

        ``source`` is the type of the first operand.
        """
        place = _SHAPE_INPUT.get(node.op_type)
        if node.op_type == "Slice" and source is not None:
            axis = _tell_turned(node, result, source, constant)
            if axis is not None:
                (dim,) = self._dims(node.input[0], source)[axis : axis + 1]
                self._unnamed |= {(node.output[0], axis): dim} if dim.is_Dummy else {}
        if node.op_type == "Transpose" and node.domain in ONNX_DOMAINS:
            self._turn(node, source)
        if place is None or node.domain not in ONNX_DOMAINS or len(node.input) <= place:
            return
        if node.input[place] not in self._values:
            return
        lists = [self._operand(name, constant) if name else None for name in node.input[1:]]
        dims = _dims(source)
        if node.op_type == "ConstantOfShape":
            wanted = list(self._values[node.input[0]].elements.ravel())
        elif dims is None or any(x is None for x in lists):
            return
        else:
            wanted = _WRITERS[node.op_type](node, dims, *(list(x.elements.ravel()) for x in lists))
        shape = result.tensor_type.shape
        if not result.tensor_type.HasField("shape"):
            shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in wanted)
        if len(shape.dim) != len(wanted):
            return
        for dim, element in zip(shape.dim, wanted, strict=True):
            if dim.HasField("dim_value") or element is None:
                continue
            if element.is_Integer and element >= 0:
                dim.dim_value = int(element)
            elif isinstance(element, sympy.Symbol) and not isinstance(element, sympy.Dummy):
                dim.dim_param = element.name


def _shape_value(node: onnx.NodeProto, elements: list[Any] | None) -> ShapeValue | None:
    if elements is None:
        return None
    bounds = {a.name: a.i for a in node.attribute}
    return ShapeValue.of(elements[bounds.get("start", 0) : bounds.get("end")])


def _dims(type_: onnx.TypeProto | None) -> list[Any] | None:
    """Integers, symbols of the names, and a symbol of its own for each other axis."""
    if type_ is None or not type_.tensor_type.HasField("shape"):
        return None
    kind = {"integer": True, "nonnegative": True}
    return [
        sympy.Integer(dim.dim_value)
        if dim.HasField("dim_value")
        else sympy.Symbol(dim.dim_param, **kind)
        if dim.dim_param
        else sympy.Dummy(**kind)
        for dim in type_.tensor_type.shape.dim
    ]


def _tell_turned(
    node: onnx.NodeProto,
    result: onnx.TypeProto,
    source: onnx.TypeProto,
    constant: Callable[[str], np.ndarray | None],
) -> int | None:
    """Write that a slice has as many elements along an axis that it only turns round.

    Returns the axis, None for other slices.
    """
    given = [constant(name) for name in node.input[1:]]
    kept, found = source.tensor_type.shape.dim, result.tensor_type.shape.dim
    if len(given) != 4 or any(x is None or x.size != 1 for x in given) or len(kept) != len(found):
        return None
    begin, end, axis, step = (int(x.item()) for x in given)
    if (begin, step) != (-1, -1) or end > -(2**31):
        return None
    if not found[axis].HasField("dim_value"):
        found[axis].CopyFrom(kept[axis])
    return axis % len(kept)


def _of_reshape(node: onnx.NodeProto, dims: list[Any], wanted: list[Any]) -> list[Any]:
    """Extents of a reshape; None for what -1 stands for where no division tells it."""
    keeps = not any(a.name == "allowzero" and a.i for a in node.attribute)
    kept = [
        (dims[axis] if axis < len(dims) else None) if keeps and element == 0 else element
        for axis, element in enumerate(wanted)
    ]
    if None in kept or kept.count(-1) != 1:
        return [None if element == -1 else element for element in kept]
    others = sympy.prod(element for element in kept if element != -1)
    rest = sympy.prod(dims) / others if others != 0 else None
    return [rest if element == -1 else element for element in kept]


def _of_expand(node: onnx.NodeProto, dims: list[Any], wanted: list[Any]) -> list[Any]:
    """Extents of what is repeated, None where the sizes decide it."""
    rank = max(len(wanted), len(dims))
    padded = [[sympy.Integer(1)] * (rank - len(some)) + some for some in (wanted, dims)]
    return [
        own if want in (1, -1, own) else want if own == 1 else None
        for want, own in zip(*padded, strict=True)
    ]


def _of_slice(
    node: onnx.NodeProto,
    dims: list[Any],
    begins: list[Any],
    ends: list[Any],
    axes: list[Any] | None = None,
    steps: list[Any] | None = None,
) -> list[Any]:
    """Extents of a slice, None along the axes that it does not take the first elements of.

    An end that is a symbol lies inside of its axis, as the importer has it.
    """
    left = list(dims)
    axes = range(len(begins)) if axes is None else axes
    for axis, begin, end, step in zip(axes, begins, ends, steps or [1] * len(begins), strict=True):
        ahead = begin == 0 and step == 1 and isinstance(end, sympy.Symbol)
        left[int(axis)] = end if ahead else None
    return left


_WRITERS: dict[str, Callable[..., list[Any]]] = {
    "Reshape": _of_reshape,
    "Expand": _of_expand,
    "Slice": _of_slice,
}
