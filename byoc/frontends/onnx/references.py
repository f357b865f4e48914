"""What else can compute an ONNX model: ONNX Runtime, and ONNX's own evaluator."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import onnx

from byoc.deploy.metadata import LabelledOutput
from byoc.errors import VerifyError
from byoc.frontends.onnx.converters.old_broadcast import has_axis
from byoc.frontends.onnx.custom_operators import evaluators, without_reference
from byoc.frontends.onnx.exact_reference import exact_session
from byoc.frontends.onnx.labelled_outputs import as_numbers, labelled_outputs
from byoc.frontends.onnx.read_model import read_graph
from byoc.frontends.onnx.refusals import node_name
from byoc.frontends.onnx.rounded_values import halves_inside
from byoc.frontends.reference import Answer, Arrays, Reference
from codegen_cc.errors import one_line

#: ONNX Runtime's Sigmoid is a half plus an odd polynomial: its error is absolute, not relative.
SIGMOID_ERROR = 2.0**-22


def references(model: Path | onnx.ModelProto, errors: list[str]) -> Iterator[Reference]:
    """What can compute a model, the best first; why others cannot goes into ``errors``.

    Raises ``ModelError`` for a file that is no model.
    """
    read = read_graph(model)
    graph = read.graph
    for make in (_onnxruntime, _evaluator):
        try:
            with contextlib.redirect_stderr(None):
                found = make(model)
        except ImportError:
            continue
        except Exception as error:
            errors.append(f"{make.__name__.strip('_')}: {one_line(error)}")
            continue
        yield replace(
            found,
            answer=_of_numbers(found.answer, labelled_outputs(graph)),
            rounding=rounding_of(graph),
            halves=halves_inside(read),
            places=places_of(graph),
        )


def _of_numbers(answer: Answer, outputs: Sequence[LabelledOutput]) -> Answer:
    """What computes a model, with outputs of maps and texts as the libraries give them."""
    if not outputs:
        return answer

    def numbers(arrays: Arrays) -> Arrays:
        found = answer(arrays)
        return found | {o.output: as_numbers(found[o.output], o) for o in outputs}

    return numbers


def places_of(graph: onnx.GraphProto) -> dict[str, tuple[str, int]]:
    """The places that TopK gives, with the output of its values and the axis, where both leave."""
    outputs = {value.name for value in graph.output}
    return {
        node.output[1]: (
            node.output[0],
            next((a.i for a in node.attribute if a.name == "axis"), -1),
        )
        for node in graph.node
        if node.op_type == "TopK" and len(node.output) == 2 and outputs.issuperset(node.output)
    }


def rounding_of(graph: onnx.GraphProto) -> dict[str, float]:
    """The reference's own absolute error, by output, where it may pass a share of the range."""
    return {
        name: SIGMOID_ERROR
        for node in graph.node
        if node.op_type == "Sigmoid"
        for name in node.output
    }


def _onnxruntime(model: Path | onnx.ModelProto) -> Reference:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what goes wrong is raised as well
    session = exact_session(model, options)
    names = [output.name for output in session.get_outputs()]

    def answer(arrays: Arrays) -> Arrays:
        return dict(zip(names, session.run(names, arrays), strict=True))

    known = [value.name for value in session.get_inputs()]
    return Reference(f"ONNX Runtime {onnxruntime.__version__}", known, answer)


def _evaluator(model: Path | onnx.ModelProto) -> Reference:
    from onnx.reference import ReferenceEvaluator

    if (node := without_reference(read_graph(model))) is not None:
        raise VerifyError(
            f"operator {node.op_type} of domain {node.domain!r} (node {node_name(node)}): its"
            " record has no reference; give Custom(reference=...), the same in NumPy"
        )
    given = str(model) if isinstance(model, Path) else model
    evaluator = ReferenceEvaluator(given, new_ops=evaluators())
    for node in filter(has_axis, evaluator.proto_.graph.node):
        raise VerifyError(
            f"operator {node.op_type} (node {node_name(node)}): ONNX's reference evaluator does not"
            " read attribute axis; export the model in opset 7 or later"
        )
    names = list(evaluator.output_names)

    def answer(arrays: Arrays) -> Arrays:
        return dict(zip(names, evaluator.run(None, arrays), strict=True))

    name = f"ONNX's reference evaluator {version('onnx')}"
    return Reference(name, list(evaluator.input_names), answer)
