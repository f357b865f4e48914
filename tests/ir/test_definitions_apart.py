"""Symbols that a run computes stay defined before what reads them."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax, tirx

from byoc.compiler.definitions_apart import definitions_apart


def module() -> tvm.IRModule:
    """Rows of x, as often as n and then m says, twice."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([1, 4], "float32"))
    counts = [relax.Var(name, relax.TensorType([1], "int64")) for name in "nm"]
    with builder.function("main", [x, *counts]):
        with builder.dataflow():
            value: relax.Expr = x
            for count in counts:
                extent = tirx.Var(f"{count.name}_", "int64")
                shape = builder.emit(relax.op.tensor_to_shape(count))
                builder.match_cast(shape, relax.ShapeType([extent]))
                wide = builder.emit(relax.op.broadcast_to(x, relax.ShapeExpr([extent, 4])))
                value = builder.emit(relax.op.concat([value, wide], 0))
            result = builder.emit_output(relax.op.add(value, value))
        builder.emit_func_output(result)
    return builder.get()


def test_a_block_ends_behind_definitions() -> None:
    given = module()
    blocks = definitions_apart(given)["main"].body.blocks
    assert len(given["main"].body.blocks) == 1
    assert len(blocks) == 3
    assert all(isinstance(block, relax.DataflowBlock) for block in blocks)
    for block in blocks[:-1]:
        assert isinstance(block.bindings[-1], relax.MatchCast)
    assert not any(isinstance(binding, relax.MatchCast) for binding in blocks[-1].bindings)


def test_the_numbers_are_the_same() -> None:
    built = tvm.compile(definitions_apart(module()), "llvm")
    machine = relax.VirtualMachine(built, tvm.cpu())
    x = np.arange(4, dtype=np.float32).reshape(1, 4)
    given = [tvm.runtime.tensor(value) for value in (x, np.array([2]), np.array([3]))]
    found = machine["main"](*given).numpy()
    np.testing.assert_array_equal(found, 2 * np.repeat(x, 6, 0))


def test_blocks_without_definitions_stay() -> None:
    x = relax.Var("x", relax.TensorType([4], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.add(x, x))
        builder.emit_func_output(result)
    given = builder.get()
    assert definitions_apart(given)["main"].same_as(given["main"])
