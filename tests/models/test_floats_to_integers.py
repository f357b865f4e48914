"""Casts of floats to integers: one kernel does all, and one rule for what has no integer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import byoc

FLOATS = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}
CALLS = {"float32": 1, "float16": 2}  # networks in float16 compute in float32
INTEGERS = {
    "int8": TensorProto.INT8, "uint8": TensorProto.UINT8,
    "int32": TensorProto.INT32, "int64": TensorProto.INT64,
}  # fmt: skip


def network(source: str, to: str) -> onnx.ModelProto:
    """A cast of an open number of elements."""
    info = helper.make_tensor_value_info
    node = helper.make_node("Cast", ["x"], ["y"], to=INTEGERS[to])
    x, y = info("x", FLOATS[source], ["n"]), info("y", INTEGERS[to], ["n"])
    graph = helper.make_graph([node], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def wrapped(number: float, to: str) -> int:
    """The whole number's lower bits; 0 of what is none."""
    if not np.isfinite(number):
        return 0
    bits, has_sign = np.dtype(to).itemsize * 8, np.dtype(to).kind == "i"
    whole = min(max(int(number), -(2**63)), 2**63 - 1) & (2**bits - 1)
    return whole - 2**bits if has_sign and whole >> (bits - 1) else whole


@pytest.mark.parametrize("to", INTEGERS)
@pytest.mark.parametrize("source", FLOATS)
def test_one_kernel_call(tmp_path: Path, source: str, to: str) -> None:
    code = tmp_path / "code"
    made = byoc.compile(network(source, to), tmp_path / "m.so", min_bytes=0, dump_code=code)
    assert len(made.report.regions) == 1 and not made.report.left
    text = "".join(path.read_text(encoding="utf-8") for path in code.glob("*.c"))
    assert text.count("ext_cast(") == CALLS[source] and "ext_where(" not in text
    special = [0.0, -0.0, 0.9, -0.9, 1.5, -1.5, 127.9, -128.5, 255.5, 256, -300, 40000]
    far = [2e9, -2e9, 3e9, -3e9, 5e10, -5e10, 1e18, -(2.0**63), np.nan, np.inf, -np.inf]
    near = np.random.default_rng(0).uniform(-120, 120, 700)
    with np.errstate(over="ignore"):
        x = np.concatenate([near, special, far, near[:9]]).astype(source)
    y = byoc.load(made.path).run({"x": x})["y"]
    expected = [wrapped(float(number), to) for number in x]
    np.testing.assert_array_equal(y, np.array(expected, to))
