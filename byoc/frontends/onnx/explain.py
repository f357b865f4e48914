"""Why a node cannot be imported, in ONNX's words, and what would help.

Converters fail with whatever their code ran into. What was wrong is mostly that a model contradicts
itself, and ONNX's own schemas and shape inference say that better: number and dtypes of inputs,
shapes that do not go together.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from math import prod

import onnx

from byoc.frontends.onnx.bodies import BODIES
from byoc.frontends.onnx.graph_names import all_graphs
from byoc.frontends.onnx.honoured import ONNX_DOMAINS, schema_of
from byoc.frontends.onnx.inferred_shapes import dtype_text, extents_of
from byoc.frontends.onnx.refusals import node_name
from byoc.frontends.onnx.weights_apart import MAX_SHAPE

#: Names of nodes that a message lists before it says how many more there are.
MAX_LISTED = 5

_CONTRADICTS = "the model contradicts itself, export it again, or give other --input-shapes"

#: How alike a name is that may have been meant.
_CLOSE = 0.75

#: Dtypes that nothing here computes with, and what would help.
_NO_NUMBERS = {
    onnx.TensorProto.COMPLEX64: "give the model real and imaginary parts as two inputs",
    onnx.TensorProto.COMPLEX128: "give the model real and imaginary parts as two inputs",
}

#: The domain of operators on channels in blocks, as wide as the vectors of the CPU that wrote them.
_BLOCKS_OF_CHANNELS = "com.microsoft.nchwc"

#: Operators that work on texts, which no tensor of numbers holds.
_TEXTS = re.compile(r"String|RegexFullMatch|TfIdfVectorizer|ImageDecoder")


def unsupported(model: onnx.ModelProto, operators: Iterable[str]) -> str:
    """The operators that have no converter, each with its nodes, and what would help.

    Some are written out as others where the types of their operands are known. Where these alone
    are left, it is said what they lack.
    """
    wanted = set(operators)
    nodes: dict[tuple[str, str], list[onnx.NodeProto]] = {}
    for graph in all_graphs(model.graph):
        for node in graph.node:
            if node.op_type in wanted:
                nodes.setdefault((node.domain, node.op_type), []).append(node)
    lacking = {key: said for key, found in nodes.items() if (said := _lacking(model, found))}
    if lacking and len(lacking) == len(nodes):
        return next(said for _, said in sorted(lacking.items()))
    parts, remedies = [], []
    for (domain, operator), found in sorted(nodes.items()):
        if (domain, operator) in lacking:
            continue
        names = ", ".join(node_name(node) for node in found[:MAX_LISTED])
        more = f" and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
        parts.append(f"{_of_domain(operator, domain)} (node {names}{more})")
        remedies.append(_remedy(domain, operator, opset_of(model)))
    known = {operator for _, operator in nodes}
    parts += sorted(wanted - known)
    plural = "s" if len(parts) > 1 else ""
    remedy = "; ".join(dict.fromkeys(remedies)) or "export the model without it"
    return f"no converter for operator{plural} {', '.join(parts)}; {remedy}"


def _of_domain(operator: str, domain: str) -> str:
    return operator if domain in ONNX_DOMAINS else f"{operator} of domain {domain!r}"


def _lacking(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> str | None:
    """Which input of the first node that could be written out has no known type, and why.

    None where none could be, or all types are known. Those inside of bodies are not kept.
    """
    types, _ = _known_values(model)
    makers = {name: maker for maker in model.graph.node for name in maker.output}
    for node in nodes:
        domain = "" if node.domain in ONNX_DOMAINS else node.domain
        missing = _without_type(node, types)
        if (domain, node.op_type) not in BODIES or missing not in makers:
            continue
        maker = makers[missing]
        while (before := _without_type(maker, types)) in makers:
            maker = makers[before]
        origin = _of_domain(maker.op_type, maker.domain)
        return (
            f"operator {_of_domain(node.op_type, node.domain)} (node {node_name(node)}): dtype and"
            f" rank of its input {missing!r} are not known, because those of operator {origin}"
            f" (node {node_name(maker)}) are not; export the model without {maker.op_type}"
        )
    return None


def _without_type(node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> str | None:
    """The first input of a node that has no known type."""
    return next((name for name in node.input if name and name not in types), None)


def opset_of(model: onnx.ModelProto) -> int:
    """The version of ONNX's operators in a model."""
    versions = [e.version for e in model.opset_import if e.domain in ONNX_DOMAINS]
    return versions[0] if versions else 1


def _remedy(domain: str, operator: str, opset: int) -> str:
    if domain == _BLOCKS_OF_CHANNELS:
        return (
            "ONNX Runtime optimised the file for one CPU; write it with ORT_ENABLE_EXTENDED at"
            " most, or give the model from before"
        )
    if domain not in ONNX_DOMAINS:
        return (
            "export the model with ONNX's own operators, or with functions in the file that say"
            " what others compute, or bring a kernel for it (docs/my_library.md)"
        )
    if _TEXTS.search(operator):
        return "do with texts what it does before the network"
    newest = onnx.defs.onnx_opset_version()
    if schema_of(operator, opset) is None:
        if (schema := schema_of(operator, newest)) is not None:
            return (
                f"{operator} is new in opset {_first_version(schema)}, and the model is of opset"
                f" {opset}; export it with the newer one"
            )
        names = {s.name for s in onnx.defs.get_all_schemas() if s.domain in ONNX_DOMAINS}
        close = difflib.get_close_matches(operator, names, 1, _CLOSE)
        hint = f", perhaps {close[0]}" if close else ""
        return f"ONNX has no operator {operator} up to opset {newest}{hint}"
    return f"export the model without {operator}"


def _first_version(schema: onnx.defs.OpSchema) -> int:
    """The opset that an operator came with."""
    history = onnx.defs.get_all_schemas_with_history()
    return min(s.since_version for s in history if s.name == schema.name and s.domain == "")


def failed_node(model: onnx.ModelProto, node: onnx.NodeProto, error: Exception) -> str:
    """What is wrong with a node whose converter failed."""
    types, data = _known_values(model)
    given = ", ".join(_described(name, types.get(name)) for name in node.input if name)
    where = f"operator {node.op_type} (node {node_name(node)}) of {given or 'no input'}"
    problem = _problem(node, types, data, opset_of(model))
    if problem is not None:
        return f"{where}: {problem}; {_CONTRADICTS}"
    said = _plain(str(error))
    if not isinstance(error, ValueError):
        said = f"{type(error).__name__}: {said}"
    return f"cannot import {where}: {said}; try another opset or replace that operator"


def unsupported_input(model: onnx.ModelProto) -> str | None:
    """Why an input is of a dtype that nothing here computes with; None where none is."""
    for value in model.graph.input:
        elem = value.type.tensor_type.elem_type
        if elem in _NO_NUMBERS:
            return f"input {value.name!r} is of dtype {dtype_text(value.type)}; {_NO_NUMBERS[elem]}"
    return None


def _known_values(
    model: onnx.ModelProto,
) -> tuple[dict[str, onnx.TypeProto], dict[str, onnx.TensorProto]]:
    """Types of values, and small constants, by name."""
    graph = model.graph
    types = {value.name: value.type for value in (*graph.value_info, *graph.input)}
    data = {tensor.name: tensor for tensor in graph.initializer if prod(tensor.dims) <= MAX_SHAPE}
    for tensor in graph.initializer:
        types[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    return types, data


def _plain(text: str) -> str:
    """The first line of a message of TVM's without its notation."""
    line = (text.strip().splitlines() or [""])[0]
    line = re.sub(r"In ir\.Op\(.*support_level=\d+\), ", "", line)
    line = re.sub(r"T\.int64\((-?\d+)\)", r"\1", line)
    line = re.sub(r"R\.shape\((\[[^\]]*\])\)", r"\1", line)
    return re.sub(r'metadata\["ir\.GenericConst"\]\[\d+\]', "a constant", line).rstrip(".")


def _described(name: str, type_: onnx.TypeProto | None) -> str:
    extents = extents_of(type_)
    if type_ is None or not type_.tensor_type.elem_type:
        return repr(name)
    shape = "" if extents is None else f"[{', '.join(_extent(e) for e in extents)}]"
    return f"{name!r} {dtype_text(type_)}{shape}"


def _extent(extent: int | None) -> str:
    return "?" if extent is None else str(extent)


def _problem(
    node: onnx.NodeProto,
    types: Mapping[str, onnx.TypeProto],
    data: Mapping[str, onnx.TensorProto],
    opset: int,
) -> str | None:
    """What ONNX finds wrong with a node of known types; None for nothing."""
    schema = schema_of(node.op_type, opset, node.domain)
    if schema is None:
        return None
    for what, names, least, most in (
        ("input", node.input, schema.min_input, schema.max_input),
        ("output", node.output, schema.min_output, schema.max_output),
    ):
        if not least <= len(names) <= most:
            need = str(least) if least == most else f"{least} to {most}"
            return f"{what}s are {len(names)}; need {need} in opset {opset}"
    return _wrong_dtype(schema, node.input, types) or _wrong_shapes(
        schema, node, types, data, opset
    )


def _wrong_dtype(
    schema: onnx.defs.OpSchema, names: Sequence[str], types: Mapping[str, onnx.TypeProto]
) -> str | None:
    """An input of a dtype that the operator does not take, or that another input rules out."""
    bound: dict[str, tuple[str, str]] = {}
    for place, name in enumerate(names):
        formal = schema.inputs[min(place, len(schema.inputs) - 1)]
        type_ = types.get(name)
        if type_ is None or not type_.tensor_type.elem_type:
            continue
        dtype = dtype_text(type_)
        if f"tensor({dtype})" not in formal.types:
            allowed = sorted(text[7:-1] for text in formal.types if text.startswith("tensor("))
            return f"input {name!r} is of dtype {dtype}; need {', '.join(allowed)}"
        first, before = bound.setdefault(formal.type_str, (dtype, name))
        if formal.is_homogeneous and first != dtype:
            return f"input {name!r} is of dtype {dtype}, and {before!r} of {first}; need the same"
    return None


def _wrong_shapes(
    schema: onnx.defs.OpSchema,
    node: onnx.NodeProto,
    types: Mapping[str, onnx.TypeProto],
    data: Mapping[str, onnx.TensorProto],
    opset: int,
) -> str | None:
    """What ONNX's shape inference says against the inputs."""
    try:
        known = {name: types[name] for name in node.input if name}
        values = {name: data[name] for name in node.input if name in data}
        imports = [onnx.helper.make_opsetid("", opset)]
        onnx.shape_inference.infer_node_outputs(schema, node, known, values, opset_imports=imports)
    except onnx.shape_inference.InferenceError as error:
        said = re.sub(r"\[\w+\]|\(op_type:[^)]*\):?", "", str(error).strip().splitlines()[0])
        return " ".join(said.split()).rstrip(".") or None
    except Exception:  # types that are not known, or an operator that it cannot infer
        return None
    return None
