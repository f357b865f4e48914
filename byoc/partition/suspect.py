"""Forms that are legal Relax and hardly ever what the model's author meant.

TVM's importer of PyTorch programs, without their decomposition
(``from_exported_program(run_ep_decomposition=False)``), writes every BatchNorm as in training: it
normalises by the mean and variance of the very input, whatever the program says. Nothing in the
module tells a mistake from a wish but that training keeps the new running statistics, which the
operator returns beside its result.
"""

from __future__ import annotations

from collections.abc import Iterator

import tvm
from tvm import relax

from byoc.ir.dataflow import is_candidate, op_name
from byoc.ir.origin import origin_of
from byoc.ir.walk import expressions_of

#: Names of nodes that a message lists.
_LISTED = 3


def suspect_forms(mod: tvm.IRModule) -> list[str]:
    """One line for each kind of suspect form in a module."""
    found = [name for f in mod.functions.values() if is_candidate(f) for name in _untracked(f)]
    if not found:
        return []
    names = ", ".join(map(repr, found[:_LISTED]))
    more = f" and {len(found) - _LISTED} more" * (len(found) > _LISTED)
    return [
        f"{len(found)} x relax.nn.batch_norm ({names}{more}) normalise by the statistics of their "
        "input (training=True) and drop the new running ones: a trained model's own are not used; "
        "need training=False, as from_exported_program(run_ep_decomposition=True) of a model "
        "in eval() gives"
    ]


def _untracked(func: relax.Function) -> Iterator[str]:
    """Names of the batch norms in training form of which the first result alone is read."""
    norms: dict[relax.Var, relax.Call] = {}
    items: dict[relax.Var, set[int]] = {}
    elsewhere: set[relax.Var] = set()

    for expr in expressions_of(func):
        if isinstance(expr, relax.SeqExpr):
            for block in expr.blocks:
                for binding in block.bindings:
                    value = binding.value
                    if op_name(value) == "relax.nn.batch_norm" and value.attrs.training:
                        norms[binding.var] = value
        elif isinstance(expr, relax.TupleGetItem) and isinstance(expr.tuple_value, relax.Var):
            items.setdefault(expr.tuple_value, set()).add(int(expr.index))
        elif isinstance(expr, relax.Call):
            elsewhere.update(item for item in expr.args if isinstance(item, relax.Var))
        elif isinstance(expr, relax.Tuple):
            elsewhere.update(item for item in expr.fields if isinstance(item, relax.Var))

    result = func.body.body
    for var, call in norms.items():
        if items.get(var) == {0} and var not in elsewhere and var != result:
            yield " + ".join(origin_of(call).names) or var.name
