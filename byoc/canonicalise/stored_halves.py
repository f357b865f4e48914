"""Find values of 16 bits that a network stores elements in, and gives back.

    y = reshape(scatter(reshape(a), places, b))        a from outside of the block, y an output

Such a value is memory, as a decoder's cache is: what is stored is rounded to its dtype, and nothing
else of it is computed.
"""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import op_name, variables

_STORES = ("relax.scatter_nd", "relax.scatter_elements")
_MOVES = ("relax.reshape", "relax.permute_dims", "relax.expand_dims", "relax.squeeze")


def stored_halves(block: relax.DataflowBlock) -> set[relax.Var]:
    """The variables of a block that are such a value, before and after elements are stored."""
    values = {binding.var: binding.value for binding in block.bindings}
    found: set[relax.Var] = set()
    for output in _outputs(block):
        after = _moved(output, values)
        stored = values.get(after[-1])
        if not isinstance(stored, relax.Call) or op_name(stored) not in _STORES:
            continue
        if stored.attrs.reduction != "update" or not isinstance(stored.args[0], relax.Var):
            continue
        before = _moved(stored.args[0], values)
        if before[-1] not in values:
            found.update([*after, *before[:-1]])
    return found


def _moved(var: relax.Var, values: dict[relax.Var, relax.Expr]) -> list[relax.Var]:
    """A variable, and what it is with its elements elsewhere, down to what is computed or given."""
    chain = [var]
    while True:
        value = values.get(chain[-1])
        if isinstance(value, relax.Call) and op_name(value) in _MOVES:
            value = value.args[0]
        if not isinstance(value, relax.Var):
            return chain
        chain.append(value)


def _outputs(block: relax.DataflowBlock) -> list[relax.Var]:
    """The variables of a block that are read outside of it, by themselves or in a tuple."""
    found: list[relax.Var] = []
    for binding in block.bindings:
        if not isinstance(binding.var, relax.DataflowVar):
            is_tuple = isinstance(binding.value, relax.Tuple)
            found += variables(binding.value) if is_tuple else [binding.var]
    return found
