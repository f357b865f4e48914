"""Take the weights of a region out of its expressions.

``RunCodegen`` collects every constant that stands in a region into the module attribute
``const_name_to_constant``, and ``tvm.compile`` then stores all of them in the executable, beside
the packed copies that the code generator links in: the library would hold its weights twice. So the
partitioner's last pass moves them into the function attribute ``ext.constants``, an array of
tensors, and leaves in their place calls of ``ext.constant`` with an index into it.
"""

from __future__ import annotations

import tvm
from tvm import relax

from byoc.ir.dataflow import is_region, sequence, substitute, typed
from byoc.ir.walk import bindings_of
from codegen_cc.node import CONSTANT_FUNCTION, CONSTANTS_ATTRIBUTE


def detach_constants(mod: tvm.IRModule) -> tvm.IRModule:
    """Detach the constants of every region function. The given module is not changed."""
    out = mod.clone()
    for gvar, func in mod.functions.items():
        if is_region(func):
            # Merging shared the symbols of shapes with the caller; each function has its own.
            out[gvar] = relax.utils.copy_with_new_vars(_detach(func))
    return out


def _detach(func: relax.Function) -> relax.Function:
    found: dict[tvm.ir.GenericConst, relax.Var] = {}
    bindings: list[relax.Binding] = []
    for binding in bindings_of(func):
        value = binding.value
        if isinstance(value, relax.Call):
            for argument in value.args:
                if isinstance(argument, tvm.ir.GenericConst) and argument not in found:
                    placeholder = _placeholder(argument, len(found))
                    found[argument] = placeholder.var
                    bindings.append(placeholder)
            binding = relax.VarBinding(binding.var, substitute(value, found))
        bindings.append(binding)
    if not found:
        return func
    body = sequence([relax.DataflowBlock(bindings)], func.body.body)
    detached = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)
    return detached.with_attr(CONSTANTS_ATTRIBUTE, [constant.value for constant in found])


def _placeholder(constant: tvm.ir.GenericConst, index: int) -> relax.VarBinding:
    # The index is a shape, because a number would be a constant again.
    call = typed(
        relax.call_pure_packed(CONSTANT_FUNCTION, relax.ShapeExpr([index]), ty_args=constant.ty)
    )
    var = relax.DataflowVar(f"w{index}", constant.ty)
    return relax.VarBinding(var, call)
