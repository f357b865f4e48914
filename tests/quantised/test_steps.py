"""Integers of whole networks beside those of ONNX's reference evaluator, and at every level."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, version_converter
from onnx.reference import ReferenceEvaluator
from onnxruntime.quantization import QuantFormat

import byoc
from benchmarks import abi
from byoc.frontends.onnx.measured_model import draw_inputs
from models.quantised import calibrate
from models.resnet import resnext50
from tests.models.in_process import ROOT, cpu_has
from tests.quantised.networks import assert_alike, reference

SCRIPT = """
import sys
import numpy as np
import byoc
library, inputs, outputs = sys.argv[1:]
with np.load(inputs) as file:
    np.savez(outputs, **byoc.load(library).run({name: file[name] for name in file.files}))
"""


def small() -> onnx.ModelProto:
    """Convolutions of 1 x 1, 3 x 3, 7 x 7 and in groups, residuals, pools and a classifier."""
    return resnext50(size=64, groups=8, stages=((1, 32, 1), (1, 64, 2)))


def first_integers(model: onnx.ModelProto, kinds: tuple[str, ...]) -> list[str]:
    """The integers that come of the first products: one step there is none of those before."""
    made = {name: node for node in model.graph.node for name in node.output}
    return [
        node.output[0]
        for node in model.graph.node
        if node.op_type in kinds and (node.op_type != "QuantizeLinear" or node.input[0] in made)
    ]


def answers(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """By ONNX's evaluator; by ONNX Runtime, without fusions, where operators are its own."""
    if any(node.domain == "com.microsoft" for node in model.graph.node):
        return reference(model, inputs)
    newer = version_converter.convert_version(model, 21)  # the evaluator lacks older forms
    return ReferenceEvaluator(newer).run(None, inputs)


@pytest.fixture(scope="module", params=["QDQ", "QOperator"])
def network(request: pytest.FixtureRequest, tmp_path_factory) -> onnx.ModelProto:
    """A quantised network that gives its integers, before and behind a residual, and its floats."""
    assert request.param in QuantFormat.__members__
    model = onnx.load(calibrate(small(), tmp_path_factory.mktemp("steps"), request.param))
    kinds = ("QuantizeLinear", "QLinearConv", "QLinearAdd")
    for name in first_integers(model, kinds)[:2]:
        kind = onnx.TensorProto.UINT8
        model.graph.output.append(helper.make_tensor_value_info(name, kind, None))
    return model


def test_integers_are_at_most_one_step_off(network: onnx.ModelProto, tmp_path: Path) -> None:
    report = byoc.compile(network, tmp_path / "m.so").report
    assert len(report.regions) == 1 and report.multiplied_in == {"uint8": report.macs}
    inputs = draw_inputs(network, seed=3)
    wanted = answers(network, inputs)
    found = byoc.load(tmp_path / "m.so").run(inputs)
    whole = [(a, b) for a, b in zip(found.values(), wanted, strict=True) if b.dtype == np.uint8]
    assert len(whole) == 2
    for got, want in whole:
        assert_alike(got, want)


@pytest.mark.parametrize("isa", abi.LEVELS)
def test_one_library_answers_alike_at_every_level(
    network: onnx.ModelProto, tmp_path: Path, isa: str
) -> None:
    """Whatever unit for bytes the CPU lacks; sums of integers are exact, so that nothing differs
    but the rounding of what follows."""
    if not cpu_has(isa):
        pytest.skip(f"this CPU has no {isa}")
    byoc.compile(network, tmp_path / "m.so")
    inputs = draw_inputs(network, seed=3)
    np.savez(tmp_path / "in.npz", **inputs)
    command = [sys.executable, "-c", SCRIPT, tmp_path / "m.so", tmp_path / "in.npz"]
    subprocess.run(
        [*command, tmp_path / "out.npz"], env=os.environ | {"BYOC_ISA": isa}, cwd=ROOT, check=True
    )
    own = byoc.load(tmp_path / "m.so").run(inputs)
    with np.load(tmp_path / "out.npz") as other:
        for name, want in own.items():
            if want.dtype == np.uint8:
                assert_alike(other[name], want)
            else:
                assert np.abs(other[name] - want).max() <= 0.03 * np.ptp(want)
