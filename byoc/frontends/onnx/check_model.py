"""Whether a model is what ONNX calls one: names, order, types and the lengths of its data.

``onnx.checker`` asks for a model in one piece below 2 GB with all of its data, and wants shapes of
outputs that exporters leave out; so what TVM's importer and our passes rely on is checked here.
What single nodes may be is checked while they are imported (``checked_import``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod

import numpy as np
import onnx

from byoc.errors import ModelError
from byoc.frontends.onnx.check_nodes import check_nodes, check_texts
from byoc.frontends.onnx.graph_names import (
    all_graphs,
    reads_of,
    replace_nodes,
    subgraphs,
    tensors_of,
)
from byoc.frontends.onnx.loose_models import opsets_of

_DAMAGED = "the model is damaged, export it again"

#: Bits of an element that is smaller than a byte.
_SMALL_BITS = {"UINT4": 4, "INT4": 4, "FLOAT4E2M1": 4, "UINT2": 2, "INT2": 2}

#: Integers whose numbers are stored as wider ones where they are no raw data.
_IN_INT32 = ("UINT8", "INT8", "UINT16", "INT16")


def check_model(model: onnx.ModelProto, absent: Collection[str] = ()) -> None:
    """Raise ``ModelError`` for an invalid model; ``absent`` are weights without their data."""
    check_texts(model.graph)
    opset = _check_versions(model)
    for value in model.graph.input:
        _check_type(value)
    for value in model.graph.output:
        _check_result(value)
    for depth, graph in enumerate(all_graphs(model.graph)):
        for tensor in tensors_of(graph):
            _check_tensor(tensor, absent if depth == 0 else ())
    _check_names(model.graph, set())
    check_nodes(model, opset)


def _check_versions(model: onnx.ModelProto) -> int:
    """The version of ONNX's operators."""
    if model.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"the model is of version {model.ir_version} of the format, and the installed package"
            f" onnx knows 1 to {onnx.IR_VERSION}; export it with one of these, or upgrade onnx"
        )
    versions = opsets_of(model)
    newest = onnx.defs.onnx_opset_version()
    if not versions:
        raise ModelError(f"the model names no opset of ONNX's (opset_import); {_DAMAGED}")
    if not 1 <= versions[0] <= newest:
        raise ModelError(
            f"the model is of opset {versions[0]}, and the installed package onnx knows 1 to"
            f" {newest}; export it with one of these, or upgrade onnx"
        )
    if len(set(versions)) > 1:
        raise ModelError(f"the model is of several opsets, {sorted(set(versions))}; {_DAMAGED}")
    return versions[0]


def _check_type(value: onnx.ValueInfoProto) -> None:
    types = onnx.TensorProto.DataType
    if value.type.HasField("tensor_type"):
        elem = value.type.tensor_type.elem_type
        if elem not in types.values() or elem == types.UNDEFINED:
            raise ModelError(f"input {value.name!r} is of the unknown type {elem}; {_DAMAGED}")
        if elem == types.STRING:
            raise ModelError(
                f"input {value.name!r} is of strings; models of numbers can be compiled, split the"
                " text outside of the model"
            )
    elif value.type.WhichOneof("value") is None:
        raise ModelError(f"input {value.name!r} has no type; {_DAMAGED}")


def _check_result(value: onnx.ValueInfoProto) -> None:
    """What the network gives is numbers: a type that says otherwise names what would help."""
    if value.type.tensor_type.elem_type == onnx.TensorProto.STRING:
        raise ModelError(
            f"output {value.name!r} is of strings; export the model with numbers as labels, and"
            " look the strings up outside of it"
        )
    if value.type.sequence_type.elem_type.HasField("map_type") or value.type.HasField("map_type"):
        raise ModelError(
            f"output {value.name!r} is of maps that ZipMap does not give; export the model without,"
            " such as with options={'zipmap': False} of skl2onnx"
        )


# ---------------------------------------------------------------------- tensors


def data_bytes(tensor: onnx.TensorProto) -> int | None:
    """Bytes of a tensor's data; None for strings."""
    name = onnx.TensorProto.DataType.Name(tensor.data_type)
    if name == "STRING":
        return None
    bits = _SMALL_BITS.get(name)
    if bits is None:
        bits = 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return -(-prod(tensor.dims) * bits // 8)


def _check_tensor(tensor: onnx.TensorProto, absent: Collection[str]) -> None:
    what, types = f"tensor {tensor.name!r}", onnx.TensorProto.DataType
    if tensor.data_type not in types.values() or tensor.data_type == types.UNDEFINED:
        raise ModelError(f"{what} is of the unknown type {tensor.data_type}; {_DAMAGED}")
    if any(extent < 0 for extent in tensor.dims):
        raise ModelError(f"{what} has the shape {list(tensor.dims)}; {_DAMAGED}")
    if tensor.name in absent or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return
    need = data_bytes(tensor)
    if tensor.HasField("raw_data"):
        if need != len(tensor.raw_data):
            said = "strings" if need is None else f"{need} bytes"
            raise ModelError(
                f"{what} {list(tensor.dims)} has {len(tensor.raw_data)} bytes of data and needs"
                f" {said}; {_DAMAGED}"
            )
        return
    count = prod(tensor.dims)
    if types.Name(tensor.data_type) in _SMALL_BITS:
        count = need
    elif tensor.data_type in (types.COMPLEX64, types.COMPLEX128):
        count *= 2
    numbers = getattr(tensor, onnx.helper.tensor_dtype_to_field(tensor.data_type))
    if len(numbers) != count:
        have = f"{len(numbers)} numbers of data and needs {count}"
        raise ModelError(f"{what} {list(tensor.dims)} has {have}; {_DAMAGED}")
    if (name := types.Name(tensor.data_type)) in _IN_INT32 and len(numbers):
        bounds = np.iinfo(name.lower())
        for number in (min(numbers), max(numbers)):
            if not bounds.min <= number <= bounds.max:
                raise ModelError(f"{what} of {name.lower()} has the number {number}; {_DAMAGED}")


# ---------------------------------------------------------------------- names


def _check_names(graph: onnx.GraphProto, outer: set[str]) -> None:
    """Each name is given once, also by the graphs around, and whatever is read is given."""
    own: set[str] = set()
    for kind, names in _given(graph):
        for name in names:
            if name in own or name in outer:
                raise ModelError(f"the name {name!r} of {kind} is given twice; {_DAMAGED}")
            own.add(name)
    known = outer | own
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                raise ModelError(
                    f"operator {node.op_type} (node {_name(node)}) reads the tensor {name!r}, which"
                    f" no input, weight or node of the model gives; {_DAMAGED}"
                )
        for inner in subgraphs(node):
            _check_names(inner, known)
    for value in graph.output:
        if value.name not in own:
            raise ModelError(
                f"output {value.name!r} is given by no input, weight or node of the model;"
                f" {_DAMAGED}"
            )


def _given(graph: onnx.GraphProto) -> Iterator[tuple[str, list[str]]]:
    """Names by what gives them; a weight may be listed among the inputs as well."""
    inputs = [value.name for value in graph.input]
    yield "an input", inputs
    stored = [tensor.name for tensor in graph.initializer]
    stored += [tensor.values.name for tensor in graph.sparse_initializer]
    if len(set(stored)) == len(stored):
        stored = [name for name in stored if name not in set(inputs)]
    yield "a weight", stored
    for node in graph.node:
        yield f"a result of node {_name(node)}", [name for name in node.output if name]


def _name(node: onnx.NodeProto) -> str:
    return repr(node.name) if node.name else f"with output {', '.join(node.output)!r}"


# ---------------------------------------------------------------------- order


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Put nodes behind those that they read from, in place, as ONNX wants and Runtime does.

    Nodes that stand right stay in their order. Raises ``ModelError`` for a cycle.
    """
    for node in graph.node:
        for inner in subgraphs(node):
            sort_nodes(inner)
    maker = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
    needs = [{maker[n] for n in reads_of(node) if n in maker} for node in graph.node]
    if all(max(before, default=-1) < at for at, before in enumerate(needs)):
        return
    order: list[int] = []
    state = [0] * len(needs)  # 1: what it needs is under way, 2: placed
    for first in range(len(needs)):
        stack = [first]
        while stack:
            at = stack[-1]
            waiting = [before for before in sorted(needs[at]) if state[before] != 2]
            if state[at] == 2:
                stack.pop()
            elif not waiting:
                state[at] = 2
                order.append(stack.pop())
            elif state[at] == 1 and any(state[before] == 1 for before in waiting):
                raise ModelError(
                    f"node {_name(graph.node[at])} needs its own result, by way of others;"
                    f" {_DAMAGED}"
                )
            else:
                state[at] = 1
                stack.append(waiting[0])
    replace_nodes(graph, [graph.node[at] for at in order])
