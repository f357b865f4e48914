"""pad, resize2d, transposed and three-dimensional convolution against numpy."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from benchmarks import abi
from codegen_cc.operators.resize2d import taps_of
from tests.kernels import cases, reference
from tests.kernels.every import every
from tests.kernels.guard import Rows, assert_close, at_page_end

#: shape of x, widths before, widths after, elements of the axes inside.
PAD = (
    ((5,), (2,), (3,), 1),
    ((5,), (0,), (0,), 7),
    ((4, 6), (1, 2), (3, 0), 1),
    ((4, 6), (1, 2), (3, 5), 37),
    ((3, 4, 5), (0, 1, 1), (0, 1, 2), 16),
    ((2, 3, 4, 5), (1, 0, 2, 3), (0, 2, 1, 4), 1),
    ((1, 30, 30), (0, 1, 1), (0, 1, 1), 64),
    ((0, 3), (0, 1), (0, 1), 4),
)


@every("mode", abi.PAD_MODE)
@every("case", PAD, ids=str)
def test_pad(
    lib: ctypes.CDLL,
    case: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int],
    mode: str,
) -> None:
    shape, before, after, inner = case
    if mode == "reflect":  # no wider than the axis has elements beside its border
        before, after = (
            tuple(min(w, max(n - 1, 0)) for w, n in zip(widths, shape, strict=True))
            for widths in (before, after)
        )
    x = at_page_end(np.random.default_rng(8).standard_normal((*shape, inner)))
    widths = [*zip(before, after, strict=True), (0, 0)]
    value = {"constant_values": -1.5} if mode == "constant" else {}
    want = np.pad(x, widths, mode=mode, **value)
    y = Rows(1, want.size)
    p = abi.PadParams(abi.PAD_MODE.index(mode), -1.5, len(shape), inner=inner)
    p.shape[: len(shape)], p.before[: len(shape)], p.after[: len(shape)] = shape, before, after
    assert lib.ext_pad(p, x.ctypes.data, y.pointer) == 0
    np.testing.assert_array_equal(y.view[0].reshape(want.shape), want)
    y.check_gaps()


def test_widths_that_a_mode_cannot_fill_are_refused(lib: ctypes.CDLL) -> None:
    for mode, size, width in (
        ("reflect", 3, 3),
        ("edge", 0, 1),
        ("wrap", 0, 1),
        ("constant", 3, -1),
    ):
        p = abi.PadParams(abi.PAD_MODE.index(mode), 0.0, 1, inner=1)
        p.shape[0], p.before[0] = size, width
        assert lib.ext_pad(p, None, None) == 2


@every("channels", [1, 3, 16, 37])
@every("taps", [(1, 1), (2, 2), (4, 4), (1, 3)], ids=str)
def test_resize2d(lib: ctypes.CDLL, taps: tuple[int, int], channels: int) -> None:
    rng = np.random.default_rng(9)
    batch, in_h, in_w, out_h, out_w = 2, 5, 7, 9, 4
    x = at_page_end(rng.standard_normal((batch, in_h, in_w, channels)))
    row = at_page_end(rng.integers(0, in_h, (out_h, taps[0])), np.int32)
    column = at_page_end(rng.integers(0, in_w, (out_w, taps[1])), np.int32)
    row_weight = at_page_end(rng.standard_normal(row.shape) if taps[0] > 1 else np.ones(row.shape))
    column_weight = at_page_end(rng.standard_normal(column.shape))
    y = Rows(batch * out_h * out_w, channels)
    p = abi.Resize2dParams(batch, in_h, in_w, out_h, out_w, channels, *taps)
    tables = [t.ctypes.data for t in (row, row_weight, column, column_weight)]
    assert lib.ext_resize2d(p, *tables, x.ctypes.data, y.pointer) == 0
    rows = np.einsum("hi,nhiwc->nhwc", row_weight, x[:, row].astype(np.float64))
    want = np.einsum("wj,nhwjc->nhwc", column_weight, rows[:, :, column])
    assert_close(y.view.reshape(want.shape), want, 1e-5)
    y.check_gaps()


def test_nearest_neighbours_are_copied_bit_by_bit(lib: ctypes.CDLL) -> None:
    x = np.array([[[[np.nan], [np.inf]], [[-0.0], [1.0]]]], np.float32)
    at, one = np.array([[1], [0], [0]], np.int32), np.ones((3, 1), np.float32)
    y = np.empty((1, 3, 3, 1), np.float32)
    p = abi.Resize2dParams(1, 2, 2, 3, 3, 1, 1, 1)
    tables = [t.ctypes.data for t in (at, one, at, one)]
    assert lib.ext_resize2d(p, *tables, x.ctypes.data, y.ctypes.data) == 0
    np.testing.assert_array_equal(y, x[:, [1, 0, 0]][:, :, [1, 0, 0]])


@cache
def _taps(
    extent: int, count: int, method: str, coordinate: str, rounding: str, exclude: int, divided: int
) -> tuple[np.ndarray, np.ndarray]:
    """What is computed at compilation, once for all levels."""
    attrs = {"method": method, "coordinate": coordinate, "rounding": rounding}
    attrs |= {"cubic_alpha": -0.75, "cubic_exclude": exclude, "divided": divided}
    return taps_of(extent, count, attrs)


@pytest.mark.slow
@every("method", abi.RESIZE_METHOD)
@every("coordinate", abi.RESIZE_COORDINATES)
def test_taps_at_the_call_are_those_of_compilation(
    lib: ctypes.CDLL, method: str, coordinate: str
) -> None:
    roundings = abi.RESIZE_ROUNDING if method == "nearest" else abi.RESIZE_ROUNDING[:1]
    sizes = (1, 2, 3, 5, 8, 16, 23, 40, 97, 320, 641)
    choices = itertools.product(sizes, (0, *sizes), roundings, (0, 1), (0, 1))
    for extent, count, rounding, exclude, divided in choices:
        want_at, want_weight = _taps(extent, count, method, coordinate, rounding, exclude, divided)
        at, weight = np.empty_like(want_at), np.empty_like(want_weight)
        p = abi.ResizeTapsParams(
            extent,
            count,
            abi.RESIZE_METHOD.index(method),
            abi.RESIZE_COORDINATES.index(coordinate),
            abi.RESIZE_ROUNDING.index(rounding),
            -0.75,
            exclude,
            divided,
        )
        assert lib.ext_resize_taps(p, at.ctypes.data, weight.ctypes.data) == 0
        same = np.array_equal(at, want_at) and np.array_equal(weight, want_weight)
        assert same, f"{extent} {count} {rounding} {exclude} {divided}"


def test_taps_of_nothing_are_refused(lib: ctypes.CDLL) -> None:
    assert lib.ext_resize_taps(abi.ResizeTapsParams(0, 4), None, None) == 2
    assert lib.ext_resize_taps(abi.ResizeTapsParams(4, -1), None, None) == 2


_SAME = (1, 1, 1, 1)
#: ``h``, ``w`` and ``c`` are the input's; ``padding`` is cut off the output.
TRANSPOSED = (
    cases.Conv(5, 6, 4, 8, kernel=(2, 2), strides=(2, 2)),
    cases.Conv(5, 6, 4, 8, kernel=(3, 3), strides=(2, 2), padding=_SAME),
    cases.Conv(5, 6, 17, 33, kernel=(4, 4), strides=(2, 2), padding=_SAME, x_gap=3, y_gap=7),
    cases.Conv(5, 6, 7, 5, kernel=(3, 3), padding=_SAME, n=2),
    cases.Conv(4, 3, 7, 5, kernel=(2, 5), strides=(3, 1), padding=(0, 2, 1, 0)),
    cases.Conv(4, 3, 7, 5, kernel=(3, 3), strides=(2, 1), dilation=(2, 3)),
    cases.Conv(4, 3, 2, 5, kernel=(2, 2), strides=(4, 3)),
    cases.Conv(4, 4, 12, 18, kernel=(3, 3), strides=(2, 2), padding=_SAME, groups=2, n=2),
    cases.Conv(4, 4, 12, 12, kernel=(4, 4), strides=(2, 2), padding=_SAME, groups=12),
    cases.Conv(0, 4, 3, 4, strides=(2, 2)),
    cases.Conv(4, 4, 3, 0),
    # Of several blocks of rows, which share some of the input's.
    cases.Conv(30, 41, 2, 24, kernel=(4, 4), strides=(2, 2), padding=_SAME, n=2),
    cases.Conv(21, 50, 3, 20, kernel=(5, 3), strides=(1, 2), dilation=(3, 1), groups=1),
    cases.Conv(1, 3000, 3, 8, kernel=(1, 7), strides=(1, 3), padding=(0, 2, 0, 2), n=2),
    cases.Conv(1, 5, 3, 2, kernel=(1, 100), strides=(1, 70)),
    cases.Conv(1, 90, 3, 1, kernel=(1, 64), strides=(1, 16), padding=(0, 24, 0, 24), n=2),
    cases.Conv(1, 90, 3, 2, kernel=(1, 8), strides=(1, 4), y_gap=1),
    # Of so few channels that pixels share a vector.
    cases.Conv(30, 41, 3, 1, kernel=(4, 4), strides=(2, 2), padding=_SAME, n=2),
    cases.Conv(9, 95, 3, 1, kernel=(9, 9), strides=(3, 3), padding=(4, 4, 4, 4)),
    cases.Conv(7, 33, 5, 2, kernel=(3, 5), strides=(2, 3), padding=(0, 7, 1, 11), dilation=(1, 2)),
    cases.Conv(7, 37, 3, 2, kernel=(2, 2), strides=(4, 3), padding=(1, 2, 0, 0)),
    cases.Conv(21, 50, 3, 2, kernel=(5, 3), strides=(1, 2), dilation=(3, 1)),
    *(
        cases.Conv(
            1 if line else 5,
            40,
            9,
            2,
            kernel=(1 if line else 3, 3),
            strides=(1 if line else 2, 2),
            epilogue=e,
        )
        for line in (False, True)
        for e in cases.EPILOGUES
        if e.residual != "y"
    ),
    *(
        cases.Conv(5, 4, 9, 21, strides=(2, 2), padding=_SAME, y_gap=3, epilogue=e)
        for e in cases.EPILOGUES
        if e.residual != "y"
    ),
)


def _transposed_size(case: cases.Conv, extra: int) -> tuple[int, int]:
    sizes = [
        max(0, (size - 1) * case.strides[i] + (case.kernel[i] - 1) * case.dilation[i] + 1 + extra)
        for i, size in enumerate((case.h, case.w))
    ]
    return tuple(max(0, s - case.padding[i] - case.padding[i + 2]) for i, s in enumerate(sizes))  # type: ignore[return-value]


def _transpose_reference(case: cases.Conv, x: np.ndarray, w: np.ndarray, out) -> np.ndarray:
    """w is [C, O / groups, KH, KW]; every input pixel is scattered."""
    groups, per = case.groups, case.o // case.groups
    high, wide = _transposed_size(replace(case, padding=(0,) * 4), 2)
    y = np.zeros((case.n, high + out[0], wide + out[1], case.o))
    for g in range(groups):
        channels = np.s_[g * case.c // groups : (g + 1) * case.c // groups]
        outputs = np.s_[g * per : (g + 1) * per]
        for kh in range(case.kernel[0]):
            for kw in range(case.kernel[1]):
                part = x[..., channels].astype(np.float64) @ w[channels, :, kh, kw]
                top, left = kh * case.dilation[0], kw * case.dilation[1]
                rows = np.s_[top : top + case.h * case.strides[0] : case.strides[0]]
                columns = np.s_[left : left + case.w * case.strides[1] : case.strides[1]]
                y[:, rows, columns, outputs] += part
    top, left = case.padding[:2]
    return y[:, top : top + out[0], left : left + out[1]]


@dataclass
class _Finish:
    """The C epilogue of a case and the arrays behind it; ``bias`` is padded for the kernel."""

    struct: abi.Epilogue
    bias: np.ndarray | None
    residual: np.ndarray | None
    spec: cases.Epilogue

    def apply(self, acc: np.ndarray) -> np.ndarray:
        residual = None if self.residual is None else self.residual.reshape(acc.shape)
        bias = None if self.bias is None else self.bias[: acc.shape[-1]]
        return reference.epilogue(acc, bias, self.spec.before, residual, self.spec.after)


def _finish(rng: np.random.Generator, spec: cases.Epilogue, pixels: int, channels: int) -> _Finish:
    bias = abi.pad_to_panel(rng.standard_normal(channels)) if spec.bias else None
    residual = at_page_end(rng.standard_normal((pixels, channels))) if spec.residual else None
    struct = abi.Epilogue(
        None if bias is None else bias.ctypes.data,
        abi.activation(*spec.before),
        None if residual is None else residual.ctypes.data,
        channels,
        abi.activation(*spec.after),
    )
    return _Finish(struct, bias, residual, spec)


def _pack_groups(matrices: np.ndarray) -> np.ndarray:
    """Panels of [groups, K, N], one group after the other."""
    return np.stack([abi.pack_panels(matrix) for matrix in matrices])


@every("extra", [0, 1], ids=["exact", "output_padding"])
@every("case", TRANSPOSED, ids=str)
def test_conv2d_transpose(lib: ctypes.CDLL, case: cases.Conv, extra: int) -> None:
    rng = np.random.default_rng(10)
    x = Rows(case.n * case.h * case.w, case.c, case.c + case.x_gap)
    x.view[...] = rng.standard_normal(x.view.shape)
    per = case.o // case.groups
    weight = rng.standard_normal((case.c, per, *case.kernel)).astype(np.float32)
    matrices = weight.transpose(0, 2, 3, 1).reshape(case.groups, case.c // case.groups, -1)
    panels = _pack_groups(matrices)
    out = _transposed_size(case, extra)
    finish = _finish(rng, case.epilogue, case.n * out[0] * out[1], case.o)
    y = Rows(case.n * out[0] * out[1], case.o, case.o + case.y_gap)
    p = abi.Conv2dParams(
        case.n, case.h, case.w, case.c, *out, case.o, *case.kernel, *case.strides,
        *case.padding[:2], *case.dilation, case.groups, x.stride, y.stride,
    )  # fmt: skip
    assert lib.ext_conv2d_transpose(p, x.pointer, panels.ctypes.data, finish.struct, y.pointer) == 0
    if y.view.size:
        image = x.view.reshape(case.n, case.h, case.w, case.c)
        want = finish.apply(_transpose_reference(case, image, weight, out))
        assert_close(y.view.reshape(want.shape), want, 2e-5)
    y.check_gaps()


@dataclass(frozen=True)
class Volume:
    """x [n, d, h, w, c] to o channels; padding is before and after, the same on both sides."""

    size: tuple[int, int, int]
    c: int
    o: int
    kernel: tuple[int, int, int] = (3, 3, 3)
    strides: tuple[int, int, int] = (1, 1, 1)
    padding: tuple[int, int, int] = (0, 0, 0)
    dilation: tuple[int, int, int] = (1, 1, 1)
    groups: int = 1
    n: int = 1
    epilogue: cases.Epilogue = cases.EPILOGUES[0]

    @property
    def out(self) -> tuple[int, int, int]:
        """Sizes of the result."""
        extents = zip(
            self.size, self.kernel, self.strides, self.padding, self.dilation, strict=True
        )
        return tuple(max(0, (i + 2 * p - d * (k - 1) - 1) // s + 1) for i, k, s, p, d in extents)  # type: ignore[return-value]


VOLUMES = (
    Volume((4, 5, 6), 3, 8),
    Volume((4, 5, 6), 17, 33, padding=(1, 1, 1), n=2),
    Volume((5, 6, 7), 4, 5, kernel=(1, 3, 2), strides=(2, 1, 3), padding=(0, 1, 1)),
    Volume((7, 6, 5), 4, 6, padding=(2, 1, 2), dilation=(2, 1, 2), groups=2),
    Volume((3, 3, 3), 30, 40, kernel=(3, 3, 3), padding=(1, 1, 1)),
    Volume((3, 4, 5), 6, 7, kernel=(1, 1, 1)),
    Volume((0, 4, 5), 6, 7),
    *(Volume((3, 4, 5), 6, 21, padding=(1, 1, 1), epilogue=e) for e in cases.EPILOGUES[:6]),
)


def _conv3d_reference(case: Volume, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """w is [O, C / groups, KD, KH, KW]."""
    padding = [(0, 0), *((p, p) for p in case.padding), (0, 0)]
    wide = np.pad(x.astype(np.float64), padding)
    y = np.zeros((case.n, *case.out, case.o))
    inputs, outputs = case.c // case.groups, case.o // case.groups
    for tap in np.ndindex(case.kernel):
        window = wide
        for axis in range(3):
            begin, step = tap[axis] * case.dilation[axis], case.strides[axis]
            at = begin + step * np.arange(case.out[axis])
            window = window.take(at, axis=axis + 1)
        for g in range(case.groups):
            matrix = w[(np.s_[g * outputs : (g + 1) * outputs], np.s_[:], *tap)].T
            part = window[..., g * inputs : (g + 1) * inputs] @ matrix
            y[..., g * outputs : (g + 1) * outputs] += part
    return y


def _check_volume(
    function: Callable[..., int], case: Volume, pack: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Compare ``function``, whose weights ``pack`` makes of [O, C / groups, KD, KH, KW]."""
    rng = np.random.default_rng(11)
    x = at_page_end(rng.standard_normal((case.n, *case.size, case.c)))
    taps = (case.o, case.c // case.groups, *case.kernel)
    weight = rng.standard_normal(taps).astype(np.float32)
    packed = at_page_end(pack(weight))
    pixels = case.n * int(np.prod(case.out))
    finish = _finish(rng, case.epilogue, pixels, case.o)
    y = Rows(pixels, case.o)
    p = abi.Conv3dParams(
        case.n, *case.size, case.c, *case.out, case.o, *case.kernel, *case.strides,
        *case.padding, *case.dilation, case.groups,
    )  # fmt: skip
    assert function(p, x.ctypes.data, packed.ctypes.data, finish.struct, y.pointer) == 0
    if y.view.size:
        want = finish.apply(_conv3d_reference(case, x, weight))
        assert_close(y.view.reshape(want.shape), want, 5e-5)
    y.check_gaps()


@every("case", VOLUMES, ids=str)
def test_conv3d(lib: ctypes.CDLL, case: Volume) -> None:
    def pack(weight: np.ndarray) -> np.ndarray:
        per = case.o // case.groups
        grouped = weight.reshape(case.groups, per, *weight.shape[1:])
        return _pack_groups(grouped.transpose(0, 3, 4, 5, 2, 1).reshape(case.groups, -1, per))

    _check_volume(lib.ext_conv3d, case, pack)


DEPTHWISE = (
    Volume((4, 5, 6), 16, 16, padding=(1, 1, 1), groups=16, n=2),
    Volume((4, 5, 40), 37, 37, padding=(1, 1, 1), groups=37),
    Volume((5, 6, 33), 20, 20, strides=(2, 2, 2), padding=(1, 0, 1), groups=20),
    Volume((5, 7, 20), 8, 8, kernel=(2, 5, 5), padding=(3, 1, 2), groups=8),
    Volume((4, 9, 30), 18, 18, kernel=(3, 7, 7), strides=(1, 2, 2), padding=(1, 3, 3), groups=18),
    Volume((6, 5, 9), 5, 5, kernel=(3, 2, 4), dilation=(2, 2, 1), padding=(2, 1, 9), groups=5),
    Volume((7, 5, 9), 19, 19, padding=(4, 2, 3), dilation=(3, 1, 2), groups=19),
    Volume((0, 4, 5), 7, 7, padding=(2, 1, 1), groups=7),
    *(Volume((3, 4, 17), 21, 21, padding=(1, 1, 1), groups=21, epilogue=e)
      for e in cases.EPILOGUES[:6]),
)  # fmt: skip


@every("case", DEPTHWISE, ids=str)
def test_depthwise_conv3d(lib: ctypes.CDLL, case: Volume) -> None:
    def pack(weight: np.ndarray) -> np.ndarray:
        taps = weight[:, 0].transpose(1, 2, 3, 0)
        return np.pad(taps, ((0, 0), (0, 0), (0, 0), (0, -case.c % 16)))

    _check_volume(lib.ext_depthwise_conv3d, case, pack)


def test_depthwise_conv3d_of_other_groups_is_refused(lib: ctypes.CDLL) -> None:
    x = np.zeros(64, np.float32)
    p = abi.Conv3dParams(1, 1, 1, 1, 4, 1, 1, 1, 4, *[1] * 6, *[0] * 3, *[1] * 3, 2)
    assert lib.ext_depthwise_conv3d(p, x.ctypes.data, x.ctypes.data, None, x.ctypes.data) == 2


@every("groups", [1, 2])
@every("epilogue", cases.EPILOGUES[:6], ids=str)
@every("pads", [(1, 0), (-1, -2), (2, 3)])
def test_conv2d_apart(
    lib: ctypes.CDLL, pads: tuple[int, int], epilogue: cases.Epilogue, groups: int
) -> None:
    """Every second plane and line and every third pixel of two volumes; the others stay."""
    rng = np.random.default_rng(13)
    planes, (h, w), c, o = 3, (6, 33), 6, 20
    images = at_page_end(rng.standard_normal((2 * planes, h, w, c)))
    weight = rng.standard_normal((o, c // groups, 2, 3)).astype(np.float32)
    split = weight.reshape(groups, o // groups, c // groups, 2, 3).transpose(0, 3, 4, 2, 1)
    panels = at_page_end(_pack_groups(split.reshape(groups, -1, o // groups)))
    out, whole = (5, 30), (2 * planes + 1, 12, 92)
    pixels = 2 * int(np.prod(whole))
    finish = _finish(rng, epilogue, pixels, o)
    y = Rows(pixels, o)
    before = y.view.copy()
    p = abi.Conv2dParams(
        2 * planes, h, w, c, *out, o, 2, 3, 1, 1, *pads, 1, 1, groups, c, o,
    )  # fmt: skip
    at = abi.Apart(*whole, 1, 1, 2, 2, 2, 3, planes)
    status = lib.ext_conv2d_apart(
        p, at, images.ctypes.data, panels.ctypes.data, finish.struct, y.pointer
    )
    assert status == 0
    top, left = pads
    sides = ((0, 0), (max(top, 0), 9), (max(left, 0), 9), (0, 0))
    padded = np.pad(images.astype(np.float64), sides)[:, max(-top, 0) :, max(-left, 0) :]
    sums = np.zeros((2 * planes, *out, o))
    inner, each = c // groups, o // groups
    for kh, kw, g in itertools.product(range(2), range(3), range(groups)):
        window = padded[:, kh : kh + out[0], kw : kw + out[1], g * inner : (g + 1) * inner]
        some = np.s_[g * each : (g + 1) * each]
        sums[..., some] += window @ weight[some, :, kh, kw].T
    wanted = np.zeros((2, *whole, o))
    places = np.s_[:, 1 : 1 + 2 * planes : 2, 1 : 1 + 2 * out[0] : 2, 2 : 2 + 3 * out[1] : 3]
    wanted[places] = sums.reshape(2, planes, *out, o)
    wanted = finish.apply(wanted)
    found = y.view.reshape(2, *whole, o)
    assert_close(found[places], wanted[places], 5e-5)
    rest = np.ones(found.shape[:-1], bool)
    rest[places] = False
    np.testing.assert_array_equal(found[rest], before.reshape(found.shape)[rest])
    y.check_gaps()
