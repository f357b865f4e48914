"""Axes that a slice shortens, as of differences along an open axis, and what is joined to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser

import byoc
from tests.reference import onnxruntime_outputs

#: x[1:] and x[:-1] along axis 1 of [b, n, 8], and their difference of n - 1 elements.
_CUT = "later = Slice(x, one, end, one) sooner = Slice(x, zero, last, one) d = Sub(later, sooner)"
_CONSTANTS = (
    "int64[1] zero = {0}, int64[1] one = {1}, int64[1] last = {-1},"
    " int64[1] end = {9223372036854775807}, int64[1] two = {2}"
)
_WEIGHT = ", ".join(f"{v:.2f}" for v in np.random.default_rng(0).standard_normal(4 * 8 * 3))

#: The other inputs, more constants, and what follows the difference. ``k`` is n - 1.
FORMS = {
    "alone": ("", "", "y = Relu(d)"),
    "with itself": ("", "", "y = Concat<axis = 2>(d, later)"),
    "with another": (", float[b, k, 8] z", "", "y = Concat<axis = 2>(d, z)"),
    "cut alone": (", float[b, k, 8] z", "", "y = Concat<axis = -1>(later, z)"),
    "added": (", float[b, k, 8] z", "", "y = Add(d, z)"),
    "padded": ("", ", int64[6] p = {0, 1, 0, 0, 0, 0}", "e = Pad(d, p) y = Add(e, x)"),
    "reshaped": ("", ", int64[4] s = {0, -1, 2, 4}", "e = Reshape(d, s) y = Relu(e)"),
    "flattened": ("", ", int64[2] s = {-1, 4}", "e = Reshape(d, s) y = Relu(e)"),
    "convolved": (
        ", float[b, k, 2] z",
        f", float[4, 8, 3] w = {{{_WEIGHT}}}",
        "t = Transpose<perm = [0, 2, 1]>(d) e = Conv<pads = [1, 1]>(t, w)"
        " f = Transpose<perm = [0, 2, 1]>(e) y = Concat<axis = 2>(f, z)",
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_differences_along_an_open_axis(form: str, tmp_path: Path) -> None:
    inputs, constants, nodes = FORMS[form]
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[b, n, 8] x{inputs}) => (float[] y)'
        f" <{_CONSTANTS}{constants}> {{ {_CUT} {nodes} }}"
    )
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert made.report.regions and not made.report.left
    library = byoc.load(tmp_path / "m.so")
    for batch, length in ((1, 2), (2, 9)):
        sizes = {"b": batch, "n": length, "k": length - 1}
        draw = np.random.default_rng(length)
        feeds = {
            value.name: draw.standard_normal(
                [e.dim_value or sizes[e.dim_param] for e in value.type.tensor_type.shape.dim]
            ).astype("float32")
            for value in model.graph.input
        }
        want = onnxruntime_outputs(model, feeds)["y"]
        np.testing.assert_allclose(library.run(feeds)["y"], want, rtol=1e-5, atol=1e-5)


#: A message of 32 numbers beside every pixel of an image [b, 32, h, w], whose extents are computed.
_SIZES = (
    "c = Conv(x, w) s = Shape(c) b = Gather(s, zero) h = Gather(s, two) w2 = Gather(s, three)"
    " hw = Mul(h, w2)"
)
MESSAGES = {
    "spread": "o = Concat<axis = 0>(b, many, h, w2) i = Reshape(m, image) e = Expand(i, o)"
    " y = Mul(c, e)",
    "times pixels": "t = Transpose<perm = [0, 2, 3, 1]>(c) o = Concat<axis = 0>(last, hw, many)"
    " r = Reshape(t, o) p = Concat<axis = 0>(b, hw, many) e = Expand(m, p) y = Mul(r, e)",
    "summed": "o = Concat<axis = 0>(b, many, last) r = Reshape(c, o)"
    " t = Transpose<perm = [0, 2, 1]>(r) p = Concat<axis = 0>(b, many) e = Expand(m, p)"
    " u = Unsqueeze(e, two) q = MatMul(t, u) o2 = Concat<axis = 0>(b, one, h, w2)"
    " y = Reshape(q, o2)",
}


@pytest.mark.parametrize("axes", ["b, 3, h, w", "?, 3, ?, ?"])
@pytest.mark.parametrize("form", MESSAGES)
def test_a_message_in_an_image_of_open_size(form: str, axes: str, tmp_path: Path) -> None:
    """Watermarks: batch and sides are open, and multiplied where pixels become rows."""
    weight = ", ".join(f"{v:.2f}" for v in np.random.default_rng(1).standard_normal(96))
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[{axes}] x, float[1, 32] m)'
        f" => (float[] y) <{_CONSTANTS}, int64[1] three = {{3}}, int64[1] many = {{32}},"
        f" int64[4] image = {{1, 32, 1, 1}}, float[32, 3, 1, 1] w = {{{weight}}}>"
        f" {{ {_SIZES} {MESSAGES[form]} }}"
    )
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert made.report.regions and not made.report.left
    library = byoc.load(tmp_path / "m.so")
    for shape in ((1, 3, 8, 10), (2, 3, 5, 4)):
        draw = np.random.default_rng(shape[0])
        feeds = {k: draw.random(s, "float32") for k, s in (("x", shape), ("m", (1, 32)))}
        want = onnxruntime_outputs(model, feeds)["y"]
        np.testing.assert_allclose(library.run(feeds)["y"], want, rtol=1e-5, atol=1e-5)


def test_a_length_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[b, n, 8] x, float[b, k, 8] z)'
        f" => (float[] y) <{_CONSTANTS}> {{ {_CUT} y = Concat<axis = 2>(d, z) }}"
    )
    byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    shapes = {"x": (1, 5, 8), "z": (1, 5, 8)}
    with pytest.raises(byoc.ByocError, match="shape"):
        byoc.load(tmp_path / "m.so").run({k: np.zeros(v, "float32") for k, v in shapes.items()})
