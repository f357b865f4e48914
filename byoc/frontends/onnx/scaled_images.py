"""Resize whose scales values decide, beside axes that keep their extents.

    Resize(x, scales=Concat([1, 1], r, r))      of x [b, c, h, w], as matting of videos has it

The sizes become values of their own, [b, c, floor(r h), floor(r w)], from which all that comes
after has its extents. The scales stay, as positions are computed from these and not from the sizes:

    ScaledResize(x, Concat(r, r), sizes, axes=[2, 3])

Scales that shapes decide are followed as arithmetic on these (``symbolic_import``).
``SizesOfImages`` gives such sizes symbols.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from byoc.frontends.onnx.graph_names import FreshNames, known_as, makers, replace_nodes
from byoc.frontends.onnx.honoured import ONNX_DOMAINS, OWN, RESIZES, SCALED_RESIZE
from byoc.frontends.onnx.loose_models import opsets_of

#: What operators of before opset 11, without attributes for it, do.
_OLD = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "up_if_smaller"}
_FIRST_WITH_MODES = 11

#: Attributes of which the loops for computed scales know nothing where extents are symbols.
_UNKNOWN = frozenset(("antialias", "axes", "keep_aspect_ratio_policy"))
_CROPS = b"tf_crop_and_resize"


def separate_scales(model: onnx.ModelProto) -> None:
    """Write such nodes of a model's graph with the sizes that they lead to, in place."""
    graph = model.graph
    if not any(node.op_type in RESIZES for node in graph.node):
        return
    writer = _Writer(graph, max(opsets_of(model), default=0))
    replace_nodes(graph, [made for node in graph.node for made in writer.written(node)])


class _Writer:
    def __init__(self, graph: onnx.GraphProto, opset: int) -> None:
        self._makers, self._names, self._opset = makers(graph), FreshNames(graph), opset
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        values = (*graph.input, *graph.value_info)
        self._types = {value.name: value.type.tensor_type for value in values}

    def written(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """The node itself, or nodes in its place."""
        if node.op_type not in RESIZES or node.domain not in ONNX_DOMAINS:
            return [node]
        old = node.op_type == "Upsample" or self._opset < _FIRST_WITH_MODES
        place, attributes = 1 if old else 2, {a.name: a for a in node.attribute}
        mode = attributes.get("coordinate_transformation_mode")
        if _UNKNOWN & attributes.keys() or (mode is not None and mode.s == _CROPS):
            return [node]
        scales = node.input[place] if len(node.input) == place + 1 else ""
        parts = list(self._parts(scales))
        computed = [name for name, ones, _ in parts if not ones]
        if len(computed) in (0, len(parts)) or not any(map(self._is_told, computed)):
            return [node]
        return self._with_sizes(node, parts, _OLD if old else {})

    def _parts(self, scales: str) -> Iterator[tuple[str, bool, int]]:
        """What scales are put together from: name, whether it is ones, and length; or nothing."""
        maker = self._makers.get(scales)
        while maker is not None and maker.op_type == "Cast":  # of a network in float16
            maker = self._makers.get(maker.input[0])
        if maker is None or maker.op_type != "Concat":
            return
        found = [(name, *self._part(name)) for name in maker.input]
        if all(length for *_, length in found):
            yield from found

    def _part(self, name: str) -> tuple[bool, int]:
        if name in self._constants:
            values = numpy_helper.to_array(self._constants[name])
            return bool((values == 1).all()), values.size
        kind = self._types.get(name)
        dims = kind.shape.dim if kind is not None and kind.HasField("shape") else []
        return False, dims[0].dim_value if len(dims) == 1 else 0

    def _is_told(self, name: str) -> bool:
        """Whether a value depends on those of inputs, beyond their shapes."""
        seen, left = set(), [name]
        while left:
            value = left.pop()
            if not value or value in seen or value in self._constants:
                continue
            seen.add(value)
            maker = self._makers.get(value)
            if maker is None:
                return True
            if maker.op_type not in ("Shape", "Size"):
                left += maker.input
        return False

    def _with_sizes(
        self, node: onnx.NodeProto, parts: list[tuple[str, bool, int]], modes: dict[str, str]
    ) -> list[onnx.NodeProto]:
        made: list[onnx.NodeProto] = []

        def add(operator: str, *inputs: str, **attributes: object) -> str:
            name = known_as(node)
            result = self._names.fresh(f"{name}_{operator}")
            made.append(helper.make_node(operator, inputs, [result], name, **attributes))
            return result

        shape, begin = add("Shape", node.input[0]), 0
        sizes, scales, axes = [], [], []
        for scale, ones, length in parts:
            places = np.arange(begin, begin + length)
            begin += length
            at = add("Constant", value=numpy_helper.from_array(places))
            extents = add("Gather", shape, at, axis=0)
            if not ones:
                axes += places.tolist()
                scales.append(add("Cast", scale, to=TensorProto.FLOAT))
                floats = add("Cast", extents, to=TensorProto.FLOAT)
                whole = add("Floor", add("Mul", floats, scales[-1]))
                extents = add("Cast", whole, to=TensorProto.INT64)
            sizes.append(extents)
        inputs = [node.input[0], *(add("Concat", *some, axis=0) for some in (scales, sizes))]
        resize = helper.make_node(
            SCALED_RESIZE, inputs, node.output, node.name, domain=OWN, axes=axes, **modes
        )
        resize.attribute.extend(node.attribute)
        return [*made, resize]
