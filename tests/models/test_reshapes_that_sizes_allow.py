"""Reshapes that keep all elements for some sizes of an open axis alone: each call looks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from byoc.compiler.partition import partition_with_report


def _even_rows() -> tvm.IRModule:
    """exp(x) with n rows, rounded up to an even number of them, and exp again."""
    rows = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([rows, 64], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            wide = relax.op.reshape(builder.emit(relax.op.exp(x)), [(rows + 1) // 2 * 2, 64])
            y = builder.emit_output(relax.op.exp(builder.emit(wide)))
        builder.emit_func_output(y)
    return builder.get()


def test_a_call_that_would_read_or_leave_elements_is_refused(tmp_path: Path) -> None:
    module, report = partition_with_report(_even_rows())
    assert len(report.regions) == 1 and not report.left
    built = tvm.compile(relax.transform.RunCodegen()(module), target="llvm")
    built.export_library(str(tmp_path / "m.so"))
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(tmp_path / "m.so")), tvm.cpu())
    for rows in (8, 10, 2):
        x = np.random.default_rng(rows).standard_normal((rows, 64), np.float32)
        found = machine["main"](tvm.runtime.tensor(x)).numpy()
        np.testing.assert_allclose(found, np.exp(np.exp(x)), rtol=1e-5)
    with pytest.raises(Exception, match=r"would be -64; pass other inputs"):
        machine["main"](tvm.runtime.tensor(np.zeros((7, 64), np.float32)))
