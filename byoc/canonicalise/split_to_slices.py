"""Turn ``split`` into one ``strided_slice`` for each part that is read.

A slice has one result, so that it can be matched, fused and planned like any other operator.
"""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block, shape_of


def split_to_slices(block: Block) -> None:
    """Rewrite splits of static shape whose parts are read one by one."""
    for var, call in block.calls("relax.split"):
        source = call.args[0]
        if not isinstance(call.ty, relax.TupleType):  # as Relax has one part, which is all
            block.alias(var, source)
            continue
        shape = shape_of(source)
        readers = block.users(var)
        if shape is None or block.is_fixed(var):
            continue
        if not all(isinstance(block.values[reader], relax.TupleGetItem) for reader in readers):
            continue
        axis = int(call.attrs.axis) % len(shape)
        if not isinstance(shape[axis], int):
            continue
        begin, begins = 0, []
        for part in call.ty.fields:
            begins.append(begin)
            begin += int(part.shape.values[axis])
        for reader in list(readers):
            first = begins[block.values[reader].index]
            size = shape_of(reader)[axis]
            block.replace(reader, relax.op.strided_slice(source, [axis], [first], [first + size]))
