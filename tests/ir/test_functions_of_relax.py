"""Functions of Relax that ONNX's importer does not write, as PyTorch's does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tvm import relax

import byoc


def test_tangent(tmp_path: Path) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((40, 50), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(builder.emit(relax.op.tan(x)))
        builder.emit_func_output(y)
    made = byoc.compile(builder.get(), tmp_path / "m.so")
    assert made.report.regions and not made.report.left
    angles = (np.random.default_rng(0).random((40, 50)) * 20 - 10).astype("float32")
    angles[0, :4] = [0, -0.0, np.nan, np.inf]
    (got,) = byoc.load(tmp_path / "m.so").run({"x": angles}).values()
    with np.errstate(invalid="ignore"):
        want = np.tan(angles.astype("float64"))
    np.testing.assert_allclose(got, want, rtol=1e-6)
