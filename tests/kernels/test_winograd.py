"""ext_conv2d_winograd against a convolution in double precision, with a bound for each tile."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from benchmarks import abi
from codegen_cc.operators.winograd import POINTS, filter_matrix, pack_winograd
from tests.kernels.every import every
from tests.kernels.guard import Rows, assert_close, at_page_end

#: Greatest error as a share of the result's range, by tile; measured at a fifth of these.
BOUND = {4: 1.5e-6, 6: 4e-6, 8: 2e-5}

#: batch, height, width, channels in and out, padding (top, left), output size.
CASES = (
    (1, 8, 8, 16, 16, (1, 1), (8, 8)),
    (1, 7, 7, 32, 48, (1, 1), (7, 7)),
    (2, 13, 9, 20, 33, (1, 1), (13, 9)),
    (1, 5, 6, 3, 7, (0, 0), (3, 4)),
    (1, 4, 4, 16, 16, (2, 0), (5, 3)),
    (1, 3, 3, 700, 40, (1, 1), (3, 3)),
    (3, 1, 1, 64, 5, (1, 1), (1, 1)),
    (1, 30, 31, 64, 96, (1, 1), (30, 31)),
    (0, 8, 8, 16, 16, (1, 1), (8, 8)),
)


def convolve(
    x: np.ndarray,
    w: np.ndarray,
    pad: tuple[int, int],
    size: tuple[int, int],
    dilation: tuple[int, int] = (1, 1),
) -> np.ndarray:
    """NHWC input, OIHW weights, in double precision."""
    n, h, width, c = x.shape
    down, across = dilation
    padded = np.zeros((n, size[0] + 2 * down, size[1] + 2 * across, c))
    top, left = pad
    rows, columns = min(h, padded.shape[1] - top), min(width, padded.shape[2] - left)
    padded[:, top : top + rows, left : left + columns] = x[:, :rows, :columns]
    y = np.zeros((n, *size, w.shape[0]))
    for i in range(3):
        for j in range(3):
            part = padded[:, i * down :, j * across :][:, : size[0], : size[1]]
            y += part @ w[:, :, i, j].T.astype(np.float64)
    return y


@pytest.mark.slow
@every("tile", POINTS)
@every("case", CASES, ids=str)
@every("epilogue", ["none", "bias_residual_relu", "bias_silu_residual_tanh"])
def test_winograd(lib: ctypes.CDLL, case: tuple, tile: int, epilogue: str) -> None:
    n, h, w, c_in, c_out, pad, size = case
    random = np.random.default_rng(tile + h)
    x_stride, y_stride = c_in + 3, c_out + 5  # slices of wider images
    image = random.standard_normal((n, h, w, x_stride), dtype=np.float32)
    x = at_page_end(image.reshape(-1)[: max(image.size - 3, 0)])
    weight = random.standard_normal((c_out, c_in, 3, 3), dtype=np.float32)
    want = convolve(image[..., :c_in], weight, pad, size)
    limit = BOUND[tile] * (float(np.ptp(want)) if want.size else 1.0)
    pixels = n * size[0] * size[1]
    y = Rows(pixels, c_out, y_stride)
    e = None
    bias = random.standard_normal(c_out, dtype=np.float32)
    residual = at_page_end(random.standard_normal((pixels, c_out)))
    packed_bias = abi.pad_to_panel(bias)
    if epilogue != "none":
        e = abi.Epilogue(packed_bias.ctypes.data, abi.activation())
        e.residual, e.residual_stride = residual.ctypes.data, c_out
        e.after = abi.activation("relu")
        want = np.maximum(want + bias + residual.reshape(want.shape), 0)
    if epilogue == "bias_silu_residual_tanh":
        e.before, e.after = abi.activation("silu"), abi.activation("tanh")
        plain = convolve(image[..., :c_in], weight, pad, size) + bias
        want = np.tanh(plain / (1 + np.exp(-plain)) + residual.reshape(want.shape))
        limit *= 1.2
    p = abi.Conv2dParams(n, h, w, c_in, *size, c_out, 3, 3, 1, 1, *pad, 1, 1, 1, x_stride, y_stride)
    packed = pack_winograd(weight, tile)
    status = lib.ext_conv2d_winograd(p, tile, x.ctypes.data, packed.ctypes.data, e, y.pointer)
    assert status == 0
    assert_close(y.view.reshape(want.shape), want, limit)
    y.check_gaps()


@every("tile", POINTS)
@every("dilation", [(2, 1), (1, 3), (2, 2), (4, 5)], ids=str)
@every("size", [(9, 10), (1, 23), (3, 2)], ids=str)
@every("act", ["", "silu"])
def test_dilated(
    lib: ctypes.CDLL, size: tuple[int, int], dilation: tuple[int, int], tile: int, act: str
) -> None:
    random = np.random.default_rng(tile)
    n, c_in, c_out, pad = 2, 20, 19, (dilation[0], 1)
    image = at_page_end(random.standard_normal((n, size[0], size[1] + dilation[1], c_in)))
    weight = random.standard_normal((c_out, c_in, 3, 3), dtype=np.float32)
    residual = at_page_end(random.standard_normal((n * size[0] * size[1], c_out)))
    e = abi.Epilogue(None, abi.activation())
    e.residual, e.residual_stride = residual.ctypes.data, c_out
    e.after = abi.activation(act) if act else abi.activation()
    want = convolve(image, weight, pad, size, dilation)
    want += residual.reshape(want.shape)
    limit = BOUND[tile] * float(np.ptp(want))
    if act:
        want = want / (1 + np.exp(-want))
    y = Rows(n * size[0] * size[1], c_out, c_out + 3)
    p = abi.Conv2dParams(
        n, *image.shape[1:], *size, c_out, 3, 3, 1, 1, *pad, *dilation, 1, c_in, c_out + 3
    )  # fmt: skip
    packed = pack_winograd(weight, tile)
    status = lib.ext_conv2d_winograd(p, tile, image.ctypes.data, packed.ctypes.data, e, y.pointer)
    assert status == 0
    assert_close(y.view.reshape(want.shape), want, limit)
    y.check_gaps()


def test_weights_are_transformed_exactly_where_they_can_be() -> None:
    """F(2, 3) halves and quarters: no rounding for small integers."""
    matrix = filter_matrix(4)
    np.testing.assert_array_equal(
        matrix, [[-1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]
    )
    weight = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    panels = pack_winograd(weight, 4)
    assert panels.shape == (16, 1, 1, 16)
    want = matrix @ weight[0, 0] @ matrix.T
    np.testing.assert_array_equal(panels[:, 0, 0, 0].reshape(4, 4), want)
    assert not panels[:, :, :, 1:].any()


@every(
    ("field", "value"),
    [("kernel_h", 1), ("stride_w", 2), ("dilation_h", 0), ("groups", 2)],
)
def test_other_convolutions_are_refused(lib: ctypes.CDLL, field: str, value: int) -> None:
    p = abi.Conv2dParams(1, 8, 8, 16, 8, 8, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1, 16, 16)
    setattr(p, field, value)
    assert lib.ext_conv2d_winograd(p, 6, None, None, None, None) == 2
    assert (
        lib.ext_conv2d_winograd(
            abi.Conv2dParams(1, 8, 8, 16, 8, 8, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1, 16, 16),
            5,
            None,
            None,
            None,
            None,
        )
        == 2
    )


def test_a_nan_reaches_no_pixel_beyond_its_tile(lib: ctypes.CDLL) -> None:
    """Winograd spreads a NaN over the tiles that read it, and no further."""
    image = np.zeros((1, 12, 12, 16), np.float32)
    image[0, 0, 0, 0] = np.nan
    weight = pack_winograd(np.ones((16, 16, 3, 3), np.float32), 6)
    y = Rows(144, 16)
    p = abi.Conv2dParams(1, 12, 12, 16, 12, 12, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1, 16, 16)
    assert (
        lib.ext_conv2d_winograd(p, 6, image.ctypes.data, weight.ctypes.data, None, y.pointer) == 0
    )
    found = np.isnan(y.view.reshape(12, 12, 16)[:, :, 0])
    assert found[:2, :2].all()  # the pixels that direct convolution spoils
    assert not found[4:].any() and not found[:, 4:].any()
