"""Patterns of expressions: what fits, what it is called, and which bindings it takes."""

from __future__ import annotations

import pytest
from tvm import relax

from byoc.ir.dataflow import Block
from byoc.ir.pattern import Number, Pattern, call, either, find, plus, times

op = relax.op


def block_of(build) -> tuple[Block, relax.Var]:
    """A block that computes ``build(emit, x, y)``, and the variable of its result."""
    x, y = (relax.Var(name, relax.TensorType((2, 3), "float32")) for name in "xy")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            result = builder.emit_output(build(builder.emit, x, y))
        builder.emit_func_output(result)
    block = Block(builder.get()["main"].body.blocks[0])
    return block, block.ordered()[-1]


def number(value: float) -> relax.Expr:
    return relax.const(value, "float32")


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        (plus("a", call("exp", "b")), True),
        (plus(call("exp", "b"), "a"), True),
        (plus("a", call("exp", "a")), False),  # a is y, and then x
        (plus("a", call("exp", "b", where=lambda _: False)), False),
        (call("add", "a", call("exp", "b")), False),  # in this order alone
        (call("subtract add", call("exp", "b"), "a"), True),
        (times("a", call("exp", "b")), False),
        (either(times("a", "b"), plus("a", "b")), True),
        (plus(either("a", call("exp", "a")), "b"), True),
        (plus("a", 1.0), False),
    ],
)
def test_what_fits(pattern: Pattern, fits: bool) -> None:
    block, last = block_of(lambda emit, x, y: op.add(emit(op.exp(x)), y))
    assert (find(block, last, pattern) is not None) == fits


def test_numbers_are_found_by_their_names() -> None:
    block, last = block_of(lambda emit, x, y: op.multiply(emit(op.add(x, number(2.0))), number(3)))
    found = find(block, last, times(plus("x", 2.0), Number("factor")))
    assert found.numbers == {"factor": 3.0} and found["x"].name == "x"
    assert found.get("y") is None
    assert find(block, last, times(plus("x", 2.5), Number("factor"))) is None


def test_a_name_is_one_expression_in_all_of_the_pattern() -> None:
    def build(emit, x, y):
        largest = emit(op.max(x, axis=[1], keepdims=True))
        return op.add(emit(op.log(emit(op.subtract(x, largest)))), largest)

    block, last = block_of(build)
    shifted = call("log", call("subtract", "x", "m"), name="log")
    found = find(block, last, plus(shifted, call("max", "x", name="m")))
    assert len(found.bindings) == len(set(found.bindings)) == 4
    assert found.bindings[0] == last and set(found.bindings) == set(block.ordered())
    assert block.values[found["log"]].args[0] in found.bindings
    assert find(block, last, plus(shifted, call("min", "x", name="m"))) is None


def test_operands_that_are_not_named_may_be_anything() -> None:
    block, last = block_of(lambda emit, x, y: op.where(emit(op.less(x, y)), x, y))
    found = find(block, last, call("where", call("less")))
    assert found is not None and found.expressions == {} and len(found.bindings) == 2


def test_a_parameter_is_bound_to_no_call() -> None:
    block, last = block_of(lambda emit, x, y: op.add(x, y))
    assert find(block, last, plus(call("exp", "x"), "y")) is None
    assert find(block, block.values[last].args[0], call("exp", "x")) is None
