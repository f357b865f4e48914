"""Nodes that are calls of functions, written out as what the functions are made of.

A function stands in the model itself (``FunctionProto``), in the schema of an operator that ONNX
defines by others, or, for operators of com.microsoft and some of ONNX's, in ``bodies``.  Those of
schemas are written out where no converter is for the operator.  ``onnx.inliner`` puts a node's
attributes and operands into a body; here this happens to one node at a time, while the types of its
operands are at hand, and calls inside of a body take their turn later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx
from onnx import inliner
from tvm.relax.frontend.onnx import onnx_frontend

from byoc.errors import ModelError
from byoc.frontends.onnx.bodies import BODIES
from byoc.frontends.onnx.bodies.call import Call
from byoc.frontends.onnx.converters import CONVERTERS
from byoc.frontends.onnx.custom_operators import record_for
from byoc.frontends.onnx.graph_names import FreshNames, all_graphs, known_as, rename_reads
from byoc.frontends.onnx.honoured import ONNX_DOMAINS, schema_of
from byoc.frontends.onnx.quantised_operators import MICROSOFT
from codegen_cc.errors import one_line

#: Operators that somebody converts as they are.
_CONVERTED = frozenset((*CONVERTERS, *onnx_frontend._get_convert_map(), "SequenceMap"))


#: Operators of ONNX Runtime that ONNX took over later, and attributes that its own lack, with the
#: values that say nothing.
_ONNX_TOOK_OVER: dict[tuple[str, str], dict[str, object]] = {
    (MICROSOFT, "CausalConvWithState"): {
        "channels_last": 0,
        "dilation": 1,
        "ndim": 1,
        "state_window": 0,
    },
    (MICROSOFT, "LinearAttention"): {"state_window": 0},
}
#: The least opset whose operators their bodies are made of.
_LEAST_OPSET = 18

#: The domain of functions that come out of schemas.
_SCHEMAS = "schemas"


class Functions:
    """The functions that nodes of a model may be calls of."""

    def __init__(self, model: onnx.ModelProto, names: FreshNames) -> None:
        self._imports = {entry.domain: entry.version for entry in model.opset_import}
        self._opset = self._imports.get("", self._imports.get("ai.onnx", 1))
        self._names = names
        self._own = {(f.domain, f.name, f.overload): f for f in model.functions}

    def body(
        self,
        node: onnx.NodeProto,
        types: Mapping[str, onnx.TypeProto],
        constants: Mapping[str, onnx.TensorProto],
    ) -> list[onnx.NodeProto] | None:
        """The nodes that do what a node does, under its name; None where it is no call.

        ``types`` and ``constants`` are those of the values around it. Raises ``ModelError`` for a
        call of a function of the model that cannot be written out.
        """
        if record_for(node) is not None:
            return None  # a user's kernel computes it whole
        own = self._own.get((node.domain, node.op_type, node.overload))
        if own is not None:
            whole = _with_defaults(node, own.attribute_proto)
            return self._named(node, self._written_out(whole, types, own))
        if any(name and name not in types for name in node.input):
            return None
        opset = self._opset
        writer = BODIES.get((node.domain if node.domain not in ONNX_DOMAINS else "", node.op_type))
        if writer is not None:
            call = Call(node, types, constants, opset, self._names)
            if writer(call):
                return call.written()
        if (node.domain, node.op_type) in _ONNX_TOOK_OVER:
            return self._as_onnx(node, types, opset)
        schema = schema_of(node.op_type, opset, node.domain)
        if schema is None or (node.op_type in _CONVERTED and writer is None):
            return None
        if any(attribute.name not in schema.attributes for attribute in node.attribute):
            return None  # the importer refuses it
        return self._by_schema(node, node, schema, types, opset)

    def _as_onnx(
        self, node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto], opset: int
    ) -> list[onnx.NodeProto] | None:
        """The body that ONNX's operator of the same name has; None with what that cannot say."""
        usual = _ONNX_TOOK_OVER[node.domain, node.op_type]
        whole = onnx.NodeProto()
        whole.CopyFrom(node)
        del whole.attribute[:]
        for attribute in node.attribute:
            if attribute.name not in usual:
                whole.attribute.append(attribute)
            elif onnx.helper.get_attribute_value(attribute) != usual[attribute.name]:
                return None
        schema = onnx.defs.get_schema(node.op_type)
        if opset < _LEAST_OPSET or any(a.name not in schema.attributes for a in whole.attribute):
            return None
        whole.domain = ""
        return self._by_schema(node, whole, schema, types, schema.since_version)

    def _by_schema(
        self,
        node: onnx.NodeProto,
        call: onnx.NodeProto,
        schema: onnx.defs.OpSchema,
        types: Mapping[str, onnx.TypeProto],
        version: int,
    ) -> list[onnx.NodeProto] | None:
        """The body that a schema has, by a version of ONNX, for a node that ``call`` stands for."""
        whole = _with_defaults(call, (a.default_value for a in schema.attributes.values()))
        function = _of_schema(schema, whole, types, version)
        if function is None:
            return None
        # Its operators are read as those of the model's opset.
        del function.opset_import[:]
        function.opset_import.append(onnx.helper.make_opsetid("", self._opset))
        whole.domain = function.domain
        return self._named(node, self._written_out(whole, types, function))

    def _written_out(
        self,
        node: onnx.NodeProto,
        types: Mapping[str, onnx.TypeProto],
        function: onnx.FunctionProto,
    ) -> list[onnx.NodeProto]:
        """The body of a function for one node, with names that only begin to be right."""
        inputs = [
            onnx.ValueInfoProto(name=name, type=types.get(name))
            for name in dict.fromkeys(filter(None, node.input))
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        imports = {function.domain: 1}
        imports |= {entry.domain: entry.version for entry in function.opset_import}
        imports |= self._imports
        model = onnx.helper.make_model(
            onnx.helper.make_graph([node], "call", inputs, outputs),
            opset_imports=[onnx.helper.make_opsetid(*entry) for entry in imports.items()],
            functions=[function],
        )
        try:
            return list(inliner.inline_local_functions(model, convert_version=True).graph.node)
        except Exception as error:  # whatever C++ says
            raise ModelError(
                f"operator {node.op_type} (node {known_as(node)!r}): its function cannot be written"
                f" out ({one_line(error)}); export the model without functions"
            ) from error

    def _named(
        self, node: onnx.NodeProto, body: list[onnx.NodeProto]
    ) -> list[onnx.NodeProto] | None:
        """A body whose nodes tell which node they come from, its values under names of their own.

        None for a function that stands for itself.
        """
        if any((n.domain, n.op_type) == (node.domain, node.op_type) for n in body):
            return None
        around, given = known_as(node), {*node.input, *node.output}
        graph = onnx.GraphProto(node=body)
        defined = {
            name
            for part in all_graphs(graph)
            for name in (
                *(value.name for value in (*part.input, *part.initializer)),
                *(name for inner in part.node for name in inner.output),
            )
            if name and name not in given
        }
        new = {name: self._names.fresh(f"{around}/{name}") for name in sorted(defined)}
        rename_reads(graph.node, new)
        for part in all_graphs(graph):
            for value in (*part.input, *part.output, *part.initializer):
                value.name = new.get(value.name, value.name)
            for inner in part.node:
                inner.output[:] = [new.get(name, name) for name in inner.output]
                inner.name = f"{around}/{inner.name}" if inner.name else around
        return list(graph.node)


def _with_defaults(node: onnx.NodeProto, defaults: Iterable[onnx.AttributeProto]) -> onnx.NodeProto:
    """A copy of a node that has these attributes as well: the inliner takes those given alone."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    given = {attribute.name for attribute in node.attribute}
    copy.attribute.extend(a for a in defaults if a.name not in given and a.type)
    return copy


def _of_schema(
    schema: onnx.defs.OpSchema,
    node: onnx.NodeProto,
    types: Mapping[str, onnx.TypeProto],
    opset: int,
) -> onnx.FunctionProto | None:
    """The body that a schema has for a node in an opset, as a function of another domain."""
    known = [v for v in schema.function_opset_versions if v <= opset]
    by_types = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    if by_types:
        given = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
        data = schema.get_context_dependent_function_with_opset_version(
            max(by_types), node.SerializeToString(), given
        )
    elif known:
        data = schema.get_function_with_opset_version(max(known))
    else:
        return None
    function = onnx.FunctionProto.FromString(data)
    function.domain = _SCHEMAS
    return function
