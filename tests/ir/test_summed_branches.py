"""Sums of convolutions, or of matrix products, of one input: a single one, or as they stand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from tvm.relax import op

import byoc
from byoc.canonicalise import apply_rule
from byoc.canonicalise.summed_branches import summed_branches
from tests.ir.test_prologue import kernels, plan_of
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import constant, onnx_model, operators, random, relax_module
from .rule_check import check

CONV, CONV3D, MATMUL = "relax.nn.conv2d", "relax.nn.conv3d", "relax.matmul"
ADD, SUBTRACT, MULTIPLY = "relax.add", "relax.subtract", "relax.multiply"


def conv(emit, x, rows: int, columns: int, channels: tuple[int, int] = (4, 4), seed=0, **attrs):
    weight = constant(random(*channels, rows, columns, seed=seed + rows + 10 * columns))
    return emit(op.nn.conv2d(x, weight, **attrs))


def sum_of(emit, *summands):
    total = summands[0]
    for summand in summands[1:]:
        total = emit(op.add(total, summand))
    return total


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_three_branches_are_one_convolution(groups: int) -> None:
    def build(emit, x):
        of = partial(conv, emit, x, channels=(4, 4 // groups), groups=groups)
        wide = emit(op.add(of(3, 3, padding=1), constant(random(1, 4, 1, 1))))
        scaled = emit(op.multiply(x, constant(random(1, 4, 1, 1, seed=3))))
        scaled = emit(op.add(scaled, constant(random(4, 1, 1, seed=4))))
        narrow = emit(op.add(of(1, 1), constant(0.5)))
        return emit(op.nn.relu(sum_of(emit, narrow, wide, scaled)))

    check(build, summed_branches, [CONV, ADD, "relax.nn.relu"], random(2, 4, 5, 6))


def test_the_input_itself_is_a_branch_whose_weight_is_one() -> None:
    def build(emit, x):
        return emit(op.add(x, conv(emit, x, 7, 7, (4, 1), padding=3, groups=4)))

    check(build, summed_branches, [CONV], random(1, 4, 9, 8))


def test_channels_of_volumes() -> None:
    def build(emit, x):
        wide = emit(op.nn.conv3d(x, constant(random(4, 4, 3, 1, 3)), padding=[1, 0, 1]))
        narrow = emit(op.nn.conv3d(x, constant(random(4, 4, 1, 1, 1, seed=1))))
        return sum_of(emit, narrow, wide, x)

    check(build, summed_branches, [CONV3D], random(1, 4, 3, 4, 5), rtol=1e-4)


WINDOWS: dict[str, Callable] = {
    "strides": lambda emit, x: (
        conv(emit, x, 3, 3, padding=1, strides=2),
        conv(emit, x, 1, 1, strides=2),
    ),
    "pads of one side": lambda emit, x: (
        conv(emit, x, 2, 2, padding=[0, 0, 1, 1]),
        conv(emit, x, 1, 1),
        conv(emit, x, 1, 2, padding=[0, 0, 0, 1]),
    ),
    "a dilated window in a dense one": lambda emit, x: (
        conv(emit, x, 3, 3, padding=2, dilation=2),
        conv(emit, x, 5, 5, padding=2),
    ),
    "a row and a column": lambda emit, x: (
        conv(emit, x, 1, 3, padding=[0, 1]),
        conv(emit, x, 3, 3, padding=1),
        conv(emit, x, 3, 1, padding=[1, 0]),
    ),
    "the same window": lambda emit, x: (
        conv(emit, x, 3, 3, padding=1),
        conv(emit, x, 3, 3, padding=1, seed=5),
    ),
}


@pytest.mark.parametrize("name", list(WINDOWS))
def test_smaller_windows_go_into_the_largest(name: str) -> None:
    def build(emit, x):
        return sum_of(emit, *WINDOWS[name](emit, x))

    check(build, summed_branches, [CONV], random(1, 4, 7, 9), rtol=1e-4)


def test_differences_of_pixels() -> None:
    """Central differences: a convolution less the window's sum times the pixel."""

    def build(emit, x, z):
        wide = conv(emit, x, 3, 3, padding=1)
        less = emit(op.subtract(conv(emit, x, 1, 1), z))
        return emit(op.subtract(wide, less))

    shape = (1, 4, 5, 5)
    check(build, summed_branches, [CONV, ADD], random(*shape), random(*shape, seed=1), rtol=1e-4)


def test_other_summands_stay() -> None:
    def build(emit, x, z):
        pixels = constant(random(1, 4, 5, 5, seed=8))
        total = sum_of(emit, conv(emit, x, 1, 1), z, conv(emit, x, 3, 3, padding=1))
        return emit(op.subtract(emit(op.add(total, pixels)), z))

    expected = [CONV, ADD, ADD, SUBTRACT]
    shape = (1, 4, 5, 5)
    check(build, summed_branches, expected, random(*shape), random(*shape, seed=1), rtol=1e-4)


def test_branches_of_two_inputs_are_two_convolutions() -> None:
    def build(emit, x, z):
        branches = [conv(emit, v, n, n, padding=n // 2) for n in (1, 3) for v in (x, z)]
        return sum_of(emit, *branches)

    shape = (1, 4, 5, 5)
    inputs = random(*shape), random(*shape, seed=1)
    check(build, summed_branches, [CONV, CONV, ADD], *inputs, rtol=1e-4)


def test_low_rank_products_go_into_the_full_one() -> None:
    def build(emit, x):
        full = emit(op.add(emit(op.matmul(x, constant(random(6, 5)))), constant(random(5))))
        low = emit(op.matmul(x, constant(random(6, 2, seed=1))))
        low = emit(op.matmul(low, constant(random(2, 5, seed=2))))
        again = emit(op.matmul(x, constant(random(6, 5, seed=3))))
        return sum_of(emit, full, low, again)

    check(build, summed_branches, [MATMUL, ADD], random(2, 3, 6), rtol=1e-4)


STAYING: dict[str, Callable] = {
    "read twice": lambda emit, x, w: sum_of(
        emit, c := conv(emit, x, 1, 1), conv(emit, x, 3, 3, padding=1), emit(op.nn.relu(c))
    ),
    "computed weight": lambda emit, x, w: sum_of(
        emit, emit(op.nn.conv2d(x, w)), conv(emit, x, 3, 3, padding=1)
    ),
    "a row beside a column": lambda emit, x, w: sum_of(
        emit, conv(emit, x, 1, 3, padding=[0, 1]), conv(emit, x, 3, 1, padding=[1, 0])
    ),
    "taps between others": lambda emit, x, w: sum_of(
        emit, conv(emit, x, 3, 3, padding=1), conv(emit, x, 3, 3, padding=2, dilation=2)
    ),
    "a bias that rounds": lambda emit, x, w: emit(
        op.add(
            emit(op.add(conv(emit, x, 1, 1), constant(np.float32(1.5 * 2**23)))),
            conv(emit, x, 3, 3, padding=1),
        )
    ),
    "scales of pixels": lambda emit, x, w: sum_of(
        emit, emit(op.multiply(x, constant(random(1, 1, 6, 6)))), conv(emit, x, 1, 1)
    ),
    "other groups": lambda emit, x, w: sum_of(
        emit, conv(emit, x, 1, 1), conv(emit, x, 3, 3, (4, 1), padding=1, groups=4)
    ),
}


@pytest.mark.parametrize("name", list(STAYING))
def test_sums_that_must_stay(name: str) -> None:
    module = relax_module(STAYING[name], (1, 4, 6, 6), (4, 4, 1, 1))
    assert operators(apply_rule(module, summed_branches)) == operators(module)


def block(batch: int | str = 2) -> onnx.ModelProto:
    """A block of RepVGG in ONNX: windows of 3 and 1, and the input, each with a batch norm."""
    nodes = [
        helper.make_node("Conv", ["x", "w3"], ["c3"], "wide", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["x", "w1"], ["c1"], "narrow"),
        *(
            helper.make_node("BatchNormalization", [data, "g", "b", "m", "v"], [f"n{data}"])
            for data in ("c3", "c1", "x")
        ),
        helper.make_node("Sum", ["nc3", "nc1", "nx"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"], "relu"),
    ]
    weights = {"w3": random(16, 16, 3, 3, scale=0.1), "w1": random(16, 16, 1, 1, seed=1)}
    weights |= {name: np.abs(random(16, seed=i)) + 0.5 for i, name in enumerate("gbmv")}
    return onnx_model(nodes, {"x": [batch, 16, 9, 11]}, ["y"], weights)


def computing(source: onnx.ModelProto, **options: object) -> list[str]:
    """The kernels that the plan of a network calls, but for copies into other layouts."""
    return [name for name in kernels(plan_of(source, **options)) if name != "ext_copy"]


@pytest.mark.parametrize("batch", [2, "n"])
def test_a_block_trained_in_branches_is_one_call(batch: int | str, tmp_path: Path) -> None:
    source, inputs = block(batch), {"x": random(2, 16, 9, 11)}
    (kernel,) = computing(source)
    assert kernel.startswith("ext_conv2d")
    compiled = byoc.compile(source, tmp_path / "block.so")
    assert len(compiled.report.regions) == 1
    got = byoc.load(tmp_path / "block.so").run(inputs)
    assert_agrees(got, onnxruntime_outputs(source, inputs))


def test_a_scaled_sum_is_a_branch_itself() -> None:
    """The mixer of FastViT: x + s (conv(x) - norm(x))."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "mix", pads=[1, 1, 1, 1], group=16),
        helper.make_node("BatchNormalization", ["x", "g", "b", "m", "v"], ["n"], "norm"),
        helper.make_node("Sub", ["c", "n"], ["d"]),
        helper.make_node("Mul", ["s", "d"], ["e"]),
        helper.make_node("Add", ["x", "e"], ["y"]),
    ]
    weights = {"w": random(16, 1, 3, 3), "s": random(16, 1, 1, seed=7)}
    weights |= {name: np.abs(random(16, seed=i)) + 0.5 for i, name in enumerate("gbmv")}
    assert computing(onnx_model(nodes, {"x": [2, 16, 9, 11]}, ["y"], weights)) == [
        "ext_depthwise_conv2d"
    ]


def test_exact_networks_keep_their_branches() -> None:
    """An infinity times one weight less one times another is NaN, and no infinity of their sum."""
    found = computing(block(), exact=True)
    assert found.count("ext_conv2d") == 2


def test_weights_of_fewer_bits_have_no_ones_added() -> None:
    """1 + w in bfloat16 has 7 bits, w alone has as many below its own first one."""
    found = computing(block(), precision="bf16")
    assert found == ["ext_binary_bf16", "ext_cast", "ext_conv2d_bf16"]
