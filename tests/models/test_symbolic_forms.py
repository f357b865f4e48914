"""Forms of operators that are right, or refused by name, beside symbolic axes."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import byoc
from byoc.compiler.partition import partition_with_report
from byoc.errors import ByocError, RunError
from byoc.frontends.onnx import import_onnx, prepare
from byoc.frontends.onnx.symbolic_resize import fraction_of
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


LINES = {
    "scales": (13, "float[3] s = {1, 1, 2}", 'Resize<mode = "%s">(x, , s)'),
    "one scale": (18, "float[1] s = {2}", 'Resize<mode = "%s", axes = [-1]>(x, , s)'),
    "Upsample": (9, "float[3] s = {1, 1, 2}", 'Upsample<mode = "%s">(x, s)'),
    "opset 10": (10, "float[3] s = {1, 1, 2}", 'Resize<mode = "%s">(x, s)'),
}


@pytest.mark.parametrize("form", LINES)
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_lines_of_any_length_are_resized(form: str, mode: str, tmp_path: Path) -> None:
    """What follows has to know that the result is twice as long, here the addition."""
    opset, scales, node = LINES[form]
    model = _model(
        opset,
        f"(float[b,4,t] x) => (float[] y) <{scales}, float[4,4,2] w = {{{_numbers(32)}}}>"
        f"{{ u = {node % mode} v = ConvTranspose<strides = [2]>(x, w) y = Add(u, v) }}",
    )
    made = byoc.compile(model, tmp_path / "m.so", {"x": ["b", 4, "t"]}, min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    library = byoc.load(tmp_path / "m.so")
    for batch, length in ((1, 7), (3, 1), (2, 65)):
        x = np.random.default_rng(length).random((batch, 4, length), "float32")
        want = onnxruntime_outputs(model, {"x": x})["y"]
        np.testing.assert_allclose(library.run({"x": x})["y"], want, rtol=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_images_become_as_large_as_others(mode: str, tmp_path: Path) -> None:
    """As PyTorch wrote ``interpolate`` to a size for opset 9: the scales are quotients of sizes."""
    model = _model(
        9,
        "(float[n,3,h,w] x) => (float[n,3,h,w] y) <float[2] ones = {1, 1}> {"
        " p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)"
        " from = Shape(x) to = Slice<axes = [0], starts = [2], ends = [4]>(from)"
        " small = Shape(p) now = Slice<axes = [0], starts = [2], ends = [4]>(small)"
        " a = Cast<to = 1>(to) b = Cast<to = 1>(now) ratio = Div(a, b)"
        " scales = Concat<axis = 0>(ones, ratio)"
        f' u = Upsample<mode = "{mode}">(p, scales) y = Add(u, x) }}',
    )
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    library = byoc.load(tmp_path / "m.so")
    for shape in ((1, 3, 8, 8), (2, 3, 6, 14), (1, 3, 16, 2)):
        x = np.random.default_rng(shape[2]).random(shape, "float32")
        want = onnxruntime_outputs(model, {"x": x})["y"]
        np.testing.assert_allclose(library.run({"x": x})["y"], want, rtol=1e-5)


def test_lines_as_long_as_others(tmp_path: Path) -> None:
    model = _model(
        13,
        "(float[2,4,t] x, float[2,4,s] z) => (float[] y)"
        "{ l = Shape(z) u = Resize(x, , , l) y = Mul(u, z) }",
    )
    shapes = {"x": [2, 4, "t"], "z": [2, 4, "s"]}
    made = byoc.compile(model, tmp_path / "m.so", shapes, min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    library = byoc.load(tmp_path / "m.so")
    for length, other in ((7, 14), (3, 30), (12, 4)):
        draw = np.random.default_rng(length)
        feeds = {k: draw.random((2, 4, n), "float32") for k, n in (("x", length), ("z", other))}
        want = onnxruntime_outputs(model, feeds)["y"]
        np.testing.assert_array_equal(library.run(feeds)["y"], want)


@pytest.mark.parametrize("image", [False, True])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_scales_that_fp32_rounded(mode: str, image: bool, tmp_path: Path) -> None:
    """Up by 300 and down by 1/300, as networks do that make a voice of sines."""
    shape = [1, 2, *([1] if image else []), "t"]
    ones = ", ".join(["1"] * (len(shape) - 1))
    model = _model(
        18,
        f"(float[{','.join(map(str, shape))}] x) => (float[] y)"
        f" <float[{len(shape)}] up = {{{ones}, 300}},"
        f" float[{len(shape)}] down = {{{ones}, {1 / 300}}}>"
        '{ u = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric",'
        f' nearest_mode = "floor">(x, , up) v = Resize<mode = "{mode}">(u, , down)'
        " y = Add(v, x) }",
    )
    made = byoc.compile(model, tmp_path / "m.so", {"x": shape}, min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    library = byoc.load(tmp_path / "m.so")
    for length in (1, 9, 100):
        x = np.random.default_rng(length).random((*shape[:-1], length), "float32")
        want = onnxruntime_outputs(model, {"x": x})["y"]
        np.testing.assert_allclose(library.run({"x": x})["y"], want, rtol=1e-5)


def test_fractions_that_scales_stand_for() -> None:
    """They give what fp32's products give, rounded down, and sizes whose ratio is the scale."""
    taken = 0
    for below in range(2, 1025):
        for above in (1, 2, 7):
            scale = np.float32(above / below)
            found = fraction_of(float(scale))
            if found == Fraction(float(scale)) and found.denominator > 1024:
                continue
            taken += 1
            assert found == Fraction(above, below)
            times = np.arange(1, 2**23 // (below * above) + 1, 7)
            small, large = (times * n for n in (found.numerator, found.denominator))
            np.testing.assert_array_equal((scale * large.astype("f4")).astype("i8"), small)
            np.testing.assert_array_equal(small.astype("f4") / large.astype("f4"), scale)
    assert taken > 1500
    assert fraction_of(0.5) == Fraction(1, 2) and fraction_of(0.0) == 0


def _numbers(count: int) -> str:
    return ", ".join(f"{value:.3f}" for value in np.random.default_rng(count).random(count))


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


@pytest.mark.parametrize(("mode", "shortest"), [("reflect", 3), ("edge", 1), ("wrap", 1)])
def test_an_axis_too_short_to_pad_is_named(mode: str, shortest: int, tmp_path: Path) -> None:
    # Large constant extents, so that the region is worth its call.
    model = _model(
        19,
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
        r"ConvTranspose pairs c and 2 elements",
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
        r"RMSNormalization pairs c and k elements",
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


@pytest.mark.parametrize("scale", [20 / 3, 4 / 3, 2 / 5])
@pytest.mark.parametrize("axes", ["n,2,s", "n,2,h,w"])
def test_open_axes_are_multiples_of_what_a_scale_is_divided_by(
    axes: str, scale: float, tmp_path: Path
) -> None:
    """Three pixels become 20; nobody is asked for it."""
    rank = axes.count(",") + 1
    scales = ", ".join(["1"] * 2 + [str(float(np.float32(scale)))] * (rank - 2))
    model = _model(
        17,
        f"(float[{axes}] x) => (float[] y) <float[{rank}] s = {{{scales}}}>"
        ' { y = Resize<mode = "linear">(x, , s) }',
    )
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert len(report.regions) == 1 and not report.left
    library = byoc.load(tmp_path / "m.so")
    for n, size in ((1, 15), (2, 60)):
        x = np.random.default_rng(size).random((n, 2) + (size,) * (rank - 2), "float32")
        want = onnxruntime_outputs(model, {"x": x})["y"]
        np.testing.assert_allclose(library.run({"x": x})["y"], want, atol=1e-6)


def test_numbers_are_padded_beside_open_axes(tmp_path: Path) -> None:
    """As the ids of blocks of a sentence, with ids that are none before and behind."""
    model = _model(
        17,
        "(int64[n,s] x, float[9,4] table) => (float[n,k,4] y)"
        "<int64[4] pads = {0, 1, 0, 2}, int64 fill = {-1}, int64 one = {1}>"
        "{ wide = Pad(x, pads, fill) rows = Add(wide, one) y = Gather(table, rows) }",
    )
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert len(report.regions) == 1 and not report.left
    library = byoc.load(tmp_path / "m.so")
    rng = np.random.default_rng(0)
    for n, length in ((1, 1), (3, 7)):
        inputs = {"x": rng.integers(0, 8, (n, length)), "table": rng.random((9, 4), np.float32)}
        want = onnxruntime_outputs(model, inputs)["y"]
        np.testing.assert_array_equal(library.run(inputs)["y"], want)


def test_an_extent_is_divided_though_smaller_inputs_would_have_none(tmp_path: Path) -> None:
    """Windows of 40 samples, two by two: 20 samples have -1 windows, but such calls are refused."""
    model = _model(
        17,
        "(float[n,1,s] x) => (float[n,k,2] y)"
        f"<float[2,1,40] w = {{{_numbers(80)}}}, int64[1] two = {{2}}, int64[1] middle = {{1}}>"
        """{
          windows = Conv <strides = [20]> (x, w)
          rows = Transpose <perm = [0, 2, 1]> (windows)
          count = Shape <start = 1, end = 2> (rows)
          pairs = Div (count, two)
          batch = Shape <end = 1> (x)
          shape = Concat <axis = 0> (batch, pairs, middle)
          zeros = ConstantOfShape (shape)
          sum = ReduceSum <keepdims = 1> (rows, middle)
          y = Add (zeros, sum)
        }""",
    )
    report = byoc.compile(model, tmp_path / "m.so").report
    assert len(report.regions) == 1 and not report.left
    library = byoc.load(tmp_path / "m.so")
    for n, length in ((1, 60), (2, 83), (3, 100)):
        x = np.random.default_rng(length).standard_normal((n, 1, length)).astype("float32")
        want = onnxruntime_outputs(model, {"x": x})["y"]
        np.testing.assert_allclose(library.run({"x": x})["y"], want, rtol=1e-5, atol=1e-5)
    with pytest.raises(RunError):
        library.run({"x": np.zeros((1, 1, 10), np.float32)})


@pytest.mark.parametrize("widths", [[0, 3, 1, 0, 8, 6], [0, 0, 0, 0, 0, 2], [0, 0, 1, 0, 0, 0]])
def test_pad_around(widths: list[int], tmp_path: Path) -> None:
    """Circular padding of fixed axes beside an open one."""
    listed = ", ".join(map(str, widths))
    model = _model(
        19,
        f"(float[n,8,6] x) => (float[n,a,b] y) <int64[6] p = {{{listed}}}> "
        '{ r = Abs(x) z = Pad<mode = "wrap">(r, p) y = Exp(z) }',
    )
    report = byoc.compile(model, tmp_path / "m.so", {"x": ["n", 8, 6]}, min_bytes=0).report
    assert report.left == () and len(report.regions) == 1
    library = byoc.load(tmp_path / "m.so")
    for size in (1, 3):
        x = np.random.default_rng(size).standard_normal((size, 8, 6), "float32")
        want = onnxruntime_outputs(model, {"x": x})["y"]
        np.testing.assert_allclose(library.run({"x": x})["y"], want, 1e-5)


@pytest.mark.parametrize("opset", [16, 17])
@pytest.mark.parametrize(("reduction", "axis"), [("max", 0), ("min", 1), ("max", -1)])
def test_extremes_are_scattered_before_opset_18(
    reduction: str, axis: int, opset: int, tmp_path: Path
) -> None:
    # Exporters of PyTorch write them, and ONNX Runtime runs them.
    model = _model(
        opset,
        "(float[n,4] x, int64[e,4] i, float[e,4] u) => (float[n,4] y)"
        "<float[4,4] w = {1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2}>"
        "{ a = MatMul(x, w) b = MatMul(u, w)"
        f' y = ScatterElements<axis = {axis}, reduction = "{reduction}">(a, i, b) }}',
    )
    report = byoc.compile(model, tmp_path / "m.so").report
    assert report.left == ()
    assert len(report.regions) == 1
    library = byoc.load(tmp_path / "m.so")
    rng = np.random.default_rng(0)
    for n, e in ((3, 7), (2, 1), (5, 0)) if axis == 0 else ((7, 7), (1, 1)):
        extent = n if axis == 0 else 4
        inputs = {
            "x": rng.standard_normal((n, 4), np.float32),
            "i": rng.integers(-extent, extent, (e, 4)),
            "u": rng.standard_normal((e, 4), np.float32),
        }
        want = onnxruntime_outputs(model, inputs)["y"]
        np.testing.assert_allclose(library.run(inputs)["y"], want, rtol=1e-5, atol=1e-5)
