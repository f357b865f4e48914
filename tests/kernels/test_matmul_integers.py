"""Products of int32 and int64 against numpy."""

from __future__ import annotations

import ctypes

import numpy as np

from benchmarks import abi
from codegen_cc.dtypes import KERNEL_DTYPES
from tests.kernels.every import every
from tests.kernels.guard import Rows, at_page_end

#: (batch, m, k, n)
SHAPES = [
    ((), 1, 1, 1),
    ((), 5, 7, 65),
    ((), 4, 300, 64),
    ((), 130, 9, 3),
    ((2, 3), 6, 11, 130),
    ((3,), 2, 0, 5),
    ((), 0, 4, 5),
    ((0,), 2, 4, 5),
]


def drawn(dtype: str, *shape: int) -> np.ndarray:
    """Small numbers, and some whose products wrap around."""
    draw = np.random.default_rng(3)
    limits = np.iinfo(dtype)
    large = draw.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    small = draw.integers(-9, 9, shape, dtype)
    return np.where(draw.uniform(size=shape) < 0.2, large, small)


def steps(array: np.ndarray) -> list[int]:
    return [stride // array.itemsize for stride in array.strides]


@every("dtype", ["int32", "int64"])
@every("turned", [False, True], ids=["rows", "turned"])
@every(("batch", "m", "k", "n"), SHAPES, ids=str)
def test_products(
    lib: ctypes.CDLL, batch: tuple[int, ...], m: int, k: int, n: int, turned: bool, dtype: str
) -> None:
    """One right side for all batches where it is ``turned``, whose columns are adjacent then."""
    a = at_page_end(drawn(dtype, *batch, m, k), dtype)
    shape = (n, k) if turned else (*batch, k, n)
    b = at_page_end(drawn(dtype, *shape), dtype)
    b = b.T if turned else b
    y = Rows(int(np.prod(batch, dtype=int)) * m, n, n + 3, dtype=np.dtype(dtype))
    p = abi.MatmulParams(m=m, n=n, k=k, y_row=n + 3, batch_ndim=len(batch))
    p.a_row, p.a_col = steps(a)[-2:]
    p.b_row, p.b_col = steps(b)[-2:]
    for d, extent in enumerate(batch):
        p.batch[d] = extent
        p.a_batch[d] = steps(a)[d]
        p.b_batch[d] = 0 if turned else steps(b)[d]
        p.y_batch[d] = int(np.prod(batch[d + 1 :], dtype=int)) * m * (n + 3)
    status = lib.ext_matmul_integers(
        KERNEL_DTYPES.index(dtype), p, a.ctypes.data, b.ctypes.data, y.pointer
    )
    assert status == 0
    np.testing.assert_array_equal(y.view, (a @ b).reshape(y.view.shape))
    y.check_gaps()
