"""Shrink of all kinds of numbers, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

import byoc.frontends.onnx.backend as backend
from tests.ir.test_own_converters import One, check, model_of, normal

#: ``lambd`` and ``bias``; below 0 the two sides overlap, and the lower one counts.
ATTRIBUTES = ((0.5, 0.5), (1.5, -1.5), (0.2, 2.7), (-1.5, 0.5), (0.0, 300.0))


def forms(dtype: str) -> list[One]:
    values = normal(40, seed=1) * (1 if dtype.startswith("float") else 20)
    if dtype.startswith("uint"):
        values = np.abs(values)
    values[:4] = [0, 1, 2, 3]
    return [
        One("Shrink", {"x": values.astype(dtype)}, attributes={"lambd": limit, "bias": bias})
        for limit, bias in ATTRIBUTES
    ]


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "int8", "int32", "int64", "uint8", "uint32", "uint64"]
)
def test_fractions_of_the_attributes_count(dtype: str) -> None:
    """Of integers too, and what lies below 0 of unsigned ones wraps around."""
    check(forms(dtype))


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_is_offloaded(dtype: str) -> None:
    report = backend.prepare(model_of(forms(dtype), 19), min_bytes=0).report
    assert not report.left
