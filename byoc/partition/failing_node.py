"""Which node of the model a stage was at when it failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import FrameType

import tvm
from tvm import relax

from byoc.ir.dataflow import Block, op_name, substitute, variables
from byoc.ir.origin import UNKNOWN, Origin, origin_of
from byoc.ir.walk import bindings_of
from codegen_cc.errors import one_line

#: Names of nodes that a message lists.
_LISTED = 3
#: How long a failing binding is looked for.
_SECONDS = 20.0


def failing_node(error: BaseException) -> str:
    """`` at node 'x' (relax.add)``, as far as it can be told; empty where nothing can.

    The innermost frame that holds a call or a variable of the module knows it best.
    """
    frames: list[FrameType] = []
    traceback = error.__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    blocks = [v for frame in frames for v in frame.f_locals.values() if isinstance(v, Block)]
    operator = ""
    for frame in reversed(frames):
        held = list(frame.f_locals.values())
        for value in held:
            origin, name = _origin(value, blocks)
            operator = operator or name
            if origin.names:
                return _text(origin.names, operator)
    return f" at operator {operator}" if operator else ""


def failing_binding(
    module: tvm.IRModule, error: Exception, build: Callable[[tvm.IRModule], object]
) -> str:
    """The same for an error out of TVM's compiler, whose frames tell nothing.

    Each binding of ``main`` is built alone, until one fails in the same way; for some seconds.
    """
    begin, wanted = time.monotonic(), one_line(error)
    for value in _compiled_by_tvm(module["main"]):
        if time.monotonic() - begin > _SECONDS:
            return ""
        try:
            build(_alone(module, value))
        except Exception as found:
            if one_line(found) == wanted:
                return _node_text(value)
    return ""


def _compiled_by_tvm(main: relax.Function) -> Iterator[relax.Call]:
    for binding in bindings_of(main):
        value = binding.value
        if isinstance(value, relax.Call) and op_name(value) != "relax.call_dps_packed":
            yield value


def _alone(module: tvm.IRModule, value: relax.Call) -> tvm.IRModule:
    """A module whose ``main`` computes one call, of parameters in place of its variables."""
    read = list(dict.fromkeys(variables(value)))
    parameters = {var: relax.Var(f"p{index}", var.ty) for index, var in enumerate(read)}
    builder = relax.BlockBuilder()
    with builder.function("main", list(parameters.values())):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(substitute(value, parameters)))
        builder.emit_func_output(result)
    functions = {var: f for var, f in module.functions.items() if isinstance(f, tvm.tirx.PrimFunc)}
    alone = builder.get()
    return tvm.IRModule({**functions, **dict(alone.functions.items())})


def _node_text(expr: relax.Expr) -> str:
    """A node as ``failing_node`` writes it; its operator alone where it carries no names."""
    operator = _operator(expr)
    names = origin_of(expr).names
    return _text(names, operator) if names else f" at operator {operator}" if operator else ""


def _text(names: tuple[str, ...], operator: str) -> str:
    listed = ", ".join(map(repr, names[:_LISTED]))
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    kind = f" ({operator})" if operator else ""
    return f" at node {listed}{more}{kind}"


def _origin(value: object, blocks: list[Block]) -> tuple[Origin, str]:
    if isinstance(value, relax.VarBinding):
        value = value.value
    if isinstance(value, relax.Call | relax.TupleGetItem):
        return origin_of(value), _operator(value)
    if isinstance(value, relax.Var):
        for block in blocks:
            if value in block.values:
                return block.origin(value), _operator(block.values[value])
    return UNKNOWN, ""


def _operator(expr: relax.Expr) -> str:
    return (op_name(expr) or "") if isinstance(expr, relax.Call) else ""
