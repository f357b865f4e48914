"""Products of bf16 against numpy: float64 on the rounded operands, then what follows the sums."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from benchmarks import abi
from codegen_cc.dtypes import KERNEL_DTYPES
from codegen_cc.operators.bfloat16 import BFLOAT16X3_PANELS
from codegen_cc.operators.packing import PanelFormat
from tests.kernels import cases, reference
from tests.kernels.every import every
from tests.kernels.guard import Rows, assert_close, at_page_end

BF16 = np.dtype(ml_dtypes.bfloat16)
FP32 = np.dtype(np.float32)
PANELS = PanelFormat("bfloat16", 2)
#: Error limit per sum of |products|, as for fp32; of a result in bf16, half a step.
RELATIVE, ABSOLUTE = 2e-6, 2e-6
HALF_STEP = 2.0**-8
#: With a short form for results in bf16: an eighth of the half step more (math_bf16.h).
SHORT = {"gelu", "gelu_tanh", "silu", "sigmoid"}
#: Of operands in two parts, beside that: see ext_bfloat16.h.
RELATIVE_OF_PARTS = 2.0**-15
#: Storage of x, the residual and y.
STORED = (
    (FP32, FP32, FP32),
    (BF16, BF16, BF16),
    (BF16, FP32, BF16),
    (FP32, BF16, FP32),
    (FP32, FP32, BF16),
    (BF16, BF16, FP32),
)
_NAMES = ["-".join(str(dtype) for dtype in stored) for stored in STORED]
Stored = tuple[np.dtype, np.dtype, np.dtype]


def _code(dtype: np.dtype) -> int:
    return KERNEL_DTYPES.index(str(dtype))


def _draw(rng: np.random.Generator, dtype: np.dtype, *shape: int) -> np.ndarray:
    return rng.uniform(-1, 1, shape).astype(dtype)


def _exact(values: np.ndarray) -> np.ndarray:
    """What is multiplied: rounded to bf16, as float64."""
    return values.astype(BF16).astype(np.float64)


def _pack(matrices: np.ndarray, parts: int = 1) -> np.ndarray:
    """Panels of [count, K, N]; nothing may be read past the last one."""
    if parts == 2:
        return at_page_end(BFLOAT16X3_PANELS.pack(matrices.astype(FP32)), BF16)
    return at_page_end(PANELS.pack(matrices.astype(BF16)), BF16)


class Output:
    """y [rows, columns], its residual and bias, as an epilogue case and a storage want them."""

    def __init__(
        self,
        rng: np.random.Generator,
        case: cases.Epilogue,
        stored: Stored,
        size: tuple[int, int],
        gap: int,
        parts: int = 1,
    ) -> None:
        self.relative = RELATIVE + (RELATIVE_OF_PARTS if parts == 2 else 0)
        rows, columns = size
        x, own, y = stored
        if case.residual == "y":
            own = y
        self.case, self.storage = case, abi.Storage(_code(x), _code(own), _code(y))
        self.y = Rows(rows, columns, columns + gap, dtype=y)
        self.bias = _draw(rng, FP32, columns) if case.bias else None
        self.residual: np.ndarray | None = None
        before, after = abi.activation(*case.before), abi.activation(*case.after)
        self.e = abi.Epilogue(before=before, after=after, residual_is_factor=case.factor)
        self._keep: list[Any] = []
        if self.bias is not None:
            self._keep.append(at_page_end(abi.pad_to_panel(self.bias)))
            self.e.bias = self._keep[-1].ctypes.data
        if case.residual:
            at = self.y if case.residual == "y" else Rows(rows, columns, columns + 2, 0, own)
            at.view[...] = self.residual = _draw(rng, own, rows, columns)
            self._keep.append(at)
            self.e.residual, self.e.residual_stride = at.pointer, at.stride

    def check(self, acc: np.ndarray, magnitude: np.ndarray) -> None:
        """Compare y with the epilogue of ``acc``, whose absolute products sum to ``magnitude``."""
        residual = None if self.residual is None else self.residual.astype(np.float64)
        case = self.case
        want = reference.epilogue(acc, self.bias, case.before, residual, case.after, case.factor)
        limit = self.relative * magnitude + ABSOLUTE
        if self.y.view.dtype == BF16:
            half = HALF_STEP * (1 + 1 / 8) if {case.before[0], case.after[0]} & SHORT else HALF_STEP
            limit = limit * (1 + half) + half * np.abs(want)
        assert_close(self.y.view, want, limit)
        self.y.check_gaps()


def _batch_strides(array: np.ndarray, broadcast: tuple[int, ...]) -> list[int]:
    sizes = enumerate(array.strides[:-2])
    return [0 if d in broadcast else s // array.itemsize for d, s in sizes]


def matmul(lib: ctypes.CDLL, case: cases.Matmul, stored: Stored, parts: int = 1) -> None:
    """Run and check one product, of bf16 or of float32 in two parts of bf16."""
    rng = np.random.default_rng(1)
    shape_a = [1 if d in case.a_broadcast else s for d, s in enumerate(case.batch)]
    shape_b = [1 if d in case.b_broadcast else s for d, s in enumerate(case.batch)]
    a = _draw(rng, stored[0], *shape_a, case.m, case.k)
    turned = case.a_transposed
    a = at_page_end(a.swapaxes(-1, -2) if turned else a, stored[0])
    a = a.swapaxes(-1, -2) if turned else a
    b = _draw(rng, BF16 if parts == 1 else FP32, *shape_b, case.k, case.n)
    panels = _pack(b.reshape(int(np.prod(shape_b)), case.k, case.n), parts)
    count = int(np.prod(case.batch, dtype=int))
    out = Output(rng, case.epilogue, stored, (count * case.m, case.n), case.y_gap, parts)
    p = abi.MatmulParams(m=case.m, n=case.n, k=case.k, y_row=out.y.stride)
    p.a_row, p.a_col = (s // a.itemsize for s in a.strides[-2:])
    p.batch_ndim = len(case.batch)
    size = panels.size // max(1, len(panels))
    strides_a = _batch_strides(a, case.a_broadcast)
    for d, (extent, stride) in enumerate(zip(case.batch, strides_a, strict=True)):
        inner = int(np.prod(case.batch[d + 1 :], dtype=int)) * case.m
        p.batch[d], p.a_batch[d] = extent, stride
        p.b_batch[d] = size * int(np.prod(shape_b[d + 1 :], dtype=int)) * (shape_b[d] > 1)
        p.y_batch[d], p.residual_batch[d] = inner * out.y.stride, inner * out.e.residual_stride
    rest = (a.ctypes.data, panels.ctypes.data, out.e, out.y.pointer)
    if parts == 1:
        status = lib.ext_matmul_bf16(p, out.storage, *rest)
    else:
        status = lib.ext_matmul_bf16x3(p, *rest)
    assert status == 0
    exact = _exact if parts == 1 else np.float64
    x, w, target = exact(a), exact(b), (*case.batch, case.m, case.n)
    acc, magnitude = np.broadcast_to(x @ w, target), np.broadcast_to(abs(x) @ abs(w), target)
    shape = (count * case.m, case.n)
    out.check(acc.reshape(shape), magnitude.reshape(shape))


#: Sizes with every tail of tiles and of pairs, blocks of K, few rows of many columns, a row alone.
MATMUL = (
    *(case for case in cases.MATMUL if not (case.b_transposed or case.b_step > 1)),
    *(cases.Matmul(m, 45, 23, y_gap=1) for m in range(1, 31)),
    *(cases.Matmul(m, n, 9) for m, step in ((1, 2), (3, 5), (7, 5)) for n in range(1, 70, step)),
    *(cases.Matmul(15, 37, k, epilogue=e) for k in (4095, 4097, 9001)
      for e in cases.EPILOGUES[4:] + cases.FACTORS),
    *(cases.Matmul(1, 37, k, epilogue=cases.EPILOGUES[k % len(cases.EPILOGUES)])
      for k in (*range(1, 18), 4097, 9001)),
    cases.Matmul(2, 70, 5000, epilogue=cases.EPILOGUES[2]),
    cases.Matmul(300, 100, 2050, y_gap=4, epilogue=cases.EPILOGUES[8]),
)  # fmt: skip


@pytest.mark.slow
@every(("index", "case"), list(enumerate(MATMUL)), ids=[str(case) for case in MATMUL])
def test_matmul(bf16_lib: ctypes.CDLL, index: int, case: cases.Matmul) -> None:
    matmul(bf16_lib, case, STORED[index % len(STORED)])


@every("stored", STORED, ids=_NAMES)
@every("epilogue", cases.EPILOGUES + cases.FACTORS, ids=str)
@every("n", [32, 43])
def test_what_follows_the_sums(
    bf16_lib: ctypes.CDLL, stored: Stored, epilogue: cases.Epilogue, n: int
) -> None:
    matmul(bf16_lib, cases.Matmul(23, n, 50, y_gap=2, epilogue=epilogue), stored)


def _pixels(rng: np.random.Generator, case: cases.Conv, dtype: np.dtype) -> Rows:
    rows = Rows(case.n * case.h * case.w, case.c, case.c + case.x_gap, dtype=dtype)
    rows.view[...] = _draw(rng, dtype, *rows.view.shape)
    return rows


def _params(case: cases.Conv, x: Rows, y: Rows) -> abi.Conv2dParams:
    return abi.Conv2dParams(
        case.n, case.h, case.w, case.c, *case.out, case.o, *case.kernel, *case.strides,
        *case.padding[:2], *case.dilation, case.groups, x.stride, y.stride,
    )  # fmt: skip


def convolve(lib: ctypes.CDLL, case: cases.Conv, stored: Stored, parts: int = 1) -> None:
    """Run and check one convolution, of bf16 or of float32 in two parts of bf16."""
    rng, groups = np.random.default_rng(3), case.groups
    rows = _pixels(rng, case, stored[0])
    weight = _draw(rng, BF16 if parts == 1 else FP32, case.o, case.c // groups, *case.kernel)
    pixels, terms = case.n * case.out[0] * case.out[1], int(np.prod(weight.shape[1:]))
    out = Output(rng, case.epilogue, stored, (pixels, case.o), case.y_gap, parts)
    p = _params(case, rows, out.y)
    turned = weight.reshape(groups, case.o // groups, *weight.shape[1:]).transpose(0, 3, 4, 2, 1)
    w = _pack(turned.reshape(groups, terms, case.o // groups), parts)
    rest = (rows.pointer, w.ctypes.data, out.e, out.y.pointer)
    if parts == 1:
        status = lib.ext_conv2d_bf16(p, out.storage, *rest)
    else:
        status = lib.ext_conv2d_bf16x3(p, *rest)
    assert status == 0
    exact = _exact if parts == 1 else np.float64
    image = exact(rows.view).reshape(case.n, case.h, case.w, case.c)
    geometry = (case.kernel, case.strides, case.padding, case.dilation, case.out)
    patches = reference.im2col(image, *geometry, 0.0)
    patches = patches.reshape(pixels, *case.kernel, groups, case.c // groups)
    x = patches.transpose(3, 0, 1, 2, 4).reshape(groups, pixels, terms)
    matrices = exact(turned).reshape(groups, terms, case.o // groups)
    sums = (x @ matrices).transpose(1, 0, 2).reshape(pixels, case.o)
    out.check(sums, (abs(x) @ abs(matrices)).transpose(1, 0, 2).reshape(pixels, case.o))


_SAME = (1, 1, 1, 1)
CONV = (
    *cases.CONV,
    *(cases.Conv(5, 7, c, 18, padding=_SAME) for c in (1, 2, 4, 15)),
    *(cases.Conv(9, 5, 16, n, kernel=(1, 1), x_gap=g) for n, g in ((8, 0), (16, 4), (40, 3))),
    # More than a block of K, which begins within a tap.
    cases.Conv(5, 6, 700, 20, padding=_SAME, epilogue=cases.EPILOGUES[6]),
    cases.Conv(5, 6, 701, 20, padding=_SAME, dilation=(2, 2), epilogue=cases.EPILOGUES[7]),
    cases.Conv(9, 9, 9, 30, padding=_SAME, groups=3, epilogue=cases.EPILOGUES[7]),
)


@every(("index", "case"), list(enumerate(CONV)), ids=[str(case) for case in CONV])
def test_conv2d(bf16_lib: ctypes.CDLL, index: int, case: cases.Conv) -> None:
    convolve(bf16_lib, case, STORED[index % len(STORED)])


@every("kernel", [(1, 1), (3, 3)], ids=["point", "window"])
@every("stored", STORED, ids=_NAMES)
def test_conv2d_in_every_storage(
    bf16_lib: ctypes.CDLL, stored: Stored, kernel: tuple[int, int]
) -> None:
    padding = tuple(size // 2 for size in (*kernel, *kernel))
    case = cases.Conv(7, 9, 12, 22, kernel, padding=padding, groups=2, x_gap=2, y_gap=3,
                      epilogue=cases.EPILOGUES[5])  # fmt: skip
    convolve(bf16_lib, case, stored)


@every("parts", ["scale", "image scale", "shift", "both"])
@every("act", [cases.NONE, cases.RELU6, ("silu", 0.0, 0.0)], ids=str)
@every(("index", "case"), list(enumerate(cases.PROLOGUE)))
def test_conv2d_prologue(
    bf16_lib: ctypes.CDLL, index: int, case: cases.Conv, act: cases.Act, parts: str
) -> None:
    """What is multiplied is rounded after the prologue, which is computed in float32."""
    rng, stored = np.random.default_rng(4), STORED[index]
    rows = _pixels(rng, case, stored[0])
    # Powers of two and multiples of 1/4: that the scale and the shift are fused rounds nothing.
    scale = 2.0 ** rng.integers(-1, 2, (case.n if parts == "image scale" else 1, 1, 1, case.c))
    scale, shift = scale.astype(FP32), (rng.integers(-4, 5, case.c) / 4).astype(FP32)
    weight = _draw(rng, BF16, case.c, case.o)
    pixels = case.n * case.out[0] * case.out[1]
    out = Output(rng, case.epilogue, stored, (pixels, case.o), case.y_gap)
    before = abi.Prologue(activation=abi.activation(*act))
    wanted = rows.view.astype(np.float64).reshape(case.n, case.h, case.w, case.c)
    if parts != "shift":
        before.scale, wanted = scale.ctypes.data, wanted * scale
        before.scale_stride = case.c if parts == "image scale" else 0
    if parts in ("shift", "both"):
        before.shift, wanted = shift.ctypes.data, wanted + shift
    panels = _pack(weight[None])
    status = bf16_lib.ext_conv2d_bf16_prologue(
        _params(case, rows, out.y), before, out.storage, rows.pointer, panels.ctypes.data, out.e,
        out.y.pointer,
    )  # fmt: skip
    assert status == 0
    wanted = reference.activate(act[0], wanted, *act[1:]).reshape(pixels, case.c)
    exact, w = _exact(wanted.astype(FP32)), _exact(weight)
    magnitude = np.abs(exact) @ np.abs(w)
    # The activation may be off by an ULP, and be rounded the other way.
    slack = 0.0 if act[0] != "silu" else 2.0**-8 * np.sqrt(case.c) / case.c
    out.check(exact @ w, magnitude * (1 + slack / RELATIVE))


def test_a_prologue_needs_a_point(bf16_lib: ctypes.CDLL) -> None:
    for case in (
        cases.Conv(4, 4, 6, 6),
        cases.Conv(4, 4, 6, 6, kernel=(1, 1), strides=(2, 2)),
        cases.Conv(4, 4, 6, 6, kernel=(1, 1), groups=2),
    ):
        p = _params(case, Rows(1, case.c), Rows(1, case.o))
        none = (abi.Storage(), None, None, None, None)
        assert bf16_lib.ext_conv2d_bf16_prologue(p, abi.Prologue(), *none) == 2


@every(
    ("index", "case"), list(enumerate(cases.DEPTHWISE)), ids=[str(case) for case in cases.DEPTHWISE]
)
def test_depthwise_conv2d(bf16_lib: ctypes.CDLL, index: int, case: cases.Conv) -> None:
    weight = _draw(np.random.default_rng(3), FP32, *case.kernel, case.c)
    function = bf16_lib.ext_depthwise_conv2d_bf16
    _in_single(function, case, index, abi.pad_to_panel(weight), weight[..., None, None])


@every(("index", "case"), list(enumerate(cases.GROUPED)), ids=[str(case) for case in cases.GROUPED])
def test_grouped_conv2d(bf16_lib: ctypes.CDLL, index: int, case: cases.Conv) -> None:
    inputs, outputs = case.c // case.groups, case.o // case.groups
    weight = _draw(np.random.default_rng(3), FP32, *case.kernel, inputs, case.o)
    packed = abi.pack_panels(weight.reshape(-1, case.o))
    grouped = weight.reshape(*case.kernel, inputs, case.groups, outputs).swapaxes(2, 3)
    _in_single(bf16_lib.ext_grouped_conv2d_bf16, case, index, packed, grouped)


def _in_single(
    function: Callable[..., int], case: cases.Conv, index: int, packed: np.ndarray, w: np.ndarray
) -> None:
    """x is stored as bf16, y as either; the weights [kh, kw, group, input, output] are fp32."""
    rng, y = np.random.default_rng(3), (BF16, FP32)[index % 2]
    if case.epilogue.residual == "y" and y == BF16:
        y = FP32
    rows = _pixels(rng, case, BF16)
    pixels = case.n * case.out[0] * case.out[1]
    out = Output(rng, case.epilogue, (BF16, FP32, y), (pixels, case.o), case.y_gap)
    weight = at_page_end(packed)
    status = function(
        _params(case, rows, out.y), _code(y), rows.pointer, weight.ctypes.data, out.e, out.y.pointer
    )
    assert status == 0
    image = _exact(rows.view).reshape(case.n, case.h, case.w, case.c)
    geometry = (case.kernel, case.strides, case.padding, case.dilation, case.out)
    patches = reference.im2col(image, *geometry, 0.0)
    patches = patches.reshape(pixels, *case.kernel, case.groups, case.c // case.groups)
    exact, form = w.astype(np.float64), "phwgc,hwgco->pgo"
    acc = np.einsum(form, patches, exact, optimize=True).reshape(pixels, case.o)
    size = np.einsum(form, np.abs(patches), np.abs(exact), optimize=True).reshape(pixels, case.o)
    out.check(acc, size)


@every("name", ["ext_depthwise_conv2d_bf16", "ext_grouped_conv2d_bf16"])
def test_results_of_other_dtypes_are_refused(bf16_lib: ctypes.CDLL, name: str) -> None:
    p = _params(cases.DEPTHWISE[0], Rows(1, 16), Rows(1, 16))
    for dtype in set(KERNEL_DTYPES) - {"float32", "bfloat16"}:
        code = KERNEL_DTYPES.index(dtype)
        assert getattr(bf16_lib, name)(p, code, None, None, None, None) == 2


def _times_one(
    lib: ctypes.CDLL, x: np.ndarray, y: np.dtype, bias: np.ndarray | None = None
) -> np.ndarray:
    """y [len(x), 17] = x * 1 + bias, computed as a product with K = 1."""
    a = at_page_end(x[:, None], x.dtype)
    panels = _pack(np.ones((1, 1, 17)))
    out = Rows(len(x), 17, dtype=y)
    p = abi.MatmulParams(m=len(x), n=17, k=1, a_row=1, a_col=1, y_row=out.stride)
    e = abi.Epilogue()
    if bias is not None:
        padded = at_page_end(abi.pad_to_panel(bias))
        e.bias = padded.ctypes.data
    s = abi.Storage(_code(x.dtype), 0, _code(y))
    assert lib.ext_matmul_bf16(p, s, a.ctypes.data, panels.ctypes.data, e, out.pointer) == 0
    return out.view.copy()


#: Ties, what rounds up to infinity, and what is no number.
SPECIAL = np.array(
    [0.0, -0.0, 1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1 - 2**-8, 3.4e38, -3.4e38,
     2.0**-126, np.inf, -np.inf, np.nan, -np.nan, 1.17549435e-38 * 1.5],
    np.float32,
)  # fmt: skip


@every("y", [FP32, BF16], ids=str)
@every("x", [FP32, BF16], ids=str)
def test_special_values(bf16_lib: ctypes.CDLL, x: np.dtype, y: np.dtype) -> None:
    with np.errstate(all="ignore"):
        values = SPECIAL.astype(x)
        want = values.astype(BF16).astype(np.float64)[:, None]
    got = _times_one(bf16_lib, values, y).astype(np.float64)
    np.testing.assert_array_equal(got, np.broadcast_to(want, got.shape))


def test_results_are_rounded_once(bf16_lib: ctypes.CDLL) -> None:
    """0 * 1 + bias, to the nearest bf16, halves to even."""
    bias = np.concatenate([SPECIAL, [np.float32(0.1), np.float32(-1e-3)]]).astype(np.float32)
    with np.errstate(all="ignore"):
        want = bias.astype(BF16).astype(np.float64)
    got = _times_one(bf16_lib, np.zeros(20, np.float32), BF16, bias).astype(np.float64)
    np.testing.assert_array_equal(got, np.broadcast_to(want, got.shape))


@every("dtype", [FP32, BF16], ids=str)
@every("k", [5, 32, 70])
def test_no_number_leaves_its_row_or_column(bf16_lib: ctypes.CDLL, k: int, dtype: np.dtype) -> None:
    """Nor comes from between the rows, where tiles are read whole."""
    rng, m, n = np.random.default_rng(5), 37, 40
    rows = Rows(m, k, k + 6, dtype=dtype)
    rows.memory[...] = np.nan
    rows.view[...] = _draw(rng, dtype, m, k)
    rows.view[20] = np.nan
    b = _draw(rng, BF16, k, n)
    b[:, 17] = np.inf
    panels, out = _pack(b[None]), Rows(m, n)
    p = abi.MatmulParams(m=m, n=n, k=k, a_row=rows.stride, a_col=1, y_row=out.stride)
    s = abi.Storage(_code(dtype), 0, 0)
    status = bf16_lib.ext_matmul_bf16(
        p, s, rows.pointer, panels.ctypes.data, abi.Epilogue(), out.pointer
    )
    assert status == 0
    finite = np.isfinite(out.view)
    assert not finite[20].any() and not finite[:, 17].any()
    assert np.delete(np.delete(finite, 20, 0), 17, 1).all()


def test_a_signalling_nan_stays_a_nan(bf16_lib: ctypes.CDLL) -> None:
    """One whose upper half alone would be infinity."""
    x = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(np.float32)
    for y in (FP32, BF16):
        assert np.isnan(_times_one(bf16_lib, x, y).astype(np.float64)).all()


def test_numbers_below_the_least_normal_one_are_kept_or_zero(bf16_lib: ctypes.CDLL) -> None:
    x = np.array([2.0**-127, -(2.0**-130)], np.float32)
    got = _times_one(bf16_lib, x, FP32).astype(np.float64)
    assert ((got == x[:, None]) | (got == 0)).all()


def test_blocks_that_cannot_be_are_refused(bf16_lib: ctypes.CDLL) -> None:
    e = abi.Epilogue()
    matmul, conv = abi.MatmulParams(n=3, k=4, a_row=4, a_col=1), abi.Conv2dParams(groups=1)
    floats, wrong = _code(FP32), KERNEL_DTYPES.index("int8")

    def status(*stored: int, epilogue: ctypes.Structure = e) -> set[int]:
        s = abi.Storage(*stored)
        return {
            bf16_lib.ext_matmul_bf16(matmul, s, None, None, epilogue, None),
            bf16_lib.ext_conv2d_bf16(conv, s, None, None, epilogue, None),
        }

    assert status(floats, floats, floats) == {0}
    assert status(floats, wrong, floats) == {0}  # there is no residual
    assert status(wrong, floats, floats) == status(floats, floats, wrong) == {2}
    residual = at_page_end(np.zeros(4))
    with_residual = abi.Epilogue(residual=residual.ctypes.data)
    assert status(floats, wrong, floats, epilogue=with_residual) == {2}
    matmul.batch_ndim, conv.groups = 5, 0
    assert status(floats, floats, floats) == {2}
    conv.groups, conv.in_c = 2, 3
    assert status(floats, floats, floats) == {2}
