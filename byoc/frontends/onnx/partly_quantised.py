"""A quantised network with some of its nodes as they were before.

Such a node reads float tensors: its weights are those of the unquantised network, and what was
quantised and dequantised on its way to it is taken from before that. What it gives is quantised for
those who read it so, and not for the outputs of the network.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import onnx
from onnx import numpy_helper

from byoc.frontends.onnx.given_model import GivenModel, given_model
from byoc.frontends.onnx.graph_names import FreshNames, known_as, makers, replace_nodes
from byoc.frontends.onnx.read_model import load_model


class PartlyQuantised:
    """A network of the QDQ form, and the one that it was quantised from."""

    def __init__(self, model: GivenModel, reference: GivenModel) -> None:
        self._model, theirs = _whole(model), _whole(reference)
        self._weights = {tensor.name: tensor for tensor in theirs.graph.initializer}
        self._theirs = {known_as(node): node for node in theirs.graph.node}
        self._their_makers = makers(theirs.graph)
        graph = self._model.graph
        self._makers = makers(graph)
        self._outputs = {value.name for value in graph.output}
        self.nodes = frozenset(known_as(node) for node in graph.node if self._can(node))

    def with_float(self, names: Collection[str]) -> onnx.ModelProto:
        """The model with these of ``nodes`` computed on floats."""
        out = onnx.ModelProto()
        out.CopyFrom(self._model)
        fresh = FreshNames(out.graph)
        added: list[onnx.NodeProto] = []
        for node in out.graph.node:
            if known_as(node) not in names:
                continue
            theirs = self._theirs[known_as(node)]
            for place, name in enumerate(node.input):
                weight = self._weights.get(theirs.input[place])
                if weight is not None:
                    tensor = numpy_helper.from_array(numpy_helper.to_array(weight))
                    tensor.name = fresh.fresh(f"{weight.name}_float")
                    out.graph.initializer.append(tensor)
                    node.input[place] = tensor.name
                elif (before := self._before(name)) is not None:
                    node.input[place] = self._activated(before, fresh, added)
        results = {node.output[0] for node in out.graph.node if known_as(node) in names}
        for node in out.graph.node:
            before = self._before(node.output[0])
            if before in results and node.output[0] in self._outputs and self._is_known(before):
                of = self._activated(before, fresh, added)
                node.CopyFrom(onnx.helper.make_node("Identity", [of], node.output[:], node.name))
        # In whatever order: whoever reads the model sorts them.
        replace_nodes(out.graph, [*added, *out.graph.node])
        return out

    def _can(self, node: onnx.NodeProto) -> bool:
        """Whether all that a node reads is known as floats, and some of it was not so."""
        theirs = self._theirs.get(known_as(node))
        if theirs is None or theirs.op_type != node.op_type:
            return False
        if len(theirs.input) != len(node.input):
            return False
        changed = False
        for mine, other in zip(node.input, theirs.input, strict=True):
            maker = self._makers.get(mine)
            if maker is None or maker.op_type != "DequantizeLinear":
                continue
            before = self._before(mine)
            if other not in self._weights and (before is None or not self._is_known(before)):
                return False
            changed = True
        return changed

    def _before(self, name: str) -> str | None:
        """The float tensor that was quantised and dequantised to this one."""
        dequantised = self._makers.get(name)
        if dequantised is None or dequantised.op_type != "DequantizeLinear":
            return None
        quantised = self._makers.get(dequantised.input[0])
        known = quantised is not None and quantised.op_type == "QuantizeLinear"
        return quantised.input[0] if known else None

    def _dropped(self, name: str) -> onnx.NodeProto | None:
        """The reference's Relu that the bounds of the integers stand for, which its maker lacks."""
        maker, theirs = self._makers.get(name), self._their_makers.get(name)
        if maker is None or theirs is None or theirs.op_type == maker.op_type:
            return None
        return theirs

    def _is_known(self, name: str) -> bool:
        dropped = self._dropped(name)
        return dropped is None or dropped.op_type == "Relu"

    def _activated(self, name: str, fresh: FreshNames, added: list[onnx.NodeProto]) -> str:
        """The tensor, behind the Relu that quantising it was as well."""
        dropped = self._dropped(name)
        if dropped is None:
            return name
        result = fresh.fresh(f"{name}_activated")
        added.append(onnx.helper.make_node("Relu", [name], [result], name=result))
        return result


def _whole(model: GivenModel) -> onnx.ModelProto:
    given = given_model(model)
    return load_model(given) if isinstance(given, Path) else given
