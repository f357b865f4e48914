"""Outputs of classifiers that are no numbers, as numbers: maps by label, and labels that are texts.

scikit-learn's converter ends a classifier with ZipMap, which makes of each row of scores a map from
label to score: the scores themselves are the output then, a column for each label. Where labels are
texts, the output is the place of a label among them. What the labels are is said, and stands in the
library's metadata.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import onnx

from byoc.deploy.metadata import LabelledOutput
from byoc.frontends.onnx.graph_names import reads

#: The domain of ONNX-ML.
_ML = "ai.onnx.ml"

#: Classifiers, with the attribute that has labels which are numbers.
_CLASSIFIERS = {
    "LinearClassifier": "classlabels_ints",
    "SVMClassifier": "classlabels_ints",
    "TreeEnsembleClassifier": "classlabels_int64s",
}


def labelled_outputs(graph: onnx.GraphProto) -> tuple[LabelledOutput, ...]:
    """The outputs of a graph that become numbers, in order."""
    makers = {name: node for node in graph.node for name in node.output}
    read, found = reads(graph), []
    for value in graph.output:
        node = makers.get(value.name)
        if _is(node, ("ZipMap",)) and (labels := _labels(node)):
            found.append(LabelledOutput(value.name, labels, True))
            continue
        node, private = _behind_identities(value.name, makers, read)
        if _is(node, _CLASSIFIERS) and private and (texts := _texts(node)):
            found.append(LabelledOutput(value.name, texts, False))
    return tuple(found)


def with_numbers(
    model: onnx.ModelProto,
) -> tuple[onnx.ModelProto, tuple[LabelledOutput, ...]]:
    """A model whose outputs of maps or texts are numbers, and these outputs.

    The model itself where there is nothing to change, else a copy.
    """
    outputs = labelled_outputs(model.graph)
    if not outputs:
        return model, ()
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    makers = {name: node for node in graph.node for name in node.output}
    places = {value.name: value for value in graph.output}
    changed = set()
    for output in outputs:
        node, value = makers[output.output], places[output.output]
        value.ClearField("type")
        if output.columns:
            node.CopyFrom(onnx.helper.make_node("Identity", node.input, node.output, node.name))
            value.type.CopyFrom(_matrix(len(output.labels)))
            continue
        value.type.CopyFrom(onnx.helper.make_tensor_type_proto(onnx.TensorProto.INT64, [None]))
        while node.op_type == "Identity":
            changed.add(node.output[0])
            node = makers[node.input[0]]
        changed.add(node.output[0])
        _number_labels(node, len(output.labels))
    kept = [info for info in graph.value_info if info.name not in changed]
    del graph.value_info[:]
    graph.value_info.extend(kept)
    return copy, outputs


def as_numbers(value: Any, output: LabelledOutput) -> np.ndarray:
    """What another engine gives for such an output, as the library does."""
    if output.columns:
        rows = [value] if isinstance(value, dict) else value
        scores = [[row[label] for label in output.labels] for row in rows]
        return np.array(scores, np.float32).reshape(len(rows), len(output.labels))
    places = {label: place for place, label in enumerate(output.labels)}
    return np.array([places[str(label)] for label in np.ravel(value)], np.int64)


def _is(node: onnx.NodeProto | None, operators: Collection[str]) -> bool:
    return node is not None and node.domain == _ML and node.op_type in operators


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def _texts(node: onnx.NodeProto) -> tuple[str, ...]:
    """The labels of a classifier that are texts, none twice; empty where they are numbers."""
    texts = [text.decode() for text in _attributes(node).get("classlabels_strings", ())]
    return tuple(texts) if len(set(texts)) == len(texts) else ()


def _labels(node: onnx.NodeProto) -> tuple[str | int, ...]:
    numbers = _attributes(node).get("classlabels_int64s", ())
    return tuple(int(number) for number in numbers) or _texts(node)


def _behind_identities(
    name: str, makers: dict[str, onnx.NodeProto], read: Any
) -> tuple[onnx.NodeProto | None, bool]:
    """What makes a value, and whether nothing else reads it, nor its copies on the way."""
    node, private = makers.get(name), read[name] == 1
    while node is not None and node.op_type == "Identity" and not node.domain:
        private = private and read[node.input[0]] == 1
        node, name = makers.get(node.input[0]), node.input[0]
    return node, private and (node is None or node.output[0] == name)


def _matrix(columns: int) -> onnx.TypeProto:
    return onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [None, columns])


def _number_labels(node: onnx.NodeProto, count: int) -> None:
    """Let a classifier give the places of its labels, in place."""
    kept = [a for a in node.attribute if a.name != "classlabels_strings"]
    del node.attribute[:]
    node.attribute.extend(kept)
    name = _CLASSIFIERS[node.op_type]
    node.attribute.append(onnx.helper.make_attribute(name, list(range(count))))
