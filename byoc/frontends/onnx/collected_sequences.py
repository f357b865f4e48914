"""Sequences that a Loop fills and that are joined behind it, as what its rounds give.

    filled = SequenceEmpty()                          rounds = Loop(...) {
    filled = Loop(..., filled) {                          ...
        ...                                   becomes     give value
        filled = SequenceInsert(filled, value)        }
    }
    y = ConcatFromSequence<axis = 0>(filled)          y = Reshape(rounds)

as exporters of PyTorch write a bag of embeddings. How many elements there are is known only when
the model runs, so that ``resolve_sequences`` cannot tell them apart. Tensors of a sequence may
differ in their shapes, which what rounds give may not: the import, or the run, refuses these.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import onnx

from byoc.frontends.onnx.graph_names import FreshNames, all_graphs, reads, replace_nodes
from byoc.frontends.onnx.unroll import Round

#: More elements than a shape has.
_END = 2**31 - 1


def collect_sequences(model: onnx.ModelProto) -> None:
    """Let loops give what they would put into such sequences, in place."""
    opset = next((entry.version for entry in model.opset_import if not entry.domain), 1)
    fresh = FreshNames(model.graph).fresh
    for part in all_graphs(model.graph):
        loops = [node for node in part.node if node.op_type == "Loop"]
        for name in [name for loop in loops for name in loop.output if name]:
            _collect(part, name, fresh, opset)


def _collect(graph: onnx.GraphProto, name: str, fresh: Callable[[str], str], opset: int) -> None:
    """Let a loop give what it puts into a sequence, if that is what its result of a name is."""
    loop = next(node for node in graph.node if name in node.output)
    joins = [other for other in graph.node if name in other.input]
    if joins and _only_joined(graph, name, joins) and _filled(graph, loop, name):
        rounds = _given(loop, name, fresh)
        _join_rounds(graph, joins, rounds, fresh, opset)


def _only_joined(graph: onnx.GraphProto, name: str, joins: list[onnx.NodeProto]) -> bool:
    """Whether a sequence is read by nodes of its own graph alone, which join it at the front."""
    if reads(graph)[name] != len(joins):
        return False
    attributes = [{a.name: a.i for a in node.attribute} for node in joins]
    return all(
        node.op_type == "ConcatFromSequence" and not found.get("axis", 0)
        for node, found in zip(joins, attributes, strict=True)
    )


def _filled(graph: onnx.GraphProto, loop: onnx.NodeProto, name: str) -> bool:
    """Whether a state begins empty, and each round puts one value behind the others."""
    place = list(loop.output).index(name)
    if place + 2 >= len(loop.input):
        return False
    made = {value: node for node in graph.node for value in node.output}
    first = made.get(loop.input[place + 2])
    if first is None or first.op_type != "SequenceEmpty":
        return False
    body = _body(loop)
    given, state = body.output[place + 1].name, body.input[place + 2].name
    insert = next((node for node in body.node if given in node.output), None)
    if insert is None or insert.op_type != "SequenceInsert" or list(filter(None, insert.input[2:])):
        return False
    others = [node for node in body.node if node is not insert]
    alone = onnx.GraphProto(node=others, output=[v for v in body.output if v.name != given])
    return insert.input[0] == state and not {given, state} & (
        set(reads(alone)) | {value.name for value in alone.output}
    )


def _body(loop: onnx.NodeProto) -> onnx.GraphProto:
    return next(a.g for a in loop.attribute if a.name == "body")


def _given(loop: onnx.NodeProto, name: str, fresh: Callable[[str], str]) -> str:
    """Let each round give what it put into a state, which goes; returns what they give."""
    place = list(loop.output).index(name)
    body = _body(loop)
    insert = next(node for node in body.node if body.output[place + 1].name in node.output)
    value, result = fresh(f"{name}_value"), fresh(f"{name}_rounds")
    given = onnx.helper.make_node("Identity", [insert.input[1]], [value])
    insert.CopyFrom(given)
    del loop.input[place + 2], body.input[place + 2]
    del loop.output[place], body.output[place + 1]
    loop.output.append(result)
    body.output.add(name=value)
    return result


def _join_rounds(
    graph: onnx.GraphProto,
    joins: list[onnx.NodeProto],
    rounds: str,
    fresh: Callable[[str], str],
    opset: int,
) -> None:
    """What joined a sequence joins what the rounds gave: [rounds, first, ...] becomes one axis."""
    kept: list[onnx.NodeProto] = []
    for node in graph.node:
        if node not in joins:
            kept.append(node)
            continue
        write = Round(fresh, opset)
        if any(a.name == "new_axis" and a.i for a in node.attribute):
            write.passed_on(rounds, node.output[0])
        else:
            _one_axis(write, rounds, node.output[0])
        kept += write.nodes
    replace_nodes(graph, kept)


def _one_axis(write: Round, rounds: str, output: str) -> None:
    shape = write.op("Shape", [rounds], "shape")
    bounds = [write.constant([bound], "int64", "bound") for bound in (0, 1, 2, _END)]
    count, first, rest = (
        write.op("Slice", [shape, begin, end], "extent") for begin, end in pairwise(bounds)
    )
    whole = write.op("Concat", [write.op("Mul", [count, first], "rows"), rest], "whole", axis=0)
    write.nodes.append(onnx.helper.make_node("Reshape", [rounds, whole], [output]))
