"""Constant expressions that numpy evaluates: what is left, and that values stay."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from byoc.canonicalise import apply_rule
from byoc.canonicalise.fold_constants import fold_constants

from .graphs import constant, random, relax_module
from .rule_check import check

SPECIAL = np.array([[np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-38, -3.0, 7.0]], "float32")


def test_fold_constants_reads_through_movement() -> None:
    def build(emit, x):
        w = emit(op.permute_dims(constant(random(4, 3)), [1, 0]))
        w = emit(op.reshape(w, [3, 4]))
        low = emit(op.where(emit(op.isnan(constant(0.0))), constant(-np.inf), constant(0.0)))
        return emit(op.maximum(emit(op.matmul(x, w)), low))

    check(build, fold_constants, ["relax.matmul", "relax.maximum"], random(2, 3))


def test_fold_constants_computes_small_networks_of_constants() -> None:
    """Position biases of Swin v2 are such: TVM would compile a function for each step."""

    def build(emit, x):
        hidden = emit(
            op.nn.relu(emit(op.matmul(constant(random(2, 9, 2)), constant(random(2, 5)))))
        )
        waves = emit(op.sin(emit(op.exp(emit(op.tanh(hidden))))))
        logs = emit(op.log(emit(op.add(emit(op.cos(waves)), constant(2.0)))))
        return emit(op.add(x, emit(op.sigmoid(emit(op.matmul(logs, constant(random(5, 3))))))))

    check(build, fold_constants, ["relax.add"], random(2, 9, 3))


@pytest.mark.parametrize("function", ["nn.relu", "sigmoid", "tanh", "exp", "log", "sin", "cos"])
def test_fold_constants_of_special_values(function: str) -> None:
    values = SPECIAL[:, 1:] if function == "nn.relu" else SPECIAL  # TVM's drops a NaN

    def build(emit, x):
        of_constants = reduce(getattr, function.split("."), op)
        return emit(op.add(x, emit(of_constants(constant(values)))))

    check(build, fold_constants, ["relax.add"], np.zeros_like(values))


def test_fold_constants_leaves_products_of_integers() -> None:
    def build(emit, x):
        whole = [relax.const(np.full((2, 2), 3, "int32"), "int32")] * 2
        return emit(op.add(x, emit(op.astype(emit(op.matmul(*whole)), "float32"))))

    expected = ["relax.matmul", "relax.astype", "relax.add"]
    check(build, fold_constants, expected, random(2, 2))


def test_fold_constants_finds_the_greatest_of_infinities() -> None:
    """TVM's reductions begin with the lowest number, as if it were among the values."""

    def build(emit, x):
        masked = emit(op.nn.pad(constant([[-np.inf]]), [0, 0, 0, 1], "constant", -np.inf))
        low = emit(op.max(masked, [1], keepdims=True))
        high = emit(op.min(emit(op.negative(masked)), [1], keepdims=True))
        return emit(op.add(emit(op.add(x, low)), high))

    after = apply_rule(relax_module(build, (2, 3)), fold_constants)
    values = [binding.value for block in after["main"].body.blocks for binding in block.bindings]
    found = [v.args[1].value.numpy().item() for v in values if isinstance(v, relax.Call)]
    assert found == [-np.inf, np.inf]


def test_fold_constants_keeps_scalars_scalar() -> None:
    def build(emit, x):
        return emit(op.add(x, emit(op.multiply(constant(2.0), constant(3.0)))))

    after = check(build, fold_constants, ["relax.add"], random(2, 3))
    binding = after["main"].body.blocks[0].bindings[0]
    assert tuple(binding.value.args[1].value.shape) == ()


def test_fold_constants_knows_static_shapes() -> None:
    def build(emit, x):
        extents = emit(op.shape_to_tensor(emit(op.shape_of(x))))
        last = emit(op.take(extents, relax.const(np.int64(1), "int64"), axis=0))
        return emit(op.multiply(x, emit(op.astype(last, "float32"))))

    check(build, fold_constants, ["relax.multiply"], random(2, 3))
