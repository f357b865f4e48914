"""Read through tuples that are only put together to be taken apart again."""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block


def inline_tuples(block: Block) -> None:
    """Let users of a bound tuple, and of its items, read the items themselves.

    A bound tuple is a node of TVM's own, and one between two operators of ours would keep them in
    different regions.
    """
    for var in block.ordered():
        value = block.values.get(var)
        if isinstance(value, relax.TupleGetItem):
            packed = value.tuple_value
            packed = block.values.get(packed, packed) if isinstance(packed, relax.Var) else packed
            if isinstance(packed, relax.Tuple):
                block.alias(var, packed.fields[value.index])
    for var in block.ordered():
        value = block.values.get(var)
        if isinstance(value, relax.Tuple) and not block.is_fixed(var):
            users = [block.values[user] for user in block.users(var)]
            if all(isinstance(user, relax.Call | relax.Tuple) for user in users):
                block.alias(var, value)
