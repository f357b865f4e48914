"""Parts of open axes: slices, rolls and shifted windows are one region at every size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import byoc
from tests.reference import onnxruntime_outputs

#: Longer axes than the bounds below, as long, shorter, and none.
SIZES = (0, 1, 2, 3, 4, 5, 9)

END = 2**62

#: What TVM's importer computes of the height ``t`` below, to roll an axis by these.
ROLLED = """
    size = Shape<start = 1, end = 2>(first)
    place = Mod(shift, size)
    head = Slice(first, zero, place, one)
    tail = Slice(first, place, size, one)
    taken = Concat<axis = 1>(tail, head)
"""


def _model(nodes: str, constants: str, shape: str = "n, t, 8") -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> g (float[{shape}] x) => (float[n, k, 8] y)'
        f"<float[8, 8] w = {{{', '.join(map(str, rng.uniform(-1, 1, 64)))}}},"
        f" int64[1] zero = {{0}}, int64[1] one = {{1}}, {constants}>"
        f"{{ first = MatMul(x, w) {nodes} right = Relu(taken) y = MatMul(right, w) }}"
    )


def _check(model: onnx.ModelProto, tmp_path: Path, shapes: list[tuple[int, ...]]) -> None:
    report = byoc.compile(model, tmp_path / "m.so").report
    assert len(report.regions) == 1
    assert report.left == ()
    library = byoc.load(tmp_path / "m.so")
    for shape in shapes:
        x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
        want = onnxruntime_outputs(model, {"x": x})["y"]
        np.testing.assert_allclose(library.run({"x": x})["y"], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("begin", "end", "step"),
    [(1, 4, 1), (2, END, 1), (2, -1, 1), (-4, -1, 1), (3, 5, 1), (1, 6, 2), (3, 1, -1)],
)
def test_slices_of_axes_that_may_be_shorter(
    begin: int, end: int, step: int, tmp_path: Path
) -> None:
    constants = f"int64[1] b = {{{begin}}}, int64[1] e = {{{end}}}, int64[1] s = {{{step}}}"
    model = _model("taken = Slice(first, b, e, one, s)", constants)
    _check(model, tmp_path, [(2, t, 8) for t in SIZES])


def test_both_parts_of_a_cut_axis_make_the_whole(tmp_path: Path) -> None:
    nodes = """
        head = Slice(first, zero, three, one)
        tail = Slice(first, three, end, one)
        joined = Concat<axis = 1>(tail, head)
        taken = Add(joined, first)
    """
    constants = f"int64[1] three = {{3}}, int64[1] end = {{{END}}}"
    _check(_model(nodes, constants), tmp_path, [(2, t, 8) for t in SIZES])


@pytest.mark.parametrize("shift", [2, -3])
def test_rolls_by_remainders(shift: int, tmp_path: Path) -> None:
    model = _model(ROLLED, f"int64[1] shift = {{{shift}}}")
    _check(model, tmp_path, [(2, t, 8) for t in SIZES if t])
    nothing = np.zeros((2, 0, 8), "float32")  # ONNX Runtime divides by 0
    assert byoc.load(tmp_path / "m.so").run({"x": nothing})["y"].shape == (2, 0, 8)


@pytest.mark.parametrize("shift", [2, -2])
def test_rolls_of_axes_that_were_padded_to_whole_windows(shift: int, tmp_path: Path) -> None:
    nodes = f"""
        given = Shape<start = 1, end = 2>(x)
        over = Mod(given, four)
        rest = Sub(four, over)
        more = Mod(rest, four)
        pads = Concat<axis = 0>(zero, zero, zero, zero, more, zero)
        padded = Pad(first, pads)
        {ROLLED.replace("first", "padded").replace("taken", "rolled")}
        taken = Slice(rolled, zero, given, one)
    """
    model = _model(nodes, f"int64[1] four = {{4}}, int64[1] shift = {{{shift}}}")
    _check(model, tmp_path, [(2, t, 8) for t in SIZES if t])


@pytest.mark.slow
def test_a_part_of_an_open_axis_in_another_shape(tmp_path: Path) -> None:
    """The slice has an extent that no shape provably divides: it is copied, and read anew."""
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[8, t, 2, 6] x) => (float[r, 6, 2] y)'
        "<int64[1] b = {-3}, int64[1] e = {4}, int64[1] a = {-3}, int64[1] s = {3},"
        " int64[3] shape = {-1, 6, 2}>"
        "{ above = Relu(x) taken = Slice(above, b, e, a, s) y = Reshape(taken, shape) }"
    )
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert len(report.regions) == 1 and report.left == ()
    library = byoc.load(tmp_path / "m.so")
    for size in SIZES[1:]:
        x = np.random.default_rng(1).standard_normal((8, size, 2, 6), dtype=np.float32)
        want = onnxruntime_outputs(model, {"x": x})["y"]
        np.testing.assert_array_equal(library.run({"x": x})["y"], want)


def test_the_last_rows_of_a_table(tmp_path: Path) -> None:
    """As of ALiBi's biases: as many as the axis is long, which may not be 0, as -0 is all."""
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[2, n] x) => (float[2, n] y)'
        f"<float[9] table = {{{', '.join(map(str, range(9)))}}},"
        f" int64[1] zero = {{0}}, int64[1] end = {{{END}}}>"
        """{
            size = Shape<start = 1, end = 2>(x)
            begin = Neg(size)
            rows = Slice(table, begin, end, zero)
            y = Add(x, rows)
        }"""
    )
    _check(model, tmp_path, [(2, n) for n in (1, 4, 9)])
    library = byoc.load(tmp_path / "m.so")
    for n, told in ((0, "n is 0 and must be 1 or more"), (10, "extent 9 - n")):
        with pytest.raises(byoc.ByocError, match=told):
            library.run({"x": np.zeros((2, n), np.float32)})


@pytest.mark.slow
def test_rows_of_a_table_up_to_a_place_from_its_end(tmp_path: Path) -> None:
    """What begins the nearer to the front, the longer the axis is, may end so: 5 - n to -n."""
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[2, n] x) => (float[r] y)'
        f"<float[10] table = {{{', '.join(map(str, range(10)))}}},"
        " int64[1] zero = {0}, int64[1] five = {5}>"
        """{
            size = Shape<start = 1, end = 2>(x)
            begin = Sub(five, size)
            end = Neg(size)
            rows = Slice(table, begin, end, zero)
            y = Mul(rows, rows)
        }"""
    )
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert len(report.regions) == 1 and report.left == ()
    library = byoc.load(tmp_path / "m.so")
    for n in (1, 3, 5, 6, 9, 20):
        feeds = {"x": np.zeros((2, n), np.float32)}
        want = onnxruntime_outputs(model, feeds)["y"]
        np.testing.assert_array_equal(library.run(feeds)["y"], want)


@pytest.mark.slow
def test_sounds_in_the_middle_of_a_known_length(tmp_path: Path) -> None:
    """Padded to 12 on both sides, and cut to their length again, as Demucs has its segment."""
    nodes = """
        size = Shape<start = 1, end = 2>(first)
        room = Sub(twelve, size)
        before = Div(room, two)
        after = Sub(room, before)
        pads = Concat<axis = 0>(zero, before, zero, zero, after, zero)
        padded = Pad(first, pads)
        more = Relu(padded)
        end = Neg(after)
        taken = Slice(more, before, end, one)
    """
    model = _model(nodes, "int64[1] twelve = {12}, int64[1] two = {2}")
    _check(model, tmp_path, [(2, t, 8) for t in (1, 2, 5, 6, 11, 12, 13, 15)])
