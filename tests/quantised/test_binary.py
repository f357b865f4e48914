"""Sums and products of two quantised tensors: one kernel on integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.quantised.networks import MIDDLE, Quantised
from tests.quantised.test_products import algorithms, run

ZEROS = (MIDDLE, np.uint8(3))


def network(kind: str, *after: str, shapes=((2, 8, 5, 7),) * 2, zeros=ZEROS, to=MIDDLE):
    net = Quantised()
    sides = [
        net.there_and_back(net.input(*shape), scale, zero)
        for shape, scale, zero in zip(shapes, (0.03, 0.05), zeros, strict=True)
    ]
    y = net.op(kind, *sides)
    for name in after:
        y = net.op(name, y)
    return net.model(y if to is None else net.quantize(y, 0.06, to))


@pytest.mark.parametrize("after", [(), ("Relu",), ("Sigmoid",)], ids=str)
@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul"])
def test_one_kernel(kind: str, after: tuple[str, ...], tmp_path: Path) -> None:
    compiled = run(network(kind, *after), tmp_path)
    report = compiled.report
    assert report.left == () and len(report.regions) == 1
    assert "binary, int8" in algorithms(compiled)
    assert [use.nodes for use in report.kernels if use.algorithm == "quantize"] == [2]


@pytest.mark.parametrize(
    ("zeros", "to"),
    [
        ((np.int8(-7), np.int8(9)), np.int8(0)),
        ((np.int8(-128), np.uint8(255)), np.uint8(0)),
        ((MIDDLE, MIDDLE), None),
    ],
    ids=["int8", "mixed", "float"],
)
def test_other_dtypes(zeros, to, tmp_path: Path) -> None:
    compiled = run(network("Add", zeros=zeros, to=to), tmp_path)
    assert "binary, int8" in algorithms(compiled) and compiled.report.left == ()


def test_a_tensor_with_itself(tmp_path: Path) -> None:
    net = Quantised()
    x = net.there_and_back(net.input(3, 70), 0.04)
    compiled = run(net.model(net.quantize(net.op("Mul", x, x), 0.09)), tmp_path)
    assert "lookup" in algorithms(compiled) and compiled.report.left == ()


@pytest.mark.parametrize("other", [(8, 1, 1), (1,), (2, 8, 1, 7)], ids=str)
def test_what_is_broadcast_is_computed_in_float32(other, tmp_path: Path) -> None:
    compiled = run(network("Mul", shapes=((2, 8, 5, 7), other)), tmp_path)
    assert compiled.report.left == () and len(compiled.report.regions) == 1
    assert "binary" in algorithms(compiled)
