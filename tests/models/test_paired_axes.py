"""Inputs whose axes have names of their own though an operator takes them together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import byoc
from byoc.errors import InputError
from tests.reference import assert_agrees, onnxruntime_outputs


def _drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def _numbers(count: int) -> str:
    return ", ".join(f"{value:.4f}" for value in _drawn(count))


WEIGHTS = f"<float[1, 12, 4] w = {{{_numbers(48)}}}, float[1, 12, 3] r = {{{_numbers(36)}}}>"

#: A graph, and its inputs for a batch of n.
CASES = {
    "images and grids": (
        """(float[a, 3, h, w] x, float[b, p, q, 2] g) => (float[c, 3, s, t] y)
        {y = GridSample(x, g)}""",
        lambda n: {"x": _drawn(n, 3, 5, 6), "g": _drawn(n, 4, n, 2)},
    ),
    "boxes and their images": (
        """(float[a, 3, h, w] x, float[b, 4] r, int64[c] i) => (float[d, 3, 2, 2] y)
        {y = RoiAlign<output_height = 2, output_width = 2>(x, r, i)}""",
        lambda n: {
            "x": _drawn(2, 3, 8, 8),
            "r": np.abs(_drawn(n, 4)),
            "i": np.arange(n) % 2,
        },
    ),
    "queries and keys": (
        """(float[a, p, 8] q, float[b, s, 8] k, float[c, t, 8] v) => (float[d, u, 8] y)
        {y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v)}""",
        lambda n: {"q": _drawn(n, 3, 8), "k": _drawn(n, 4, 8), "v": _drawn(n, 4, 8)},
    ),
    "one letter": (
        """(float[a, p, 8] q, float[b, s, 8] k) => (float[c, t, u] y)
        {y = Einsum<equation = "bpi, bsi -> bps">(q, k)}""",
        lambda n: {"q": _drawn(n, 3, 8), "k": _drawn(n, 4, 8)},
    ),
    "sequences and states": (
        f"""(float[t, a, 4] x, int32[b] l, float[1, c, 3] h) => (float[1, d, 3] y)
        {WEIGHTS} {{all, y = LSTM<hidden_size = 3>(x, w, r, , l, h)}}""",
        lambda n: {
            "x": _drawn(5, n, 4),
            "l": np.arange(1, n + 1, dtype=np.int32),
            "h": _drawn(1, n, 3),
        },
    ),
    "slices and their places": (
        """(float[a, 3] x, int64[b, 1] i, float[c, 3] u) => (float[d, 3] y)
        {y = ScatterND(x, i, u)}""",
        lambda n: {"x": _drawn(9, 3), "i": np.arange(n)[::-1, None].copy(), "u": _drawn(n, 3)},
    ),
    "rows and batches of places": (
        """(float[a, p, 3] x, int64[b, s, 1] i) => (float[c, t, 3] y)
        {y = GatherND<batch_dims = 1>(x, i)}""",
        lambda n: {"x": _drawn(n, 4, 3), "i": np.arange(3 * n).reshape(n, 3, 1) % 4},
    ),
    "elements and their places": (
        """(float[a, 3] x, int64[b, s] i, float[c, t] u) => (float[d, 3] y, float[e, v] z)
        {y = ScatterElements<axis = 1>(x, i, u) z = GatherElements<axis = 1>(x, i)}""",
        lambda n: {
            "x": _drawn(n, 3),
            "i": np.tile(np.int64([[2, 0]]), (n, 1)),
            "u": _drawn(n, 2),
        },
    ),
    "pools and places": (
        """(float[a, 3, h, w] x, int64[b, 3, i, j] k) => (float[c, 3, s, t] y)
        {y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(x, k)}""",
        lambda n: {
            "x": _drawn(n, 3, 2, 2),
            "k": np.tile(np.int64([[0, 3], [9, 12]]), (n, 3, 1, 1)),
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_name_is_enough(name: str, tmp_path: Path) -> None:
    graph, inputs_for = CASES[name]
    opsets = '<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>'
    model = parser.parse_model(f"{opsets} g {graph}")
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1
    assert not made.report.left
    with byoc.load(made.path) as library:
        for n in (2, 1, 5):
            inputs = inputs_for(n)
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))


def test_one_element_is_repeated(tmp_path: Path) -> None:
    """A letter may stand for 1 and more."""
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[a, p, 8] q) => (float[c, t, 4] y) <float[1, 8, 4] k = {{{_numbers(32)}}}>
        {{y = Einsum<equation = "bpi, bio -> bpo">(q, k)}}""")
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    with byoc.load(made.path) as library:
        for n in (2, 1):
            inputs = {"q": _drawn(n, 3, 8)}
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))


def _of_elements(places: str, data: str) -> onnx.ModelProto:
    return parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[{data}] x{places}) => (float[p, q] y) {{y = GatherElements<axis = 1>(x, i)}}""")


def test_more_places_than_rows_are_no_input(tmp_path: Path) -> None:
    """They would be read behind the data."""
    model = _of_elements(", int64[n, m] i", "4, 3")
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    with byoc.load(made.path) as library:
        inputs = {"x": _drawn(4, 3), "i": np.tile(np.int64([2, 0, 1, 1]), (4, 1))}
        assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))
        with pytest.raises(InputError, match=r"has shape \[5, 4\]; need \[4, m\]"):
            library.run(inputs | {"i": np.zeros((5, 4), np.int64)})


def test_rows_are_as_many_as_their_places(tmp_path: Path) -> None:
    model = _of_elements("", "n, 3")
    model.graph.initializer.append(numpy_helper.from_array(np.int64([[2, 0], [1, 1]]), "i"))
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    with byoc.load(made.path) as library:
        for n in (2, 5):
            inputs = {"x": _drawn(n, 3)}
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))
        with pytest.raises(InputError, match="n is 1 and must be 2 or more"):
            library.run({"x": _drawn(1, 3)})


def test_more_places_than_rows_are_refused() -> None:
    model = _of_elements(", int64[5, 2] i", "4, 3")
    with pytest.raises(byoc.ByocError, match="has 5 indices along axis 0 of extent 4"):
        byoc.compile(model)


def test_rows_of_codebooks_beside_states(tmp_path: Path) -> None:
    """Four rows of codes for each text (MusicGen), and states with as many texts as these."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (int64[all_batch,sequence] ids, float[batch,words,8] states, int64[some_batch,words] mask)
          => (float[b,h,s,w] y)
        <int64[1] one = {1}, int64[1] two = {2}, int64[1] four = {4}, int64[1] minus = {-1},
         int64[1] zero = {0}, int64 book = {2}>
        {
          sizes = Shape (ids)
          length = Slice (sizes, one, two)
          apart = Concat <axis = 0> (minus, four, length)
          codes = Reshape (ids, apart)
          chosen = Gather <axis = 1> (codes, book)
          whole = Cast <to = 1> (chosen)
          column = Unsqueeze (whole, minus)
          hidden = Concat <axis = 2> (column, column, column, column)
          kept = Cast <to = 1> (mask)
          beside = Unsqueeze (kept, minus)
          texts = Mul (states, beside)
          rows = Shape (hidden)
          count = Slice (rows, zero, one)
          heads = Concat <axis = 0> (count, minus, two, four)
          keys = Reshape (texts, heads)
          laid = Transpose <perm = [0, 2, 3, 1]> (keys)
          length_one = Concat <axis = 0> (count, length, two, two)
          asked = Reshape (hidden, length_one)
          turned = Transpose <perm = [0, 2, 1, 3]> (asked)
          wide = Concat <axis = 3> (turned, turned)
          y = MatMul (wide, laid)
        }"""
    )
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert len(report.regions) == 1 and not report.left
    library = byoc.load(tmp_path / "m.so")
    rng = np.random.default_rng(0)
    for texts, n, words in ((1, 3, 5), (3, 2, 4)):
        inputs = {
            "ids": rng.integers(0, 20, (4 * texts, n)),
            "states": rng.standard_normal((texts, words, 8), "float32"),
            "mask": rng.integers(0, 2, (texts, words)),
        }
        want = onnxruntime_outputs(model, inputs)["y"]
        np.testing.assert_allclose(library.run(inputs)["y"], want, rtol=1e-5, atol=1e-5)
