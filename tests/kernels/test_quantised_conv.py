"""Convolutions of 8-bit integers against numpy: exact sums, then what follows them in float64."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from itertools import cycle

import numpy as np

from benchmarks import abi
from tests.kernels import cases, reference
from tests.kernels.every import every
from tests.kernels.guard import at_page_end
from tests.kernels.quantised import (
    EPILOGUES,
    INPUTS,
    PANELS,
    PLAIN,
    SUMS,
    Output,
    Requantise,
    code,
    draw,
    strided,
)

_SAME = (1, 1, 1, 1)


def _geometries(every: tuple[cases.Conv, ...]) -> list[cases.Conv]:
    """Each geometry once, whatever follows its sums."""
    return list(dict.fromkeys(replace(case, epilogue=cases.Epilogue()) for case in every))


def _in_quads(case: cases.Conv) -> bool:
    """Whether ``ext_qgrouped_conv2d`` computes it."""
    return case.c == case.o and case.c // case.groups % 4 == 0


CONV = (
    *_geometries(cases.CONV),
    *(cases.Conv(5, 7, c, 18, padding=_SAME) for c in (1, 2, 4, 15)),
    *(cases.Conv(9, 5, 16, n, kernel=(1, 1), x_gap=g) for n, g in ((8, 0), (16, 4), (40, 3))),
    cases.Conv(1, 1, 65536, 3, kernel=(1, 1)),
)
DEPTHWISE = (
    *_geometries(cases.DEPTHWISE),
    cases.Conv(40, 130, 70, 70, padding=_SAME, groups=70, x_gap=2, y_gap=1),
    cases.Conv(33, 20, 35, 35, padding=(2, 2, 2, 2), kernel=(5, 5), strides=(2, 2), groups=35, n=3),
    cases.Conv(17, 40, 3, 3, padding=(8, 16, 7, 15), kernel=(16, 32), groups=3),
)


#: Of groups of 4, 8, 16 and 32 channels: vectors of several, of one and of a part; absent lanes.
GROUPED = (
    *(case for case in _geometries(cases.GROUPED) if _in_quads(case)),
    *(cases.Conv(5, 57, 16 * g, 16 * g, padding=_SAME, groups=g) for g in (2, 5)),
    cases.Conv(8, 14, 64, 64, padding=_SAME, strides=(2, 2), groups=2, n=2, x_gap=3),
    cases.Conv(3, 1, 8, 8, padding=_SAME, groups=1),
    cases.Conv(2, 120, 40, 40, padding=_SAME, groups=10, y_gap=2),
)


def _params(case: cases.Conv, x_stride: int, y_stride: int) -> ctypes.Structure:
    return abi.Conv2dParams(
        case.n, case.h, case.w, case.c, *case.out, case.o, *case.kernel, *case.strides,
        *case.padding[:2], *case.dilation, case.groups, x_stride, y_stride,
    )  # fmt: skip


def _patches(case: cases.Conv, x: np.ndarray, zero: int) -> np.ndarray:
    """x - zero as [n, OH, OW, KH, KW, C], zeros outside of the image."""
    image = x.astype(np.float64).reshape(case.n, case.h, case.w, case.c) - zero
    geometry = (case.kernel, case.strides, case.padding, case.dilation, case.out)
    return reference.im2col(image, *geometry, 0.0)


def convolve(
    lib: ctypes.CDLL,
    case: cases.Conv,
    follows: Requantise,
    x: tuple[str, int],
    kernel: str = "ext_qconv2d",
) -> None:
    """One convolution, and its check."""
    rng, (dtype, zero), groups = np.random.default_rng(3), x, case.groups
    rows = strided(draw(rng, dtype, case.n * case.h * case.w, case.c), case.x_gap)
    weight = draw(rng, "int8", case.o, case.c // groups, *case.kernel)
    pixels, terms = case.n * case.out[0] * case.out[1], int(np.prod(weight.shape[1:]))
    w_sums = weight.sum((1, 2, 3), np.int64)
    out = Output(rng, follows, pixels, w_sums, terms, case.y_gap)
    p = _params(case, rows.stride, out.y.stride)
    shape = (pixels, *case.kernel, groups, case.c // groups)
    patches = _patches(case, rows.view, zero).reshape(shape)
    wide = weight.astype(np.float64).reshape(groups, case.o // groups, *weight.shape[1:])
    sums = np.einsum("phwgc,gochw->pgo", patches, wide, optimize=True)
    if kernel == "ext_qdepthwise_conv2d":
        w = np.pad(weight[:, 0].transpose(1, 2, 0), ((0, 0), (0, 0), (0, -case.c % 16)))
        out.e.w_sums = None
    elif kernel == "ext_qgrouped_conv2d":
        w = PANELS.pack(weight.transpose(2, 3, 1, 0).reshape(1, -1, case.o))
    else:
        parts = weight.reshape(groups, case.o // groups, *weight.shape[1:])
        parts = np.pad(parts, ((0, 0), (0, 0), (0, -parts.shape[2] % 4), (0, 0), (0, 0)))
        terms4 = int(np.prod(parts.shape[2:]))
        matrices = parts.transpose(0, 3, 4, 2, 1).reshape(groups, terms4, case.o // groups)
        w = PANELS.pack(matrices)
    w = at_page_end(w, np.int8)
    function = getattr(lib, kernel)
    status = function(p, code(dtype), zero, rows.pointer, w.ctypes.data, out.e, out.y.pointer)
    assert status == 0
    out.check(sums.reshape(pixels, case.o))


@every("x", [INPUTS[1], INPUTS[2], INPUTS[5]], ids=str)
@every("case", CONV, ids=str)
def test_conv2d_sums_are_exact(
    quantised_lib: ctypes.CDLL, case: cases.Conv, x: tuple[str, int]
) -> None:
    convolve(quantised_lib, case, SUMS, x)


@every("x", [INPUTS[1], INPUTS[5]], ids=str)
@every("case", DEPTHWISE, ids=str)
def test_depthwise_conv2d_sums_are_exact(
    quantised_lib: ctypes.CDLL, case: cases.Conv, x: tuple[str, int]
) -> None:
    convolve(quantised_lib, case, SUMS, x, "ext_qdepthwise_conv2d")


@every(("case", "x"), [*zip(GROUPED, cycle((INPUTS[1], INPUTS[5])))], ids=str)
def test_grouped_conv2d_sums_are_exact(
    quantised_lib: ctypes.CDLL, case: cases.Conv, x: tuple[str, int]
) -> None:
    convolve(quantised_lib, case, SUMS, x, "ext_qgrouped_conv2d")


@every("follows", EPILOGUES, ids=str)
@every(
    "case",
    [
        ("ext_qconv2d", cases.Conv(7, 9, 12, 22, padding=_SAME, groups=2, y_gap=3)),
        ("ext_qconv2d", cases.Conv(7, 9, 20, 21, kernel=(1, 1), y_gap=3)),
        ("ext_qdepthwise_conv2d", cases.Conv(7, 9, 45, 45, padding=_SAME, groups=45, y_gap=3)),
        ("ext_qgrouped_conv2d", cases.Conv(7, 9, 44, 44, padding=_SAME, groups=11, y_gap=3)),
    ],
    ids=["groups", "point", "depthwise", "grouped"],
)
def test_what_follows_convolutions(
    quantised_lib: ctypes.CDLL, case: tuple[str, cases.Conv], follows: Requantise
) -> None:
    convolve(quantised_lib, case[1], follows, INPUTS[1], case[0])


@every("zero", [0, 255])
def test_the_largest_depthwise_sums(quantised_lib: ctypes.CDLL, zero: int) -> None:
    """512 taps of 255 x -128 are just below 2^24."""
    case = cases.Conv(16, 32, 16, 16, kernel=(16, 32), groups=16)
    x = at_page_end(np.full((512, 16), 255 - zero), np.uint8)
    w = at_page_end(np.full((512, 16), -128), np.int8)
    out = Output(np.random.default_rng(0), SUMS, 1, np.zeros(16), 512)
    status = quantised_lib.ext_qdepthwise_conv2d(
        _params(case, 16, 16), code("uint8"), zero, x.ctypes.data, w.ctypes.data, out.e,
        out.y.pointer,
    )  # fmt: skip
    assert status == 0
    out.check(np.full((1, 16), (255 - 2 * zero) * -128 * 512))


def test_blocks_that_cannot_be_are_refused(quantised_lib: ctypes.CDLL) -> None:
    def status(function: str, case: cases.Conv, dtype: str = "uint8", zero: int = 0) -> int:
        e = Output(np.random.default_rng(0), PLAIN, 1, np.zeros(16), 1).e
        p = _params(case, case.c, case.o)
        call = getattr(quantised_lib, function)
        return call(p, code(dtype), zero, None, None, e, None)

    conv = cases.Conv(4, 4, 5, 6, groups=4)
    assert status("ext_qconv2d", conv) == 2
    assert status("ext_qconv2d", replace(conv, groups=0)) == 2
    assert status("ext_qconv2d", cases.Conv(4, 4, 65537, 1, kernel=(1, 1))) == 2
    assert status("ext_qdepthwise_conv2d", conv) == 2
    assert status("ext_qgrouped_conv2d", conv) == 2
    assert status("ext_qgrouped_conv2d", cases.Conv(4, 4, 12, 12)) == 2
    assert status("ext_qgrouped_conv2d", cases.Conv(4, 4, 8, 8, groups=4)) == 2
    assert status("ext_qgrouped_conv2d", cases.Conv(130, 130, 4, 4, kernel=(129, 128))) == 2
    grouped = cases.Conv(0, 4, 8, 8, groups=2)
    assert status("ext_qgrouped_conv2d", grouped) == 0
    assert status("ext_qgrouped_conv2d", grouped, "float32") == 2
    assert status("ext_qgrouped_conv2d", grouped, "int8", 128) == 2
    depthwise = cases.Conv(0, 4, 4, 4, groups=4)
    assert status("ext_qdepthwise_conv2d", depthwise) == 0
    assert status("ext_qdepthwise_conv2d", depthwise, "float32") == 2
    assert status("ext_qdepthwise_conv2d", depthwise, "int8", 128) == 2
    assert status("ext_qdepthwise_conv2d", replace(depthwise, kernel=(19, 27))) == 2
