"""Inputs and outputs of an imported model: ONNX's names with Relax's shapes and dtypes."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import tvm
from tvm import relax

from byoc.deploy.metadata import TensorInfo
from byoc.errors import CompileError
from byoc.frontends.onnx.graph_names import makers
from byoc.frontends.onnx.input_shapes import model_inputs
from byoc.frontends.onnx.refusals import node_name
from codegen_cc.region.relax_dims import dim_text


def signature(
    model: onnx.ModelProto, module: tvm.IRModule
) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    """Inputs and outputs of ``main``, in order. Raises ``CompileError``."""
    main = module["main"]
    inputs, outputs = model_inputs(model), list(model.graph.output)
    # The declared result knows no symbols but the parameters' own.
    result = main.body.body.ty
    results = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    _require_same_count("input", inputs, list(main.params))
    _require_same_count("output", outputs, results)
    return (
        tuple(
            _input_info(value, parameter.ty)
            for value, parameter in zip(inputs, main.params, strict=True)
        ),
        tuple(
            _output_info(value.name, type_, model)
            for value, type_ in zip(outputs, results, strict=True)
        ),
    )


def _branching(graph: onnx.GraphProto, name: str) -> onnx.NodeProto | None:
    """The last If that a value is computed from, if any."""
    made, left, seen = makers(graph), [name], set()
    while left:
        node = made.get(left.pop(0))
        if node is None or id(node) in seen:
            continue
        if node.op_type == "If":
            return node
        seen.add(id(node))
        left += node.input
    return None


def _require_same_count(
    what: str, values: Sequence[onnx.ValueInfoProto], found: Sequence[object]
) -> None:
    if len(values) != len(found):
        names = [value.name for value in values]
        raise CompileError(
            f"the imported model has {len(found)} {what}s where ONNX has {len(names)}: {names}"
        )


def _input_info(value: onnx.ValueInfoProto, type_: relax.Type) -> TensorInfo:
    """Symbolic extents as the caller gave them: main itself takes whatever its symbols allow."""
    info = _output_info(value.name, type_)
    dims = value.type.tensor_type.shape.dim
    shape = (
        dim.dim_param if isinstance(extent, str) else extent
        for extent, dim in zip(info.shape, dims, strict=True)
    )
    return TensorInfo(info.name, tuple(shape), info.dtype)


def _output_info(name: str, type_: relax.Type, model: onnx.ModelProto | None = None) -> TensorInfo:
    shape = getattr(type_, "shape", None)
    sizes = getattr(shape, "values", None)
    unranked = sizes is None and model is not None and getattr(type_, "ndim", 0) == -1
    if (node := _branching(model.graph, name) if unranked else None) is not None:
        raise CompileError(
            f"output {name!r} has no known rank: operator {node.op_type} (node {node_name(node)})"
            " gives tensors of other ranks from one branch to the next; give them the same number"
            " of axes, or cut the model before it"
        )
    if sizes is None:
        raise CompileError(
            f"{name!r} has no known shape after import ({type_}); "
            "give every dynamic axis a size, or cut the model before it"
        )
    extents = (int(size) if isinstance(size, tvm.tirx.IntImm) else dim_text(size) for size in sizes)
    return TensorInfo(name, tuple(extents), str(type_.dtype))
