"""Which node of the model a pass was at when it failed, read from the frames of the exception."""

from __future__ import annotations

from types import FrameType

from tvm import relax

from byoc.partition.dataflow import Block, op_name
from byoc.partition.origin import UNKNOWN, Origin, origin_of

#: Names of nodes that a message lists.
_LISTED = 3


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


def node_text(expr: relax.Expr) -> str:
    """The same for an expression; its operator alone where it carries no names."""
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
