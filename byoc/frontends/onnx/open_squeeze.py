"""Squeeze without axes, of a tensor with an open extent.

Such a node drops each axis that turns out to be 1 long: how many axes its result has would depend
on the sizes of a call. Of an extent that is computed, the model's declaration of the result says
what it means:

    y [frames - 14] = Squeeze(x [frames - 14, 1])        axes is [1]

An extent of one symbol has to be 2 or more: an input's own x, 2 x, x + 1 or x // 2 - 4, of a symbol
that is not too small. One that is always so, as x + 2, asks for nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection

import numpy as np
import onnx
import tvm
from onnx import numpy_helper
from tvm import relax

from byoc.frontends.onnx.explain import opset_of
from byoc.frontends.onnx.graph_names import FreshNames
from byoc.frontends.onnx.honoured import ONNX_DOMAINS
from byoc.frontends.onnx.inferred_shapes import extents_of
from byoc.frontends.onnx.learned_axes import Elements, Unequal
from byoc.ir.dataflow import dtype_of, shape_of
from codegen_cc.dim import Dim, at_most, symbols

#: From this opset on axes are an input.
_AXES_AS_INPUT = 13
#: A symbol may have to be less than this.
_LARGEST = 4096


def declared_ranks(model: onnx.ModelProto) -> dict[str, int]:
    """How many axes a model says that its outputs have."""
    return {
        value.name: len(found)
        for value in model.graph.output
        if (found := extents_of(value.type)) is not None
    }


def squeeze_as_declared(model: onnx.ModelProto) -> None:
    """Give such nodes the axes, in place, where their result is an output of declared rank."""
    declared = declared_ranks(model)
    nodes = [node for node in model.graph.node if _is_open(node) and node.output[0] in declared]
    if not nodes:
        return
    inferred = onnx.shape_inference.infer_shapes(model).graph
    own = {dim.dim_param for value in inferred.input for dim in value.type.tensor_type.shape.dim}
    known = {
        value.name: extents_of(value.type)
        for value in inferred.value_info
        if not own & {dim.dim_param for dim in value.type.tensor_type.shape.dim if dim.dim_param}
    }
    for node in nodes:
        extents = known.get(node.input[0])
        if extents is None or None not in extents:
            continue
        axes = [place for place, extent in enumerate(extents) if extent == 1]
        if len(extents) - len(axes) == declared[node.output[0]]:
            _name_axes(model.graph, node, axes, opset_of(model))


def squeezed_to_one(
    bb: relax.BlockBuilder,
    source: relax.Expr,
    places: Collection[int],
    extent_of: Callable[[Dim], int | tvm.ir.Expr],
    unequal: Unequal,
) -> relax.Expr:
    """A squeeze of axes whose symbolic extents the run has to find to be 1.

    Those of a row that was cut, the last of n, are 1 or 0: that they be 1 is added to ``unequal``.
    Of others, such as what strides leave of a sound, several sizes may make 1.
    """
    shape = shape_of(source)
    open_ones = (shape[place] for place in places if not isinstance(shape[place], int))
    unequal += [Elements(extent, 1) for extent in open_ones if at_most(extent, 1)]
    extents = [1 if i in places else extent_of(e) for i, e in enumerate(shape)]
    # An operator that is cast where it is bound would be in no region.
    given = source if isinstance(source, relax.Var) else bb.emit(source)
    checked = bb.match_cast(given, relax.TensorType(extents, dtype_of(source)))
    return relax.op.squeeze(checked, sorted(places))


def squeezed(source: relax.Expr, least: dict[str, int]) -> relax.Expr | None:
    """A squeeze without axes of a tensor with open ones, which have to be 2 or more.

    What their symbols are at least is noted in ``least``. None where an open extent may be 1 for
    other reasons than that its symbol is small.
    """
    shape = shape_of(source)
    wanted = [_least(extent) for extent in shape if not isinstance(extent, int)]
    if None in wanted:
        return None
    for some in wanted:
        for name, number in some.items():
            least[name] = max(number, least.get(name, 0))
    axes = [place for place, extent in enumerate(shape) if extent == 1]
    return relax.op.squeeze(source, axes) if axes else source


def _least(extent: Dim) -> dict[str, int] | None:
    """What the symbol of an extent is at least where the extent is 2 or more; None if none is.

    Nothing where it is 2 or more in any case.
    """
    if at_most(2, extent):
        return {}
    inside = symbols([extent])
    if len(inside) != 1:
        return None
    (own,) = inside

    def fits(number: int) -> bool:
        return bool(at_most(2, extent.subs(own, own + number)))

    number = bisect_left(range(_LARGEST), True, key=fits)
    return {own.name: number} if number < _LARGEST else None


def _is_open(node: onnx.NodeProto) -> bool:
    if node.op_type != "Squeeze" or node.domain not in ONNX_DOMAINS:
        return False
    return not any(node.input[1:]) and not any(a.name == "axes" for a in node.attribute)


def _name_axes(graph: onnx.GraphProto, node: onnx.NodeProto, axes: list[int], opset: int) -> None:
    del node.input[1:]
    if not axes:
        node.op_type = "Identity"
    elif opset < _AXES_AS_INPUT:
        node.attribute.append(onnx.helper.make_attribute("axes", axes))
    else:
        name = FreshNames(graph).fresh("axes")
        graph.initializer.append(numpy_helper.from_array(np.array(axes, np.int64), name))
        node.input.append(name)
