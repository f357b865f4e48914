"""Scales and shifts before a convolution or a product: in its weight and bias, or as they stand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from tvm.relax import op

import byoc
from byoc.canonicalise import apply_rule
from byoc.canonicalise.affine_before import affine_before
from tests.ir.test_prologue import kernels, plan_of
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import constant, onnx_model, operators, random, relax_module
from .rule_check import check

CONV, CONV3D, MATMUL = "relax.nn.conv2d", "relax.nn.conv3d", "relax.matmul"
ADD, MULTIPLY, RELU = "relax.add", "relax.multiply", "relax.nn.relu"


def affine(emit, x, *shape: int):
    """x * s + t by channel, in four steps."""
    y = emit(op.multiply(constant(random(*shape)), x))
    y = emit(op.subtract(y, constant(0.25)))
    y = emit(op.divide(y, constant(np.abs(random(*shape, seed=1)) + 1)))
    return emit(op.add(y, constant(random(*shape, seed=2))))


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_into_a_convolution(groups: int) -> None:
    def build(emit, x):
        weight = constant(random(8, 4 // groups, 3, 2, seed=3))
        y = emit(op.nn.conv2d(affine(emit, x, 1, 4, 1, 1), weight, groups=groups, strides=2))
        return emit(op.add(y, constant(random(8, 1, 1, seed=4))))

    check(build, affine_before, [CONV, ADD, ADD], random(2, 4, 7, 6), rtol=1e-4)


def test_into_a_convolution_of_volumes() -> None:
    def build(emit, x):
        weight = constant(random(5, 3, 2, 1, 2, seed=3))
        return emit(op.nn.conv3d(affine(emit, x, 3, 1, 1, 1), weight))

    check(build, affine_before, [CONV3D, ADD], random(1, 3, 4, 5, 6), rtol=1e-4)


@pytest.mark.parametrize("shape", [(6,), (1, 6), (1,)])
def test_into_a_product(shape: tuple[int, ...]) -> None:
    def build(emit, x):
        return emit(op.matmul(affine(emit, x, *shape), constant(random(6, 5, seed=3))))

    check(build, affine_before, [MATMUL, ADD], random(2, 3, 6), rtol=1e-4)


def test_a_scale_alone_passes_padding() -> None:
    def build(emit, x):
        y = emit(op.multiply(x, constant(random(4, 1, 1))))
        return emit(op.nn.conv2d(y, constant(random(4, 1, 3, 3)), padding=1, groups=4))

    check(build, affine_before, [CONV], random(2, 4, 5, 6), rtol=1e-4)


def shifted(emit, x, by: float = 0.5):
    return emit(op.add(x, constant(by)))


STAYING: dict[str, Callable] = {
    "a shift of what is padded": lambda emit, x, w: emit(
        op.nn.conv2d(shifted(emit, x), constant(random(4, 4, 3, 3)), padding=1)
    ),
    "a shift that is large": lambda emit, x, w: emit(
        op.nn.conv2d(shifted(emit, x, -100.0), constant(random(4, 4, 1, 1)))
    ),
    "read twice": lambda emit, x, w: emit(
        op.add(y := shifted(emit, x), emit(op.nn.conv2d(y, constant(random(4, 4, 1, 1)))))
    ),
    "a bias": lambda emit, x, w: emit(
        op.nn.conv2d(shifted(emit, emit(op.nn.conv2d(x, w))), constant(random(4, 4, 1, 1)))
    ),
    "a computed weight": lambda emit, x, w: emit(op.nn.conv2d(shifted(emit, x), w)),
    "a number for each pixel": lambda emit, x, w: emit(
        op.nn.conv2d(
            emit(op.multiply(x, constant(random(1, 1, 6, 6)))), constant(random(4, 4, 1, 1))
        )
    ),
}


@pytest.mark.parametrize("name", list(STAYING))
def test_what_must_stay(name: str) -> None:
    module = relax_module(STAYING[name], (1, 4, 6, 6), (4, 4, 1, 1))
    assert operators(apply_rule(module, affine_before)) == operators(module)


def patches() -> onnx.ModelProto:
    """An image of 0 to 1, normalised, in patches: how a ViT begins."""
    nodes = [
        helper.make_node("Sub", ["x", "mean"], ["a"]),
        helper.make_node("Div", ["a", "std"], ["b"]),
        helper.make_node("Conv", ["b", "w", "bias"], ["c"], "patches", strides=[4, 4]),
        helper.make_node("Tanh", ["c"], ["y"], "tanh"),
    ]
    weights = {
        "mean": np.array([0.485, 0.456, 0.406], "float32").reshape(1, 3, 1, 1),
        "std": np.array([0.229, 0.224, 0.225], "float32").reshape(1, 3, 1, 1),
        "w": random(16, 3, 4, 4, scale=0.1),
        "bias": random(16),
    }
    return onnx_model(nodes, {"x": ["n", 3, 16, 20]}, ["y"], weights)


def test_an_image_is_normalised_by_the_first_weight(tmp_path: Path) -> None:
    source, inputs = patches(), {"x": abs(random(2, 3, 16, 20)) % 1}
    assert [name for name in kernels(plan_of(source)) if name != "ext_copy"] == ["ext_conv2d"]
    assert len(byoc.compile(source, tmp_path / "m.so").report.regions) == 1
    got = byoc.load(tmp_path / "m.so").run(inputs)
    assert_agrees(got, onnxruntime_outputs(source, inputs))


def test_data_of_fewer_bits_are_shifted_before_they_are_rounded() -> None:
    found = kernels(plan_of(patches(), precision="bf16"))
    assert any(name.startswith(("ext_binary", "ext_multiply_add")) for name in found)
