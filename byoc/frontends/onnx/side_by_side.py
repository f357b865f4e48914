"""A Scan whose rounds compare one row each with the same matrix, as one comparison with all rows.

    Scan(x [n, d], rows [m, d]) {
        c = Sub(x, row)                          c = Sub(x [n, d, 1], rows' [1, d, m])
        s = ReduceSumSquare<axes = 1>(c)         s = ReduceSumSquare<axes = 1>(c)    [n, m]
        give s
    }                                            y = Transpose(s)                    [m, n]

skl2onnx writes the distances of neighbours and of the kernels of Gaussian processes so.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper, numpy_helper

from byoc.frontends.onnx.unroll import Nodes, Round

#: What is computed element by element between the difference and the result.
_UNARY = ("Abs", "Sqrt", "Neg", "Exp", "Identity")

_REDUCTIONS = ("ReduceSumSquare", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean")


def side_by_side(
    node: onnx.NodeProto, shape: Callable[[str], list[int | None] | None], write: Round
) -> Nodes | None:
    """All rounds of such a Scan at once; None for others."""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    body = attributes.pop("body")
    plain = all(not any(value) for name, value in attributes.items() if name != "num_scan_inputs")
    if not plain or len(node.input) != 2 or attributes["num_scan_inputs"] != 1:
        return None
    if [len(shape(name) or ()) for name in node.input] != [2, 2] or len(body.input) != 2:
        return None
    steps = _steps(body)
    if steps is None:
        return None
    rows = write.op("Transpose", [node.input[1]], "rows", perm=[1, 0])
    sides = [write.unsqueezed(node.input[0], 2), write.unsqueezed(rows, 0)]
    values = dict(zip((value.name for value in body.input), sides, strict=True))
    for step in steps:
        inputs = [values.get(name, name) for name in step.input]
        for place, name in enumerate(step.input):
            if place and name not in values:
                inputs[place] = write.op("Constant", [], name, value=_constants(body)[name])
        copy = helper.make_node(step.op_type, inputs, [write.fresh(step.output[0])])
        copy.attribute.extend(step.attribute)
        write.nodes.append(copy)
        values[step.output[0]] = copy.output[0]
    state, given = node.output
    if state:
        write.passed_on(node.input[0], state)
    if given:
        result = values[steps[-1].output[0]]
        write.nodes.append(helper.make_node("Transpose", [result], [given], perm=[1, 0]))
    return write.nodes


def _constants(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            found[node.output[0]] = node.attribute[0].t
    return found


def _steps(body: onnx.GraphProto) -> list[onnx.NodeProto] | None:
    """The nodes of a body from the difference to the result; None for another body."""
    made = {name: node for node in body.node for name in node.output}
    state, row = (value.name for value in body.input)
    kept, name = (value.name for value in body.output)
    if kept != state:
        handed_on = made.get(kept)
        if handed_on is None or handed_on.op_type != "Identity" or handed_on.input[0] != state:
            return None
    constants = _constants(body)
    steps: list[onnx.NodeProto] = []
    while name in made:
        node = made[name]
        steps.insert(0, node)
        if node.op_type == "Sub":
            apart = set(node.input) == {state, row}
            one = sum(step.op_type in _REDUCTIONS for step in steps) == 1
            return steps if apart and one else None
        if not _keeps_columns_apart(node, constants):
            return None
        name = node.input[0]
    return None


def _keeps_columns_apart(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> bool:
    """Whether a step is of each element alone, or sums over the columns and leaves the rows."""
    if node.domain not in ("", "ai.onnx"):
        return False
    numbers = [constants.get(name) for name in node.input[1:]]
    if None in numbers:
        return False
    values = [numpy_helper.to_array(tensor) for tensor in numbers]
    if node.op_type in ("Pow", "Mul", "Div"):
        return values[0].size == 1 and values[0].ndim <= 1
    if node.op_type in _UNARY:
        return True
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    axes = values[0] if values else np.array(attributes.get("axes", []))
    return (
        node.op_type in _REDUCTIONS and axes.tolist() == [1] and attributes.get("keepdims", 1) == 0
    )
