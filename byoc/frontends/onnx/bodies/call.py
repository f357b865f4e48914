"""A node that is written out as others, and what writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import onnx
from onnx import numpy_helper

from byoc.errors import ImportFailure
from byoc.frontends.onnx.graph_names import FreshNames, known_as, rename_reads

#: Opsets from which operators have their axes, or the sizes of parts, as an input.
_AXES_AS_INPUT = {"ReduceSum": 13, "Squeeze": 13, "Unsqueeze": 13, "Split": 13}
_REDUCTIONS = 18


class Call:
    """A node to write out: values are names, ``""`` where one is left out.

    ``op`` adds a node of ONNX's domain, under the name of the node at hand; ``give`` says which
    values the outputs are; ``written`` is what has been made.
    """

    def __init__(
        self,
        node: onnx.NodeProto,
        types: Mapping[str, onnx.TypeProto],
        constants: Mapping[str, onnx.TensorProto],
        opset: int,
        names: FreshNames,
    ) -> None:
        self.node = node
        self.opset = opset
        self._nodes: list[onnx.NodeProto] = []
        self._given: dict[str, str] = {}
        self.attrs = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        self._types = types
        self._constants = constants
        self._names = names

    # ------------------------------------------------------------------ the node

    def input(self, place: int) -> str:
        """The name of an input."""
        return self.node.input[place] if place < len(self.node.input) else ""

    def wants(self, place: int) -> bool:
        """Whether somebody may read an output."""
        return place < len(self.node.output) and bool(self.node.output[place])

    def element(self, place: int = 0) -> int:
        """The type of an input's elements, as ONNX counts them."""
        return self._types[self.node.input[place]].tensor_type.elem_type

    def dtype(self, place: int = 0) -> np.dtype:
        """The dtype of an input."""
        return onnx.helper.tensor_dtype_to_np_dtype(self.element(place))

    def shape(self, place: int = 0) -> list[int | None] | None:
        """The extents of an input, None where one is not fixed; None for an unknown rank."""
        name = self.input(place)
        tensor = self._types[name].tensor_type if name else None
        if tensor is None or not tensor.HasField("shape"):
            return None
        return [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]

    def is_as_long(self, place: int, axis: int, other: int, of: int) -> bool:
        """Whether axes of two inputs have one size, or one name of the model's."""
        dims = [
            self._types[self.input(at)].tensor_type.shape.dim[along]
            for at, along in ((place, axis), (other, of))
        ]
        sizes = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in dims]
        return sizes[0] == sizes[1] and sizes[0] != ""

    def known(self, place: int) -> int | None:
        """The one number of an input; None where it is computed."""
        value = self.array(place)
        return None if value is None else int(value.item())

    def array(self, place: int) -> np.ndarray | None:
        """The value of an input; None where it is computed, or too large to be looked at."""
        tensor = self._constants.get(self.input(place))
        return None if tensor is None else numpy_helper.to_array(tensor)

    # ------------------------------------------------------------------ what it becomes

    def op(
        self, operator: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any
    ) -> Any:
        """Add a node; returns the name of its result, or a list of several."""
        results = [self._names.fresh(f"{known_as(self.node)}/{operator}") for _ in range(outputs)]
        self._add(operator, inputs, results, attributes, domain)
        return results[0] if outputs == 1 else results

    def single(self, place: int = 0) -> str:
        """An input as float32."""
        name = self.input(place)
        if self.dtype(place) == np.float32:
            return name
        return self.op("Cast", name, to=onnx.TensorProto.FLOAT)

    def as_given(self, value: str) -> str:
        """A float32 result in the dtype of the first input."""
        if self.dtype() == np.float32:
            return value
        return self.op("Cast", value, to=self.element())

    def give(self, place: int, value: str) -> None:
        """Let an output be a value; nothing where it is not asked for."""
        if not self.wants(place):
            return
        output = self.node.output[place]
        if value not in self._given and any(value in node.output for node in self._nodes):
            self._given[value] = output
        else:
            self._add("Identity", [value], [output], {})

    def written(self) -> list[onnx.NodeProto]:
        """The nodes, whose outputs have the names of the node's own."""
        rename_reads(self._nodes, self._given)
        for node in self._nodes:
            node.output[:] = [self._given.get(name, name) for name in node.output]
        return self._nodes

    def refuse(self, reason: str) -> NoReturn:
        """Raise ``ImportFailure`` for a form that would be computed wrongly, or is none."""
        node = self.node
        raise ImportFailure(
            f"operator {node.op_type} of domain {node.domain!r} (node {known_as(node)!r}): {reason}"
        )

    def _add(
        self,
        operator: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: Mapping[str, Any],
        domain: str = "",
    ) -> None:
        name, given = known_as(self.node), {k: v for k, v in attributes.items() if v is not None}
        self._nodes.append(
            onnx.helper.make_node(operator, inputs, outputs, name, domain=domain, **given)
        )

    def constant(self, values: Any, dtype: Any) -> str:
        """A constant of a dtype."""
        array = np.asarray(values).astype(dtype)
        return self.op("Constant", value=numpy_helper.from_array(array))

    def integers(self, *values: int) -> str:
        """A vector of int64."""
        return self.constant(np.array(values, np.int64), np.int64)

    def number(self, value: float, place: int = 0) -> str:
        """A scalar of an input's dtype."""
        return self.constant(value, self.dtype(place))

    # ------------------------------------------------------------------ operators of all opsets

    def over(self, operator: str, value: str, axes: Sequence[int], **attributes: Any) -> str:
        """A reduction, Squeeze or Unsqueeze along axes."""
        if self.opset >= _AXES_AS_INPUT.get(operator, _REDUCTIONS):
            return self.op(operator, value, self.integers(*axes), **attributes)
        return self.op(operator, value, axes=list(axes), **attributes)

    def parts(self, value: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Split."""
        if len(sizes) == 1:
            return [value]
        if self.opset >= _AXES_AS_INPUT["Split"]:
            given = self.integers(*sizes)
            return self.op("Split", value, given, outputs=len(sizes), axis=axis)
        return self.op("Split", value, outputs=len(sizes), axis=axis, split=list(sizes))

    def slice(self, value: str, axis: int, start: int, end: int, step: int = 1) -> str:
        """A part along one axis."""
        if self.opset < 10:
            return self.op("Slice", value, axes=[axis], starts=[start], ends=[end])
        bounds = [self.integers(number) for number in (start, end, axis, step)]
        return self.op("Slice", value, *bounds)

    def reshape(self, value: str, *extents: int) -> str:
        """Reshape; 0 keeps an extent, -1 is what is left."""
        return self.op("Reshape", value, self.integers(*extents))

    def extent(self, value: str, axis: int) -> str:
        """An extent of a value, [1]; it is folded where it is fixed."""
        return self.slice(self.op("Shape", value), 0, axis, axis + 1)

    def up_to(self, end: str, first: str = "") -> str:
        """0, 1, and so on, below what a vector of one number says; ``first`` is one for 0."""
        zero, one = (self.constant(number, np.int64) for number in (0, 1))
        start = self.over("Squeeze", first, [0]) if first else zero
        return self.op("Range", start, self.over("Squeeze", end, [0]), one)

    def transpose(self, value: str, *perm: int) -> str:
        """Transpose."""
        return self.op("Transpose", value, perm=list(perm))
