"""Nodes of domains that users' kernel libraries bring operators of (``codegen_cc.custom``).

Each such operator gets a schema in ``onnx.defs``, so that ONNX's own inference, which many steps
here ask, knows the types of its results.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import defs
from onnx.reference.op_run import OpRun
from tvm import relax

from byoc.errors import UnsupportedForm
from byoc.frontends.onnx.graph_names import all_graphs
from byoc.frontends.onnx.refusals import node_name
from byoc.ir.custom import by_role
from byoc.ir.custom import custom as custom_call
from codegen_cc import dtypes
from codegen_cc.custom import kind_of
from codegen_cc.dim import Dim, symbol
from codegen_cc.node import Operand
from codegen_cc.operator import Operator, custom_operator, custom_operators

_Schema = defs.OpSchema
_Kinds = _Schema.AttrType
_TYPES = {
    int: _Kinds.INT,
    float: _Kinds.FLOAT,
    str: _Kinds.STRING,
    list[int]: _Kinds.INTS,
    list[float]: _Kinds.FLOATS,
    list[str]: _Kinds.STRINGS,
}

#: Schemas that were declared, by domain and name, and the records that they are of.
_declared: dict[tuple[str, str], Operator] = {}


def record_for(node: onnx.NodeProto) -> Operator | None:
    """The record of a node's operator that a user's library brings; None for others."""
    return custom_operator(f"{node.domain}::{node.op_type}") if node.domain else None


def declare_custom() -> None:
    """Tell ONNX of all operators that users' libraries bring."""
    for record in custom_operators():
        for name in record.custom.names:
            domain, _, operator = name.partition("::")
            if _declared.get((domain, operator)) is record:
                continue
            if (domain, operator) in _declared or defs.has(operator, domain):
                defs.deregister_schema(operator, 1, domain)
            defs.register_schema(_schema(domain, operator, record))
            _declared[domain, operator] = record


def converted(
    node: onnx.NodeProto, record: Operator, operands: list[relax.Expr | None]
) -> relax.Call:
    """A node as the call of the operator. Raises ``UnsupportedForm``."""
    try:
        return custom_call(record, by_role(record, operands), _attributes(node))
    except ValueError as error:
        raise UnsupportedForm(
            f"operator {node.op_type} of domain {node.domain!r} (node {node_name(node)}): {error};"
            f" its record is operator {record.name}"
        ) from error


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def evaluators() -> list[type[OpRun]]:
    """The operators that ONNX's reference evaluator can compute by their references."""
    return [
        _evaluator(*name.split("::"), record)
        for record in custom_operators()
        if record.custom.reference is not None
        for name in record.custom.names
    ]


def without_reference(model: onnx.ModelProto) -> onnx.NodeProto | None:
    """A node that a kernel alone computes: its record has no reference, the file no function."""
    functions = {(function.domain, function.name) for function in model.functions}
    for graph in all_graphs(model.graph):
        for node in graph.node:
            record = record_for(node)
            bare = record is not None and record.custom.reference is None
            if bare and (node.domain, node.op_type) not in functions:
                return node
    return None


def _evaluator(domain: str, name: str, record: Operator) -> type[OpRun]:
    custom = record.custom

    def run(self: OpRun, *arrays: np.ndarray | None, **given: Any) -> tuple[np.ndarray, ...]:
        del self
        left_out = [None] * (len(record.roles) - len(arrays))
        made = custom.reference(*arrays, *left_out, **custom.read_attributes(given))
        return tuple(map(np.asarray, made if isinstance(made, tuple) else (made,)))

    return type(name, (OpRun,), {"op_domain": domain, "_run": run})


# ---------------------------------------------------------------------- schemas


def _schema(domain: str, name: str, record: Operator) -> defs.OpSchema:
    parameter, option = _Schema.FormalParameter, _Schema.FormalParameterOption
    every = sorted(defs.get_schema("Identity", 16).type_constraints[0].allowed_type_strs)

    def formal(role: str) -> defs.OpSchema.FormalParameter:
        left_out = role in record.optional
        kind = option.Optional if left_out else option.Single
        return parameter(role, f"T_{role}", param_option=kind, is_homogeneous=False)

    custom = record.custom
    made = _Schema(
        name,
        domain,
        1,
        inputs=[formal(role) for role in record.roles],
        outputs=[
            parameter(result, f"T_{result}", param_option=option.Optional)
            for result in record.results
        ],
        type_constraints=[(f"T_{each}", every, "") for each in (*record.roles, *record.results)],
        attributes=[
            _Schema.Attribute(each, _TYPES[kind_of(usual)], required=custom.is_required(each))
            for each, usual in custom.attributes.items()
        ],
    )
    # Older versions of ONNX than 1.18 cannot be told; types behind such a node are then not known.
    if hasattr(made, "set_type_and_shape_inference_function"):
        made.set_type_and_shape_inference_function(lambda context: _infer(context, record))
    return made


def _infer(context: onnx.shape_inference.InferenceContext, record: Operator) -> None:
    """The types of a node's results, where those of its operands are known."""
    operands: dict[str, Operand] = {}
    symbols: dict[Dim, onnx.TensorShapeProto.Dimension] = {}
    for place, role in enumerate(record.roles[: context.get_num_inputs()]):
        if not context.has_input(place):
            continue
        operand = _operand(role, context.get_input_type(place), symbols)
        if operand is None:
            return
        operands[role] = operand
    given = {}
    for name in record.custom.attributes:
        attribute = context.get_attribute(name)
        if attribute is not None:
            given[name] = onnx.helper.get_attribute_value(attribute)
    try:
        attributes = record.custom.read_attributes(given)
        results = record.custom.typed_results(operands, attributes, len(record.results))
    except ValueError:  # the importer says it with the node's name
        return
    for place, (shape, dtype) in enumerate(results[: context.get_num_outputs()]):
        element = onnx.helper.np_dtype_to_tensor_dtype(dtypes.DTYPES[dtype].numpy)
        made = onnx.helper.make_tensor_type_proto(element, [None] * len(shape))
        for dim, extent in zip(made.tensor_type.shape.dim, shape, strict=True):
            if isinstance(extent, int):
                dim.dim_value = extent
            elif extent in symbols:
                dim.CopyFrom(symbols[extent])
        context.set_output_type(place, made)


def _operand(role: str, type_: onnx.TypeProto | None, symbols: dict[Dim, Any]) -> Operand | None:
    """An operand of known rank; each extent that is no number is a symbol."""
    if type_ is None or not type_.tensor_type.HasField("shape"):
        return None
    shape: list[Dim] = []
    for axis, dim in enumerate(type_.tensor_type.shape.dim):
        if dim.HasField("dim_value"):
            shape.append(dim.dim_value)
            continue
        known = [s for s, d in symbols.items() if dim.dim_param and d.dim_param == dim.dim_param]
        extent = known[0] if known else symbol(f"{role}_{axis}")
        symbols[extent] = dim
        shape.append(extent)
    element = type_.tensor_type.elem_type
    if not element:
        return None
    return Operand(role, tuple(shape), str(onnx.helper.tensor_dtype_to_np_dtype(element)))
