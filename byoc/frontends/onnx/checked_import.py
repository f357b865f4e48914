"""TVM's ONNX importer, with every node checked that it converts.

A converter may ignore an attribute, read an input of another opset, or give a tensor of another
dtype or size, and TVM says nothing. Here a node is refused by name

- if it has an attribute that its operator does not know, or a name that only seems to be ONNX's,
- if its form is in the table of those whose results are wrong (``wrong_forms``),
- if its converter did not read an attribute or an input that counts (``honoured``),
- if the dtype, the rank or a fixed extent of a result is not what ONNX infers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, get_type, onnx_input

from byoc.errors import UnsupportedForm
from byoc.frontends.onnx.bare_attributes import bare_values
from byoc.frontends.onnx.check_indices import (
    ALONG_AN_AXIS,
    BY_POINTS,
    float_problem,
    index_problem,
)
from byoc.frontends.onnx.check_quantised import quantisation_problem
from byoc.frontends.onnx.converters import CONVERTERS, convert
from byoc.frontends.onnx.converters.node import Node
from byoc.frontends.onnx.converters.shapes import with_shape_as_input
from byoc.frontends.onnx.custom_operators import converted, record_for
from byoc.frontends.onnx.described import (
    dtype_and_shape,
    form_operand,
    given_input,
    shape_text,
    value_text,
)
from byoc.frontends.onnx.honoured import (
    INFERENCE_ERRS,
    ONLY_OF_OTHER_DOMAINS,
    ONNX_DOMAINS,
    OTHER_DOMAINS,
    RESIZES,
    TAKE_SHAPES,
    WINDOWS,
    attribute_counts,
    default_of,
    input_counts,
    schema_of,
)
from byoc.frontends.onnx.quantised_operators import QUANTISED
from byoc.frontends.onnx.refusals import Refusals, node_name
from byoc.frontends.onnx.weights_apart import outline
from byoc.frontends.onnx.wrong_forms import Form, wrong_forms
from byoc.ir.dataflow import array_of
from codegen_cc.operator import Operator


class _ReadAttributes(dict):
    """Attributes of a node that note which of them were read."""

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        super().__init__(attributes)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)

    def pop(self, name: str, *default: Any) -> Any:
        self.read.add(name)
        return super().pop(name, *default)


class _ReadInputs(onnx_input):
    """Inputs of a node that note which of them were read."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        super().__init__(inputs)
        self.read: set[int] = set()

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            stop = len(self) if place.stop is None else place.stop
            return [self[i] for i in range(stop)[place]]
        self.read.add(place % len(self) if place < 0 else place)
        return list.__getitem__(self, place) if place < len(self) else None

    def __iter__(self) -> Iterator[Any]:
        self.read.update(range(len(self)))
        return super().__iter__()

    def __add__(self, other: list[Any]) -> list[Any]:
        self.read.update(range(len(self)))
        return super().__add__(other)


class CheckedImporter(ONNXGraphImporter):
    """Checks each node, in branches too, before and after it is converted."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.refusals = Refusals()
        #: What ONNX infers of values, by name.
        self.expected: Mapping[str, onnx.TypeProto] = {}
        #: False after a shape differed and was taken: those inferred from it differ as well.
        self._shapes_inferred = True
        self._node = onnx.NodeProto()
        #: Whether the graph is a branch or a body, which may never run.
        self.in_branch = False

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        others = [
            node
            for node in graph.node
            if node.op_type not in CONVERTERS and record_for(node) is None
        ]
        super()._check_for_unsupported_ops(SimpleNamespace(node=others))

    def _parse_attr(self, attributes: Sequence[onnx.AttributeProto]) -> dict[str, Any]:
        """As TVM's, which takes a list of nothing, or a 0 that a writer left out, for an error."""
        bare = bare_values(attributes)
        return super()._parse_attr([a for a in attributes if a.name not in bare]) | bare

    def convert_node(self, node: onnx.NodeProto) -> None:
        """Convert a node of the graph itself, and check it."""
        self._begin(node)
        with self._shapes_as_tensors(node):
            if (record := record_for(node)) is not None:
                self._convert_custom(node, record)
            else:
                # TVM's loop, one node at a time: it converts all that it is given.
                ONNXGraphImporter._construct_nodes(self, SimpleNamespace(node=[node]))
        for name in filter(None, node.output):
            self._check_result(node, name, self._nodes.get(name))

    def _convert_custom(self, node: onnx.NodeProto, record: Operator) -> None:
        """Convert a node whose operator a user's kernel library brings."""
        self._parse_value_proto(node)
        operands = [self._nodes[name] if name else None for name in node.input]
        made = self.bb.emit(converted(node, record, operands))
        for place, name in enumerate(node.output):
            several = len(record.results) > 1
            self._nodes[name] = self.bb.emit(relax.TupleGetItem(made, place)) if several else made

    @contextmanager
    def _shapes_as_tensors(self, node: onnx.NodeProto) -> Iterator[None]:
        """Give a node tensors for the shapes that it reads, unless its converter takes these."""
        shapes = {}
        if node.op_type not in TAKE_SHAPES:
            given = {name: self._nodes.get(name) for name in node.input}
            shapes = {n: e for n, e in given.items() if _is_shape(e)}
        for name, expr in shapes.items():
            self._nodes[name] = self.bb.normalize(relax.op.shape_to_tensor(expr))
        try:
            yield
        finally:
            self._nodes.update(shapes)

    def _convert_operator(
        self, op_name: str, inputs: list[relax.Expr], attrs: dict[str, Any], opset: int
    ) -> relax.Expr:
        node = self._node
        if op_name == "Reshape" and "shape" in attrs:
            given, attrs = with_shape_as_input(inputs, attrs)
            inputs = onnx_input(given)
        if not self.in_branch:
            self._check_indices(node, inputs, attrs)
            self._check_quantised(node, inputs, attrs)
        problem = _window_problem(node.op_type, inputs, attrs)
        if problem:
            self.refusals.refuse(node, problem)
        self._check_form(node, inputs, attrs)
        return self.convert_operator(op_name, inputs, attrs, opset)

    def convert_operator(
        self, op_name: str, inputs: list[relax.Expr], attrs: dict[str, Any], opset: int
    ) -> relax.Expr:
        """Convert one operator, by a converter of ours where there is one."""
        return self.honouring(self._convert, op_name, inputs, attrs, opset)

    def _convert(
        self, op_name: str, inputs: onnx_input, attrs: dict[str, Any], opset: int
    ) -> relax.Expr:
        tvms = partial(super()._convert_operator, op_name, inputs, attrs, opset)
        return convert(Node(self.bb, op_name, inputs, attrs, opset, tvms, self._convert_part))

    def _convert_part(
        self, op_name: str, inputs: Sequence[relax.Expr | None], attrs: dict[str, Any], opset: int
    ) -> relax.Expr:
        """Convert an operator that the node at work is made of, with the checks of a node."""
        around = self._node
        names = [str(place) for place in range(len(inputs))]
        part = onnx.helper.make_node(op_name, names, around.output, around.name)
        self._node = part
        try:
            attrs = {"tvm_custom": {"name": around.name, "num_outputs": 1}, **attrs}
            problem = _window_problem(op_name, inputs, attrs)
            if problem:
                self.refusals.refuse(part, problem)
            self._check_form(part, inputs, attrs)
            return self.convert_operator(op_name, onnx_input(inputs), attrs, opset)
        finally:
            self._node = around

    def honouring(
        self,
        convert: Callable[..., relax.Expr],
        op_name: str,
        inputs: Sequence[relax.Expr | None],
        attrs: Mapping[str, Any],
        opset: int,
    ) -> relax.Expr:
        """``convert(op_name, inputs, attrs, opset)``; refuses the node if it reads too little."""
        read_attrs, read_inputs = _ReadAttributes(attrs), _ReadInputs(inputs)
        result = convert(op_name, read_inputs, read_attrs, opset)
        self._check_reads(self._node, read_inputs, read_attrs, attrs)
        return result

    # ------------------------------------------------------------------ checks

    def _begin(self, node: onnx.NodeProto) -> None:
        """Note the node at work; refuse what its schema does not know."""
        self._node = node
        if node.domain not in ONNX_DOMAINS:
            if record_for(node) is None and node.op_type not in OTHER_DOMAINS.get(node.domain, ()):
                self.refusals.refuse(node, f"of domain {node.domain!r}; need ONNX's own operator")
            return
        if node.op_type in ONLY_OF_OTHER_DOMAINS:
            self.refusals.refuse(node, "the converter is for com.microsoft's operator of that name")
        schema = schema_of(node.op_type, self.opset)
        if schema is None:
            return  # TVM refuses operators that it does not know
        for attribute in node.attribute:
            if attribute.name not in schema.attributes:
                self.refusals.refuse(
                    node, f"has no attribute {attribute.name!r} in opset {self.opset}"
                )

    def _check_indices(
        self,
        node: onnx.NodeProto,
        inputs: Sequence[relax.Expr | None],
        attrs: Mapping[str, Any],
    ) -> None:
        """Refuse, whatever is allowed, what cannot be computed."""
        known = [dtype_and_shape(x) if isinstance(x, relax.Expr) else None for x in inputs]
        schema = schema_of(node.op_type, self.opset, node.domain)
        problem = float_problem(schema, [about and about[0] for about in known])
        if problem:
            raise UnsupportedForm(
                f"operator {node.op_type} (node {node_name(node)}): {problem}; export the model"
                " again"
            )
        if node.op_type not in (*ALONG_AN_AXIS, *BY_POINTS) or len(inputs) < 2:
            return
        data, indices = known[:2]
        if data and indices:
            problem = index_problem(node.op_type, data[1], indices[1], array_of(inputs[1]), attrs)
            if problem:
                raise UnsupportedForm(
                    f"operator {node.op_type} (node {node_name(node)}): {problem};"
                    " export the model again with indices inside"
                )

    def _check_quantised(
        self,
        node: onnx.NodeProto,
        inputs: Sequence[relax.Expr | None],
        attrs: Mapping[str, Any],
    ) -> None:
        """Refuse, whatever is allowed, scales and zero points that mean nothing."""
        if node.op_type not in QUANTISED:
            return
        tensors = [given_input(*pair) for pair in zip(node.input, inputs, strict=True)]
        problem = quantisation_problem(node.op_type, tensors, attrs)
        if problem:
            raise UnsupportedForm(
                f"operator {node.op_type} (node {node_name(node)}): {problem};"
                " quantise the model again"
            )

    def _check_form(
        self,
        node: onnx.NodeProto,
        inputs: Sequence[relax.Expr | None],
        attrs: Mapping[str, Any],
    ) -> None:
        entries = (*wrong_forms().get(node.op_type, ()), *wrong_forms().get("*", ()))
        schema = schema_of(node.op_type, self.opset, node.domain)
        if schema is None:
            return
        defaults = {name: default_of(schema, node.op_type, name) for name in schema.attributes}
        operands = [form_operand(expr) for expr in inputs]
        inferred = (self.expected.get(name) for name in node.output)
        results = [
            get_type(value.tensor_type.elem_type)
            for value in inferred
            if value is not None and value.tensor_type.elem_type
        ]
        outputs = len(node.output)
        values = {**defaults, **attrs}
        form = Form(node.op_type, self.opset, values, operands, outputs, results)
        for entry in entries:
            if entry.matches(form):
                reason = f"this form gives a wrong result: {entry.reason}"
                self.refusals.refuse(node, reason, entry)

    def _check_reads(
        self,
        node: onnx.NodeProto,
        inputs: _ReadInputs,
        read: _ReadAttributes,
        attrs: Mapping[str, Any],
    ) -> None:
        schema = schema_of(node.op_type, self.opset, node.domain)
        given = {name: value for name, value in attrs.items() if name != "tvm_custom"}
        for name in given.keys() - read.read:
            if attribute_counts(node.op_type, name, given, schema):
                self.refusals.refuse(
                    node, f"attribute {name}={value_text(given[name])} has no converter"
                )
        for place, expr in enumerate(list.__iter__(inputs)):
            if expr is None or place in inputs.read:
                continue
            constant = array_of(expr) if isinstance(expr, tvm.ir.GenericConst) else None
            if input_counts(node.op_type, place, constant, given, schema):
                self.refusals.refuse(node, f"input {node.input[place]!r} has no converter")

    def _check_result(self, node: onnx.NodeProto, name: str, expr: Any) -> None:
        """Compare a converted value with what ONNX infers, as far as both are known.

        An extent below 0 is no result, whatever is allowed.
        """
        described = dtype_and_shape(expr) if isinstance(expr, relax.Expr) else None
        if described and any(extent is not None and extent < 0 for extent in described[1] or ()):
            raise UnsupportedForm(
                f"operator {node.op_type} (node {node_name(node)}): gives shape"
                f" {shape_text(described[1] or [])} for output {name!r}; its windows or sizes do"
                " not fit its input, give larger inputs or export the model again"
            )
        wanted = self.expected.get(name)
        if wanted is None or not wanted.HasField("tensor_type") or not isinstance(expr, relax.Expr):
            return
        found = dtype_and_shape(expr)
        if found is None:
            return
        tensor = wanted.tensor_type
        dtype, shape = found
        if tensor.elem_type and dtype and dtype != get_type(tensor.elem_type):
            self.refusals.refuse(
                node, f"gives {dtype} for output {name!r}; ONNX infers {get_type(tensor.elem_type)}"
            )
        if shape is None or not tensor.HasField("shape") or not self._shapes_inferred:
            return
        dims = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
        pairs = zip(dims, shape, strict=False)
        apart = max((abs(a - b) for a, b in pairs if None not in (a, b)), default=0)
        if len(dims) != len(shape) or apart:
            self._shapes_inferred = False
            if any(a.name == INFERENCE_ERRS.get(node.op_type) for a in node.attribute):
                return
            if node.op_type in RESIZES and len(dims) == len(shape) and apart == 1:
                return
            self.refusals.refuse(
                node,
                f"gives shape {shape_text(shape)} for output {name!r};"
                f" ONNX infers {shape_text(dims)}",
            )


def _is_shape(value: Any) -> bool:
    return isinstance(value, relax.Expr) and isinstance(value.ty, relax.ShapeType)


def inferred_types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """Types of all values that ONNX's shape inference finds, by name.

    What the model itself claims of values inside of it, and of its outputs' shapes, is not
    believed: exporters write what ONNX Runtime only warns about. Values are not followed, as ONNX
    would write out a Range of any length; preparation has replaced known ones by constants.
    """
    bare = outline(model)
    for graph in _graphs(bare.graph):
        del graph.value_info[:]
        for value in graph.output:
            value.type.Clear()
    try:
        inferred = onnx.shape_inference.infer_shapes(bare)
    except Exception:  # an operator that it cannot infer; the converters will say more
        return {}
    found: dict[str, onnx.TypeProto] = {}
    twice: set[str] = set()
    for graph in _graphs(inferred.graph):
        for value in (*graph.value_info, *graph.output):
            known = found.setdefault(value.name, value.type)
            if known != value.type:
                twice.add(value.name)  # the same name in two branches
    return {name: type_ for name, type_ in found.items() if name not in twice}


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node:
                    yield from _graphs(inner)


def _window_problem(
    op_name: str, inputs: Sequence[relax.Expr | None], attrs: Mapping[str, Any]
) -> str | None:
    """Why the attributes do not describe a window over the input; converters take the first few."""
    per_axis = WINDOWS.get(op_name)
    known = dtype_and_shape(inputs[0]) if inputs and isinstance(inputs[0], relax.Expr) else None
    if per_axis is None or known is None or known[1] is None:
        return None
    axes = len(known[1]) - 2
    for name, count in per_axis.items():
        if name in attrs and len(attrs[name]) != count * axes:
            return f"attribute {name}={value_text(attrs[name])} needs {count * axes} numbers"
    window = list(attrs.get("kernel_shape", ()))
    if op_name.startswith("Conv") and window:
        weight = dtype_and_shape(inputs[1]) if isinstance(inputs[1], relax.Expr) else None
        found = weight[1][2:] if weight and weight[1] else window
        if len(found) != len(window) or any(
            have not in (None, want) for have, want in zip(found, window, strict=True)
        ):
            return f"attribute kernel_shape={window} and the weight is {shape_text(found)}"
    return None
