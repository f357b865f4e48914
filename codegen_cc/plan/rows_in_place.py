"""Rows that a call stores where a state lies: its output may have the memory of its input.

A state that a call replaces has two memories, unless all that makes the new value is a scatter into
the old one, and nothing reads the old one later. Then the caller may give input and output one
memory (``ext_scatter`` copies nothing where both are one), and only rows move:

    before = gather(state, places)        # fails for a place outside, before anything is written
    state  = scatter(state, places, rows)
    ...                                   # where this fails, state = scatter(state, places, before)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codegen_cc.dim import same
from codegen_cc.plan.call import Call
from codegen_cc.plan.tensors import Buffer, Tensor


@dataclass(frozen=True)
class RowsInPlace:
    """A state of which ``scatter`` writes some rows.

    ``input`` is the number of the region's input. ``undo`` gives the rows what they were, from
    when ``scatter`` began on; it is no call of the plan.
    """

    input: int
    scatter: Call
    undo: Call


def rows_in_place(
    calls: list[Call],
    replaced: Sequence[tuple[int, Buffer, Buffer]],
    space: Callable[[Tensor], Tensor],
) -> list[RowsInPlace]:
    """The states whose output may lie where their input does; adds what keeps their rows.

    ``replaced`` are inputs by number, each with its buffer and that of the output that it becomes;
    ``space`` gives memory for a tensor of a shape and dtype. ``calls`` are all, in their order, and
    outputs are bound.
    """
    found = []
    for number, before, after in replaced:
        place = _only_scatter(calls, before, after)
        if place is None:
            continue
        scatter = calls[place]
        params, _, data, indices, updates, result = scatter.arguments
        assert isinstance(updates, Tensor), scatter
        kept, named = space(updates), scatter.composite
        comment = f"{named}: {list(updates.shape)} as they were"
        keep = Call("ext_gather", [params, data, indices, kept], (kept,), comment)
        back = [params, "EXT_SCATTER_UPDATE", result, indices, kept, result]
        undo = Call("ext_scatter", back, scatter.writes, f"{named}: rows as they were")
        for call in (keep, undo):
            call.library, call.composite, call.node = scatter.library, named, scatter.node
        calls.insert(place, keep)
        found.append(RowsInPlace(number, scatter, undo))
    order = {id(call): place for place, call in enumerate(calls)}
    return sorted(found, key=lambda rows: order[id(rows.scatter)])


def _only_scatter(calls: Sequence[Call], before: Buffer, after: Buffer) -> int | None:
    """The place of the call that alone writes ``after``: it scatters into what ``before`` was.

    None where there is none, and where a call reads ``before`` at the same time or later.
    """
    touching = [
        place
        for place, call in enumerate(calls)
        if any(_is(tensor, after) for tensor in [*call.reads(), *call.writes])
    ]
    writing = [p for p in touching if any(_is(tensor, after) for tensor in calls[p].writes)]
    reading = [
        place
        for place, call in enumerate(calls)
        if any(_is(tensor, before) for tensor in call.reads())
    ]
    if len(writing) != 1 or touching[0] != writing[0] or not reading:
        return None
    (place,) = writing
    call = calls[place]
    if call.function != "ext_scatter" or reading[-1] != place:
        return None
    _, _, data, *others, result = call.arguments
    whole = all(_is_whole(tensor, of) for tensor, of in ((data, before), (result, after)))
    apart = not any(_is(tensor, buffer) for tensor in others for buffer in (before, after))
    return place if whole and apart else None


def _is(tensor: object, buffer: Buffer) -> bool:
    """Whether a tensor lies in a buffer of the caller: by name, as values take those of outputs."""
    lies = isinstance(tensor, Tensor)
    return lies and (tensor.buffer.kind, tensor.buffer.name) == (buffer.kind, buffer.name)


def _is_whole(tensor: object, buffer: Buffer) -> bool:
    """Whether a tensor is all of a buffer, in its order."""
    if not isinstance(tensor, Tensor) or not _is(tensor, buffer):
        return False
    return tensor.offset == 0 and tensor.is_dense() and same(tensor.size, buffer.size)
