"""Rules for operators that ONNX's importer does not yield, or yields only inside of networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.relax import op

import byoc
from byoc.canonicalise import apply_rule, canonicalise
from byoc.canonicalise.any_of_booleans import any_of_booleans, scalar_from_full
from byoc.canonicalise.clip_from_call_tir import one_clip
from byoc.canonicalise.global_pool import mean_from_global_pool
from byoc.canonicalise.group_norm import group_norm_from_pieces
from byoc.canonicalise.lines_to_images import lines_to_images
from byoc.canonicalise.matmul_of_rows import matmul_of_rows
from byoc.canonicalise.matmul_over_reshape import matmul_over_reshape
from byoc.canonicalise.prelu import where_from_prelu
from byoc.canonicalise.rms_norm import rms_norm_from_pieces
from byoc.canonicalise.simple_operators import simple_operators
from byoc.canonicalise.statistics import mean_from_variance
from byoc.canonicalise.tile_to_broadcast import tile_to_broadcast

from .graphs import constant, operators, random, relax_module
from .interpret import run_with_tvm
from .rule_check import check

SPECIAL = np.array([[np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-38, -3.0, 7.0]], "float32")


def test_linear_layer_between_reshapes() -> None:
    def build(emit, x):
        rows = emit(op.reshape(x, [6, 4]))
        y = emit(op.add(emit(op.matmul(rows, constant(random(4, 5)))), constant(random(5))))
        return emit(op.nn.gelu(emit(op.reshape(y, [2, 3, 5]))))

    expected = ["relax.reshape", "relax.reshape", "relax.matmul", "relax.add", "relax.nn.gelu"]
    check(build, matmul_over_reshape, expected, random(2, 3, 4))


def test_reshape_that_cuts_columns_stays() -> None:
    def build(emit, x):
        return emit(op.reshape(emit(op.matmul(x, constant(random(4, 6)))), [1, 3, 2, 3]))

    check(build, matmul_over_reshape, ["relax.matmul", "relax.reshape"], random(3, 4))


def test_batched_product_between_reshapes() -> None:
    def build(emit, x, y):
        x, y = emit(op.reshape(x, [6, 4, 5])), emit(op.reshape(y, [6, 5, 7]))
        return emit(op.reshape(emit(op.matmul(x, y)), [2, 3, 4, 7]))

    arrays = random(2, 3, 4, 5), random(2, 3, 5, 7)
    check(build, matmul_over_reshape, ["relax.reshape"] * 4 + ["relax.matmul"], *arrays)
    assert operators(canonicalise(relax_module(build, *(a.shape for a in arrays)))) == [
        "relax.matmul"
    ]


def _normalised_rows(emit, x, biased: bool, read: bool = False):
    """Linear, flatten, a scale and a shift for each column, and the axes as before."""
    y = emit(op.matmul(x, constant(random(4, 5))))
    if biased:
        y = emit(op.add(y, constant(random(5))))
    rows = emit(op.reshape(y, [6, 5]))
    z = emit(op.multiply(rows, constant(random(1, 5))))
    z = emit(op.reshape(emit(op.add(z, constant(random(1, 5, seed=3)))), [2, 3, 5]))
    return emit(op.add(z, y)) if read else z


@pytest.mark.parametrize("biased", [False, True])
def test_normalised_rows_of_a_linear_layer(biased: bool) -> None:
    def build(emit, x):
        return _normalised_rows(emit, x, biased)

    first = ["relax.reshape", "relax.matmul", *["relax.add"] * biased]
    rest = ["relax.multiply", "relax.add", "relax.reshape"]
    check(build, matmul_of_rows, first + rest, random(2, 3, 4))
    folded = operators(canonicalise(relax_module(build, (2, 3, 4))))
    assert folded == ["relax.matmul", "relax.add"]


def test_rows_of_a_linear_layer_that_is_read_elsewhere_stay() -> None:
    def build(emit, x):
        return _normalised_rows(emit, x, True, read=True)

    expected = ["matmul", "add", "reshape", "multiply", "add", "reshape", "add"]
    check(build, matmul_of_rows, [f"relax.{name}" for name in expected], random(2, 3, 4))


@pytest.mark.parametrize("form", ["divide", "rsqrt", "reciprocal"])
def test_rms_norm(form: str) -> None:
    def build(emit, x):
        mean = emit(op.mean(emit(op.power(x, constant(2.0))), [-1], keepdims=True))
        shifted = emit(op.add(mean, constant(1e-5)))
        if form == "divide":
            y = emit(op.divide(x, emit(op.sqrt(shifted))))
        elif form == "rsqrt":
            y = emit(op.multiply(x, emit(op.rsqrt(shifted))))
        else:
            y = emit(op.multiply(x, emit(op.divide(constant(1.0), emit(op.sqrt(shifted))))))
        return emit(op.multiply(constant(random(4)), y))

    check(build, rms_norm_from_pieces, ["relax.nn.rms_norm"], random(2, 3, 4))


GROUP_NORM = "relax.nn.group_norm"


def _per_channel(emit, x, *vectors: np.ndarray):
    """x * vectors[0] + vectors[1], both [C]."""
    scale, shift = (constant(v.reshape(-1, 1, 1)) for v in vectors)
    return emit(op.add(emit(op.multiply(scale, x)), shift))


@pytest.mark.parametrize("affine", [0, 1, 2])
@pytest.mark.parametrize("norm", ["instance", "layer", "group"])
def test_group_norm_of_a_reshape(norm: str, affine: int) -> None:
    """As PyTorch exports it: per group within the reshape, and per channel behind it."""

    def build(emit, x):
        groups = emit(op.reshape(x, (2, 3, 24)))
        if norm == "layer":
            ones, zeros = constant(np.ones(24)), constant(np.zeros(24))
            y = emit(op.nn.layer_norm(groups, ones, zeros, [2]))
        else:
            vectors = constant(random(3)), constant(random(3, seed=1))
            count = (3,) if norm == "group" else ()
            y = emit(getattr(op.nn, f"{norm}_norm")(groups, *vectors, *count, 1, [2]))
        y = emit(op.reshape(y, (2, 6, 3, 4)))
        for seed in range(affine):
            y = _per_channel(emit, y, random(6, seed=seed), random(6, seed=seed + 5))
        return y

    check(build, group_norm_from_pieces, [GROUP_NORM], random(2, 6, 3, 4))


def test_group_norm_with_computed_scale() -> None:
    def build(emit, x):
        scale = emit(op.reshape(emit(op.mean(x, [0, 2, 3])), (6, 1, 1)))
        ones, zeros = constant(np.ones(6)), constant(np.zeros(6))
        return emit(op.multiply(emit(op.nn.group_norm(x, ones, zeros, 3, 1, [2, 3])), scale))

    expected = ["relax.mean", "relax.reshape", "relax.reshape", GROUP_NORM]
    check(build, group_norm_from_pieces, expected, random(2, 6, 3, 4))


@pytest.mark.parametrize("form", ["other pixels", "read twice", "rows", "groups of no channels"])
def test_reshapes_that_are_no_groups(form: str) -> None:
    """Pieces that look alike, and must stay what they are."""
    inside = {"rows": (6, 1, 24), "groups of no channels": (2, 4, 18)}.get(form, (2, 3, 24))
    outside = (2, 6, 4, 3) if form == "other pixels" else (2, 6, 3, 4)

    def build(emit, x):
        ones, zeros = constant(np.ones(inside[1])), constant(np.zeros(inside[1]))
        groups = emit(op.reshape(x, inside))
        y = emit(op.nn.instance_norm(groups, ones, zeros, 1, [2]))
        z = emit(op.reshape(y, outside))
        return emit(op.add(z, emit(op.reshape(op.exp(y), outside)))) if form == "read twice" else z

    mod = relax_module(build, (2, 6, 3, 4))
    assert "relax.nn.instance_norm" in operators(apply_rule(mod, group_norm_from_pieces))


@pytest.mark.parametrize("function", [op.variance, op.std])
@pytest.mark.parametrize("keepdims", [True, False])
def test_statistics(function, keepdims: bool) -> None:
    def build(emit, x):
        return emit(function(x, [1], keepdims))

    pieces = ["relax.mean", "relax.subtract", "relax.multiply", "relax.mean"]
    expected = pieces if function is op.variance else [*pieces, "relax.sqrt"]
    check(build, mean_from_variance, expected, random(3, 4))


def test_line_takes_bias_residual_and_activation_along() -> None:
    def build(emit, x, r):
        y = emit(op.nn.conv1d(x, constant(random(5, 3, 3)), padding=1))
        y = emit(op.add(y, constant(random(1, 5, 1))))
        return emit(op.nn.relu(emit(op.add(y, r))))

    expected = ["relax.reshape", "relax.nn.conv2d", "relax.add", "relax.reshape", "relax.add"]
    expected += ["relax.nn.relu", "relax.reshape"]
    check(build, lines_to_images, expected, random(2, 3, 8), random(2, 5, 8))


def test_line_of_integers_stays_next_to_its_dequantize() -> None:
    """The reshapes are of bytes, before and after; the weight is a constant of integers."""
    scale, zero = constant(np.single(0.1)), relax.const(3, "uint8")

    def build(emit, x):
        q = emit(op.quantize(x, scale, zero, 0, "uint8"))
        w = relax.const(np.arange(-22, 23).reshape(5, 3, 3), "int8")
        scales, zeros = constant(np.linspace(0.01, 0.1, 5)), relax.const(np.zeros(5), "int8")
        weight = emit(op.dequantize(w, scales, zeros, 0, "float32"))
        y = emit(op.nn.conv1d(emit(op.dequantize(q, scale, zero, 0, "float32")), weight))
        y = emit(op.quantize(emit(op.nn.relu(y)), scale, zero, 0, "uint8"))
        return emit(op.dequantize(y, scale, zero, 0, "float32"))

    expected = ["relax.quantize", "relax.dequantize", "relax.reshape", "relax.dequantize"]
    expected += ["relax.nn.conv2d", "relax.nn.relu", "relax.quantize", "relax.reshape"]
    check(build, lines_to_images, [*expected, "relax.dequantize"], random(2, 3, 8))


def test_adaptive_pool_with_equal_windows() -> None:
    def build(emit, x):
        return emit(op.nn.adaptive_avg_pool2d(x, (3, 2)))

    check(build, mean_from_global_pool, ["relax.nn.avg_pool2d"], random(1, 2, 6, 8))


def test_adaptive_pool_with_other_windows_stays() -> None:
    def build(emit, x):
        return emit(op.nn.adaptive_avg_pool2d(x, (4, 3)))

    check(build, mean_from_global_pool, ["relax.nn.adaptive_avg_pool2d"], random(1, 2, 6, 8))


def test_one_clip() -> None:
    def build(emit, x):
        return emit(op.clip(emit(op.clip(x, -1.0, np.inf)), -np.inf, 2.0))

    check(build, one_clip, ["relax.clip"], random(3, 4))


def test_clips_in_the_other_order_stay() -> None:
    def build(emit, x):
        return emit(op.clip(emit(op.clip(x, 3.0, np.inf)), -np.inf, 2.0))

    check(build, one_clip, ["relax.clip", "relax.clip"], random(3, 4))


def test_prelu_keeps_special_values() -> None:
    def build(emit, x):
        return emit(op.nn.prelu(x, constant([0.25, 0.5]), 0))

    expected = ["relax.reshape", "relax.less", "relax.multiply", "relax.where"]
    x = np.concatenate([SPECIAL, SPECIAL])
    check(build, where_from_prelu, expected, x)


def test_softmax_of_rows_without_an_entry() -> None:
    """A row of minus infinity alone gives zeros, as in PyTorch, and a NaN stays one."""

    def build(emit, x):
        empty = emit(op.logical_not(emit(op.equal(x, constant(-np.inf)))))
        some = emit(op.max(emit(op.astype(empty, "int8")), [-1], keepdims=True))
        none = emit(op.logical_not(emit(op.astype(some, "bool"))))
        weights = emit(op.nn.softmax(x, -1))
        zeros = emit(op.full_like(weights, constant(0.0)))
        return emit(op.where(none, zeros, weights))

    def rule(block):
        any_of_booleans(block)
        scalar_from_full(block)

    x = np.array([[0, 1], [-np.inf, -np.inf], [-np.inf, 3], [np.nan, -np.inf]], "float32")
    expected = ["relax.equal", "relax.logical_not", "relax.astype", "relax.max", "relax.astype"]
    check(build, rule, [*expected, "relax.logical_not", "relax.nn.softmax", "relax.where"], x)


def test_pixel_shuffle() -> None:
    def build(emit, x):
        return emit(op.nn.pixel_shuffle(x, 2))

    after = apply_rule(relax_module(build, (2, 8, 3, 2)), simple_operators)
    assert operators(after) == ["relax.reshape", "relax.permute_dims", "relax.reshape"]
    x = random(2, 8, 3, 2)  # TVM has no implementation of the operator to compare with
    want = x.reshape(2, 2, 2, 2, 3, 2).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 6, 4)
    np.testing.assert_array_equal(run_with_tvm(after, x)[0], want)


@pytest.mark.parametrize("diagonal", [-1, 0, 2])
@pytest.mark.parametrize("function", [op.tril, op.triu])
def test_triangle(function, diagonal: int) -> None:
    def build(emit, x):
        return emit(function(x, diagonal))

    check(build, simple_operators, ["relax.where"], random(2, 4, 5))


@pytest.mark.parametrize("diagonal", [-1, 0, 2])
@pytest.mark.parametrize("name", ["tril", "triu"])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_triangle_of_open_axes(dtype: str, name: str, diagonal: int, tmp_path: Path) -> None:
    builder = relax.BlockBuilder()
    rows, columns = (tirx.Var(each, "int64") for each in ("rows", "columns"))
    x = relax.Var("x", relax.TensorType((2, rows, columns), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(getattr(op, name)(x, diagonal))
        builder.emit_func_output(result)
    report = byoc.compile(builder.get(), tmp_path / "m.so", min_bytes=0).report
    assert len(report.regions) == 1 and not report.left
    with byoc.load(tmp_path / "m.so") as model:
        for shape in ((2, 4, 5), (2, 7, 3), (2, 1, 1), (2, 0, 3)):
            given = random(*shape).astype(dtype)
            want = getattr(np, name)(given, diagonal)
            np.testing.assert_array_equal(next(iter(model.run({"x": given}).values())), want)


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8", "uint8"])
def test_sign_of_integers(dtype: str, tmp_path: Path) -> None:
    def build(emit, x):
        return emit(op.astype(emit(op.sign(emit(op.astype(x, dtype)))), "float32"))

    x = np.array([0, 1, 5, 127] if dtype == "uint8" else [-128, -1, 0, 1, 5, 127], np.float32)
    report = byoc.compile(relax_module(build, x.shape), tmp_path / "m.so", min_bytes=0).report
    assert len(report.regions) == 1 and not report.left
    with byoc.load(tmp_path / "m.so") as model:
        np.testing.assert_array_equal(model(x), np.sign(x))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_repeat(axis: int) -> None:
    def build(emit, x):
        return emit(op.repeat(x, 3, axis))

    expected = ["relax.reshape", "relax.broadcast_to", "relax.reshape"]
    check(build, tile_to_broadcast, expected, random(2, 3))


RULES_OF_SHAPES = (tile_to_broadcast, group_norm_from_pieces, lines_to_images, simple_operators)


@pytest.mark.parametrize("rule", RULES_OF_SHAPES)
def test_no_rule_fires_on_unknown_shapes(rule) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(dtype="float32", ndim=3))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.tril(x))
            y = builder.emit(op.square(y))
            y = builder.emit(op.nn.conv1d(y, constant(random(3, 3, 1))))
            result = builder.emit_output(op.nn.max_pool1d(y, 2))
        builder.emit_func_output(result)
    before = builder.get()
    assert operators(apply_rule(before, rule)) == operators(before)
