"""Pads of known extents that TVM's pad is not for: of integers and booleans, and that cut off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, parser

import byoc
from tests.reference import onnxruntime_outputs

#: A dtype, its number in ONNX, and what is filled in: more digits than a float has, of int64.
CASES = {
    "float32": (TensorProto.FLOAT, "0.5"),
    "bool": (TensorProto.BOOL, None),
    "int64": (TensorProto.INT64, "9007199254740993"),
    "int32": (TensorProto.INT32, "-7"),
    "uint8": (TensorProto.UINT8, "200"),
}


@pytest.mark.parametrize("dtype", CASES)
@pytest.mark.parametrize("shape", ["2, 6, 5", "n, 6, t"])
def test_a_pad_that_cuts_off(dtype: str, shape: str, tmp_path: Path) -> None:
    number, fill = CASES[dtype]
    kind = "bool" if dtype == "bool" else dtype.replace("float32", "float")
    value, initializer = ("", "") if fill is None else (", fill", f", {kind}[1] fill = {{{fill}}}")
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> g (float[{shape}] x) => ({kind}[a, b, c] y)'
        f"<int64[6] widths = {{0, 1, -1, 0, -2, 3}}{initializer}>"
        f"{{ many = Mul(x, x) cast = Cast<to = {number}>(many) y = Pad(cast, widths{value}) }}"
    )
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert report.left == () and len(report.regions) == 1
    x = np.random.default_rng(0).uniform(-9, 9, (2, 6, 5)).astype(np.float32)
    found = byoc.load(tmp_path / "m.so").run({"x": x})["y"]
    np.testing.assert_array_equal(found, onnxruntime_outputs(model, {"x": x})["y"])


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("shape", ["2, 6, 5", "n, 6, 5"])
def test_what_is_cut_off_does_not_come_in_at_the_other_end(
    dtype: str, shape: str, tmp_path: Path
) -> None:
    """As in ONNX Runtime, and in PyTorch's circular pads; further than the rest is long, too."""
    kind = dtype.replace("float32", "float")
    model = parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 19]> g (float[{shape}] x) =>'
        f" ({kind}[a, b, c] y, {kind}[a, b, d] z)"
        "<int64[6] widths = {0, 1, -2, 0, -1, 1}, int64[6] wide = {0, 0, 4, 0, 0, -3}>"
        f"{{ many = Mul(x, x) cast = Cast<to = {CASES[dtype][0]}>(many)"
        '   y = Pad<mode = "wrap">(cast, widths) z = Pad<mode = "wrap">(cast, wide) }'
    )
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert report.left == () and len(report.regions) == 1
    x = np.random.default_rng(0).uniform(-9, 9, (2, 6, 5)).astype(np.float32)
    found = byoc.load(tmp_path / "m.so").run({"x": x})
    for name, want in onnxruntime_outputs(model, {"x": x}).items():
        np.testing.assert_array_equal(found[name], want)
