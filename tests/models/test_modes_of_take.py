"""What Relax's ``take`` gives for indices outside of its axis, which its mode says."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from byoc.compiler.partition import partition_with_report
from tests.ir.graphs import random

TABLE = random(5, 3)
#: Indices, and their dtype: in the middle, from the end, outside.
INDICES = {
    "first ones": ([0, 2, 4], "int64"),
    "from the end": ([-1, 1, -5], "int32"),
    "outside": ([7, -9, 3], "int64"),
    "of one": ([-1], "int64"),
    "of few bits": ([5, 127, -128], "int8"),
    "without a sign": ([5, 255, 1], "uint8"),
}


def _module(indices: np.ndarray, mode: str, known: bool, rows: int | str) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    n = tvm.tirx.Var("n", "int64") if isinstance(rows, str) else rows
    x = relax.Var("x", relax.TensorType((n, 3), "float32"))
    i = relax.Var("i", relax.TensorType(indices.shape, str(indices.dtype)))
    with builder.function("main", [x, i]):
        with builder.dataflow():
            places = relax.const(indices, str(indices.dtype)) if known else i
            twice = builder.emit(relax.op.add(x, x))
            y = builder.emit_output(relax.op.take(twice, places, axis=0, mode=mode))
        builder.emit_func_output(y)
    return builder.get()


@pytest.mark.parametrize("rows", [5, "n"])
@pytest.mark.parametrize("mode", ["clip", "wrap", "nan"])
@pytest.mark.parametrize("case", INDICES)
def test_as_the_mode_says(case: str, mode: str, rows: int | str) -> None:
    """Of indices that are inputs, and, in every other case, of known ones."""
    numbers, dtype = INDICES[case]
    known = (list(INDICES).index(case) + len(mode) + (rows == 5)) % 2 == 0
    indices = np.array(numbers, dtype)
    open_axis, few = isinstance(rows, str), dtype.endswith("int8")
    outside = (indices < -5).any() or (indices >= 5).any()
    if open_axis and (few or (mode == "wrap" and outside)):
        pytest.skip("kernels refuse indices outside of an open axis")
    partitioned, report = partition_with_report(_module(indices, mode, known, rows), min_bytes=0)
    assert report.offloaded >= (1 if mode == "nan" or few else 2)  # TVM takes by few bits
    executable = tvm.compile(relax.transform.RunCodegen()(partitioned), target="llvm")
    machine = relax.VirtualMachine(executable, tvm.cpu())
    actual = machine["main"](tvm.runtime.tensor(TABLE), tvm.runtime.tensor(indices)).numpy()
    wide = indices.astype("int64")
    expected = 2 * np.take(TABLE, wide, axis=0, mode="clip" if mode == "nan" else mode)
    if mode == "nan":
        expected[(wide < 0) | (wide >= 5)] = np.nan
    np.testing.assert_array_equal(actual, expected)
