"""Which composites the matcher makes. Kernels are asked nothing here: everything is supported."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import byoc.partition.epilogues
from byoc.partition.annotate import annotate
from byoc.partition.merge import merge
from byoc.patterns import ROWS, TABLE
from codegen_cc.activations import ACTIVATIONS
from codegen_cc.node import Node

from .graphs import constant, random, regions, relax_module
from .interpret import Interpreter, run_with_tvm, without_regions

pytestmark = pytest.mark.usefixtures("everything_is_supported")


def check(
    build: Callable[..., relax.Expr], expected: list[str], *inputs: np.ndarray
) -> tvm.IRModule:
    """Compare composites of the one region, and values of descriptors and bodies with TVM's."""
    mod = relax_module(build, *(array.shape for array in inputs))
    out = merge(annotate(mod))
    relax.analysis.well_formed(out)
    assert regions(out) == {"ext_main_0": expected}
    want = run_with_tvm(mod, *inputs)
    for got in (Interpreter(out)(*inputs), run_with_tvm(without_regions(out), *inputs)):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    return out


def conv(emit, x, channels: int = 4, seed: int = 0, **attrs):
    """A 3x3 convolution that keeps the size."""
    weight = constant(random(channels, int(x.ty.shape[1]), 3, 3, seed=seed))
    return emit(op.nn.conv2d(x, weight, padding=1, **attrs))


IMAGE = random(1, 4, 5, 6)


# ---------------------------------------------------------------------- epilogues


def test_full_epilogue_of_a_convolution() -> None:
    def build(emit, x, r):
        y = emit(op.add(conv(emit, x), constant(random(1, 4, 1, 1))))
        y = emit(op.nn.relu(y))
        return emit(op.tanh(emit(op.add(r, y))))

    check(build, ["ext.conv2d_bias_relu_residual_tanh"], IMAGE, random(1, 4, 5, 6, seed=1))


@pytest.mark.parametrize("shape", [(1, 4, 1, 1), (4, 1, 1)])
def test_bias_of_a_convolution(shape: tuple[int, ...]) -> None:
    def build(emit, x):
        return emit(op.add(constant(random(*shape)), conv(emit, x)))

    check(build, ["ext.conv2d_bias"], IMAGE)


@pytest.mark.parametrize("shape", [(1, 1, 1, 6), (6,), (1, 4, 5, 6), (1,)])
def test_other_constants_are_no_bias(shape: tuple[int, ...]) -> None:
    def build(emit, x):
        return emit(op.add(conv(emit, x), constant(random(*shape))))

    check(build, ["ext.conv2d", "ext.add"], IMAGE)


@pytest.mark.parametrize("shape", [(5,), (1, 5), (1, 1, 5)])
def test_bias_of_a_matmul(shape: tuple[int, ...]) -> None:
    def build(emit, x):
        y = emit(op.matmul(x, constant(random(3, 5))))
        return emit(op.nn.gelu(emit(op.add(y, constant(random(*shape))))))

    check(build, ["ext.matmul_bias_gelu"], random(2, 4, 3))


def test_matmul_of_two_variables_and_residual() -> None:
    def build(emit, a, b, r):
        return emit(op.add(emit(op.matmul(a, b)), r))

    arrays = (random(2, 4, 3), random(2, 3, 5), random(2, 4, 5))
    check(build, ["ext.matmul_residual"], *arrays)


def test_broadcast_addition_is_no_residual() -> None:
    def build(emit, x, r):
        return emit(op.add(conv(emit, x), r))

    check(build, ["ext.conv2d", "ext.add"], IMAGE, random(1, 4, 1, 1))


def test_adding_a_value_to_itself_is_no_residual() -> None:
    def build(emit, x):
        y = conv(emit, x)
        return emit(op.add(y, y))

    check(build, ["ext.conv2d", "ext.add"], IMAGE)


def test_shared_value_ends_the_chain() -> None:
    def build(emit, x):
        y = conv(emit, x)
        return emit(op.multiply(emit(op.nn.relu(y)), y))

    check(build, ["ext.conv2d", "ext.relu", "ext.mul"], IMAGE)


def test_result_ends_the_chain() -> None:
    def build(emit, x):
        y = conv(emit, x)
        return relax.Tuple([y, emit(op.nn.relu(y))])

    check(build, ["ext.conv2d", "ext.relu"], IMAGE)


def test_the_later_of_two_convolutions_takes_the_addition() -> None:
    def build(emit, x):
        first = conv(emit, x, seed=1)
        second = conv(emit, emit(op.nn.relu(conv(emit, x, seed=2))), seed=3)
        return emit(op.nn.relu(emit(op.add(first, second))))

    out = check(build, ["ext.conv2d", "ext.conv2d_relu", "ext.conv2d_residual_relu"], IMAGE)
    node = _nodes(out)[-1]
    assert node.operand("residual").shape == (1, 4, 5, 6)
    assert not node.operand("residual").constant


def test_chain_of_residual_blocks() -> None:
    def build(emit, x):
        for seed in range(3):
            y = emit(op.nn.relu(conv(emit, x, seed=seed)))
            x = emit(op.nn.relu(emit(op.add(conv(emit, y, seed=seed + 9), x))))
        return x

    check(build, ["ext.conv2d_relu", "ext.conv2d_residual_relu"] * 3, IMAGE * 0.1)


def test_refused_steps_stay_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_relu(node: Node) -> str | None:
        return "no relu" if any(step.kind == "relu" for step in node.epilogue) else None

    monkeypatch.setattr(byoc.partition.epilogues, "supports", no_relu)

    def build(emit, x):
        return emit(op.nn.relu(emit(op.add(conv(emit, x), constant(random(1, 4, 1, 1))))))

    check(build, ["ext.conv2d_bias", "ext.relu"], IMAGE)


def _nodes(mod: tvm.IRModule) -> list[Node]:
    from byoc.partition.prune import nodes_of

    return list(nodes_of(mod["ext_main_0"]))


# ---------------------------------------------------------------------- functions of one tensor


def hard_swish(emit, x, form: str):
    ramp = emit(op.clip(emit(op.add(x, constant(3.0))), 0, 6))
    if form == "x * (ramp / 6)":
        return emit(op.multiply(x, emit(op.divide(ramp, constant(6.0)))))
    if form == "(x * ramp) / 6":
        return emit(op.divide(emit(op.multiply(x, ramp)), constant(6.0)))
    if form == "(ramp * 1/6) * x":
        return emit(op.multiply(emit(op.multiply(ramp, constant(1 / 6))), x))
    if form == "(x / 6) * ramp":
        return emit(op.multiply(emit(op.divide(x, constant(6.0))), ramp))
    line = emit(op.add(emit(op.multiply(x, constant(1 / 6))), constant(0.5)))
    return emit(op.multiply(emit(op.clip(line, 0, 1)), x))


FORMS = ["x * (ramp / 6)", "(x * ramp) / 6", "(ramp * 1/6) * x", "(x / 6) * ramp", "hard sigmoid"]


@pytest.mark.parametrize("form", FORMS)
def test_hard_swish(form: str) -> None:
    def build(emit, x):
        return hard_swish(emit, x, form)

    check(build, ["ext.hard_swish"], random(2, 9, scale=4))


@pytest.mark.parametrize("form", FORMS)
def test_hard_swish_after_a_convolution(form: str) -> None:
    def build(emit, x):
        return hard_swish(emit, conv(emit, x), form)

    check(build, ["ext.conv2d_hard_swish"], IMAGE)


@pytest.mark.parametrize("form", FORMS)
def test_hard_swish_after_an_addition(form: str) -> None:
    def build(emit, x, y):
        return hard_swish(emit, emit(op.add(x, y)), form)

    check(build, ["ext.add_hard_swish"], random(2, 9, scale=4), random(2, 9, seed=1))


@pytest.mark.parametrize("form", ["line", "ramp"])
def test_hard_sigmoid(form: str) -> None:
    def build(emit, x):
        if form == "line":
            line = emit(op.add(emit(op.multiply(constant(0.2), x)), constant(0.5)))
            return emit(op.clip(line, 0, 1))
        ramp = emit(op.clip(emit(op.add(x, constant(3.0))), 0, 6))
        return emit(op.divide(ramp, constant(6.0)))

    out = check(build, ["ext.hard_sigmoid"], random(2, 9, scale=4))
    alpha, beta = _nodes(out)[0].attrs["alpha"], _nodes(out)[0].attrs["beta"]
    np.testing.assert_allclose((alpha, beta), (0.2 if form == "line" else 1 / 6, 0.5), rtol=1e-6)


def test_hard_sigmoid_gate() -> None:
    def build(emit, x):
        gate = emit(op.mean(x, [2, 3], keepdims=True))
        line = emit(op.add(emit(op.multiply(constant(0.2), gate)), constant(0.5)))
        return emit(op.multiply(x, emit(op.clip(line, 0, 1))))

    check(build, ["ext.reduce_mean", "ext.hard_sigmoid", "ext.mul"], IMAGE)


def test_almost_hard_swish_is_taken_apart() -> None:
    def build(emit, x):
        ramp = emit(op.clip(emit(op.add(x, constant(3.0))), 0, 5))
        return emit(op.divide(emit(op.multiply(x, ramp)), constant(6.0)))

    check(build, ["ext.add_clip", "ext.mul", "ext.div"], random(2, 9, scale=4))


def test_inner_value_of_an_idiom_that_is_read_elsewhere() -> None:
    def build(emit, x):
        shifted = emit(op.add(x, constant(3.0)))
        y = emit(op.multiply(x, emit(op.clip(shifted, 0, 6))))
        return emit(op.add(emit(op.divide(y, constant(6.0))), shifted))

    check(build, ["ext.add", "ext.clip", "ext.mul", "ext.div", "ext.add"], random(2, 9))


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (op.nn.relu, "relu"),
        (lambda x: op.clip(x, -0.5, 0.75), "clip"),
        (op.sigmoid, "sigmoid"),
        (op.tanh, "tanh"),
        (op.exp, "exp"),
        (op.erf, "erf"),
        (op.abs, "abs"),
        (op.negative, "neg"),
        (op.nn.silu, "silu"),
        (op.nn.gelu, "gelu"),
        (op.nn.gelu_tanh, "gelu_tanh"),
        (lambda x: op.nn.leakyrelu(x, 0.1), "leaky_relu"),
    ],
)
def test_unary(function: Callable, kind: str) -> None:
    assert kind in ACTIVATIONS
    check(lambda emit, x: emit(function(x)), [f"ext.{kind}"], random(2, 9))


@pytest.mark.parametrize(("function", "kind"), [(op.log, "log"), (op.sqrt, "sqrt")])
def test_unary_of_positive(function: Callable, kind: str) -> None:
    check(lambda emit, x: emit(function(x)), [f"ext.{kind}"], np.abs(random(2, 9)) + 0.1)


# ---------------------------------------------------------------------- single rows


@pytest.mark.parametrize("strides", [(1, 1), (2, 1)])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolution_attributes(strides: tuple[int, int], groups: int) -> None:
    def build(emit, x):
        weight = constant(random(4, 4 // groups, 3, 2))
        return emit(
            op.nn.conv2d(
                x, weight, strides=strides, padding=[1, 0, 2, 1], dilation=[1, 2], groups=groups
            )
        )

    check(build, ["ext.conv2d"], IMAGE)


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("kind", ["max", "avg", "avg with padding"])
def test_pooling(kind: str, ceil_mode: bool) -> None:
    def build(emit, x):
        pool = op.nn.max_pool2d if kind == "max" else op.nn.avg_pool2d
        include = kind == "avg with padding"
        pads = [1, 1, 1, 1]
        return emit(pool(x, (3, 3), (2, 2), pads, (1, 1), ceil_mode, include))

    name = "max_pool2d" if kind == "max" else "avg_pool2d"
    check(build, [f"ext.{name}"], random(1, 2, 7, 7))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda emit, x: emit(op.sum(x, [-1])), "reduce_sum"),
        (lambda emit, x: emit(op.mean(x, [1, -1], keepdims=True)), "reduce_mean"),
        (lambda emit, x: emit(op.max(x)), "reduce_max"),
        (lambda emit, x: emit(op.min(x, [0])), "reduce_min"),
        (lambda emit, x: emit(op.nn.softmax(x, axis=-2)), "softmax"),
        (lambda emit, x: emit(op.nn.log_softmax(x, axis=1)), "softmax"),
        (lambda emit, x: emit(op.permute_dims(x, [2, 0, 1])), "permute"),
        (lambda emit, x: emit(op.permute_dims(x)), "permute"),
        (lambda emit, x: emit(op.concat([x, x], axis=-1)), "concat"),
        (lambda emit, x: emit(op.strided_slice(x, [-1, 1], [0, -2], [9, 9], [2, 1])), "slice"),
        (lambda emit, x: emit(op.broadcast_to(x, [5, 2, 3, 4])), "broadcast_to"),
        (lambda emit, x: emit(op.reshape(x, [6, 4])), "reshape"),
        (lambda emit, x: emit(op.squeeze(emit(op.expand_dims(x, 0)), [0])), None),
        (lambda emit, x: emit(op.power(x, constant(2.0))), "pow"),
        (lambda emit, x: emit(op.subtract(constant(random(4)), x)), "sub"),
        (lambda emit, x: emit(op.divide(x, constant(random(3, 1)))), "div"),
        (lambda emit, x: emit(op.maximum(x, constant(0.1))), "max"),
        (lambda emit, x: emit(op.minimum(x, x)), "min"),
    ],
)
def test_rows(build: Callable, expected: str | None) -> None:
    names = ["ext.reshape"] * 2 if expected is None else [f"ext.{expected}"]
    check(build, names, random(2, 3, 4))


def test_layer_norm() -> None:
    def build(emit, x):
        gamma, beta = constant(random(3, 4)), constant(random(3, 4, seed=1))
        return emit(op.nn.layer_norm(x, gamma, beta, [-2, -1], 1e-5))

    check(build, ["ext.layer_norm"], random(2, 3, 4))


def test_one_row_for_each_operator() -> None:
    assert len(TABLE) == len(ROWS)
