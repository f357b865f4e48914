"""Axes that an ONNX file leaves open and that its operators fix, and those that may not be 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import byoc
from byoc.frontends.onnx import import_onnx, prepare
from byoc.frontends.onnx.named_import import ranges_of
from tests.reference import assert_agrees, onnxruntime_outputs

DECLARED = """
<ir_version: 8, opset_import: ["" : 18]>
net (float[frames, bins] x) => (float[%s] y)
"""
SUMS = {
    "product": """
    float[48, 6] w = {%s}
    {y = MatMul(x, w)}""",
    "gemm": """
    float[6, 48] w = {%s}
    {y = Gemm<transB = 1>(x, w)}""",
    "convolution": """
    float[6, 48, 1] w = {%s}
    int64[1] first = {0}
    int64[1] last = {2}
    {
      wide = Unsqueeze(x, last)
      z = Conv(wide, w)
      y = Squeeze(z, last)
    }""",
    "recurrent": """
    float[1, 6, 48] w = {%s}
    float[1, 6, 6] r = {%s}
    int64[1] one = {1}
    int64[2] both = {1, 2}
    {
      steps = Unsqueeze(x, one)
      z = RNN<hidden_size = 6>(steps, w, r)
      y = Squeeze(z, both)
    }""",
}


def numbers(count: int, seed: int) -> str:
    drawn = np.random.default_rng(seed).standard_normal(count) / 8
    return ", ".join(f"{value:.6f}" for value in drawn)


def model_of(text: str, result: str, *counts: int) -> onnx.ModelProto:
    values = tuple(numbers(count, seed) for seed, count in enumerate(counts))
    head, _, body = (DECLARED % result + text % values).partition("\n    {")
    lines = [line.strip() for line in head.splitlines()]
    weights = [line for line in lines if " = {" in line]
    signature = "\n".join(line for line in lines if " = {" not in line)
    listed = f"<{', '.join(weights)}>" if weights else ""
    return onnx.parser.parse_model(f"{signature} {listed}\n{{{body}")


@pytest.mark.parametrize("kind", SUMS)
def test_what_is_summed_over_is_no_choice(kind: str, tmp_path: Path) -> None:
    """The file calls an axis ``bins``; a weight says that it is 48."""
    counts = (288, 36) if kind == "recurrent" else (288,)
    model = model_of(SUMS[kind], "frames, 6", *counts)
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert [info.shape[1] for info in made.metadata.inputs] == [48]
    assert made.report.offloaded_macs == made.report.macs
    net = byoc.load(made.path)
    for frames in (1, 7):
        x = np.random.default_rng(frames).standard_normal((frames, 48), np.float32)
        assert_agrees(net.run({"x": x}), onnxruntime_outputs(model, {"x": x}))
    with pytest.raises(byoc.InputError, match=r"need .*48"):
        net.run({"x": np.zeros((3, 512), np.float32)})


SQUEEZE = """
    float[48, 1] w = {%s}
    {
      z = MatMul(x, w)
      y = Squeeze(z)
    }"""


def test_a_squeeze_of_what_is_1_may_not_meet_another_1(tmp_path: Path) -> None:
    """Of one frame the result would have no axis at all."""
    model = model_of(SQUEEZE, "frames", 48)
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    net = byoc.load(made.path)
    for frames in (2, 5):
        x = np.random.default_rng(frames).standard_normal((frames, 48), np.float32)
        assert_agrees(net.run({"x": x}), onnxruntime_outputs(model, {"x": x}))
    with pytest.raises(byoc.InputError, match="frames is 1 and must be 2 or more"):
        net.run({"x": np.zeros((1, 48), np.float32)})
    assert byoc.verify(model, made.path).holds
    fixed = byoc.compile(model, tmp_path / "one.so", {"x": [1, 48]}, min_bytes=0)
    x = np.ones((1, 48), np.float32)
    assert_agrees(byoc.load(fixed.path).run({"x": x}), onnxruntime_outputs(model, {"x": x}))


@pytest.mark.parametrize("declared", ["t", "t, 6"])
def test_steps_of_time_without_a_name_are_no_batch_of_1(declared: str, tmp_path: Path) -> None:
    """The first axis of a matrix that nobody named stays open where a squeeze may not meet a 1."""
    text = """
    <ir_version: 8, opset_import: ["" : 18]>
    net (float[input_dim_0, input_dim_1] x) => (float[%s] y)
    <float[1, 6, 48] w = {%s}, float[1, 6, 6] r = {%s}, int64[1] one = {1}>
    {
      steps = Unsqueeze(x, one)
      z = RNN<hidden_size = 6>(steps, w, r)
      y = Squeeze(z)
    }"""
    model = onnx.parser.parse_model(text % (declared, numbers(288, 0), numbers(36, 1)))
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    net = byoc.load(made.path)
    for steps in (2, 9):
        x = np.random.default_rng(steps).standard_normal((steps, 48), np.float32)
        assert_agrees(net.run({"x": x}), onnxruntime_outputs(model, {"x": x}))
    with pytest.raises(byoc.InputError, match="is 1 and must be 2 or more"):
        net.run({"x": np.zeros((1, 48), np.float32)})


def test_a_batch_that_a_squeeze_may_drop_is_1(tmp_path: Path) -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 18]>
    net (float[batch, 48] x) => (float[%s] y)
    <float[48, 6] w = {%s}> { z = MatMul(x, w) y = Squeeze(z) }"""
    one, several = (
        byoc.compile(
            onnx.parser.parse_model(text % (declared, numbers(288, 0))),
            tmp_path / f"{len(declared)}.so",
            min_bytes=0,
        )
        for declared in ("n", "n, m")
    )
    assert [info.shape for info in one.metadata.inputs] == [(1, 48)]
    assert [info.shape for info in several.metadata.inputs] == [("batch", 48)]


CUT = """
    float[48, 1] w = {%s}
    int64[1] ends = {-3}
    int64[1] first = {0}
    {
      less = Slice(x, first, ends, first)
      z = MatMul(less, w)
      y = Squeeze(z)
    }"""


def test_a_squeeze_of_a_computed_extent_is_what_the_file_declares(tmp_path: Path) -> None:
    model = model_of(CUT, "less", 48)
    made = byoc.compile(model, tmp_path / "m.so", {"x": ["frames", 48]}, min_bytes=0)
    net = byoc.load(made.path)
    for frames in (5, 9):
        x = np.random.default_rng(frames).standard_normal((frames, 48), np.float32)
        assert_agrees(net.run({"x": x}), onnxruntime_outputs(model, {"x": x}))
    assert net.run({"x": np.ones((4, 48), np.float32)})["y"].shape == (1,)


LAST = """
    <ir_version: 9, opset_import: ["" : 20]>
    net (int64[1, tokens] ids, float[past, 1, 4] keys) => (float[more, 1, 4] present, float[t] y)
    <float[6, 4] w = {%s}, int64[1] last = {-1}, int64[1] end = {9223372036854775807},
     int64[1] one = {1}>
    {
      newest = Slice(ids, last, end, one)
      key = Gather(w, newest)
      present = Concat<axis = 0>(keys, key)
      flat = Squeeze(ids)
      halves = Cast<to = 1>(flat)
      y = Exp(halves)
    }"""


def test_a_squeeze_of_one_element_and_more_asks_for_that_more(tmp_path: Path) -> None:
    """The last token is taken apart, so that there has to be one; a squeeze needs two."""
    model = onnx.parser.parse_model(LAST % numbers(24, 0))
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert [info.shape[:2] for info in made.metadata.inputs] == [(1, "tokens+1"), ("past", 1)]
    assert len(made.report.regions) == 1 and not made.report.left
    net = byoc.load(made.path)
    for tokens, past in ((2, 3), (7, 0), (3, 1)):
        feeds = {
            "ids": np.arange(tokens)[None] % 6,
            "keys": np.full((past, 1, 4), 0.5, np.float32),
        }
        assert_agrees(net.run(feeds), onnxruntime_outputs(model, feeds))
    with pytest.raises(byoc.InputError, match="tokens is 0 and must be 1 or more"):
        net.run({"ids": np.zeros((1, 1), np.int64), "keys": np.zeros((1, 1, 4), np.float32)})


@pytest.mark.parametrize(
    ("extent", "least"),
    [("n", {"n": 2}), ("n+1", {"n": 1}), ("2*n", {"n": 1}), ("n+2", {}), ("32*n+16", {})],
)
def test_what_an_open_axis_has_to_be_that_is_not_dropped(extent: str, least: dict) -> None:
    text = '<ir_version: 9, opset_import: ["" : 20]> net (float[1, n] x) => (float[t] y)'
    model = onnx.parser.parse_model(text + "{y = Squeeze(x)}")
    prepared = prepare(model, {"x": [1, extent]})
    found = ranges_of(import_onnx(prepared))
    assert {declared.name: declared.least for declared in found} == least


def test_what_windows_leave_is_not_dropped_either(tmp_path: Path) -> None:
    """From 15 steps on; ONNX Runtime would drop the axis of 14, and has nothing for 13."""
    text = f"""
    <ir_version: 8, opset_import: ["" : 18]>
    net (float[1, 3, steps] x) => (float[t] y)
    <float[4, 3, 5] w = {{{numbers(60, 0)}}}, float[2, 4, 6] v = {{{numbers(48, 1)}}}>
    {{
      z = Conv(x, w)
      pooled = MaxPool<kernel_shape = [2], strides = [1]>(z)
      s = Conv<dilations = [2]>(pooled, v)
      y = Squeeze(s)
    }}"""
    model = onnx.parser.parse_model(text)
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    net = byoc.load(made.path)
    for steps in (17, 40):
        x = np.random.default_rng(steps).standard_normal((1, 3, steps), np.float32)
        assert_agrees(net.run({"x": x}), onnxruntime_outputs(model, {"x": x}))
    with pytest.raises(byoc.InputError, match="steps is 16 and must be 17 or more"):
        net.run({"x": np.zeros((1, 3, 16), np.float32)})


def test_pieces_side_by_side_of_what_windows_leave(tmp_path: Path) -> None:
    """Slices that all leave as many rows: in one region, also where that is none."""
    cuts = "\n".join(f"      p{place} = Slice(s, b{place}, e{place}, two)" for place in range(3))
    bounds = ", ".join(
        f"int64[1] b{place} = {{{place}}}, int64[1] e{place} = {{{place - 2 or 2**62}}}"
        for place in range(3)
    )
    text = f"""
    <ir_version: 8, opset_import: ["" : 18]>
    net (float[batch, 3] x) => (float[1, 12, t] y)
    <float[4, 3, 4] w = {{{numbers(48, 0)}}}, int64[1] zero = {{0}}, int64[1] two = {{2}}, {bounds}>
    {{
      turned = Transpose<perm = [1, 0]>(x)
      one = Unsqueeze(turned, zero)
      s = Conv(one, w)
{cuts}
      y = Concat<axis = 1>(p0, p1, p2)
    }}"""
    model = onnx.parser.parse_model(text)
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    net = byoc.load(made.path)
    for rows in (9, 6, 5, 4):
        x = np.random.default_rng(rows).standard_normal((rows, 3), np.float32)
        assert_agrees(net.run({"x": x}), onnxruntime_outputs(model, {"x": x}))


@pytest.mark.parametrize("axis", [0, 1])
def test_axes_of_any_length_read_backward(axis: int, tmp_path: Path) -> None:
    """Among what computes, in one region; also where there is nothing to read."""
    text = f"""
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[n, m, 3] x) => (float[n, m, 3] y)
    <int64[1] last = {{-1}}, int64[1] first = {{-2147483648}}, int64[1] axis = {{{axis}}},
     int64[1] down = {{-1}}>
    {{
      r = Relu(x)
      turned = Slice(r, last, first, axis, down)
      y = Exp(turned)
    }}"""
    model = onnx.parser.parse_model(text)
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    net = byoc.load(made.path)
    for shape in ((2, 1), (3, 7), (70, 65), (1, 1), (0, 4), (4, 0)):
        x = np.random.default_rng(sum(shape)).standard_normal((*shape, 3), np.float32)
        assert_agrees(net.run({"x": x}), onnxruntime_outputs(model, {"x": x}))


#: What one operator leaves of two open axes, beside a constant: the node, the constant, the shape.
FIXED = {
    "rows beside a constant": ("Concat<axis = 1>(x, w)", [2, 3], [2, "t"]),
    "columns above a constant": ("Concat<axis = 0>(x, w)", [2, 3], ["n", 3]),
    "one row beside a constant": ("Concat<axis = 1>(x, w)", [1, 3], [1, "t"]),
    "a sum over one": ("MatMul(x, w)", [1, 5], ["n", 1]),
    "a sum over the batch": ("MatMul(w, x)", [4, 2], [2, "t"]),
}


@pytest.mark.parametrize("case", FIXED)
def test_sizes_that_nothing_repeats(case: str, tmp_path: Path) -> None:
    """The axis that a constant tells has its size, also a batch or 1, and the other one is open."""
    node, extents, shape = FIXED[case]
    weight = numbers(extents[0] * extents[1], 3)
    text = (
        f'<ir_version: 8, opset_import: ["" : 18]> net (float[n, t] x) => (float[a, b] y)'
        f"<float[{extents[0]}, {extents[1]}] w = {{{weight}}}> {{ z = {node} y = Tanh(z) }}"
    )
    model = onnx.parser.parse_model(text)
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    net = byoc.load(made.path)
    assert list(net.inputs[0].shape) == shape
    for size in (1, 4, 7):
        given = [extent if isinstance(extent, int) else size for extent in shape]
        x = np.random.default_rng(size).standard_normal(given, np.float32)
        assert_agrees(net.run({"x": x}), onnxruntime_outputs(model, {"x": x}))


def test_multiples_fit_a_grid_of_one_size(tmp_path: Path) -> None:
    """The file says 32*h, and adds a grid that was made for one image, as YOLOv5's head has it."""
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[b, 3, h, w] x) => (float[b, 3, k] y)'
        "<int64[3] shape = {0, 3, -1}> {"
        "  small = AveragePool<kernel_shape = [8, 8], strides = [8, 8]>(x)"
        "  placed = Add(small, grid)"
        "  y = Reshape(placed, shape)"
        "}"
    )
    grid = np.random.default_rng(0).standard_normal((1, 3, 8, 4), dtype=np.float32)
    model.graph.initializer.append(numpy_helper.from_array(grid, "grid"))
    for place, name in ((2, "32*h"), (3, "16*w")):
        model.graph.input[0].type.tensor_type.shape.dim[place].dim_param = name
    done = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(done.report.regions) == 1 and done.report.left == ()
    assert done.metadata.inputs[0].shape == ("b", 3, 64, 32)
    x = np.random.default_rng(1).standard_normal((2, 3, 64, 32), dtype=np.float32)
    want = onnxruntime_outputs(model, {"x": x})["y"]
    found = byoc.load(tmp_path / "m.so").run({"x": x})["y"]
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


def test_sentences_beside_one_image(tmp_path: Path) -> None:
    """So many queries for each image (OWL-ViT): images are one, queries and their length open."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (int64[text_batch,sequence] ids, float[text_batch,sequence] mask, float[batch,8] x)
          => (float[batch,q] y)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[1] minus = {-1}, int64[1] eight = {8},
         int64 first = {0}, int64 step = {1}, int64[1] wide = {8},
         float[20,8] words, float[16,8] places>
        {
          texts_n = Shape (ids)
          n = Slice (texts_n, one, eight)
          at = Slice (places, zero, n, zero)
          flat = Concat <axis = 0> (minus, n)
          lines = Reshape (ids, flat)
          word = Gather (words, lines)
          both = Add (word, at)
          kept = Unsqueeze (mask, minus)
          placed = Mul (both, kept)
          rows = Shape (placed)
          count = Gather (rows, first)
          numbers = Range (first, count, step)
          length = Gather (rows, one)
          begins = Mul (numbers, length)
          last = ArgMax <axis = 1, keepdims = 0> (lines)
          ends = Add (last, begins)
          all = Flatten <axis = 2> (placed)
          text = Gather (all, ends)
          texts = Slice (texts_n, zero, one)
          size = Shape (x)
          images = Slice (size, zero, one)
          quotient = Div (texts, images)
          small = Cast <to = 7> (quotient)
          each = Cast <to = 7> (small)
          shape = Concat <axis = 0> (images, each, wide)
          queries = Reshape (text, shape)
          column = Unsqueeze (x, minus)
          scores = MatMul (queries, column)
          y = Squeeze (scores, minus)
        }"""
    )
    rng = np.random.default_rng(0)
    for name, rows in (("words", 20), ("places", 16)):
        weights = rng.standard_normal((rows, 8), "float32")
        model.graph.initializer.append(numpy_helper.from_array(weights, name))
    report = byoc.compile(model, tmp_path / "m.so").report
    assert len(report.regions) == 1 and not report.left
    library = byoc.load(tmp_path / "m.so")
    assert [info.shape for info in library.inputs] == [*[("text_batch", "sequence")] * 2, (1, 8)]
    for texts, n in ((1, 3), (4, 16)):
        inputs = {
            "ids": rng.integers(0, 20, (texts, n)),
            "mask": rng.standard_normal((texts, n), "float32"),
            "x": rng.standard_normal((1, 8), "float32"),
        }
        want = onnxruntime_outputs(model, inputs)["y"]
        np.testing.assert_allclose(library.run(inputs)["y"], want, rtol=1e-5, atol=1e-5)


def test_pictures_that_are_larger_than_usual(tmp_path: Path) -> None:
    """Smoothing needs known sides, and the usual 224 pixels do not fit."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[batch,2,height,width] x) => (float[batch,2,pixels] y)
        <float[4] halves = {1, 1, 0.5, 0.5}, int64[3] flat = {0, 2, 16384}>
        {
          small = Resize <antialias = 1, mode = "linear"> (x, , halves)
          y = Reshape (small, flat)
        }"""
    )
    report = byoc.compile(model, tmp_path / "m.so").report
    assert len(report.regions) == 1 and not report.left
    library = byoc.load(tmp_path / "m.so")
    assert [info.shape for info in library.inputs] == [("batch", 2, 256, 256)]
    for n in (1, 3):
        x = np.random.default_rng(n).standard_normal((n, 2, 256, 256), "float32")
        want = onnxruntime_outputs(model, {"x": x})["y"]
        np.testing.assert_allclose(library.run({"x": x})["y"], want, rtol=1e-5, atol=1e-6)
