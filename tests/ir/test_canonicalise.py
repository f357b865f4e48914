"""Each rule alone: the operators that come out, and that values stay."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax, te, topi
from tvm.relax import op

from byoc.canonicalise import apply_rule, canonicalise
from byoc.canonicalise.clip_from_call_tir import clip_from_call_tir, elementwise_bound
from byoc.canonicalise.elementwise_from_stack import elementwise_from_stack
from byoc.canonicalise.gelu import gelu_from_pieces
from byoc.canonicalise.global_pool import mean_from_global_pool
from byoc.canonicalise.layer_norm import layer_norm_from_pieces
from byoc.canonicalise.pool2d_from_pool3d import pool2d_from_pool3d
from byoc.canonicalise.remove_no_ops import remove_no_ops
from byoc.canonicalise.reshape_family import one_reshape
from byoc.canonicalise.resize_to_broadcast import resize_to_broadcast
from byoc.canonicalise.silu import silu_from_pieces
from byoc.canonicalise.slice_from_take import slice_from_take
from byoc.canonicalise.split_to_slices import split_to_slices
from byoc.canonicalise.transposed_conv_to_conv import transposed_conv_to_conv

from .graphs import constant, operators, random, relax_module
from .interpret import run_with_tvm
from .rule_check import check

SPECIAL = np.array([[np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-38, -3.0, 7.0]], "float32")


# ---------------------------------------------------------------------- constants and no-ops


def test_the_only_element_is_not_looked_up() -> None:
    """A number that exporters put into a list and take out again, of any dtype."""

    def build(emit, x):
        number = emit(op.astype(emit(op.sum(x)), "int64"))
        listed = emit(op.reshape(number, [1]))
        back = emit(op.take(listed, relax.const(np.int64(0), "int64"), axis=0))
        return emit(op.equal(back, relax.const(np.int64(3), "int64")))

    after = apply_rule(relax_module(build, (2, 3)), slice_from_take)
    assert "take" not in apply_rule(after, remove_no_ops).script(show_meta=False)
    assert "reshape" not in apply_rule(after, remove_no_ops).script(show_meta=False)


def test_no_ops_vanish() -> None:
    def build(emit, x):
        y = emit(op.reshape(x, [2, 3]))
        y = emit(op.broadcast_to(y, [2, 3]))
        y = emit(op.multiply(y, constant(1.0)))
        y = emit(op.astype(y, "float32"))
        y = emit(op.permute_dims(emit(op.permute_dims(y, [1, 0])), [1, 0]))
        return emit(op.add(y, constant(0.0)))  # not a no-op: -0 + 0 is +0

    check(build, remove_no_ops, ["relax.add"], np.array([[-0.0, 0, 1], [2, 3, np.nan]], "f"))


def test_no_op_results_stay_results() -> None:
    def build(emit, x):
        return emit(op.reshape(x, [2, 3]))

    check(build, remove_no_ops, [], random(2, 3))


def test_reshape_family() -> None:
    def build(emit, x):
        y = emit(op.squeeze(x, [0]))
        y = emit(op.expand_dims(y, [1]))
        y = emit(op.permute_dims(y, [1, 0, 2]))  # moves an axis of one
        return emit(op.permute_dims(y, [0, 2, 1]))

    expected = ["relax.reshape"] * 3 + ["relax.permute_dims"]
    check(build, one_reshape, expected, random(1, 3, 4))


def test_split_becomes_slices() -> None:
    def build(emit, x):
        parts = emit(op.split(x, [1, 3], axis=-1))
        return emit(op.multiply(relax.TupleGetItem(parts, 0), relax.TupleGetItem(parts, 2)))

    expected = ["relax.strided_slice", "relax.strided_slice", "relax.multiply"]
    check(build, split_to_slices, expected, random(2, 4))


def test_one_part_is_all() -> None:
    """Where Relax gives the part itself, and no tuple of it."""

    def build(emit, x):
        return emit(op.exp(emit(op.split(x, [], axis=1))))

    check(build, split_to_slices, ["relax.exp"], random(2, 4))


@pytest.mark.parametrize("index", [0, 2, -1])
def test_take_of_one_index_is_a_slice(index: int) -> None:
    def build(emit, x):
        return emit(op.take(x, relax.const(np.int64(index), "int64"), axis=1))

    after = apply_rule(relax_module(build, (2, 3, 4)), slice_from_take)
    assert operators(after) == ["relax.strided_slice", "relax.reshape"]
    x = random(2, 3, 4)
    np.testing.assert_array_equal(run_with_tvm(after, x)[0], x[:, index])


def test_take_of_several_stays() -> None:
    def build(emit, x):
        return emit(op.take(x, relax.const(np.array([0, 2]), "int64"), axis=1))

    check(build, slice_from_take, ["relax.take"], random(2, 3, 4))


def test_global_pool_is_a_mean() -> None:
    def build(emit, x):
        return emit(op.nn.adaptive_avg_pool2d(x, (1, 1)))

    check(build, mean_from_global_pool, ["relax.mean"], random(1, 3, 5, 4))


def test_channel_pool_of_lrn() -> None:
    def build(emit, x):
        return emit(op.nn.avg_pool3d(x, (5, 1, 1), padding=(2, 0, 0, 2, 0, 0)))

    expected = ["relax.reshape", "relax.nn.avg_pool2d", "relax.reshape"]
    check(build, pool2d_from_pool3d, expected, random(1, 1, 7, 3, 4))


@pytest.mark.parametrize("mode", [("asymmetric", "floor"), ("half_pixel", "round_prefer_floor")])
def test_nearest_resize_is_a_broadcast(mode: tuple[str, str]) -> None:
    def build(emit, x):
        size = relax.ShapeExpr([6, 12])
        return emit(
            op.image.resize2d(
                x,
                size,
                method="nearest_neighbor",
                coordinate_transformation_mode=mode[0],
                rounding_method=mode[1],
            )
        )

    expected = ["relax.reshape", "relax.broadcast_to", "relax.reshape"]
    check(build, resize_to_broadcast, expected, random(1, 2, 3, 4))


def test_linear_resize_stays() -> None:
    def build(emit, x):
        return emit(op.image.resize2d(x, relax.ShapeExpr([6, 8]), method="linear"))

    check(build, resize_to_broadcast, ["relax.image.resize2d"], random(1, 2, 3, 4))


@pytest.mark.parametrize("size", [2, 3])
def test_transposed_conv_without_overlap(size: int) -> None:
    def build(emit, x):
        y = emit(
            op.nn.conv2d_transpose(x, constant(random(3, 4, size, size)), strides=(size, size))
        )
        return emit(op.nn.relu(emit(op.add(y, constant(random(1, 4, 1, 1, seed=1))))))

    expected = ["relax.nn.conv2d", "relax.add", "relax.nn.relu", "relax.reshape"]
    expected += ["relax.permute_dims", "relax.reshape"]
    check(build, transposed_conv_to_conv, expected, random(1, 3, 5, 4))


def test_transposed_conv_with_overlap_stays() -> None:
    def build(emit, x):
        return emit(op.nn.conv2d_transpose(x, constant(random(3, 4, 3, 3)), strides=(2, 2)))

    check(build, transposed_conv_to_conv, ["relax.nn.conv2d_transpose"], random(1, 3, 4, 4))


# ---------------------------------------------------------------------- importer's loop nests


def loop_nest(compute: Callable, shape: tuple[int, ...], bound: bool) -> tvm.tirx.PrimFunc:
    """A PrimFunc of a tensor and, if asked for, a scalar."""
    inputs = [te.placeholder(shape, "float32")]
    if bound:
        inputs.append(te.placeholder((), "float32"))
    return te.create_prim_func([*inputs, compute(*inputs)])


@pytest.mark.parametrize(
    ("compute", "bound", "expected"),
    [
        (topi.maximum, True, ("max", None)),
        (topi.minimum, True, ("min", None)),
        (lambda x: topi.maximum(x, 0.5), False, ("max", 0.5)),
        (lambda x: topi.minimum(x, 6.0), False, ("min", 6.0)),
        (topi.add, True, None),
        (lambda x: topi.maximum(x, topi.nn.relu(x)), False, None),
        (lambda x: te.compute((2, 3), lambda i, j: te.max(x[1 - i, j], x[i, j])), False, None),
        (lambda x, b: te.compute((2, 3), lambda i, j: tvm.te.max(x[1 - i, j], b())), True, None),
    ],
)
def test_loop_nests_are_read_not_named(compute, bound, expected) -> None:
    assert elementwise_bound(loop_nest(compute, (2, 3), bound), (2, 3)) == expected


def clip_module(
    low: float | None, high: float | None, name_low: str = "maximum"
) -> Callable[..., tvm.IRModule]:
    """What the importer makes of Clip."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([1, 8], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = x
            if low is not None:
                y = builder.emit_te(topi.maximum, y, constant(low), primfunc_name_hint=name_low)
            if high is not None:
                y = builder.emit_te(topi.minimum, y, constant(high))
            result = builder.emit_output(y)
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 6.0, ["relax.clip"]),
        (-1.0, 2.5, ["relax.clip"]),
        (0.0, None, ["relax.nn.relu"]),
        (0.0, np.inf, ["relax.nn.relu"]),
        (-2.0, None, ["relax.maximum"]),
        (None, 3.0, ["relax.minimum"]),
        (-np.inf, np.inf, []),
        (3.0, -3.0, ["relax.maximum", "relax.minimum"]),  # ONNX: everything becomes -3
    ],
)
def test_clip(low: float | None, high: float | None, expected: list[str]) -> None:
    after = apply_rule(clip_module(low, high), clip_from_call_tir)
    assert operators(after) == expected
    finite = SPECIAL[:, 1:]
    padded = np.concatenate([finite, [[0.5]]], axis=1).astype("float32")
    want = padded if low is None else np.maximum(padded, np.float32(low))
    want = want if high is None else np.minimum(want, np.float32(high))
    np.testing.assert_array_equal(run_with_tvm(after, padded)[0], want)


def test_clip_does_not_trust_names() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([1, 8], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_te(topi.add, x, constant(1.0), primfunc_name_hint="maximum")
            result = builder.emit_output(y)
        builder.emit_func_output(result)
    after = apply_rule(builder.get(), clip_from_call_tir)
    assert operators(after) == ["relax.call_tir"]


def test_unused_loop_nests_go() -> None:
    after = canonicalise(clip_module(0.0, 6.0))
    assert [gvar.name_hint for gvar in after.get_global_vars()] == ["main"]


@pytest.mark.parametrize(
    ("reduce", "expected"),
    [
        (op.sum, ["relax.add", "relax.add"]),
        (op.max, ["relax.maximum", "relax.maximum"]),
        (op.min, ["relax.minimum", "relax.minimum"]),
        (op.mean, ["relax.add", "relax.add", "relax.divide"]),
    ],
)
def test_stack_and_reduce(reduce: Callable, expected: list[str]) -> None:
    def build(emit, *inputs):
        wide = [emit(op.broadcast_to(x, [2, 3, 4])) for x in inputs]
        return emit(reduce(emit(op.stack(wide, axis=0)), axis=0))

    arrays = (random(2, 3, 4), random(3, 1, seed=1), random(1, 1, 4, seed=2))
    check(build, elementwise_from_stack, expected, *arrays)


# ---------------------------------------------------------------------- functions in pieces


def _gelu_factors(emit, x, function: str, reciprocal: bool):
    if function == "erf":
        inner = op.divide(x, constant(2**0.5)) if reciprocal else op.multiply(x, constant(0.5**0.5))
        return emit(op.erf(emit(inner)))
    cube = emit(op.power(x, constant(3.0)))
    if reciprocal:
        cube = emit(op.multiply(emit(op.multiply(x, x)), x))
    inner = emit(op.add(x, emit(op.multiply(constant(0.044715), cube))))
    return emit(op.tanh(emit(op.multiply(inner, constant((2 / np.pi) ** 0.5)))))


@pytest.mark.parametrize("function", ["erf", "tanh"])
@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_gelu(function: str, reciprocal: bool, order: tuple[int, ...]) -> None:
    def build(emit, x):
        gate = emit(op.add(constant(1.0), _gelu_factors(emit, x, function, reciprocal)))
        factors = [x, gate, constant(0.5)]
        first, second, third = (factors[i] for i in order)
        return emit(op.multiply(emit(op.multiply(first, second)), third))

    expected = ["relax.nn.gelu" if function == "erf" else "relax.nn.gelu_tanh"]
    after = apply_rule(relax_module(build, (1, 8)), gelu_from_pieces)
    assert operators(after) == expected


@pytest.mark.parametrize("function", ["erf", "tanh"])
def test_gelu_values(function: str) -> None:
    def build(emit, x):
        gate = emit(op.add(_gelu_factors(emit, x, function, False), constant(1.0)))
        return emit(op.multiply(emit(op.multiply(x, gate)), constant(0.5)))

    expected = ["relax.nn.gelu" if function == "erf" else "relax.nn.gelu_tanh"]
    check(build, gelu_from_pieces, expected, random(1, 64))


@pytest.mark.parametrize("wrong", ["half", "slope", "one"])
def test_almost_gelu_stays(wrong: str) -> None:
    def build(emit, x):
        slope = constant(0.7 if wrong == "slope" else 0.5**0.5)
        one = constant(1.1 if wrong == "one" else 1.0)
        gate = emit(op.add(emit(op.erf(emit(op.multiply(x, slope)))), one))
        half = constant(0.6 if wrong == "half" else 0.5)
        return emit(op.multiply(emit(op.multiply(x, half)), gate))

    after = apply_rule(relax_module(build, (1, 8)), gelu_from_pieces)
    assert "relax.nn.gelu" not in operators(after)


@pytest.mark.parametrize("swap", [False, True])
def test_silu(swap: bool) -> None:
    def build(emit, x):
        pair = (x, emit(op.sigmoid(x)))
        return emit(op.multiply(*(reversed(pair) if swap else pair)))

    check(build, silu_from_pieces, ["relax.nn.silu"], SPECIAL)


def test_silu_with_a_shared_sigmoid_stays() -> None:
    def build(emit, x):
        gate = emit(op.sigmoid(x))
        return emit(op.add(emit(op.multiply(x, gate)), gate))

    after = apply_rule(relax_module(build, (1, 8)), silu_from_pieces)
    assert "relax.nn.silu" not in operators(after)


@pytest.mark.parametrize("square", ["power", "multiply"])
@pytest.mark.parametrize("root", ["sqrt", "rsqrt"])
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("parts", ["none", "gamma", "both"])
def test_layer_norm(square: str, root: str, twice: bool, parts: str) -> None:
    def build(emit, x):
        mean = emit(op.mean(x, [-1], keepdims=True))
        d = emit(op.subtract(x, mean))
        other = emit(op.subtract(x, mean)) if twice else d
        sq = emit(
            op.power(other, constant(2.0)) if square == "power" else op.multiply(other, other)
        )
        shifted = emit(op.add(emit(op.mean(sq, [-1], keepdims=True)), constant(1e-5)))
        if root == "sqrt":
            y = emit(op.divide(d, emit(op.sqrt(shifted))))
        else:
            y = emit(op.multiply(d, emit(op.rsqrt(shifted))))
        if parts != "none":
            y = emit(op.multiply(y, constant(random(6, seed=3))))
        if parts == "both":
            y = emit(op.add(constant(random(1, 1, 6, seed=4)), y))
        return emit(op.negative(y))

    expected = ["relax.nn.layer_norm", "relax.negative"]
    if parts == "both" and not twice:
        check(build, layer_norm_from_pieces, expected, random(2, 3, 6), rtol=1e-4)
    else:
        after = apply_rule(relax_module(build, (2, 3, 6)), layer_norm_from_pieces)
        assert operators(after) == expected


def test_normalisation_over_the_first_axis_stays() -> None:
    def build(emit, x):
        d = emit(op.subtract(x, emit(op.mean(x, [0], keepdims=True))))
        variance = emit(op.mean(emit(op.multiply(d, d)), [0], keepdims=True))
        return emit(op.divide(d, emit(op.sqrt(emit(op.add(variance, constant(1e-5)))))))

    after = apply_rule(relax_module(build, (4, 6)), layer_norm_from_pieces)
    assert "relax.nn.layer_norm" not in operators(after)


def test_rules_leave_other_dtypes_alone() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([2, 3], "int64"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.add(x, relax.const(np.int64(2), "int64")))
            y = builder.emit(op.add(y, relax.const(np.int64(3), "int64")))
            result = builder.emit_output(y)
        builder.emit_func_output(result)
    assert operators(canonicalise(builder.get())) == ["relax.add", "relax.add"]
