"""Packed functions that a module calls, and those that it brings along."""

from __future__ import annotations

from collections.abc import Iterator

import tvm
import tvm_ffi
from tvm import relax, tirx

from codegen_cc.link.value_sized import VALUE_SIZED, value_sized_modules
from codegen_cc.target import HOST, Target


def bring_along(module: tvm.IRModule, target: Target = HOST) -> tvm.IRModule:
    """Give a module those of ``VALUE_SIZED`` that it calls. Raises ``ToolchainError``."""
    own = [name for name in called(module) if name in VALUE_SIZED]
    if not own:
        return module
    provided = [*_external(module), *value_sized_modules(own, target)]
    return module.with_attr("external_mods", provided)


def called(module: tvm.IRModule) -> list[str]:
    """Names of the packed functions that a lowered module calls and does not define, in order."""
    external = _external(module)
    defined = {
        str(function.attrs["global_symbol"])
        for function in module.functions.values()
        if function.attrs and "global_symbol" in function.attrs
    } | {variable.name_hint for variable in module.functions}
    names = dict.fromkeys(
        name for function in module.functions.values() for name in _names(function)
    )
    return [
        name
        for name in names
        if name not in defined and not any(m.implements_function(name) for m in external)
    ]


def _names(function: tvm.ir.BaseFunc) -> Iterator[str]:
    found: list[str] = []
    if isinstance(function, relax.Function):

        def visit(expr: relax.Expr) -> None:
            if isinstance(expr, relax.ExternFunc):
                found.append(str(expr.global_symbol))

        relax.analysis.post_order_visit(function.body, visit)
    elif isinstance(function, tirx.PrimFunc):

        def walk(node: object) -> None:
            op = getattr(node, "op", None)
            if isinstance(op, tvm.ir.Op) and "packed" in op.name and node.args:
                first = node.args[0]
                if isinstance(first, tvm.ir.StringImm):
                    found.append(str(first.value))

        tvm_ffi.structural_walk(function.body, walk)
    yield from found


def _external(module: tvm.IRModule) -> list[tvm.runtime.Module]:
    return list((module.attrs or {}).get("external_mods") or [])
