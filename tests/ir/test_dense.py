"""Copies in C order: the same values, whatever the order and the sizes that they come in."""

from __future__ import annotations

import numpy as np
import pytest

from byoc.ir.dataflow import array_of, constant
from byoc.ir.dense import dense

SHAPES = [(), (0, 3), (1, 5), (5, 1), (255, 257), (256, 512), (700, 300), (2, 300, 3)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool"])
def test_values_stay(dtype: str) -> None:
    for shape in SHAPES:
        given = np.random.default_rng(0).integers(-3, 3, shape).astype("float32")
        for values in (given, given.T, given.T[::-1, ...] if shape else given):
            copy = dense(values, dtype)
            assert copy.flags.c_contiguous and copy.dtype == dtype and copy.shape == values.shape
            np.testing.assert_array_equal(copy, values.astype(dtype))
            np.testing.assert_array_equal(array_of(constant(values, dtype)), values.astype(dtype))


def test_what_is_dense_is_not_copied() -> None:
    given = np.ones((300, 300), "float32")
    assert np.shares_memory(dense(given, "float32"), given)
