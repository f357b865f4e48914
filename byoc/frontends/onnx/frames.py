"""A Scan whose state is the end of a signal so far, and whose results are overlapping frames.

    frame[t] = z[h t : h t + w + h],  z the first state [.., w] and then the pieces [.., h] joined

Its body joins state and piece, gives that, and keeps all but the first h elements. With g the
greatest common divisor of w and h, frame t is (w + h) / g blocks of g elements, each of them h / g
blocks after that of frame t - 1: strided slices of z that are joined, however many the rounds are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import numpy_helper
from tvm import relax

from byoc.ir.dataflow import shape_of
from codegen_cc.dim import Dim, normal, same

#: What a slice ends at that takes all there is.
_END = 2**31 - 1


def frames(
    bb: relax.BlockBuilder,
    attributes: Mapping[str, Any],
    operands: Sequence[relax.Expr],
    constant: Callable[[str], np.ndarray | None],
    extent: Callable[[Dim], int | tvm.ir.Expr],
) -> list[relax.Expr] | None:
    """The last state [B, w] and the frames [B, T, w + h] of a state [B, w] and pieces [B, T, h].

    None where a Scan does something else, or w is not known. ``constant`` tells what is known of
    values around the body, ``extent`` writes a dimension as Relax has it.
    """
    shapes = [shape_of(operand) for operand in operands]
    if not _is_along_time(attributes, shapes):
        return None
    (batch, width), (of, rounds, piece) = shapes
    sizes = [e for e in (width, piece) if isinstance(e, int) and e > 0]
    if len(sizes) < 2 or not same(batch, of) or not _is_framing(attributes, piece, constant):
        return None

    def shaped(value: relax.Expr, *extents: Dim) -> relax.Expr:
        return bb.normalize(relax.op.reshape(value, [extent(normal(e)) for e in extents]))

    def part(value: relax.Expr, begin: Dim, end: Dim, step: int = 1) -> relax.Expr:
        bounds = [[extent(normal(bound))] for bound in (begin, end)]
        taken = relax.op.strided_slice(value, [1], *bounds, [step], assume_inbound=True)
        return bb.normalize(taken)

    size = gcd(width, piece)
    kept, more = width // size, piece // size
    state, pieces = operands
    signal = bb.normalize(relax.op.concat([state, shaped(pieces, batch, rounds * piece)], 1))
    blocks = shaped(signal, batch, kept + rounds * more, size)
    parts = [
        part(blocks, first, first + more * (rounds - 1) + 1, more) for first in range(kept + more)
    ]
    last = part(signal, rounds * piece, rounds * piece + width)
    return [last, bb.normalize(relax.op.concat(parts, 2))]


def _is_along_time(attributes: Mapping[str, Any], shapes: Sequence[Any]) -> bool:
    """Whether [B, w] and [B, T, h] are what is scanned, forward along T, and frames put there."""
    if [shape and len(shape) for shape in shapes] != [2, 3]:
        return False
    taken, put = (attributes.get(f"scan_{name}_axes", [0]) for name in ("input", "output"))
    backward = (attributes.get(f"scan_{name}_directions", [0]) for name in ("input", "output"))
    return [axis % 3 for axis in (*taken, *put)] == [1, 1] and not any(map(any, backward))


def _is_framing(
    attributes: Mapping[str, Any], piece: int, around: Callable[[str], np.ndarray | None]
) -> bool:
    """Whether the body joins state and piece, and keeps all but so many elements as the state."""
    body: onnx.GraphProto = attributes["body"]
    if [len(part) for part in (body.input, body.output, body.node)] != [2, 2, 2]:
        return False
    join, cut = body.node
    if (join.op_type, cut.op_type) != ("Concat", "Slice") or len(cut.input) < 4:
        return False
    own = {tensor.name: numpy_helper.to_array(tensor) for tensor in body.initializer}
    bounds = [own[name] if name in own else around(name) for name in cut.input[1:]]
    if any(bound is None or bound.size != 1 for bound in bounds):
        return False
    start, end, axis, *step = (int(bound.item()) for bound in bounds)
    joins = list(join.input) == [value.name for value in body.input]
    gives = [cut.output[0], join.output[0]] == [value.name for value in body.output]
    rest = (start, end >= _END, step in ([], [1])) == (piece, True, True)
    along = {axis, join.attribute[0].i} <= {-1, 1}
    return joins and gives and rest and along and cut.input[0] == join.output[0]
