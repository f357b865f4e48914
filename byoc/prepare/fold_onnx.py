"""Evaluate what the simplifier left of arithmetic on small constants, such as shapes.

Whether onnxslim folds a chain such as Shape, Slice, Div, Concat depends on the order in which it
looks at the nodes, which differs from run to run. TVM's importer refuses what remains of it.
"""

from __future__ import annotations

import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

#: Operators of arithmetic on shapes; all of them give the same result for the same operands.
FOLDED = frozenset(
    (
        "Add",
        "Cast",
        "Concat",
        "Div",
        "Equal",
        "Expand",
        "Gather",
        "Identity",
        "Max",
        "Min",
        "Mod",
        "Mul",
        "Range",
        "ReduceProd",
        "Reshape",
        "Slice",
        "Split",
        "Squeeze",
        "Sub",
        "Unsqueeze",
        "Where",
    )
)

#: Most elements of an operand: shapes have a few, weights have many.
MAX_ELEMENTS = 64


def fold_small_constants(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace operators on small constants by their results, in place; returns the model."""
    graph = model.graph
    small = {t.name: t for t in graph.initializer if _elements(t) <= MAX_ELEMENTS}
    kept: list[onnx.NodeProto] = []
    fed = {value.name for value in graph.input}
    outputs = {value.name for value in graph.output}
    for node in graph.node:
        names = [name for name in node.input if name]
        constant = names and all(name in small and name not in fed for name in names)
        if node.op_type in FOLDED and not node.domain and constant:
            results = _evaluate(node, [small[name] for name in names], model)
            if results is not None and not outputs.intersection(node.output):
                small.update(results)
                graph.initializer.extend(results.values())
                continue
        kept.append(node)
    if len(kept) < len(graph.node):
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
        del graph.node[:]
        graph.node.extend(copies)
    return model


def _elements(tensor: onnx.TensorProto) -> int:
    count = 1
    for extent in tensor.dims:
        count *= extent
    return count


def _evaluate(
    node: onnx.NodeProto, tensors: list[onnx.TensorProto], model: onnx.ModelProto
) -> dict[str, onnx.TensorProto] | None:
    """The results of one node by name, or None where they are not small or it fails."""
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "fold", [], outputs, tensors)
    single = onnx.helper.make_model(graph, opset_imports=model.opset_import)
    try:
        values = ReferenceEvaluator(single).run(None, {})
    except Exception:  # an operator may refuse its operands; the importer will say so better
        return None
    if any(value.size > MAX_ELEMENTS for value in values):
        return None
    return {
        info.name: numpy_helper.from_array(value, info.name)
        for info, value in zip(outputs, values, strict=True)
    }
