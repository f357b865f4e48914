"""Weights of integers that a Relax module transposes before a product."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from byoc.compiler.partition import partition_with_report
from tests.ir.graphs import random


@pytest.mark.parametrize("axes", [None, [1, 0], [-1, 0], [-1, -2]])
def test_axes_may_count_from_the_end(axes: list[int] | None) -> None:
    integers = (random(6, 8, seed=1) * 40).astype("int8")
    scale = np.abs(random(6, seed=2)) + 0.1
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            zeros = relax.const(np.zeros(6, "int8"))
            weight = relax.op.dequantize(
                relax.const(integers), relax.const(scale), zeros, 0, "float32"
            )
            turned = builder.emit(relax.op.permute_dims(builder.emit(weight), axes))
            y = builder.emit_output(relax.op.matmul(x, turned))
        builder.emit_func_output(y)
    partitioned, report = partition_with_report(builder.get(), min_bytes=0)
    assert report.offloaded == 2 and len(report.regions) == 1
    executable = tvm.compile(relax.transform.RunCodegen()(partitioned), target="llvm")
    given = random(3, 8)
    actual = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(given))
    expected = given @ (integers * scale[:, None]).T
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-4, atol=1e-4)
