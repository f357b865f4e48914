"""Forms of operators that are right, or refused by name, beside symbolic axes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import byoc
from byoc.compiler.partition import partition_with_report
from byoc.errors import ByocError, RunError
from byoc.frontends.onnx import import_onnx, prepare
from tests.reference import onnxruntime_outputs


def _model(opset: int, text: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {text}')


@pytest.mark.parametrize("scale", [0.7, 0.5, 2.0])
def test_resize_of_opset_10(scale: float, tmp_path: Path) -> None:
    # It takes the next pixel where it shrinks.
    model = _model(
        10,
        "(float[n,2,3,8] x) => (float[n,2,3,k] y)"
        f'<float[4] s = {{1, 1, 1, {scale}}}> {{ y = Resize<mode = "nearest">(x, s) }}',
    )
    shapes: dict[str, list[int | str]] = {"x": ["n", 2, 3, 8]}
    byoc.compile(model, tmp_path / "m.so", shapes)
    library = byoc.load(tmp_path / "m.so")
    for size in (1, 3):
        x = np.arange(size * 48, dtype="float32").reshape(size, 2, 3, 8)
        want = onnxruntime_outputs(model, {"x": x})["y"]
        np.testing.assert_array_equal(library.run({"x": x})["y"], want)


@pytest.mark.parametrize("shape", [["n", 2, 8], ["n", 2, 3, 8], ["n", 1, 2, 3, 8]])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_by_more_than_the_sizes(shape: list[int | str], mode: str, tmp_path: Path) -> None:
    # 8 by 0.7 are 5 pixels, at 1 / 0.7 from one another: not at the ratio of the sizes.
    scales = ", ".join(["1"] * (len(shape) - 1) + ["0.7"])
    model = _model(
        13,
        f"(float[{','.join(map(str, shape))}] x) => (float[] y)"
        f" <float[{len(shape)}] s = {{{scales}}}>"
        f'{{ y = Resize<mode = "{mode}", coordinate_transformation_mode = "asymmetric",'
        ' nearest_mode = "ceil">(x, , s) }',
    )
    byoc.compile(model, tmp_path / "m.so", {"x": shape})
    library = byoc.load(tmp_path / "m.so")
    for size in (1, 3):
        x = np.random.default_rng(0).random((size, *shape[1:]), "float32")
        want = onnxruntime_outputs(model, {"x": x})["y"]
        np.testing.assert_allclose(library.run({"x": x})["y"], want, rtol=1e-5)


@pytest.mark.parametrize("shape", [[1, 2, "h", 8], [1, 2, 1, "h", 8]])
def test_scales_that_are_no_ratio_beside_symbols(shape: list[int | str]) -> None:
    scales = ", ".join(["1"] * (len(shape) - 2) + ["2", "0.7"])
    model = _model(
        13,
        f"(float[{','.join(map(str, shape))}] x) => (float[] y)"
        f" <float[{len(shape)}] s = {{{scales}}}> {{ y = Resize(x, , s) }}",
    )
    with pytest.raises(ByocError, match=r"scale 0\.7 of axis .* symbolic extents"):
        byoc.compile(model, None, {"x": shape})


@pytest.mark.parametrize("begin", [-1, 1, -3, 2**31])
@pytest.mark.parametrize(("step", "sizes"), [(-1, (0, 1, 2, 7)), (-2, (1, 2, 7))])
def test_backward_slices(begin: int, step: int, sizes: tuple[int, ...], tmp_path: Path) -> None:
    """Bounds that no axis has made TVM ask for more memory than there is, before a region."""
    nodes, names = [], []
    for number, end in enumerate((-(2**31), -(2**63), 0, -2, -9)):
        nodes.append(f"e{number} = Constant<value_ints = [{end}]>()")
        nodes.append(
            f"y{number} = Slice(x, begin, e{number}, axis, step) z{number} = Exp(y{number})"
        )
        names.append(f"float[k{number},3] z{number}")
    model = _model(
        20,
        f"(float[n,3] x) => ({', '.join(names)}) <int64[1] axis = {{0}},"
        f" int64[1] step = {{{step}}}, int64[1] begin = {{{begin}}}> {{ {' '.join(nodes)} }}",
    )
    module = import_onnx(prepare(model, {"x": ["n", 3]}))
    assert partition_with_report(module, min_bytes=0)[1].offloaded >= 5
    byoc.compile(model, tmp_path / "m.so", {"x": ["n", 3]})
    library = byoc.load(tmp_path / "m.so")
    for size in sizes:
        x = np.linspace(0, 1, size * 3, dtype="float32").reshape(size, 3)
        got = library.run({"x": x})
        for name, want in onnxruntime_outputs(model, {"x": x}).items():
            np.testing.assert_allclose(got[name], want, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize(("mode", "shortest"), [("reflect", 3), ("edge", 1)])
def test_an_axis_too_short_to_pad_is_named(mode: str, shortest: int, tmp_path: Path) -> None:
    # Large constant extents, so that the region is worth its call.
    model = _model(
        17,
        "(float[64,n,512] x) => (float[64,k,512] z) <int64[6] p = {0, 1, 0, 0, 2, 0}> "
        f'{{ y = Pad<mode = "{mode}">(x, p) z = Relu(y) }}',
    )
    shapes: dict[str, list[int | str]] = {"x": [64, "n", 512]}
    _, report = partition_with_report(import_onnx(prepare(model, shapes)))
    assert report.offloaded == report.operators == 2
    byoc.compile(model, tmp_path / "m.so", shapes)
    library = byoc.load(tmp_path / "m.so")
    for size in (shortest, shortest + 4):
        x = np.arange(size * 64 * 512, dtype="float32").reshape(64, size, 512)
        want = onnxruntime_outputs(model, {"x": x})["z"]
        np.testing.assert_array_equal(library.run({"x": x})["z"], want)
    with pytest.raises(RunError, match="would be -1; pass larger inputs"):
        library.run({"x": np.zeros((64, shortest - 1, 512), "float32")})


REFUSED = {
    "a computed weight": (
        17,
        "(float[n,c,h,w] x, float[c,m,k,l] y) => (float[a,b,d,e] z)"
        "{ z = ConvTranspose<group = 2>(x, y) }",
        r"ConvTranspose .*weight \[c, m, k, l\]; need extents that are known",
    ),
    "channels": (
        17,
        "(float[n,c,h,w] x) => (float[a,b,d,e] z)"
        "<float[2,1,1,1] y = {1, 2}> { z = ConvTranspose<group = 2>(x, y) }",
        r"ConvTranspose sums over c and 2 elements",
    ),
    "slopes": (
        17,
        "(float[n,c] x, float[k] y) => (float[a,b] z) { z = PRelu(x, y) }",
        r"PRelu .*slopes \[k\] of an image \[n, c\]",
    ),
    "coordinates": (
        18,
        "(float[n,c] x, int64[k,q] i, float[k,c] u) => (float[a,b] z) { z = ScatterND(x, i, u) }",
        r"ScatterND \(node with output 'z'\) of .*indices \[k, q\]; need a known last extent",
    ),
    "a scale": (
        23,
        "(float[n,c] x, float[k] y) => (float[a,b] z) { z = RMSNormalization(x, y) }",
        r"RMSNormalization .*scale \[k\] of an input \[n, c\]",
    ),
    "four bits": (
        23,
        "(float[n,c] x) => (float4e2m1[n,c] z) { z = Cast<to = 23>(x) }",
        "Cast .*tensors of a few bits",
    ),
}


@pytest.mark.parametrize("form", REFUSED)
def test_what_no_size_makes_right_is_refused_in_a_line(form: str, tmp_path: Path) -> None:
    opset, text, message = REFUSED[form]
    model = _model(opset, text.replace("float4e2m1", "float"))
    if form == "four bits":
        model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT4E2M1
    shapes = {
        value.name: [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
        for value in model.graph.input
    }
    with pytest.raises(ByocError, match=message) as caught:
        byoc.compile(model, tmp_path / "m.so", shapes)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "m.so").exists()


def test_slopes_of_opset_6_are_one_per_channel(tmp_path: Path) -> None:
    model = _model(6, "(float[n,c,h,w] x, float[c] y) => (float[n,c,h,w] z) { z = PRelu(x, y) }")
    shapes: dict[str, list[int | str]] = {"x": ["n", "c", "h", "w"], "y": ["c"]}
    byoc.compile(model, tmp_path / "m.so", shapes)
    x = np.linspace(-1, 1, 2 * 3 * 4 * 5, dtype="float32").reshape(2, 3, 4, 5)
    feed = {"x": x, "y": np.array([0.1, 0.5, 2], "float32")}
    found = byoc.load(tmp_path / "m.so").run(feed)["z"]
    np.testing.assert_allclose(found, np.where(x < 0, x * feed["y"][:, None, None], x), 1e-6)


@pytest.mark.parametrize("skipped", [(), ("gather_nd",)], ids=["ours", "TVM's"])
def test_indices_of_joined_rows_beside_extents_of_another_input(
    tmp_path: Path, skipped: tuple[str, ...]
) -> None:
    """As decoders look their mask up.

    TVM's fusion stopped where loops need the extents of ``x`` and ``d + e`` at once.
    """
    model = _model(
        18,
        "(float[b,c] x, int64[a,d,2] i, int64[a,e,2] j) => (float[a,k] y)"
        "{ n = Concat<axis = 1>(i, j) y = GatherND(x, n) }",
    )
    shapes = {"x": ["b", "c"], "i": ["a", "d", 2], "j": ["a", "e", 2]}
    report = byoc.compile(model, tmp_path / "m.so", shapes, skip_ops=skipped).report
    assert ("relax.gather_nd" in {left.op for left in report.left}) == bool(skipped)
    library, rng = byoc.load(tmp_path / "m.so"), np.random.default_rng(0)
    for a, b, c, d, e in ((2, 3, 4, 2, 3), (1, 5, 2, 4, 1)):
        inputs = {"x": rng.standard_normal((b, c)).astype("float32")}
        for name, rows in (("i", d), ("j", e)):
            inputs[name] = np.stack([rng.integers(-n, n, (a, rows)) for n in (b, c)], axis=-1)
        want = onnxruntime_outputs(model, inputs)["y"]
        np.testing.assert_array_equal(library.run(inputs)["y"], want)
