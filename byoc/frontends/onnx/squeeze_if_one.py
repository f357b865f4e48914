"""``x.squeeze(axis)`` of an axis that may have any extent, as PyTorch exports it.

    If (Shape(x)[axis] == 1) then Squeeze(x, axis) else Identity(x)

The rank of the result depends on the sizes, and what follows is made for one rank. It is the one
without the axis, for whose extent the importer has the library look when it runs: another one is
refused then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx


def squeezing_branch(
    node: onnx.NodeProto,
    made: Mapping[str, onnx.NodeProto],
    constant: Callable[[str], np.ndarray | None],
) -> onnx.GraphProto | None:
    """The branch that squeezes; None for any other node.

    ``made`` are the nodes that give the values around, ``constant`` tells the values of constants.
    """
    if node.op_type != "If":
        return None
    branches = {attribute.name: attribute.g for attribute in node.attribute}
    squeeze = _only(branches["then_branch"], "Squeeze")
    same = _only(branches["else_branch"], "Identity")
    if squeeze is None or same is None or squeeze.input[0] != same.input[0]:
        return None
    test = made.get(node.input[0])
    if test is None or test.op_type != "Equal":
        return None
    numbers = [constant(name) for name in test.input]
    if not any(n is not None and n.size == 1 and n.reshape(()) == 1 for n in numbers):
        return None
    gather = next((made[name] for name in test.input if name in made), None)
    if gather is None or gather.op_type != "Gather":
        return None
    shape = made.get(gather.input[0])
    of = shape is not None and shape.op_type == "Shape" and shape.input[0] == squeeze.input[0]
    return branches["then_branch"] if of else None


def _only(graph: onnx.GraphProto, operator: str) -> onnx.NodeProto | None:
    """The only node of a graph besides constants, if it is of an operator."""
    nodes = [node for node in graph.node if node.op_type != "Constant"]
    return nodes[0] if len(nodes) == 1 and nodes[0].op_type == operator else None
