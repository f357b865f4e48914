"""Convolutions with few outputs, as dots of windows and filters, against numpy in float64."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np

from tests.kernels import cases
from tests.kernels.every import every
from tests.kernels.test_gemm import Output, _conv_params, _draw, _image, _sums_of_groups

SAME = (1, 1, 1, 1)

FEW = (
    *(case for case in cases.CONV if case.groups == 1 and case.o <= 16),
    # Whole vectors of outputs, with gaps between pixels.
    *(cases.Conv(4, 30, 5, o, y_gap=3) for o in (4, 8, 12)),
    *(cases.Conv(5, 9, 20, o, padding=SAME) for o in range(1, 17)),
    # Rows of several tiles, whose ends have fewer windows than are computed at once.
    *(cases.Conv(3, 139, 16, o, padding=SAME, n=2) for o in (1, 2, 3, 4, 7)),
    cases.Conv(3, 150, 3, 3, kernel=(5, 5), padding=(2, 2, 2, 2)),
    cases.Conv(3, 150, 33, 2, kernel=(1, 1), n=2),
    cases.Conv(3, 150, 8, 1, strides=(1, 2), padding=SAME, x_gap=5),
    cases.Conv(2, 40, 9, 3, kernel=(1, 4), padding=(0, 3, 0, 0), dilation=(1, 3)),
    # Windows of padding alone.
    cases.Conv(1, 1, 4, 2, padding=(4, 4, 4, 4)),
    cases.Conv(2, 3, 4, 2, padding=(3, 3, 3, 3), dilation=(2, 2)),
    *(cases.Conv(4, 11, 10, 3, padding=SAME, epilogue=e) for e in cases.EPILOGUES),
    *(cases.Conv(4, 11, 10, 3, padding=SAME, y_gap=4, epilogue=e) for e in cases.EPILOGUES),
)


@every("case", FEW, ids=str)
def test_conv2d_few(lib: ctypes.CDLL, case: cases.Conv) -> None:
    rng = np.random.default_rng(5)
    rows, x = _image(rng, case)
    weight = _draw(rng, case.o, case.c, *case.kernel)
    filters = np.ascontiguousarray(weight.transpose(0, 2, 3, 1))
    out = Output(rng, case.epilogue, case.n * case.out[0] * case.out[1], case.o, case.y_gap)
    p = _conv_params(case, rows.stride, out.y.stride)
    status = lib.ext_conv2d_few(p, rows.pointer, filters.ctypes.data, out.epilogue, out.y.pointer)
    assert status == 0
    out.check(*_sums_of_groups(case, x, weight))


def test_no_number_stays_in_the_windows_that_read_it(lib: ctypes.CDLL) -> None:
    case = cases.Conv(5, 20, 4, 2, padding=SAME)
    x, y = np.ones((100, 4), np.float32), np.zeros((100, 2), np.float32)
    x[2 * 20 + 7, 1] = np.nan
    filters = np.ones((2, 3, 3, 4), np.float32)
    filters[1] = 0
    p = _conv_params(case, 4, 2)
    assert lib.ext_conv2d_few(p, x.ctypes.data, filters.ctypes.data, None, y.ctypes.data) == 0
    lost = np.isnan(y.reshape(5, 20, 2))
    assert lost[1:4, 6:9].all() and lost.sum() == 18


def test_conv2d_few_refuses_groups_and_many_outputs(lib: ctypes.CDLL) -> None:
    for case in (cases.Conv(4, 4, 6, 6, groups=2), cases.Conv(4, 4, 6, 17)):
        p = _conv_params(case, case.c, case.o)
        assert lib.ext_conv2d_few(p, None, None, None, None) == 2


def test_nothing_to_compute(lib: ctypes.CDLL) -> None:
    case = replace(cases.Conv(4, 4, 6, 3), n=0)
    assert lib.ext_conv2d_few(_conv_params(case, 6, 3), None, None, None, None) == 0
