"""What the tests of quantised products share: cases of what follows the sums, and references."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from benchmarks import abi
from codegen_cc.dtypes import KERNEL_DTYPES
from codegen_cc.operators.packing import PanelFormat, pad_channels
from tests.kernels import cases, reference
from tests.kernels.guard import Rows, assert_close, at_page_end

PANELS = PanelFormat("int8", 4)
#: dtype and zero point of x.
INPUTS = (("uint8", 0), ("uint8", 128), ("uint8", 255), ("int8", 0), ("int8", -128), ("int8", 127))
#: Error of v in fp32, as a share of the numbers that it is the sum of.
RELATIVE = 2e-6
#: The same of activations that are polynomials, of numbers up to about 4.
ABSOLUTE = 4e-6
#: Of the integers that sums are rounded to first.
INNER_SCALE = 0.0251
#: The largest share of results that may lie so close to a tie that fp32 may round either way.
NEAR_TIES = 0.01


@dataclass(frozen=True)
class Requantise:
    """What follows the sums.

    ``inner`` is "" or the dtype that they are rounded to first; ``residual`` is "", a dtype, or "y"
    (y itself).
    """

    y: str = "uint8"
    y_zero: int = 128
    bias: bool = True
    before: cases.Act = cases.NONE
    inner: str = ""
    inner_zero: int = 0
    residual: str = ""
    residual_zero: int = 0
    after: cases.Act = cases.NONE

    def __str__(self) -> str:
        residual = f"-{self.residual}{self.residual_zero}" * bool(self.residual)
        y = f"{self.y}_{self.y_zero}{'-bias' * self.bias}"
        inner = f"-{self.inner}{self.inner_zero}" * bool(self.inner)
        return f"{y}-{self.before[0]}{inner}{residual}-{self.after[0]}"


PLAIN = Requantise()
SUMS = Requantise(y="float32", bias=False)
EPILOGUES: tuple[Requantise, ...] = (
    *(Requantise(y, zero) for y, zero in (("uint8", 0), ("uint8", 255), ("int8", -128))),
    Requantise("int8", 5, bias=False),
    Requantise("float32", after=cases.RELU),
    *(Requantise(after=act) for act in (cases.RELU, cases.RELU6, ("hard_swish", 0, 0))),
    Requantise(before=cases.RELU6),
    Requantise(before=("silu", 0, 0)),
    *(Requantise(residual=r, residual_zero=z) for r, z in (("uint8", 130), ("int8", -3))),
    Requantise(residual="float32", after=cases.RELU),
    Requantise("int8", 0, residual="int8", residual_zero=127, before=cases.RELU, after=cases.RELU6),
    Requantise("float32", residual="uint8", residual_zero=255, after=("sigmoid", 0, 0)),
    Requantise("float32", residual="float32", before=("tanh", 0, 0)),
    Requantise("int8", -7, residual="y", residual_zero=-7, after=cases.RELU),
    Requantise("uint8", 3, residual="y", residual_zero=3, before=("gelu", 0, 0)),
    Requantise("float32", residual="y", after=("silu", 0, 0)),
    Requantise(inner="uint8", inner_zero=3),
    Requantise("int8", 5, inner="int8", inner_zero=-20, before=cases.RELU, bias=False),
    Requantise(inner="uint8", inner_zero=140, residual="uint8", residual_zero=7, after=cases.RELU),
    Requantise("int8", -9, inner="int8", residual="int8", residual_zero=4, before=cases.RELU6),
    Requantise("int8", 1, inner="uint8", inner_zero=128, residual="y", residual_zero=1),
    Requantise("float32", inner="int8", inner_zero=9, residual="uint8", residual_zero=128),
    Requantise(inner="uint8", inner_zero=99, residual="float32"),
    Requantise(inner="int8", before=("silu", 0, 0), residual="uint8", after=("sigmoid", 0, 0)),
)


def draw(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    """Any value of an 8-bit dtype, the least and the greatest among them; small fp32 numbers."""
    if dtype == "float32":
        return rng.uniform(-2, 2, shape).astype(np.float32)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def code(dtype: str) -> int:
    """The ``ext_dtype``."""
    return KERNEL_DTYPES.index(dtype)


def pack(matrices: np.ndarray) -> np.ndarray:
    """Pack weights [groups, K, N] of int8; nothing may be read past the last panel."""
    return at_page_end(PANELS.pack(matrices), np.int8)


def strided(values: np.ndarray, gap: int) -> Rows:
    """Rows of 8-bit integers, ``gap`` apart."""
    rows = Rows(*values.shape, values.shape[1] + gap, dtype=values.dtype)
    rows.view[...] = values
    return rows


class Output:
    """y [rows, columns], what follows its sums, and the residual."""

    def __init__(
        self,
        rng: np.random.Generator,
        case: Requantise,
        rows: int,
        w_sums: np.ndarray,
        terms: int,
        gap: int = 0,
    ) -> None:
        columns = len(w_sums)
        self.case = case
        self.y = Rows(rows, columns, columns + gap, dtype=case.y)
        # Sums become numbers around 1, and of these one in some overflows.
        spread = 74 * 74 * np.sqrt(max(terms, 1))
        scale = rng.uniform(0.5, 1.5, columns) / spread if case != SUMS else np.ones(columns)
        self.scale = scale.astype(np.float32)
        self.bias = draw(rng, "float32", columns) if case.bias else None
        self._keep = [at_page_end(pad_channels(w_sums), np.int32)]
        self._keep += [at_page_end(pad_channels(self.scale))]
        if self.bias is not None:
            self._keep += [at_page_end(pad_channels(self.bias))]
        self.e = abi.Requantise(
            *(array.ctypes.data for array in self._keep),
            before=abi.activation(*case.before),
            after=abi.activation(*case.after),
            y_dtype=code(case.y),
            y_scale=0.0173,
            y_zero=case.y_zero,
        )
        if case.inner:
            self.e.inner_dtype, self.e.inner_zero = code(case.inner), case.inner_zero
            self.e.inner_scale = INNER_SCALE
        self.residual: np.ndarray | None = None
        if case.residual:
            self._draw_residual(rng, rows, columns)

    def _draw_residual(self, rng: np.random.Generator, rows: int, columns: int) -> None:
        case, e = self.case, self.e
        dtype = case.y if case.residual == "y" else case.residual
        values = draw(rng, dtype, rows, columns)
        own = self.y if case.residual == "y" else Rows(rows, columns, columns + 2, 0, dtype)
        own.view[...] = values
        self._keep += [own.memory]
        e.residual, e.residual_stride, e.residual_dtype = own.pointer, own.stride, code(dtype)
        e.residual_scale, e.residual_zero = 0.0131, case.residual_zero
        self.residual = values.astype(np.float64)
        if dtype != "float32":
            self.residual = (self.residual - case.residual_zero) * float(np.float32(0.0131))

    def check(self, sums: np.ndarray) -> None:
        """Compare y with what follows the exact sums of (x - x_zero) * w [rows, columns]."""
        if self.case == SUMS:
            np.testing.assert_array_equal(self.y.view, sums.astype(np.float32))
        else:
            self._check_values(sums)
        self.y.check_gaps()

    def _check_values(self, sums: np.ndarray) -> None:
        case = self.case
        acc = sums * self.scale.astype(np.float64)
        parts = [part for part in (acc, self.bias, self.residual) if part is not None]
        limit = RELATIVE * sum(np.abs(part).astype(np.float64) for part in parts) + ABSOLUTE
        if case.inner:
            v = reference.epilogue(acc, self.bias, case.before, None, cases.NONE)
            step = float(np.float32(INNER_SCALE))
            near, integers = _rounded(v, step, case.inner, case.inner_zero, limit)
            limit = limit + near * step  # where fp32 may round to the integer beside it
            acc = (integers - case.inner_zero) * step
            v = reference.epilogue(acc, None, cases.NONE, self.residual, case.after)
        else:
            v = reference.epilogue(acc, self.bias, case.before, self.residual, case.after)
        if case.y == "float32":
            assert_close(self.y.view, v, limit)
            return
        step = float(np.float32(0.0173))
        near, want = _rounded(v, step, case.y, case.y_zero, limit)
        assert_close(self.y.view, want, near * np.ceil(limit / step))


def _rounded(
    v: np.ndarray, step: float, dtype: str, zero: int, limit: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Whether v, off by ``limit``, may become the integer beside its own; its own integer."""
    near = np.abs(np.abs(v / step - np.floor(v / step)) - 0.5) <= limit / step
    assert near.mean() <= NEAR_TIES if near.size > 1000 else True
    held = np.iinfo(dtype)
    return near.astype(np.float64), np.clip(np.rint(v / step) + zero, held.min, held.max)


def matmul_params(m: int, n: int, k: int, a_row: int, y_row: int) -> ctypes.Structure:
    """One product without batch axes, of dense columns of a."""
    return abi.MatmulParams(m=m, n=n, k=k, a_row=a_row, a_col=1, y_row=y_row)
