"""Read the Relax function of one region into a region graph.

The function's body binds composite functions and calls them in order (see
``byoc.partition.merge``).  Nothing is parsed out of names: what a composite computes is its
``ext.node`` attribute, and its constants are the region's ``ext.constants``.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from codegen_cc.errors import CodegenError
from codegen_cc.node import (
    CONSTANT_FUNCTION,
    CONSTANTS_ATTRIBUTE,
    NODE_ATTRIBUTE,
    REPLACED_ATTRIBUTE,
    STATES_ATTRIBUTE,
    Node,
)
from codegen_cc.region.graph import Region, RegionNode, Value
from codegen_cc.region.relax_dims import relax_dims


def read_region(function: relax.Function) -> Region:
    """Read a region function.

    Raises ``CodegenError`` where the function is not in the form that the partitioner writes.
    """
    symbol = str(function.attrs["global_symbol"])
    reader = _RegionReader(symbol, function)
    return reader.region


class _RegionReader:
    def __init__(self, symbol: str, function: relax.Function) -> None:
        shapes = [param for param in function.params if isinstance(param.ty, relax.ShapeType)]
        tensors = [param for param in function.params if param not in shapes]
        inputs = [_value_of(param, param.name) for param in tensors]
        sizes = [size for param in shapes for size in relax_dims(param.ty.values)]
        states = tuple(inputs[int(place)] for place in function.attrs.get(STATES_ATTRIBUTE, ()))
        numbers = [int(number) for number in function.attrs.get(REPLACED_ATTRIBUTE, ())]
        replaced = tuple(zip(numbers[::2], numbers[1::2], strict=True))
        self.region = Region(symbol, inputs, sizes=tuple(sizes), states=states, replaced=replaced)
        self._values: dict[relax.Var, object] = dict(zip(tensors, inputs, strict=True))
        self._composites: dict[relax.Var, Node] = {}
        detached = function.attrs.get(CONSTANTS_ATTRIBUTE, ())
        self._constants = [_constant(f"c{i}", tensor) for i, tensor in enumerate(detached)]
        for block in function.body.blocks:
            for binding in block.bindings:
                self._bind(binding.var, binding.value)
        result = self._read(function.body.body)
        self.region.outputs = list(result) if isinstance(result, tuple) else [result]

    def _bind(self, var: relax.Var, expr: relax.Expr) -> None:
        if isinstance(expr, relax.Function):
            if not expr.attrs or NODE_ATTRIBUTE not in expr.attrs:
                raise CodegenError(
                    f"region {self.region.symbol}: composite {var.name} has no {NODE_ATTRIBUTE} "
                    "attribute; partition the module with byoc.partition_for_ext"
                )
            self._composites[var] = Node.from_json(str(expr.attrs[NODE_ATTRIBUTE]))
        elif isinstance(expr, relax.Call) and expr.op in self._composites:
            node = self._composites[expr.op]
            inputs = [self._read(arg) for arg in expr.args]
            outputs = self._results(node)
            self.region.nodes.append(RegionNode(node, inputs, outputs))
            self._values[var] = tuple(outputs) if node.further else outputs[0]
        else:
            self._values[var] = self._read(expr)

    def _results(self, node: Node) -> list[Value]:
        """The next node's results: t7, or t7_0, t7_1 and so on."""
        name, several = f"t{len(self.region.nodes)}", bool(node.further)
        return [
            Value(f"{name}_{index}" if several else name, result.shape, result.dtype)
            for index, result in enumerate(node.results)
        ]

    def _read(self, expr: relax.Expr) -> object:
        if isinstance(expr, relax.Var):
            return self._values[expr]
        if isinstance(expr, tvm.ir.GenericConst):
            return _constant("c", expr.value)
        if isinstance(expr, relax.Call) and _names_constant(expr):
            return self._constants[int(expr.args[1].values[0])]
        if isinstance(expr, relax.Tuple):
            return tuple(self._read(item) for item in expr.fields)
        if isinstance(expr, relax.TupleGetItem):
            return self._read(expr.tuple_value)[expr.index]
        raise CodegenError(
            f"region {self.region.symbol}: cannot read a {type(expr).__name__} outside of a "
            "composite; partition the module with byoc.partition_for_ext"
        )


def _names_constant(call: relax.Call) -> bool:
    target = call.args[0] if call.args else None
    return isinstance(target, relax.ExternFunc) and target.global_symbol == CONSTANT_FUNCTION


def _constant(name: str, tensor: tvm.runtime.Tensor) -> Value:
    data = np.from_dlpack(tensor)  # shares memory: weights are large
    return Value(name, tuple(data.shape), str(data.dtype), data)


def _value_of(param: relax.Var, name: str) -> Value:
    return Value(name, relax_dims(param.ty.shape), str(param.ty.dtype))
