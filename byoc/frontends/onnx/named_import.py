"""TVM's ONNX importer, with the names of the ONNX nodes kept.

The importer converts one node after another. A subclass notes which node is at work, and a block
builder of its own writes that node's name into every expression that passes through it and has no
name yet (see ``origin``). An expression is named as soon as its node is converted, because the
importer binds it only when a later node reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relax

from byoc.deploy.metadata import SymbolRange
from byoc.frontends.named_builder import NamedBuilder, with_values
from byoc.frontends.onnx.checked_import import inferred_types
from byoc.frontends.onnx.control_flow import ControlFlowImporter
from byoc.frontends.onnx.graph_names import known_as
from byoc.frontends.onnx.learned_axes import Unequal
from byoc.frontends.onnx.refusals import Refusals
from byoc.frontends.onnx.weights_apart import Fetch
from byoc.ir.define_symbols import define_symbols

#: What a module's symbols have to be at least, those that may not be all numbers.
LEAST = "byoc_least"
#: How many pairs of extents of the inputs a module takes for equal, and looks at when it runs.
ASSUMED = "byoc_assumed"


def import_named(
    model: onnx.ModelProto,
    weights: Mapping[str, Fetch] | None = None,
    refusals: Refusals | None = None,
    unequal: Unequal | None = None,
) -> tvm.IRModule:
    """Import as ``from_onnx(model)`` does, weights as constants, and keep the nodes' names.

    ``weights`` fills in the values of initializers that have no data in the model. Extents that
    operators want to be equal, and that are not for all sizes, are added to ``unequal``; where it
    is given, elementwise operators and products take them for equal, so that it gets all of them.
    Raises ``UnsupportedForm`` as ``refusals`` says, and whatever TVM's converters raise.
    """
    default = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    importer = _NamingImporter(_empty_shapes(model), "float32")
    importer.weights = weights or {}
    importer.refusals = refusals or Refusals()
    if unequal is not None:
        importer.unequal, importer.assumed = unequal, 0
    importer.expected = inferred_types(model)
    module = importer.from_onnx(model.graph, default[0] if default else 1)
    module["main"] = with_values(module["main"], importer.values())
    module = define_symbols(module)
    if importer.assumed:
        module = module.with_attr(ASSUMED, importer.assumed)
    return module.with_attr(LEAST, importer.least) if importer.least else module


def assumed_in(module: tvm.IRModule) -> int:
    """How many pairs of extents of the inputs an imported module takes for equal."""
    return int(module.attrs[ASSUMED]) if module.attrs and ASSUMED in module.attrs else 0


def ranges_of(module: tvm.IRModule) -> tuple[SymbolRange, ...]:
    """What the symbols of an imported module may be, those that may not be all numbers."""
    least = module.attrs[LEAST] if module.attrs and LEAST in module.attrs else {}
    return tuple(SymbolRange(str(name), int(least[name])) for name in sorted(least))


def _empty_shapes(model: onnx.ModelProto) -> dict[str, list[int]]:
    """Shapes of the inputs with an axis of size 0, which the importer takes for an unknown one."""
    shapes = {}
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        static = all(dim.HasField("dim_value") for dim in dims)
        if static and any(dim.dim_value == 0 for dim in dims):
            shapes[value.name] = [dim.dim_value for dim in dims]
    return shapes


class _NamingImporter(ControlFlowImporter):
    """Tells its builder which node is being converted."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.bb = NamedBuilder()
        self.weights: Mapping[str, Fetch] = {}

    def values(self) -> dict[relax.Var, str]:
        """The variables that hold values of the graph: their names, the first where it has more."""
        found: dict[relax.Var, str] = {}
        for name, value in self._nodes.items():
            holder = self.bb.holder(value) if isinstance(value, relax.Expr) else None
            if holder is not None:
                found.setdefault(holder, name)
        return found

    def _parse_array(self, tensor_proto: onnx.TensorProto) -> tvm.runtime.Tensor:
        fetch = self.weights.get(tensor_proto.name)
        if fetch is None or tensor_proto.HasField("raw_data"):  # of a branch, perhaps
            return super()._parse_array(tensor_proto)
        tensor = tvm.runtime.empty(tuple(tensor_proto.dims), "float32")
        _fill(tensor, fetch)
        return tensor

    def _parse_value_proto(self, value_proto: Any) -> str:
        # Called with each node before it is converted; others are inputs and outputs.
        if isinstance(value_proto, onnx.NodeProto):
            self.bb.begin(known_as(value_proto))
        return super()._parse_value_proto(value_proto)


def _fill(tensor: tvm.runtime.Tensor, fetch: Fetch) -> None:
    """Let ``fetch`` write into a tensor's own memory: weights are large.

    Older NumPy (1.26, 2.1) shows such memory for reading only; it takes a copy there.
    """
    values = np.from_dlpack(tensor)
    if values.flags.writeable:
        fetch(values)
        return
    values = np.empty(values.shape, values.dtype)
    fetch(values)
    tensor.copyfrom(values)
