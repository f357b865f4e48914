"""Transposed convolutions of stride 1 are convolutions, with all that these have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper, parser

import byoc
from tests.models.test_group_norm import Graph, check, compiled
from tests.reference import onnxruntime_outputs

FORMS = {
    "plain": {},
    "same": {"pads": [1, 1, 1, 1]},
    "cut": {"pads": [2, 0, 1, 2]},
    "groups": {"group": 2, "pads": [1, 1, 0, 0]},
    "holes": {"dilations": [2, 3]},
}


def is_transposed(done: byoc.Compiled) -> bool:
    """Whether a kernel for transposed convolutions is called."""
    (kernel,) = (use.algorithm for use in done.report.kernels if use.macs)
    return kernel in ("GEMM, windows added up", "implicit GEMM for each place in a stride")


@pytest.mark.parametrize("form", FORMS)
def test_stride_1(form: str, tmp_path: Path) -> None:
    g = Graph()
    attributes = FORMS[form]
    per_group = 6 // attributes.get("group", 1)
    weight = g.floats(4, per_group, 3, 3)
    y = g.call("Relu", g.call("ConvTranspose", "x", weight, g.floats(6), **attributes))
    done = compiled(g.model(y, [2, 4, 9, 8]), tmp_path)
    assert not is_transposed(done)
    check(g.model(y, [2, 4, 9, 8]), tmp_path, (2, 4, 9, 8), limit=5e-6)


def test_more_is_cut_off_than_taps_reach(tmp_path: Path) -> None:
    g = Graph()
    y = g.call("ConvTranspose", "x", g.floats(4, 6, 3, 3), pads=[3, 1, 0, 3])
    done = compiled(g.model(y, [1, 4, 9, 8]), tmp_path)
    assert is_transposed(done)
    check(g.model(y, [1, 4, 9, 8]), tmp_path, (1, 4, 9, 8), limit=5e-6)


def test_lines(tmp_path: Path) -> None:
    g = Graph()
    y = g.call("ConvTranspose", "x", g.floats(4, 6, 5), pads=[1, 2])
    done = compiled(g.model(y, [1, 4, "n"]), tmp_path)
    assert not is_transposed(done)
    check(g.model(y, [1, 4, "n"]), tmp_path, (1, 4, 30), (1, 4, 7), limit=5e-6)


#: What tf2onnx writes behind a transposed convolution whose padding is SAME, of an image of any
#: size: elements beyond the wanted ones are cut off at both sides, missing ones are put behind.
CUT_TO_SIZE = """
    <ir_version: 8, opset_import: ["" : 18]> g (float[n, 3, h, w] x) => (float[a, b, c, d] y)
    <int64[1] two = {2}, int64[1] four = {4}, int64[1] zero = {0}, int64[2] axes = {2, 3},
     int64[2] zeros = {0, 0}, int64[6] nothing = {0, 0, 0, 0, 0, 0}> {
    image = ConvTranspose<strides = [2, 2]>(x, weight)
    all = Shape(x)
    sides = Slice(all, two, four, zero)
    wanted = Mul(sides, two)
    made = Shape<start = 2>(image)
    more = Sub(made, wanted)
    less = Neg(more)
    missing = Max(less, zero)
    beyond = Max(more, zero)
    first = Div(beyond, two)
    last = Add(first, wanted)
    cut = Slice(image, first, last, axes)
    widths = Concat<axis = 0>(nothing, missing)
    p0, p1, p2, p3, p4, p5, p6, p7 = Split<num_outputs = 8>(widths)
    pads = Concat<axis = 0>(p0, p1, p2, p3, p4, p5, p6, p7)
    whole = Pad(cut, pads)
    y = Relu(whole)
    }
"""


@pytest.mark.parametrize("taps", [1, 2, 3, 4])
def test_cut_to_a_multiple_of_open_sides(taps: int, tmp_path: Path) -> None:
    model, rng = parser.parse_model(CUT_TO_SIZE), np.random.default_rng(3)
    weight = rng.standard_normal((3, 8, taps, taps), dtype=np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "weight"))
    report = byoc.compile(model, tmp_path / "m.so").report
    assert len(report.regions) == 1 and report.left == ()
    with byoc.load(tmp_path / "m.so") as library:
        for shape in ((2, 3, 7, 6), (1, 3, 1, 9), (3, 3, 4, 4)):
            x = rng.standard_normal(shape, dtype=np.float32)
            want = onnxruntime_outputs(model, {"x": x})["y"]
            np.testing.assert_allclose(library.run({"x": x})["y"], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("exact", [False, True])
def test_groups_of_few_outputs_are_joined(exact: bool, tmp_path: Path) -> None:
    """Unless a model is exact: weights of 0 make NaN of what is infinite in another group."""
    g = Graph()
    weight = g.floats(20, 2, 4, 4)
    y = g.call("ConvTranspose", "x", weight, group=20, strides=[2, 2], pads=[1, 1, 1, 1])
    model = g.model(y, [1, 20, 6, 5])
    x = np.random.default_rng(4).standard_normal((1, 20, 6, 5), dtype=np.float32)
    done = byoc.compile(model, tmp_path / "m.so", exact=exact)
    assert is_transposed(done) and done.report.left == ()
    with byoc.load(done.path) as library:
        for special in (0.0, np.inf) if exact else (0.0,):
            x[0, 3, 2, 2] = special
            want = onnxruntime_outputs(model, {"x": x})
            for name, got in library.run({"x": x}).items():
                np.testing.assert_allclose(got, want[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("taps", "attributes"),
    [(2, {}), (4, {"pads": [1, 1, 1, 1]}), (3, {"group": 2})],
    ids=["apart", "windows", "groups"],
)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_batch_norm_goes_into_the_weight(
    rank: int, taps: int, attributes: dict, tmp_path: Path
) -> None:
    g = Graph()
    own = {k: v[:2] * rank if k == "pads" else v for k, v in attributes.items()}
    weight = g.floats(4, 6 // own.get("group", 1), *[taps] * rank)
    z = g.call("ConvTranspose", "x", weight, g.floats(6), strides=[2] * rank, **own)
    spread = g.weight(np.linspace(0.5, 2, 6, dtype=np.float32))
    y = g.call("Relu", g.call("BatchNormalization", z, *(g.floats(6) for _ in range(3)), spread))
    shape = (2, 4, *(5, 6, 7)[:rank])
    done = compiled(g.model(y, list(shape)), tmp_path)
    alone = sum(use.nodes for use in done.report.kernels if use.algorithm == "binary")
    assert alone == ((rank, taps) == (3, 2))  # the bias of volumes that are put in their places
    check(g.model(y, list(shape)), tmp_path, shape, limit=1e-5)


def test_few_outputs_share_vectors(tmp_path: Path) -> None:
    g = Graph()
    y = g.call("ConvTranspose", "x", g.floats(16, 3, 4, 4), strides=[2, 2], pads=[1] * 4)
    done = compiled(g.model(y, [1, 16, 9, 40]), tmp_path)
    assert [use.algorithm for use in done.report.kernels if use.macs] == ["GEMM, windows added up"]
    check(g.model(y, [1, 16, 9, 40]), tmp_path, (1, 16, 9, 40), limit=5e-6)
