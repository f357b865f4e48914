"""What is known of indices from how they are made, and places that are computed once."""

from __future__ import annotations

import pytest
from tvm import relax, tirx
from tvm.relax import op

from byoc.canonicalise.repeated_places import repeated_places
from byoc.ir.dataflow import Block
from byoc.ir.index_ranges import are_within
from codegen_cc.dim import symbol

from .graphs import random
from .rule_check import check

LENGTH = tirx.Var("n", "int64")


@pytest.mark.parametrize(
    ("form", "within"),
    [
        ("given", False),
        ("no lower", False),
        ("no higher", False),
        ("both", True),
        ("both, one too far", False),
    ],
)
def test_ranges_of_coordinates(form: str, within: bool) -> None:
    """Scattered into [n, 2]: a computed place, and the second of two."""
    given = relax.Var("given", relax.TensorType([LENGTH, 1], "int64"))
    upper = LENGTH + 1 if form == "both, one too far" else LENGTH
    builder = relax.BlockBuilder()
    with builder.function("main", [given]):
        with builder.dataflow():
            emit = builder.emit
            numbers = emit(op.arange(0, upper, 1, "int64"))
            numbers = emit(op.strided_slice(numbers, [0], [upper - LENGTH], [upper]))
            column, place = emit(op.expand_dims(numbers, 1)), given
            if form not in ("given", "no higher"):
                place = emit(op.maximum(place, column))
            if form not in ("given", "no lower"):
                place = emit(op.minimum(place, column))
            heads = relax.const([[1]], "int64")
            second = emit(op.broadcast_to(heads, relax.ShapeExpr([LENGTH, 1])))
            indices = builder.emit_output(op.concat([place, second], 1))
        builder.emit_func_output(indices)
    values = Block(builder.get()["main"].body.blocks[0]).values.get
    assert are_within(indices, (symbol("n"), 2), values) == within
    assert not are_within(indices, (symbol("n"), 1), values)


def test_places_are_computed_once_and_rows_are_not() -> None:
    def build(emit, x):
        rows = []
        for _ in range(2):
            places = emit(op.astype(emit(op.floor(x)), "int64"))
            rows.append(emit(op.take(x, emit(op.reshape(places, [6])), axis=0, mode="clip")))
        return emit(op.concat([*rows, emit(op.exp(x)), emit(op.exp(x))], 0))

    # The two of ``floor`` are float32, and stay: what reads them is not alike for that.
    expected = ["floor", "astype", "reshape", "take", "floor", "astype", "reshape", "take"]
    names = [f"relax.{name}" for name in (*expected, "exp", "exp", "concat")]
    check(build, repeated_places, names, random(6))
