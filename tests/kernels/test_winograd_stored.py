"""ext_conv2d_winograd_bf16 against a convolution in double precision of the stored numbers."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np

from benchmarks import abi
from codegen_cc.dtypes import KERNEL_DTYPES
from codegen_cc.operators.winograd import POINTS, pack_winograd
from tests.kernels.every import every
from tests.kernels.guard import Rows, assert_close, at_page_end
from tests.kernels.test_winograd import BOUND, CASES, convolve

BF16, FP32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)
#: Of a result in bf16.
HALF_STEP = 2.0**-8
#: Storage of x, the residual and y.
STORED = ((BF16, BF16, BF16), (BF16, FP32, FP32), (FP32, BF16, BF16))
_CODES = {dtype: KERNEL_DTYPES.index(str(dtype)) for dtype in (BF16, FP32)}


def _params(case: tuple, x_stride: int, y_stride: int) -> ctypes.Structure:
    n, h, w, c_in, c_out, pad, size = case
    return abi.Conv2dParams(
        n, h, w, c_in, *size, c_out, 3, 3, 1, 1, *pad, 1, 1, 1, x_stride, y_stride
    )


#: Each case with a tile, an epilogue and a storage, so that every pair of these three occurs.
_EPILOGUES = ("none", "bias_residual_relu", "bias_silu_residual_tanh")
_RUNS = [
    (case, tile, _EPILOGUES[(index + t) % 3], STORED[(index // 3 + t) % 3])
    for index, case in enumerate(CASES)
    for t, tile in enumerate(POINTS)
]


@every(("case", "tile", "epilogue", "stored"), _RUNS, ids=str)
def test_stored_winograd(
    winograd_lib: ctypes.CDLL, case: tuple, tile: int, epilogue: str, stored: tuple
) -> None:
    n, h, w, c_in, c_out, pad, size = case
    random = np.random.default_rng(tile + h)
    x_stride, y_stride = c_in + 3, c_out + 5  # slices of wider images
    image = random.standard_normal((n, h, w, x_stride)).astype(stored[0])
    x = at_page_end(image.reshape(-1)[: max(image.size - 3, 0)], stored[0])
    weight = random.standard_normal((c_out, c_in, 3, 3), dtype=np.float32)
    pixels = n * size[0] * size[1]
    want = convolve(image[..., :c_in].astype(np.float64), weight, pad, size).reshape(pixels, c_out)
    limit = BOUND[tile] * (float(np.ptp(want)) if want.size else 1.0)
    y, e = Rows(pixels, c_out, y_stride, dtype=stored[2]), None
    bias = random.standard_normal(c_out, dtype=np.float32)
    packed_bias = abi.pad_to_panel(bias)
    residual = at_page_end(random.standard_normal((pixels, c_out)), stored[1])
    if epilogue != "none":
        e = abi.Epilogue(packed_bias.ctypes.data, abi.activation())
        e.residual, e.residual_stride = residual.ctypes.data, c_out
        e.after, want = abi.activation("relu"), want + bias
    if epilogue == "bias_silu_residual_tanh":
        e.before, e.after = abi.activation("silu"), abi.activation("tanh")
        want, limit = want / (1 + np.exp(-want)), 1.2 * limit
    if epilogue != "none":
        want = want + residual.astype(np.float64)
        want = np.tanh(want) if "tanh" in epilogue else np.maximum(want, 0)
    packed = pack_winograd(weight, tile)
    storage = abi.Storage(*(_CODES[dtype] for dtype in stored))
    status = winograd_lib.ext_conv2d_winograd_bf16(
        _params(case, x_stride, y_stride), tile, storage, x.ctypes.data, packed.ctypes.data, e,
        y.pointer,
    )  # fmt: skip
    assert status == 0
    rounding = HALF_STEP * np.abs(want) if stored[2] == BF16 else 0.0
    assert_close(y.view, want, limit * (1 + HALF_STEP) + rounding)
    y.check_gaps()


def test_a_residual_may_be_the_result(winograd_lib: ctypes.CDLL) -> None:
    case = (1, 9, 10, 16, 20, (1, 1), (9, 10))
    random = np.random.default_rng(5)
    image = random.standard_normal((1, 9, 10, 16)).astype(BF16)
    weight = random.standard_normal((20, 16, 3, 3), dtype=np.float32)
    y = Rows(90, 20, dtype=BF16)
    y.view[...] = before = random.standard_normal((90, 20)).astype(BF16)
    e = abi.Epilogue(before=abi.activation(), after=abi.activation())
    e.residual, e.residual_stride = y.pointer, y.stride
    storage = abi.Storage(*(_CODES[BF16] for _ in range(3)))
    packed = pack_winograd(weight, 6)
    status = winograd_lib.ext_conv2d_winograd_bf16(
        _params(case, 16, y.stride), 6, storage, image.ctypes.data, packed.ctypes.data, e,
        y.pointer,
    )  # fmt: skip
    assert status == 0
    want = convolve(image.astype(np.float64), weight, (1, 1), (9, 10)).reshape(90, 20)
    want = want + before.astype(np.float64)
    assert_close(y.view, want, BOUND[6] * float(np.ptp(want)) + HALF_STEP * np.abs(want))


@every("which", range(3))
def test_other_dtypes_are_refused(winograd_lib: ctypes.CDLL, which: int) -> None:
    codes = [_CODES[BF16]] * 3
    codes[which] = KERNEL_DTYPES.index("float16")
    e = abi.Epilogue(before=abi.activation(), after=abi.activation())
    image = np.zeros((1, 4, 4, 16), BF16)
    e.residual, e.residual_stride = image.ctypes.data, 16
    p = _params((1, 4, 4, 16, 16, (1, 1), (4, 4)), 16, 16)
    given = (image.ctypes.data, image.ctypes.data, e, image.ctypes.data)
    assert winograd_lib.ext_conv2d_winograd_bf16(p, 6, abi.Storage(*codes), *given) == 2
