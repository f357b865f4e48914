"""Whether the nodes of a model are what ONNX calls ones: their texts, attributes and operators.

A file whose bits were damaged may still be read, with a text that is none, an attribute that says
it is a number and holds a graph, or no attribute where one was. Converters take defaults for what
they do not find, and nobody looks into the branch that is not taken; so it is checked here.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from byoc.errors import ModelError
from byoc.frontends.onnx.graph_names import all_graphs
from byoc.frontends.onnx.honoured import schema_of

_TYPES = onnx.AttributeProto.AttributeType

#: The field that holds an attribute's value, by its type.
_FIELDS = {
    _TYPES.FLOAT: "f",
    _TYPES.INT: "i",
    _TYPES.STRING: "s",
    _TYPES.TENSOR: "t",
    _TYPES.GRAPH: "g",
    _TYPES.SPARSE_TENSOR: "sparse_tensor",
    _TYPES.TYPE_PROTO: "tp",
    _TYPES.FLOATS: "floats",
    _TYPES.INTS: "ints",
    _TYPES.STRINGS: "strings",
    _TYPES.TENSORS: "tensors",
    _TYPES.GRAPHS: "graphs",
    _TYPES.SPARSE_TENSORS: "sparse_tensors",
    _TYPES.TYPE_PROTOS: "type_protos",
}
_VALUES = frozenset(_FIELDS.values())

#: Texts that nobody computes with.
_REMARKS = ("doc_string", "metadata_props")

#: What a tensor has beside its data, which may be large.
_OF_TENSORS = ("name", "external_data")


def check_texts(graph: onnx.GraphProto) -> None:
    """Raise ``ModelError`` for a name that is no text: ONNX's are UTF-8."""
    for text in _broken_texts(graph):
        raise ModelError(f"the text {text!r} is not UTF-8; the model is damaged, export it again")


def _broken_texts(message: Message) -> Iterator[bytes]:
    if isinstance(message, onnx.TensorProto):
        parts = [(message.DESCRIPTOR.fields_by_name[n], getattr(message, n)) for n in _OF_TENSORS]
    else:
        parts = message.ListFields()
    for field, value in parts:
        if field.name in _REMARKS:
            continue
        if field.type not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE):
            continue
        for part in [value] if isinstance(value, str | bytes | Message) else value:
            if isinstance(part, bytes):  # where protobuf could not make a str
                yield part
            elif isinstance(part, Message):
                yield from _broken_texts(part)


def check_nodes(model: onnx.ModelProto, opset: int) -> None:
    """Raise ``ModelError`` for a node that no version of its operator could be."""
    for depth, graph in enumerate(all_graphs(model.graph)):
        for node in graph.node:
            problem = _problem(node, opset, model.ir_version, depth > 0)
            if problem:
                name = repr(node.name) if node.name else f"with output {', '.join(node.output)!r}"
                raise ModelError(
                    f"operator {node.op_type!r} (node {name}) {problem}; the model is damaged,"
                    " export it again"
                )


def _problem(node: onnx.NodeProto, opset: int, ir_version: int, in_branch: bool) -> str | None:
    if not node.op_type.isprintable() or not node.domain.isprintable():
        return f"of domain {node.domain!r} has no name that an operator may have"
    schema = schema_of(node.op_type, opset, node.domain)
    # Those of the graph itself meet the importer, which says more.
    if schema is None and in_branch and node.domain in ("", "ai.onnx"):
        return f"stands in a branch, and opset {opset} has no such operator"
    names = [attribute.name for attribute in node.attribute]
    if len(set(names)) < len(names):
        return "has an attribute twice"
    for attribute in node.attribute:
        problem = _attribute_problem(attribute, ir_version, schema is not None)
        if problem is None and schema is not None and attribute.name in schema.attributes:
            wanted = _TYPES.Name(schema.attributes[attribute.name].type.value)
            found = _TYPES.Name(attribute.type)
            if attribute.type and found != wanted:
                problem = f"is of type {found} and should be {wanted}"
        if problem:
            return f"has an attribute {attribute.name!r} that {problem}"
    if schema is not None:
        for name, known in schema.attributes.items():
            if known.required and name not in names:
                return f"lacks the attribute {name!r}"
    return None


def _attribute_problem(attribute: onnx.AttributeProto, ir_version: int, known: bool) -> str | None:
    """What is wrong with an attribute itself, by the rules of ``onnx.checker``.

    Of operators that are not ``known``, such as TensorFlow's and TensorRT's own, exporters store
    bytes as texts.
    """
    if not attribute.name:
        return "has no name"
    if attribute.ref_attr_name:
        return f"refers to {attribute.ref_attr_name!r}, an attribute of a function, outside of one"
    if attribute.type not in _FIELDS:
        # The first version of the format had no types.
        return None if not attribute.type and ir_version < 2 else "is of no type"
    held = {field.name for field, _ in attribute.ListFields()} & _VALUES
    if held - {_FIELDS[attribute.type]}:
        return f"is of type {_TYPES.Name(attribute.type)} and holds {', '.join(sorted(held))}"
    texts = [attribute.s, *attribute.strings] if known else []
    try:
        for text in texts:
            text.decode()
    except UnicodeDecodeError:
        return "is not UTF-8"
    return None
