"""NonZero of one condition, once in each graph.

How many elements are not zero is a symbol that each import of such a node makes anew. Where rows of
several tensors are picked by one condition, as parts of a batch are, what comes after has to know
that they are as many.
"""

from __future__ import annotations

import onnx

from byoc.frontends.onnx.graph_names import all_graphs, rename_reads, replace_nodes
from byoc.frontends.onnx.honoured import ONNX_DOMAINS


def count_once(graph: onnx.GraphProto) -> None:
    """Let the first NonZero of a value stand for others of it, in place."""
    for part in all_graphs(graph):
        _count_once(part)


def _count_once(graph: onnx.GraphProto) -> None:
    outputs = {value.name for value in graph.output}
    first: dict[str, str] = {}
    kept, renamed = [], {}
    for node in graph.node:
        counts = node.op_type == "NonZero" and node.domain in ONNX_DOMAINS
        if counts and len(node.input) == len(node.output) == 1:
            value, result = node.input[0], node.output[0]
            if first.setdefault(value, result) != result and result not in outputs:
                renamed[result] = first[value]
                continue
        kept.append(node)
    if renamed:
        replace_nodes(graph, kept)
        rename_reads(graph.node, renamed)
