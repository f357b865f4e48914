"""Dynamic axes get the extents that the operators of a network ask for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import sympy
from onnx import numpy_helper, parser

import byoc
from byoc.extent import Extent
from byoc.frontends.onnx.dynamic_axes import DynamicAxis
from byoc.frontends.onnx.learned_axes import learned, unequal
from codegen_cc.dim import Dim, above_zero, symbol
from tests.reference import assert_agrees, onnxruntime_outputs

P, S, T = map(symbol, "pst")
PIECES = sympy.floor(S / 20)

#: By name: pairs of extents, and what becomes of p, s and t.
LESSONS = {
    "a sum": ([(P + S, T)], ["p", "s", "p+s"]),
    "one name": ([(S, T)], ["p", "s", "s"]),
    "a number": ([(T, 4)], ["p", "s", 4]),
    "one after the other": ([(P, S), (P + S, T)], ["p", "p", "2*p"]),
    "twice the same": ([(2 * S, T), (T, 2 * S)], ["p", "s", "2*s"]),
    "longer": ([(PIECES - 1, above_zero(PIECES - 1))], ["p", "s+20", "t"]),
    "one of two is longer": (
        [(P * (S - 3), P * above_zero(S - 3))],
        ["p", "s+3", "t"],
    ),
    "longer, and longer": (
        [(S - 4, above_zero(S - 4)), (T, S), (S - 9, above_zero(S - 9))],
        ["p", "s+9", "s+9"],
    ),
    "halved": ([(2 * sympy.floor(T / 2), T)], ["p", "s", "2*t"]),
    "halved, and halved": (
        [(2 * sympy.floor(T / 2), T), (4 * sympy.floor(T / 4), T)],
        ["p", "s", "4*t"],
    ),
    "two are halved": (
        [(4 * sympy.floor((S + 1) / 2) * sympy.floor(T / 2), S * T)],
        ["p", "2*s", "2*t"],
    ),
    "rounded up": ([(2 * sympy.floor((T + 8) / 16), sympy.floor(T / 8))], ["p", "s", "16*t"]),
    "cut to another's": ([(T, T - above_zero(T - S))], ["p", "s", "s"]),
    "what a cut leaves": ([(S, above_zero(T - P))], ["p", "s", "p+s"]),
    "what a cut leaves, otherwise": ([(S, T - P + above_zero(P - T))], ["p", "s", "p+s"]),
    "equal already": ([(1, T), (S, S)], ["p", "s", "t"]),
    "never equal": ([(S, S + 1)], ["p", "s", "t"]),
    "no extent that users could write": ([(P * S, T)], ["p", "s", "t"]),
    "a number of frames": ([(17, sympy.floor((T - 5) / 4) + 1)], ["p", "s", 72]),
    "a slice of so many": ([(6, T - above_zero(T - 6))], ["p", "s", "t+6"]),
    "no such number": ([(17, 2 * sympy.floor(T / 4))], ["p", "s", "t"]),
    "two lengths, one number": ([(17, PIECES * sympy.floor(T / 4))], ["p", "s", "t"]),
    "of values": ([(symbol("count"), S - T)], ["p", "s", "t"]),
}


@pytest.mark.parametrize("lesson", LESSONS)
def test_extents(lesson: str) -> None:
    pairs, wanted = LESSONS[lesson]
    axes = tuple(
        DynamicAxis("x", place, Extent(name), meaning, True)
        for place, (name, meaning) in enumerate(zip("pst", ("past", "sequence", ""), strict=True))
    )
    assert [str(axis.extent) for axis in learned(axes, pairs)] == list(map(str, wanted))


@pytest.mark.parametrize(
    ("shapes", "wanted"),
    [
        ([(4, S), (1, S)], []),
        ([(T,), (4, S)], [(S, T)]),
        ([(P, 1), (S, T), (P, T)], [(P, S)]),
    ],
)
def test_what_does_not_broadcast(
    shapes: list[tuple[Dim, ...]], wanted: list[tuple[Dim, Dim]]
) -> None:
    assert unequal(shapes) == wanted


def test_one_library_for_all_sizes(tmp_path: Path) -> None:
    """Places that Tile repeats, a mask that is as long as both, a signal of 20 at least."""
    text = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[n, a] x, float[n, b] past, float[m, k] mask, float[n, l] sound) =>
      (float[n, q, r] y, float[n, v] z)
    <int64 zero = {0}, int64 one = {1}, int64[1] single = {1}, int64[1] first = {0},
     int64[1] steps = {20}, int64[1] all = {9223372036854775807}, int64[1] mid = {1}> {
        count = Shape <start = 1> (x)
        number = Squeeze (count)
        places = Range (zero, number, one)
        line = Unsqueeze (places, first)
        repeats = Concat <axis = 0> (count, single)
        grid = Tile (line, repeats)
        column = Unsqueeze (places, single)
        apart = Sub (column, grid)
        distance = Cast <to = 1> (apart)
        row = Unsqueeze (x, mid)
        y = Add (row, distance)
        whole = Concat <axis = 1> (past, x)
        masked = Mul (whole, mask)
        sum = ReduceSum <keepdims = 1> (masked, mid)
        tail = Slice (sound, steps, all, mid)
        length = Shape <start = 1> (sound)
        fewer = Sub (length, steps)
        none = Max (fewer, first)
        rows = Shape <end = 1> (sound)
        extents = Concat <axis = 0> (rows, none)
        like = ConstantOfShape (extents)
        tails = Add (tail, like)
        z = Add (tails, sum)
    }"""
    model = parser.parse_model(text)
    byoc.compile(model, tmp_path / "model.so")
    library = byoc.load(tmp_path / "model.so")
    rng = np.random.default_rng(0)
    for n, a, b, length in ((2, 3, 4, 30), (1, 5, 0, 21)):
        shapes = {"x": (n, a), "past": (n, b), "mask": (n, a + b), "sound": (n, length)}
        inputs = {name: rng.standard_normal(s).astype(np.float32) for name, s in shapes.items()}
        assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))


@pytest.mark.parametrize("places", [17, 12])
def test_an_image_is_as_large_as_its_table_of_places(places: int, tmp_path: Path) -> None:
    """Patches of 8 pixels and a first token; 12 are of no square image, and none is guessed."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    image (float[batch, channels, height, width] x) => (float[b, p, c] y) {
        patches = Conv <kernel_shape = [8, 8], strides = [8, 8]> (x, w)
        extents = Shape <end = 2> (patches)
        rest = Constant <value = int64[1] {-1}> ()
        shape = Concat <axis = 0> (extents, rest)
        lines = Reshape (patches, shape)
        rows = Transpose <perm = [0, 2, 1]> (lines)
        one = Constant <value = int64[1] {1}> ()
        n = Shape <end = 1> (patches)
        token_shape = Concat <axis = 0> (n, one, one)
        tokens = Expand (token, token_shape)
        whole = Concat <axis = 1> (tokens, rows)
        y = Add (whole, places)
    }"""
    model = parser.parse_model(text)
    rng = np.random.default_rng(0)
    for name, shape in (("w", (4, 3, 8, 8)), ("token", (1, 1, 4)), ("places", (1, places, 4))):
        array = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    if places != 17:
        with pytest.raises(byoc.ByocError):
            byoc.compile(model, tmp_path / "model.so")
        return
    assert len(byoc.compile(model, tmp_path / "model.so").report.regions) == 1
    library = byoc.load(tmp_path / "model.so")
    assert library.inputs[0].shape == ("batch", 3, 32, 32)
    for batch in (1, 3):
        feed = {"x": rng.standard_normal((batch, 3, 32, 32)).astype(np.float32)}
        assert_agrees(library.run(feed), onnxruntime_outputs(model, feed))


def test_both_sides_are_cut_in_pairs(tmp_path: Path) -> None:
    """Patches of 2 x 2, counted by rounding up: only even sides have as many pixels."""
    sides = "".join(
        f"""{s} = Shape <start = {axis}, end = {axis + 1}> (x)
        real_{s} = Cast <to = 1> ({s})
        half_{s} = Div (real_{s}, half)
        up_{s} = Ceil (half_{s})
        count_{s} = Cast <to = 7> (up_{s})
        """
        for s, axis in (("h", 2), ("w", 3))
    )
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
    patches (float[n, 4, rows, columns] x) => (float[a, b, c, d, e, f] y)
    <float half = {{2}}, int64[2] start = {{0, 4}}, int64[1] two = {{2}}> {{
        {sides}shape = Concat <axis = 0> (start, count_h, two, count_w, two)
        bent = Relu (x)
        split = Reshape (bent, shape)
        turned = Transpose <perm = [0, 1, 3, 5, 2, 4]> (split)
        y = Softmax (turned)
    }}"""
    )
    assert len(byoc.compile(model, tmp_path / "model.so").report.regions) == 1
    library = byoc.load(tmp_path / "model.so")
    assert library.inputs[0].shape == ("n", 4, "2*rows", "2*columns")
    for shape in ((2, 4, 6, 8), (1, 4, 2, 10)):
        feed = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
        assert_agrees(library.run(feed), onnxruntime_outputs(model, feed))


def test_one_name_of_several_lengths(tmp_path: Path) -> None:
    """The name becomes what the weight asks for on the input that meets it alone."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 13]>
        lengths (float[batch, rows, width] f, int64[batch, rows, width] d) => (float[b, r, c] y)
        <float[16, 4] w, float[9, 4] t, int64 two = {2}>
        {
            a = MatMul(f, w)
            i = Gather<axis = 2>(d, two)
            e = Gather<axis = 0>(t, i)
            y = Add(a, e)
        }"""
    )
    rng = np.random.default_rng(1)
    for name, shape in (("w", (16, 4)), ("t", (9, 4))):
        values = numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
        model.graph.initializer.append(values)
    byoc.compile(model, tmp_path / "m.so")
    loaded = byoc.load(tmp_path / "m.so")
    assert [info.shape[:2] for info in loaded.inputs] == [("batch", "rows")] * 2
    assert loaded.inputs[0].shape[2] == 16 and isinstance(loaded.inputs[1].shape[2], str)
    for width in (8, 16):
        feeds = {
            "f": rng.normal(size=(2, 5, 16)).astype(np.float32),
            "d": rng.integers(0, 9, (2, 5, width)),
        }
        assert_agrees(loaded.run(feeds), onnxruntime_outputs(model, feeds))


@pytest.mark.slow
def test_what_comes_after_axes_that_differ_is_seen_as_well(tmp_path: Path) -> None:
    """Caches of many layers, without names: each layer tells that its two are equally long."""
    layers = range(8)
    values = [f"float[batch, k{i}, 4] key{i}, float[batch, v{i}, 4] value{i}" for i in layers]
    lines = ["h0 = Exp (q)"]
    for i in layers:
        lines += [
            f"e{i} = Mul (key{i}, scale)",
            f"t{i} = Transpose <perm = [0, 2, 1]> (e{i})",
            f"p{i} = MatMul (h{i}, t{i})",
            f"s{i} = Softmax <axis = -1> (p{i})",
            f"u{i} = MatMul (s{i}, value{i})",
            f"a{i} = Add (key{i}, value{i})",
            f"m{i} = ReduceMean <axes = [1], keepdims = 1> (a{i})",
            f"n{i} = Add (u{i}, m{i})",
            f"h{i + 1} = Add (h{i}, n{i})",
        ]
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[batch, n, 4] q, {", ".join(values)}) => (float[b, m, 4] h8)
        <float scale = {{0.5}}> {{ {chr(10).join(lines)} }}"""
    )
    report = byoc.compile(model, tmp_path / "m.so").report
    assert len(report.regions) == 1 and not report.left, report.summary()
    library = byoc.load(tmp_path / "m.so")
    shapes = {info.name: info.shape for info in library.inputs}
    assert all(shapes[f"key{i}"] == shapes[f"value{i}"] for i in layers)
    assert len({shapes[f"key{i}"][1] for i in layers}) == len(layers)
    rng = np.random.default_rng(2)
    for batch, n, first in ((1, 3, 2), (2, 1, 5)):
        feeds = {"q": rng.normal(size=(batch, n, 4))}
        for i in layers:
            for name in ("key", "value"):
                feeds[f"{name}{i}"] = rng.normal(size=(batch, first + i, 4))
        inputs = {name: value.astype(np.float32) for name, value in feeds.items()}
        assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))


def test_a_root_of_so_many_patches_makes_an_image_square(tmp_path: Path) -> None:
    """As a depth network turns a sequence of patches into an image again."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    image (float[batch, 3, height, width] x) => (float[a, b, c, d] y) {
        patches = Conv <kernel_shape = [8, 8], strides = [8, 8]> (x, w)
        extents = Shape <end = 2> (patches)
        rest = Constant <value = int64[1] {-1}> ()
        shape = Concat <axis = 0> (extents, rest)
        lines = Reshape (patches, shape)
        count = Shape <start = 2> (lines)
        number = Cast <to = 1> (count)
        half = Constant <value = float[1] {0.5}> ()
        root = Pow (number, half)
        side = Cast <to = 7> (root)
        sides = Concat <axis = 0> (extents, side, side)
        square = Reshape (lines, sides)
        small = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (square, v)
        scales = Constant <value = float[4] {1.0, 1.0, 2.0, 2.0}> ()
        large = Resize (small, , scales)
        y = Add (square, large)
    }"""
    model = parser.parse_model(text)
    rng = np.random.default_rng(0)
    for name, shape in (("w", (4, 3, 8, 8)), ("v", (4, 4, 3, 3))):
        array = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    compiled = byoc.compile(model, tmp_path / "model.so")
    assert len(compiled.report.regions) == 1 and not compiled.report.left
    library = byoc.load(tmp_path / "model.so")
    assert library.inputs[0].shape == ("batch", 3, "16*height", "16*height")
    for n, size in ((1, 16), (2, 48)):
        x = rng.standard_normal((n, 3, size, size)).astype(np.float32)
        assert_agrees(library.run({"x": x}), onnxruntime_outputs(model, {"x": x}))


def test_places_behind_those_of_the_past(tmp_path: Path) -> None:
    """A mask of all counts the places, as in OPT: those of new rows are as many as these."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[b, s, 2] x, int64[b, t] mask, float[b, p, 2] past) => (float[b, s, 2] y)
        <int64[1] one = {1}, int64[1] end = {9223372036854775807}, int64 axis = {1},
         int64[1] two = {2}> {
            counted = CumSum(mask, axis)
            rows = Shape<start = 1, end = 2>(past)
            new = Slice(counted, rows, end, one)
            places = Cast<to = 1>(new)
            wide = Unsqueeze(places, two)
            y = Add(x, wide)
        }""")
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    assert made.metadata.inputs[1].shape == ("b", "s+p")
    with byoc.load(made.path) as library:
        for batch, past, rows in ((2, 3, 4), (1, 1, 1), (3, 5, 2)):
            rng = np.random.default_rng(past)
            inputs = {
                "x": rng.standard_normal((batch, rows, 2), np.float32),
                "mask": rng.integers(0, 2, (batch, past + rows)),
                "past": np.zeros((batch, past, 2), np.float32),
            }
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))
