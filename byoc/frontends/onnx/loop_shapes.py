"""Shapes of a loop's states, which its body does not declare or declares as they are at first.

A state may have another shape in each round. An extent stays where the body, given a state of this
extent, gives one of the same extent back: the least that is supposed is what the state is at first,
and what turns out different is unknown, until nothing is.

    i: int32 [], total: float32 [3, ?]       i = i + 1, total = concat(total, x, axis=1)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx

Types = Mapping[str, onnx.TypeProto]

#: How often the walk through a body may be repeated.
_ATTEMPTS = 3


def shape_states(
    node: onnx.NodeProto,
    body: onnx.GraphProto,
    around: Types,
    inferred: Callable[[onnx.GraphProto], Types] | None,
) -> None:
    """Give the inputs of a body of rounds the shapes that they have in each of them, in place.

    ``around`` are the types of the values around it; ``inferred`` walks through a copy of the body
    and gives the types of its values. Without it, and in a Scan, no shape is known.
    """
    for value in body.input:
        value.type.tensor_type.ClearField("shape")
    if inferred is None or node.op_type != "Loop":
        return
    states = list(zip(node.input[2:], body.input[2:], body.output[1:], strict=False))
    for source, value, _ in states:
        found = around.get(source)
        if found is not None and found.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.CopyFrom(found.tensor_type.shape)
    for _ in range(_ATTEMPTS):
        if not any(value.type.tensor_type.HasField("shape") for _, value, _ in states):
            return
        probe = onnx.GraphProto()
        probe.CopyFrom(body)
        types = inferred(probe)
        changed = [_forget(value, types.get(result.name)) for _, value, result in states]
        if not any(changed):
            return
    for _, value, _ in states:
        value.type.tensor_type.ClearField("shape")


def _forget(value: onnx.ValueInfoProto, result: onnx.TypeProto | None) -> bool:
    """Forget what differs between a state and what the body makes of it; True if anything does."""
    state = value.type.tensor_type
    if not state.HasField("shape"):
        return False
    made = None if result is None else result.tensor_type
    if made is None or not made.HasField("shape") or len(made.shape.dim) != len(state.shape.dim):
        state.ClearField("shape")
        return True
    changed = False
    for before, after in zip(state.shape.dim, made.shape.dim, strict=True):
        if before.WhichOneof("value") is not None and before != after:
            before.ClearField("value")
            changed = True
    return changed
