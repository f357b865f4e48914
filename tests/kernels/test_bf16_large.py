"""Products of bf16 that are too large for one block: of K, of rows, of columns with sums."""

from __future__ import annotations

import ctypes

import pytest

from tests.kernels import cases
from tests.kernels.every import every
from tests.kernels.guest import GuestLibrary
from tests.kernels.test_bf16 import STORED, matmul

LARGE = (
    # Shorter blocks of K, of which more rows fit L2 (with tiles).
    cases.Matmul(170, 130, 4200, y_gap=1, epilogue=cases.EPILOGUES[7]),
    # Sums between blocks of K of more columns than stay close.
    cases.Matmul(224, 2350, 4128, epilogue=cases.EPILOGUES[6]),
)


@pytest.mark.slow
@every(("index", "case"), list(enumerate(LARGE)), ids=map(str, LARGE))
def test_matmul(bf16_lib: ctypes.CDLL, index: int, case: cases.Matmul) -> None:
    if isinstance(bf16_lib, GuestLibrary):
        pytest.skip("an emulated CPU takes a minute")
    matmul(bf16_lib, case, STORED[index])
