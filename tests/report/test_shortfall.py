"""When less than half of the work is offloaded, everyone is told why and what it costs."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.relax import op

import byoc
from byoc.cli import main
from byoc.compiler.partition import partition_with_report
from tests.ir.graphs import constant, random

from .modules import floats, typed_module

IMAGE = (1, 16, 20, 20)


def network(dtype: str) -> tvm.IRModule:
    """Three convolutions with ReLU, and a softmax."""
    weight = relax.const(random(16, 16, 3, 3).astype(dtype), dtype)

    def build(x: relax.Expr) -> relax.Expr:
        for _ in range(3):
            x = op.nn.relu(op.nn.conv2d(x, weight, padding=1))
        return op.nn.softmax(x)

    return typed_module(build, floats(*IMAGE, dtype=dtype))


def quiet(mod: tvm.IRModule, **rules: object) -> None:
    """Partition where any warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert partition_with_report(mod, **rules)[1].shortfall is None


def test_a_float64_network_is_a_warning_with_reasons_and_an_estimate():
    with pytest.warns(byoc.OffloadWarning) as caught:
        mod, report = partition_with_report(network("float64"))
    (warning,) = caught
    text = str(warning.message)
    assert "\n" not in text
    assert "only 0.0 % of MACs are offloaded" in text
    assert "3 x relax.nn.conv2d: input has dtype float64; need float32" in text
    assert "save the model in float32" in text
    # 2.7 million multiply-accumulates by loops that need 2 ns for each.
    assert 0.005 < report.shortfall.seconds < 0.05
    assert warning.filename == __file__
    assert not [f for f in mod.functions.values() if "Codegen" in (f.attrs or {})]


def test_partition_for_ext_warns_as_well():
    with pytest.warns(byoc.OffloadWarning, match="float64"):
        byoc.partition_for_ext(network("float64"))


def test_the_same_network_in_float32_warns_of_nothing():
    quiet(network("float32"))


def test_a_share_of_half_decides():
    """The left matrix product is one of two, or one of three."""

    def build(count: int):
        def products(x: relax.Expr, y: relax.Expr) -> relax.Expr:
            half = op.matmul(y, y)
            for _ in range(count):
                x = op.matmul(x, x)
            return op.add(x, op.astype(half, "float32"))

        return typed_module(products, floats(32, 32), floats(32, 32, dtype="float64"))

    quiet(build(2))
    quiet(build(1))
    mod = typed_module(
        lambda x, y: op.add(op.matmul(x, x), op.astype(op.matmul(op.matmul(y, y), y), "float32")),
        floats(32, 32),
        floats(32, 32, dtype="float64"),
    )
    with pytest.warns(byoc.OffloadWarning, match=r"only 33\.3 % of MACs .* 2 x relax.matmul: "):
        partition_with_report(mod)


def test_elements_count_where_there_are_no_macs():
    mod = typed_module(lambda x: op.exp(op.sort(op.sort(x))), floats(100, 1000))
    with pytest.warns(byoc.OffloadWarning, match=r"only 33\.3 % of elements .* 2 x relax.sort: no"):
        partition_with_report(mod)


def test_what_users_refuse_and_what_is_too_little_is_no_shortfall():
    quiet(network("float32"), skip_ops=["conv2d"])
    quiet(network("float32"), only=["softmax"])
    quiet(network("float32"), predicate=lambda node, call: "not today")
    quiet(typed_module(lambda x: op.add(x, x), floats(2, 3)))
    quiet(typed_module(lambda x: op.sort(x), floats(2, 3)))
    quiet(typed_module(lambda x: x, floats(2, 3)))


def test_attention_that_stays_has_macs():
    """Query [b, q, h, d], key and value [b, k, h, d]: 2 b h q k d."""
    types = [floats(2, 8, 4, 16, dtype="float64"), floats(2, 12, 4, 16, dtype="float64")]
    mod = typed_module(lambda q, kv: op.nn.attention(q, kv, kv), *types)
    with pytest.warns(byoc.OffloadWarning):
        report = partition_with_report(mod)[1]
    assert report.macs == 2 * 2 * 4 * 8 * 12 * 16


@pytest.fixture
def double_model(tmp_path: Path) -> Path:
    """A float64 ONNX file of one convolution."""
    weight = numpy_helper.from_array(random(8, 4, 3, 3).astype(np.float64), "w")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        "double",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [1, 4, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, [1, 8, 16, 16])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, tmp_path / "double.onnx")
    return tmp_path / "double.onnx"


def test_the_command_line_says_so(double_model: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["partition", str(double_model), "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err.count("only 0.0 % of MACs are offloaded") == 1
    assert "input has dtype float64; need float32" in shown.err
    shortfall = json.loads(shown.out)["shortfall"]
    assert (shortfall["share"], shortfall["unit"]) == (0.0, "MACs")
    assert shortfall["blockers"][0]["dtype"] == "float64"
    assert main(["compile", str(double_model), "-o", str(double_model.with_name("double.so"))]) == 0
    assert "only 0.0 % of MACs are offloaded" in capsys.readouterr().err


def test_a_network_that_is_offloaded_has_no_shortfall_in_json():
    report = partition_with_report(
        typed_module(lambda x: op.matmul(x, constant(random(32, 32))), floats(32, 32))
    )[1]
    assert report.to_json()["shortfall"] is None
