"""Inputs that are sequences or optionals, as the tensors that they hold in one call.

    a sequence of n tensors                n inputs, and SequenceConstruct
    an optional                            what it holds as an input, and Optional
    integers and booleans that decide      constants: positions in sequences, sizes of their parts,
    how many tensors there are             rounds of loops and branches that give sequences

A model that has been laid open so serves calls of the same lengths and shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from byoc.errors import InputError
from byoc.frontends.onnx.graph_names import (
    FreshNames,
    makers,
    reads_of,
    replace_nodes,
    subgraphs,
)
from byoc.frontends.onnx.input_shapes import model_inputs

#: Inputs that tell a place in a sequence, or how it is cut.
_DECIDING = {"SequenceAt": 1, "SequenceErase": 1, "SequenceInsert": 2, "SplitToSequence": 1}

#: Operators that give sequences or optionals.
_GIVING = frozenset((*_DECIDING, "Optional", "SequenceConstruct", "SequenceEmpty", "SequenceMap"))

#: Kinds of NumPy's dtypes of integers and booleans.
_WHOLE = "iub"


def needs_values(model: onnx.ModelProto) -> bool:
    """Whether values of inputs, and not only their shapes, say how many tensors there are."""
    tensors = all(value.type.HasField("tensor_type") for value in model_inputs(model))
    return not tensors or bool(_deciding(model))


def laid_open(
    model: onnx.ModelProto, values: Mapping[str, Any]
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of tensors for inputs of these values, and its inputs; the given one stays.

    A sequence is a list of arrays, an optional None, an array or a list. Raises ``InputError``.
    """
    opened, arrays = onnx.ModelProto(), {}
    opened.CopyFrom(model)
    graph, names, made = opened.graph, FreshNames(opened.graph), []
    deciding = _deciding(model)
    given = {value.name: value for value in model_inputs(model)}
    kept = [value for value in graph.input if value.name not in given]
    for name, info in given.items():
        value = values[name]
        if info.type.HasField("tensor_type"):
            arrays[name] = np.asarray(value)
            if name in deciding:
                graph.initializer.append(numpy_helper.from_array(arrays.pop(name), name))
            else:
                kept.append(info)
            continue
        for node, tensors in _held(name, info.type, value, names):
            made.append(node)
            for tensor, (kind, array) in tensors.items():
                arrays[tensor] = array
                kept.append(helper.make_tensor_value_info(tensor, kind, array.shape))
    del graph.input[:]
    graph.input.extend(kept)
    replace_nodes(graph, [*made, *graph.node])
    return opened, arrays


_Tensors = dict[str, tuple[int, np.ndarray]]


def _held(
    name: str, kind: onnx.TypeProto, value: Any, names: FreshNames
) -> Iterator[tuple[onnx.NodeProto, _Tensors]]:
    """The nodes that make a value under a name, and the tensors that these read."""
    if kind.HasField("optional_type"):
        inner = kind.optional_type.elem_type
        if value is None:
            yield helper.make_node("Optional", [], [name], type=inner), {}
            return
        held = names.fresh(f"{name}_held")
        tensors: _Tensors = {}
        if inner.HasField("tensor_type"):
            tensors[held] = inner.tensor_type.elem_type, np.asarray(value)
        else:
            yield from _held(held, inner, value, names)
        yield helper.make_node("Optional", [held], [name]), tensors
        return
    if not kind.HasField("sequence_type") or not isinstance(value, list | tuple):
        raise InputError(f"input {name!r} is of type {type(value).__name__}; need a list of arrays")
    element = kind.sequence_type.elem_type.tensor_type.elem_type
    tensors = {names.fresh(f"{name}_{i}"): (element, np.asarray(v)) for i, v in enumerate(value)}
    if tensors:
        yield helper.make_node("SequenceConstruct", list(tensors), [name]), tensors
    else:
        yield helper.make_node("SequenceEmpty", [], [name], dtype=element), {}


def _deciding(model: onnx.ModelProto) -> set[str]:
    """The inputs of integers and booleans that say how many tensors there are."""
    graph = model.graph
    whole = {
        value.name
        for value in model_inputs(model)
        if value.type.HasField("tensor_type")
        and value.type.tensor_type.elem_type != onnx.TensorProto.STRING
        and helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).kind in _WHOLE
    }
    held = {v.name for v in model_inputs(model) if not v.type.HasField("tensor_type")}
    asked: set[str] = set()
    for node in graph.node:
        gives = node.op_type in _GIVING or any(map(_gives, subgraphs(node)))
        if node.op_type in _DECIDING:
            asked.update(node.input[_DECIDING[node.op_type] :][:1])
        elif node.op_type in ("If", "Loop") and (gives or held & reads_of(node)):
            asked.update(node.input[: 1 if node.op_type == "If" else 2])
        if gives or (node.op_type == "Identity" and held & {*node.input}):
            held.update(node.output)
    made, found = makers(graph), set()
    while asked:
        name = asked.pop()
        if name in whole:
            found.add(name)
        if name in made:
            asked.update(made[name].input)
            made = {key: value for key, value in made.items() if key != name}
    return found


def _gives(body: onnx.GraphProto) -> bool:
    """Whether a graph inside a node makes sequences or optionals."""
    return any(node.op_type in _GIVING for node in body.node)
