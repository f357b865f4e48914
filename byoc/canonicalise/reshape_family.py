"""Write every operator that only renames axes as ``reshape``.

``squeeze``, ``expand_dims``, ``flatten``, and a ``permute_dims`` that moves axes of extent 1
alone keep the order of elements, so one pattern row is enough for all of them.
"""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block, op_name, shape_of


def one_reshape(block: Block) -> None:
    """Rewrite operators of static shape that keep the order of elements."""
    names = ("relax.squeeze", "relax.expand_dims", "relax.flatten", "relax.permute_dims")
    for var, call in block.calls(*names):
        shape = shape_of(var)
        if shape is None or shape_of(call.args[0]) is None:
            continue
        if op_name(call) == "relax.permute_dims" and not _keeps_order(call):
            continue
        block.replace(var, relax.op.reshape(call.args[0], var.ty.shape))


def _keeps_order(call: relax.Call) -> bool:
    shape = shape_of(call.args[0])
    axes = call.attrs.axes
    order = range(len(shape))[::-1] if axes is None else [int(axis) for axis in axes]
    moved = [axis % len(shape) for axis in order if shape[axis] != 1]
    return moved == sorted(moved)
