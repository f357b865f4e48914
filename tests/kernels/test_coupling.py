"""``ext_coupling`` beside the probabilities that pairs were made of."""

from __future__ import annotations

import ctypes
from itertools import combinations

import numpy as np

from benchmarks import abi
from tests.kernels.every import every
from tests.kernels.guard import at_page_end


def _coupled(lib: ctypes.CDLL, pairs: np.ndarray, classes: int) -> np.ndarray:
    x, y = at_page_end(pairs), at_page_end(np.zeros((len(pairs), classes)))
    params = abi.CouplingParams(rows=len(pairs), classes=classes)
    assert lib.ext_coupling(params, x.ctypes.data, y.ctypes.data) == 0
    return y


@every(("rows", "classes"), [(0, 3), (1, 2), (70, 3), (5, 9)])
def test_pairs_that_agree(lib: ctypes.CDLL, rows: int, classes: int) -> None:
    """The answer is what they were made of, up to where the rounds stop."""
    want = np.random.default_rng(rows).random((rows, classes)) + 0.05
    want /= want.sum(1, keepdims=True)
    pairs = [want[:, i] / (want[:, i] + want[:, j]) for i, j in combinations(range(classes), 2)]
    got = _coupled(lib, np.stack(pairs, 1), classes)
    assert np.allclose(got.sum(1), 1, atol=1e-5)
    assert np.allclose(got, want, atol=0.03)


def test_pairs_that_tell_nothing(lib: ctypes.CDLL) -> None:
    assert np.allclose(_coupled(lib, np.full((2, 3), np.nan), 3), 1 / 3)


def test_one_class_is_refused(lib: ctypes.CDLL) -> None:
    assert lib.ext_coupling(abi.CouplingParams(rows=1, classes=1), None, None) == 2
