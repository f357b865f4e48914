"""Packed functions that a module calls, and those that it brings along."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tvm
import tvm_ffi
from tvm import relax, tirx

from byoc.ir.walk import expressions_of
from codegen_cc.link.value_sized import VALUE_SIZED, value_sized_modules
from codegen_cc.target import HOST, Target


def bring_along(
    module: tvm.IRModule, target: Target = HOST, names: Sequence[str] | None = None
) -> tvm.IRModule:
    """Give a module those of ``VALUE_SIZED`` that it calls. Raises ``ToolchainError``.

    ``names`` are those that ``named`` gives of it.
    """
    own = [name for name in called(module, names) if name in VALUE_SIZED]
    if not own:
        return module
    provided = [*_external(module), *value_sized_modules(own, target)]
    return module.with_attr("external_mods", provided)


def named(module: tvm.IRModule) -> tuple[str, ...]:
    """Names of the packed functions that a lowered module calls, in order."""
    functions = module.functions.values()
    return tuple(dict.fromkeys(name for function in functions for name in _names(function)))


def called(module: tvm.IRModule, names: Sequence[str] | None = None) -> list[str]:
    """Those of ``named`` that the module does not define; ``names`` are these, if known."""
    external = _external(module)
    defined = {
        str(function.attrs["global_symbol"])
        for function in module.functions.values()
        if function.attrs and "global_symbol" in function.attrs
    } | {variable.name_hint for variable in module.functions}
    return [
        name
        for name in (named(module) if names is None else names)
        if name not in defined and not any(m.implements_function(name) for m in external)
    ]


def _names(function: tvm.ir.BaseFunc) -> Iterator[str]:
    found: list[str] = []
    if isinstance(function, relax.Function):
        for expr in expressions_of(function):
            if isinstance(expr, relax.ExternFunc):
                found.append(str(expr.global_symbol))
    elif isinstance(function, tirx.PrimFunc):
        # Of loops the walk comes to each node at each use: a call of Python for each takes a
        # third of a compilation.
        def walk(call: tvm.ir.Call) -> None:
            if isinstance(call.op, tvm.ir.Op) and "packed" in call.op.name and call.args:
                first = call.args[0]
                if isinstance(first, tvm.ir.StringImm):
                    found.append(str(first.value))

        tvm_ffi.structural_walk(function.body, (tvm.ir.Call, walk))
    yield from found


def _external(module: tvm.IRModule) -> list[tvm.runtime.Module]:
    return list((module.attrs or {}).get("external_mods") or [])
