"""Turn ``split`` into one ``strided_slice`` for each part that is read.

A slice has one result, so that it can be matched, fused and planned like any other operator.
"""

from __future__ import annotations

from tvm import relax, tirx

from byoc.ir.dataflow import Block, shape_of
from codegen_cc.dim import is_static, same
from codegen_cc.region.relax_dims import relax_dims


def split_to_slices(block: Block) -> None:
    """Rewrite splits of known shape whose parts are read one by one."""
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
        sizes = [relax_dims(part.shape.values)[axis] for part in call.ty.fields]
        if not is_static(sizes) and not all(same(size * len(sizes), shape[axis]) for size in sizes):
            continue  # there may be less than nothing left for the last part
        begin, begins = tirx.IntImm("int64", 0), []
        for part in call.ty.fields:
            begins.append(begin)
            begin = begin + part.shape.values[axis]
        for reader in list(readers):
            first = begins[block.values[reader].index]
            end = first + reader.ty.shape.values[axis]
            inside = not is_static(sizes)  # Relax need not clamp what it cannot compare
            part = relax.op.strided_slice(source, [axis], [first], [end], assume_inbound=inside)
            block.replace(reader, part)
