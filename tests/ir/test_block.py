"""A dataflow block that is open for rewriting tells what is in it now."""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block


def _block() -> Block:
    """``y = tanh(exp(relu(x)))`` and a binding that nothing reads."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit(relax.op.nn.relu(x))
            builder.emit(relax.op.sin(x))
            second = builder.emit(relax.op.exp(first))
            result = builder.emit_output(relax.op.tanh(second))
        builder.emit_func_output(result)
    return Block(builder.get()["main"].body.blocks[0])


def _names(block: Block) -> list[str]:
    return [value.op.name.removeprefix("relax.") for _, value in block.calls()]


def test_what_changes_is_seen() -> None:
    block = _block()
    assert _names(block) == ["nn.relu", "sin", "exp", "tanh"]
    block.remove_unused()
    assert _names(block) == ["nn.relu", "exp", "tanh"]
    ((exp, value),) = block.calls("relax.exp")
    doubled = block.emit(exp, relax.op.add(value.args[0], value.args[0]))
    assert _names(block) == ["nn.relu", "add", "exp", "tanh"]
    block.replace(exp, relax.op.cos(doubled))
    assert _names(block) == ["nn.relu", "add", "cos", "tanh"]
    assert not [*block.calls("relax.exp")] and block.call(exp, "relax.cos") is not None
    ((tanh, _),) = block.calls("relax.tanh")
    ((relu, value),) = block.calls("relax.nn.relu")
    block.replace(tanh, relax.op.sinh(relu))
    block.remove_unused()
    assert _names(block) == ["nn.relu", "sinh"]
    block.alias(relu, value.args[0])
    block.remove_unused()
    assert _names(block) == ["sinh"]
    assert [binding.var for binding in block.finish().bindings] == [tanh]


def test_what_moves_is_seen() -> None:
    block = _block()
    sin, exp = (var for name in ("sin", "exp") for var, _ in block.calls(f"relax.{name}"))
    block.move_behind(sin, exp)
    assert _names(block) == ["nn.relu", "exp", "sin", "tanh"]


def test_calls_that_go_meanwhile_are_left_out() -> None:
    block, met = _block(), []
    for var, value in block.calls():
        met.append(value.op.name)
        block.remove_unused()  # and with it the sine
        assert var in block.values
    assert met == ["relax.nn.relu", "relax.exp", "relax.tanh"]
    assert len(block.finish().bindings) == 3
