"""An operator that a user's kernel library brings, and Relax does not have.

    custom(record, {"input": x}, {"bins": 16})

has the operands, by role, and the attributes of the record (``codegen_cc.operator``), and gives a
tensor, or a tuple of the record's results.  The record tells TVM the types.  No loops stand for it:
what no kernel takes is refused before TVM would look for some (``require_kernels``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax

from byoc.errors import CompileError
from byoc.ir.dataflow import dtype_of, shape_of
from byoc.ir.own_operators import register
from byoc.ir.symbols import named_in
from codegen_cc.node import Operand
from codegen_cc.operator import Operator, operator_of
from codegen_cc.region.relax_dims import relax_extent, variable_symbols

NAME = "relax.ext.custom"


def custom(
    record: Operator, operands: Mapping[str, relax.Expr], attributes: Mapping[str, Any]
) -> relax.Call:
    """The call; the order of ``operands`` is that of its arguments. Raises ``ValueError``."""
    for role in record.roles:
        if role not in operands and role not in record.optional:
            raise ValueError(f"input {role!r} is missing")
    attrs = {"operator": record.name, "roles": list(operands)}
    attrs["attributes"] = json.dumps(record.custom.read_attributes(attributes))
    call = relax.Call(tvm.ir.Op.get(NAME), list(operands.values()), tvm.ir.DictAttrs(attrs))
    _types(call)  # says what is wrong where the user's function does
    return call


def by_role(record: Operator, tensors: list[relax.Expr | None]) -> dict[str, relax.Expr]:
    """The tensors of a node by the record's roles, without those left out.

    Raises ``ValueError`` for more than there are.
    """
    if len(tensors) > len(record.roles):
        raise ValueError(f"has {len(tensors)} inputs; its record has {len(record.roles)}")
    pairs = zip(record.roles, tensors, strict=False)
    return {role: expr for role, expr in pairs if expr is not None}


def record_of(call: relax.Call) -> Operator:
    """The record of a call."""
    return operator_of(str(call.attrs["operator"]))


def operands_of_custom(call: relax.Call) -> dict[str, relax.Expr]:
    """The operands of a call by role."""
    return dict(zip(map(str, call.attrs["roles"]), call.args, strict=True))


def attributes_of_custom(call: relax.Call) -> dict[str, Any]:
    """The attributes of a call."""
    return json.loads(str(call.attrs["attributes"]))


def _types(call: relax.Call) -> list[relax.TensorType]:
    """The results' types, as the record says. Raises ``ValueError``."""
    record, given = record_of(call), operands_of_custom(call)
    operands = {}
    for role, expr in given.items():
        shape = shape_of(expr)
        if shape is None:
            raise ValueError(f"the shape of input {role!r} is not known")
        operands[role] = Operand(role, shape, dtype_of(expr))
    made = record.custom.typed_results(operands, attributes_of_custom(call), len(record.results))
    symbols = variable_symbols(named_in(*(expr.ty for expr in given.values())))
    return [
        relax.TensorType([relax_extent(extent, symbols) for extent in shape], dtype)
        for shape, dtype in made
    ]


def _infer(call: relax.Call, builder: relax.BlockBuilder) -> relax.Type:
    del builder
    types = _types(call)
    return types[0] if len(types) == 1 else relax.TupleType(types)


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    del builder
    raise CompileError(
        f"operator {record_of(call).name} has no code but that of a kernel library; name the one"
        " that computes it (libraries=[...])"
    )


register(NAME, _infer, _legalize)
