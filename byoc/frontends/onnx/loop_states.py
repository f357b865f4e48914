"""What the body of an ONNX loop does with its states, and whether it runs at all."""

from __future__ import annotations

import onnx
from tvm import relax

from byoc.frontends.onnx.graph_names import reads
from byoc.frontends.relax_functions import Kind
from byoc.ir.dataflow import array_of


def is_lone(scalar: Kind | None, other: Kind | None) -> bool:
    """Whether one is a scalar and the other [1], which Paddle's exporter does not tell apart."""
    if scalar is None or other is None or scalar.dtype != other.dtype:
        return False
    return scalar.dims == () and other.dims == (1,)


def unread(body: onnx.GraphProto) -> frozenset[int]:
    """The numbers of a Loop's states that its body does not read, so that each round begins anew.

    Paddle keeps variables so that are set in a loop, and which nothing was before it.
    """
    counts = reads(body)
    return frozenset(n for n, state in enumerate(body.input[2:]) if not counts[state.name])


def runs(limit: relax.Expr, flag: relax.Expr | None) -> bool:
    """Whether a Loop is known to run a round."""
    most, begun = array_of(limit), None if flag is None else array_of(flag)
    return most is not None and most.item() > 0 and (flag is None or bool(begun))


def goes_on(body: onnx.GraphProto) -> bool:
    """Whether a Loop's body ends no loop."""
    handed = {n.output[0]: n.input[0] for n in body.node if n.op_type == "Identity"}
    going = body.output[0].name
    while going in handed:
        going = handed[going]
    return going == body.input[1].name
