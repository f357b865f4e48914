"""Products of dynamically quantised tensors, as products of the floats that these stand for.

    Cast(MatMulInteger(a, b, a_zero, b_zero)) * (a_scale * b_scale)
        = MatMul(DequantizeLinear(a, a_scale, a_zero), DequantizeLinear(b, b_scale, b_zero))
    Cast(MatMulInteger(a, b, a_zero, b_zero) + bias) * (a_scale * b_scale)
        = the same + Cast(bias) * (a_scale * b_scale)

and ConvInteger likewise: the forms in which ``onnxruntime.quantization.quantize_dynamic`` writes a
product, the second one that of older versions.  On the right it is the form of statically quantised
networks, which kernels are for.  Both sides are equal but for the rounding of float32 sums, as
small beside the terms as in any product of floats; the left is rounded once.  So what follows may
differ in its last bits.

A weight of uint8 whose differences from its zero point int8 does not hold is moved into int8.  What
it lacks then are sums of the data:

    MatMul(x, (w - zero) scale) = MatMul(x, (w - 128) scale) + MatMul(x, ones) ((128 - zero) scale)

Integers that nobody scales back stay what they are: exact, of 32 bits.

DequantizeLinear has an axis from opset 13 on.  Before, a weight with a scale for each channel gets
the operator of that name of com.microsoft, which always had one.
"""

from __future__ import annotations

import itertools
from collections import ChainMap
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from byoc.frontends.onnx.fold_onnx import drop_unused
from byoc.frontends.onnx.graph_names import (
    FreshNames,
    all_graphs,
    makers,
    reads,
    replace_nodes,
    subgraphs,
)
from byoc.frontends.onnx.honoured import ONNX_DOMAINS
from byoc.frontends.onnx.quantised_operators import MICROSOFT, QUANTISED_ALONG_AXES

#: Products of integers, by the one of floats.
_PRODUCTS = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}


def products_of_floats(model: onnx.ModelProto) -> None:
    """Rewrite the products of a valid model's graph, and of those inside it, in place."""
    opset = next(e.version for e in model.opset_import if e.domain in ONNX_DOMAINS)
    stored = _Stored(model.graph)
    if not _rewrite(model.graph, opset, stored, {}):
        return
    imported = {entry.domain for entry in model.opset_import}
    nodes = (node for part in all_graphs(model.graph) for node in part.node)
    if MICROSOFT not in imported and any(node.domain == MICROSOFT for node in nodes):
        model.opset_import.append(onnx.helper.make_opsetid(MICROSOFT, 1))
    drop_unused(model.graph)


def _rewrite(
    graph: onnx.GraphProto, opset: int, stored: _Stored, around: dict[str, onnx.NodeProto]
) -> bool:
    """Whether products of a graph, or of those inside it, were rewritten; in place.

    ``around`` are the nodes of graphs around it that give values.
    """
    search = _Search(graph, opset, stored, around)
    found = {id(mul): nodes for mul, nodes in search.rewritten()}
    inner = [part for node in graph.node for part in subgraphs(node)]
    changed = [_rewrite(part, opset, stored.inside(part), search.makers) for part in inner]
    if found:
        kept = (node for node in graph.node if id(node) not in search.replaced)
        replace_nodes(graph, [part for node in kept for part in found.get(id(node), [node])])
    return bool(found) or any(changed)


class _Stored:
    """The constants that a graph sees, by name; new ones belong to the outermost graph."""

    def __init__(self, outermost: onnx.GraphProto) -> None:
        self._outermost = outermost
        self.names = FreshNames(outermost)
        self.tensors = {tensor.name: tensor for tensor in outermost.initializer}
        self._moved: dict[tuple[str, str], str] = {}

    def inside(self, graph: onnx.GraphProto) -> _Stored:
        """The same as a graph inside sees it."""
        inner = copy(self)
        own = {tensor.name: tensor for tensor in graph.initializer}
        inner.tensors = ChainMap(own, self.tensors)
        return inner

    def add(self, array: np.ndarray, name: str) -> str:
        """A new constant; returns its name."""
        tensor = numpy_helper.from_array(np.asarray(array), self.names.fresh(name))
        self._outermost.initializer.append(tensor)
        self.tensors[tensor.name] = tensor
        return tensor.name

    def moved(self, side: _Side, array: np.ndarray) -> str:
        """The name of a weight that was moved into int8: one for all graphs that read it."""
        key = (side.value, side.zero_point)
        if key not in self._moved:
            self._moved[key] = self.add(array, side.value)
        return self._moved[key]


@dataclass(frozen=True)
class _Side:
    """An operand of a product: names of its integers, scale and zero point (perhaps empty)."""

    value: str
    scale: str
    zero_point: str
    axis: int | None = None


class _Search:
    """Finds products whose sums are scaled to floats."""

    def __init__(
        self,
        graph: onnx.GraphProto,
        opset: int,
        stored: _Stored,
        around: dict[str, onnx.NodeProto],
    ) -> None:
        self.graph = graph
        self.opset = opset
        self.stored = stored
        self.names = stored.names
        self.readers = reads(graph)
        self.constants = stored.tensors
        made = makers(graph).items()
        self.own = {name: node for name, node in made if node.domain in ONNX_DOMAINS}
        self.makers = {**around, **self.own}
        #: Nodes that nobody needs any more.
        self.replaced: set[int] = set()

    def rewritten(self) -> Iterator[tuple[onnx.NodeProto, list[onnx.NodeProto]]]:
        """Multiplications that scale the sums of a product, and what computes the same."""
        for mul in self.graph.node:
            if mul.op_type != "Mul" or mul.domain not in ONNX_DOMAINS or len(mul.input) != 2:
                continue
            for sums, scale in (tuple(mul.input), tuple(reversed(mul.input))):
                nodes = self._rewrite(mul, sums, scale)
                if nodes:
                    yield mul, nodes
                    break

    def _rewrite(self, mul: onnx.NodeProto, sums: str, scale: str) -> list[onnx.NodeProto]:
        cast, factors = self._only_reader(sums, "Cast"), self._factors(scale)
        if cast is None or not factors:
            return []
        to = next((a.i for a in cast.attribute if a.name == "to"), None)
        product, bias = self._with_bias(cast.input[0])
        if product is None or to != onnx.TensorProto.FLOAT:
            return []
        sides = self._sides(product, factors)
        if sides is None:
            return []
        sides[1], shift = self._in_int8(product, sides[1])
        self.replaced.update((id(cast), id(product)))
        nodes, inputs = [], []
        for side in sides:
            inputs.append(self.names.fresh(f"{side.value}_dequantised"))
            nodes.append(self._dequantised(side, inputs[-1], product.name))
        added = []
        if bias:
            self.replaced.add(id(self.makers[cast.input[0]]))
            added = self._scaled_bias(bias, cast, mul, scale)
        if shift is not None:
            added += self._shifted_back(product, inputs[0], *shift)
        result = self.names.fresh(product.output[0]) if added else mul.output[0]
        nodes.append(_product_of(product, inputs, result))
        for i, term in enumerate(added):
            nodes += term
            last = i + 1 == len(added)
            whole = mul.output[0] if last else self.names.fresh(product.output[0])
            nodes.append(onnx.helper.make_node("Add", [result, term[-1].output[0]], [whole]))
            result = whole
        return nodes

    def _factors(self, scale: str) -> list[str]:
        """The scales that a scale is the product of; itself, where it is a constant."""
        if scale in self.constants:
            return [scale]
        maker = self.makers.get(scale)
        return list(maker.input) if maker is not None and maker.op_type == "Mul" else []

    def _dequantised(self, side: _Side, result: str, name: str) -> onnx.NodeProto:
        """The node that makes floats of an operand."""
        inputs = [part for part in (side.value, side.scale, side.zero_point) if part]
        node = onnx.helper.make_node("DequantizeLinear", inputs, [result], name)
        if side.axis is not None:
            node.attribute.append(onnx.helper.make_attribute("axis", side.axis))
            node.domain = "" if self.opset >= QUANTISED_ALONG_AXES else MICROSOFT
        return node

    def _with_bias(self, sums: str) -> tuple[onnx.NodeProto | None, str]:
        """The product that gives these sums, and what is added to it: a name, or nothing."""
        product = self._only_reader(sums, *_PRODUCTS)
        if product is not None:
            return product, ""
        add = self._only_reader(sums, "Add")
        if add is None:
            return None, ""
        for whole, bias in itertools.permutations(add.input):
            product = self._only_reader(whole, *_PRODUCTS)
            if product is not None:
                return product, bias
        return None, ""

    def _scaled_bias(
        self, bias: str, cast: onnx.NodeProto, mul: onnx.NodeProto, scale: str
    ) -> list[list[onnx.NodeProto]]:
        """The integers of a bias, scaled as the sums are."""
        floats, scaled = self.names.fresh(f"{bias}_floats"), self.names.fresh(f"{bias}_scaled")
        made = onnx.helper.make_node
        to = onnx.TensorProto.FLOAT
        return [
            [
                made("Cast", [bias], [floats], cast.name, to=to),
                made("Mul", [floats, scale], [scaled], mul.name),
            ]
        ]

    def _in_int8(
        self, product: onnx.NodeProto, side: _Side
    ) -> tuple[_Side, tuple[np.ndarray, np.ndarray] | None]:
        """A stored weight as int8 without a zero point, and how far off each channel then is, and
        its scale, where int8 does not hold its differences from the zero point."""
        tensors = [self.constants.get(name) for name in (side.value, side.scale)]
        groups = next((a.i for a in product.attribute if a.name == "group"), 1)
        image = product.op_type == "ConvInteger"
        ranks = (3, 4) if image else (2,)
        if None in tensors or len(tensors[0].dims) not in ranks or groups != 1:
            return side, None
        value, scale = map(numpy_helper.to_array, tensors)
        zero_point = np.zeros((), value.dtype)
        if side.zero_point:
            zero_point = numpy_helper.to_array(self.constants[side.zero_point])
        middle = 128 if value.dtype == np.uint8 else 0
        along = (-1, *(1,) * (value.ndim - 1)) if image else (1, -1)
        wide = value.astype(np.int32)
        centred = wide - zero_point.astype(np.int32).reshape(along)
        bounds = np.iinfo(np.int8)
        if bounds.min <= centred.min(initial=0) and centred.max(initial=0) <= bounds.max:
            return side, None
        shift = middle - zero_point.astype(np.int32)
        moved = self.stored.moved(side, (wide - middle).astype(np.int8))
        return _Side(moved, side.scale, "", side.axis), (shift.astype(np.single), scale)

    def _shifted_back(
        self, product: onnx.NodeProto, data: str, shift: np.ndarray, scale: np.ndarray
    ) -> list[list[onnx.NodeProto]]:
        """What a weight moved by ``shift`` lacks: that times the sums of the data it meets."""
        image = product.op_type == "ConvInteger"
        shape = list(self.constants[product.input[1]].dims)
        shape[0 if image else 1] = 1
        ones = self.stored.add(np.ones(shape, np.int8), "ones")
        one = self.stored.add(np.single(1), "one")
        factors = (shift * scale).reshape(1, -1, *(1,) * (len(shape) - 2))
        missing = self.stored.add(factors.astype(np.single), "shift")
        weight, sums, term = (self.names.fresh(f"{product.name}_{s}") for s in ("w", "s", "t"))
        made = onnx.helper.make_node
        return [
            [
                made("DequantizeLinear", [ones, one], [weight]),
                _product_of(product, [data, weight], sums),
                made("Mul", [sums, missing], [term]),
            ]
        ]

    def _only_reader(self, name: str, *operators: str) -> onnx.NodeProto | None:
        """The node that makes a value, if it is such an operator and one node reads the value."""
        node = self.own.get(name)
        single = node is not None and self.readers[name] == 1
        return node if single and node.op_type in operators else None

    def _sides(self, product: onnx.NodeProto, factors: list[str]) -> list[_Side] | None:
        """Both operands with their scales; None where these are not what their product is of."""
        zero_points = [*product.input[2:], "", ""][:2]
        scales = [self._dynamic_scale(zero_point) for zero_point in zero_points]
        if scales == ["", ""]:
            return self._sides_of_constants(product, factors, zero_points)
        for scale in filter(None, scales):
            if scale not in factors:
                return None
            factors.remove(scale)
        scales = [scale or factors.pop() for scale in scales]
        sides = []
        for place, (scale, zero_point) in enumerate(zip(scales, zero_points, strict=True)):
            side = _Side(product.input[place], scale, zero_point)
            if not self._dynamic_scale(zero_point):
                side = self._constant_side(product, place, side)
            if side is None:
                return None
            sides.append(side)
        return sides

    def _sides_of_constants(
        self, product: onnx.NodeProto, factors: list[str], zero_points: list[str]
    ) -> list[_Side] | None:
        """Operands of which none is quantised at run time, as rows of a quantised table are not.

        Of their scales only the product counts: a number is the data's, the rest the weight's.
        """
        known = [self.constants.get(name) for name in (*factors, *filter(None, zero_points[:1]))]
        if product.input[0] in self.constants or None in known:
            return None
        numbers = {name: numpy_helper.to_array(self.constants[name]) for name in factors}
        zero_point = zero_points[0] and numpy_helper.to_array(self.constants[zero_points[0]])
        if any(number.dtype != np.single for number in numbers.values()) or np.size(zero_point) > 1:
            return None
        data = next((n for n in factors if numbers[n].ndim == 0), None) if factors[1:] else None
        if data is None:
            if factors[1:]:
                return None
            data = self.stored.add(np.single(1), "one")
        weight = next((name for name in reversed(factors) if name != data), factors[0])
        side = _Side(product.input[1], weight, zero_points[1])
        whole = self._constant_side(product, 1, side)
        return whole and [_Side(product.input[0], data, zero_points[0]), whole]

    def _dynamic_scale(self, zero_point: str) -> str:
        """The scale that belongs to a zero point of DynamicQuantizeLinear, or nothing."""
        maker = self.makers.get(zero_point)
        if maker is None or maker.op_type != "DynamicQuantizeLinear":
            return ""
        return maker.output[1] if list(maker.output).index(zero_point) == 2 else ""

    def _constant_side(self, product: onnx.NodeProto, place: int, side: _Side) -> _Side | None:
        """A stored operand, whose scale and zero point may differ from channel to channel."""
        value, scale = (self.constants.get(name) for name in (side.value, side.scale))
        zero_point = self.constants.get(side.zero_point)
        if value is None or scale is None or (side.zero_point and zero_point is None):
            return None
        if scale.data_type != onnx.TensorProto.FLOAT:
            return None
        numbers = [numpy_helper.to_array(t) for t in (scale, zero_point) if t is not None]
        if all(number.size == 1 for number in numbers):
            return side if all(number.ndim <= 1 for number in numbers) else None
        if place == 0:
            return None
        image = product.op_type == "ConvInteger"
        axis = 0 if image else len(value.dims) - 1
        channels = value.dims[axis]
        if not _along(numbers[0], channels, len(value.dims) - 2 if image else 0):
            return None
        if any(number.size not in (1, channels) for number in numbers):
            return None
        stored = [
            self._stored(np.broadcast_to(number.reshape(-1), (channels,)), name)
            for number, name in zip(numbers, (side.scale, side.zero_point), strict=False)
        ]
        return _Side(side.value, stored[0], stored[1] if len(stored) > 1 else "", axis)

    def _stored(self, array: np.ndarray, name: str) -> str:
        """The name of a constant that holds these values."""
        known = self.constants[name]
        if list(known.dims) == list(array.shape):
            return name
        return self.stored.add(np.ascontiguousarray(array), name)


def _product_of(product: onnx.NodeProto, inputs: list[str], result: str) -> onnx.NodeProto:
    """The product of floats that one of integers stands for."""
    made = onnx.helper.make_node(_PRODUCTS[product.op_type], inputs, [result], product.name)
    made.attribute.extend(product.attribute)
    return made


def _along(scale: np.ndarray, channels: int, behind: int) -> bool:
    """Whether a scale of the sums is one number, or one for each channel, ``behind`` axes before
    the last."""
    if scale.size == 1:
        return True
    shape = (1,) * (behind + 2) + scale.shape
    place = len(shape) - 1 - behind
    return shape[place] == channels and scale.size == channels
