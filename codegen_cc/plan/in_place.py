"""In-place results: a kernel writes over an operand that nothing reads any more.

A call names the operands that its first result may overwrite.  It does so where both are whole
buffers of the arena that lie alike, the call is the first to touch the result's buffer and the last
to touch the operand's, and it does not read the operand in any other way.  The two buffers then are
one.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_cc.dim import same
from codegen_cc.plan.call import Argument, Call, Element, Struct
from codegen_cc.plan.tensors import Buffer, Tensor


def write_in_place(calls: list[Call]) -> None:
    """Give results the buffers of operands that die, and rewrite the calls accordingly."""
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for index, call in enumerate(calls):
        for tensor in [*call.reads(), *call.writes]:
            first.setdefault(tensor.buffer, index)
            last[tensor.buffer] = index
    became: dict[Buffer, Buffer] = {}
    for index, call in enumerate(calls):
        _rename(call, became)
        result = call.writes[0]
        if first[result.buffer] != index:
            continue
        for operand in call.over:
            if last[operand.buffer] == index and _fits(call, operand):
                became[result.buffer] = operand.buffer
                last[operand.buffer] = last[result.buffer]
                _rename(call, became)
                break


def _fits(call: Call, operand: Tensor) -> bool:
    """Whether the result could lie where the operand does."""
    result = call.writes[0]
    if not (_is_whole(operand) and _is_whole(result)) or operand.dtype != result.dtype:
        return False
    reads = [tensor for tensor in call.reads() if tensor.buffer is operand.buffer]
    return all(_alike(tensor, result) for tensor in reads)


def _is_whole(tensor: Tensor) -> bool:
    """Whether a tensor is all that there is in its buffer, and that is the arena's."""
    whole = tensor.offset == 0 and same(tensor.size, tensor.buffer.size)
    return tensor.buffer.kind == "arena" and whole and tensor.order() is not None


def _alike(one: Tensor, other: Tensor) -> bool:
    """Whether two views have one shape and the same elements at the same places."""
    if len(one.shape) != len(other.shape) or one.offset != other.offset:
        return False
    pairs = zip(one.shape, other.shape, one.strides, other.strides, strict=True)
    return all(same(a, b) and (a == 1 or same(s, t)) for a, b, s, t in pairs)


def _rename(call: Call, became: dict[Buffer, Buffer]) -> None:
    """Put the buffers that others became in their place."""
    if not became:
        return

    def renamed(item: Argument) -> Argument:
        if isinstance(item, Tensor):
            buffer = became.get(item.buffer)
            return item if buffer is None else replace(item, buffer=buffer)
        if isinstance(item, Element):
            return Element(renamed(item.tensor))
        if isinstance(item, Struct):
            fields = {name: renamed(value) for name, value in item.fields.items()}
            return Struct(item.ctype, fields)
        return item

    call.arguments = [renamed(argument) for argument in call.arguments]
    call.writes = tuple(renamed(tensor) for tensor in call.writes)
    call.over = tuple(renamed(tensor) for tensor in call.over)
