"""Operators of namespaces that users' kernel libraries bring (``codegen_cc.custom``)."""

from __future__ import annotations

from typing import Any

import torch
from tvm import relax

from byoc.frontends.torch.values import Converter, Graph
from byoc.ir.custom import by_role, custom
from codegen_cc.operator import custom_operator


def converter_of_custom(target: object) -> Converter | None:
    """The converter of an operator that a user's library brings; None for others.

    Its tensors are the record's roles in their order, what else it is given are attributes by name.
    """
    if not isinstance(target, torch._ops.OpOverload):
        return None
    record = custom_operator(f"{target.namespace}::{target._opname}")
    if record is None:
        return None
    tensors = [_known_as(a) for a in target._schema.arguments if "Tensor" in str(a.type)]

    def convert(g: Graph, **named: Any) -> list[relax.Expr]:
        given = (named.pop(name) for name in tensors)
        operands = [None if value is None else g.tensor(value) for value in given]
        attributes = {name: value for name, value in named.items() if value is not None}
        made = g.emit(custom(record, by_role(record, operands), attributes))
        if len(record.results) == 1:
            return [made]
        return [relax.TupleGetItem(made, place) for place in range(len(record.results))]

    return convert


def _known_as(argument: torch.Argument) -> str:
    """What converters know an argument by."""
    return "x" if argument.name == "self" else argument.name
