"""Small regions built by hand, without TVM."""

from __future__ import annotations

import numpy as np

from codegen_cc.node import Node, Operand, Step
from codegen_cc.region.graph import Region, RegionNode, Value


class RegionBuilder:
    """Adds composites to a region one by one; every method returns the new value."""

    def __init__(self, symbol: str = "ext_main_0") -> None:
        self.region = Region(symbol, [])
        self._random = np.random.default_rng(0)

    def input(self, *shape: int, name: str = "x", dtype: str = "float32") -> Value:
        self.region.inputs.append(Value(name, shape, dtype))
        return self.region.inputs[-1]

    def constant(self, *shape: int) -> Value:
        data = self._random.standard_normal(shape).astype(np.float32)
        return Value("c", shape, "float32", data)

    def value(self, data: np.ndarray) -> Value:
        return Value("c", data.shape, str(data.dtype), data)

    def add(
        self, op, operands: dict[str, Value], shape, epilogue=(), dtype="float32", **attrs
    ) -> Value:
        node = Node(
            op,
            tuple(Operand(r, v.shape, v.dtype, v.data is not None) for r, v in operands.items()),
            tuple(shape),
            dtype,
            attrs,
            tuple(epilogue),
        )
        value = Value(f"t{len(self.region.nodes)}", tuple(shape), dtype)
        self.region.nodes.append(RegionNode(node, list(operands.values()), [value]))
        return value

    def conv2d(self, x: Value, out_c: int, kernel: int = 3, act: str | None = "relu", **more):
        weight = self.constant(out_c, x.shape[1], kernel, kernel)
        bias = self.constant(out_c)
        steps = [Step("bias")] + ([Step(act)] if act else [])
        pad = kernel // 2
        attrs = {"strides": [1, 1], "padding": [pad] * 4, "dilation": [1, 1], "groups": 1}
        shape = (x.shape[0], out_c, *x.shape[2:])
        operands = {"input": x, "weight": weight, "bias": bias, **more}
        if "residual" in more:
            steps.insert(1, Step("residual"))
        return self.add("conv2d", operands, shape, steps, **attrs)

    def done(self, *outputs: Value) -> Region:
        self.region.outputs = list(outputs)
        return self.region
