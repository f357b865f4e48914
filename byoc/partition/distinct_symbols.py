"""Give every symbol of a function a name of its own.

Symbols of Relax are variables, which may share a name: importers call every axis ``?`` whose name
they do not know, and hand-written modules call two of them ``n``. What regions are made of knows
symbols by name, and would take these for one.
"""

from __future__ import annotations

import tvm
from tvm import relax, tirx

from byoc.ir.dataflow import is_candidate


def distinct_symbols(mod: tvm.IRModule) -> tvm.IRModule:
    """Rename symbols whose names are taken; the given module is not changed."""
    out = mod
    for gvar, func in mod.functions.items():
        if not is_candidate(func):
            continue
        renamed = _renamed(list(relax.analysis.defined_symbolic_vars(func)))
        if renamed:
            out = mod.clone() if out is mod else out
            out[gvar] = func.bind_symbolic_vars(renamed)
    return out


def _renamed(symbols: list[tirx.Var]) -> dict[tirx.Var, tirx.Var]:
    """New variables for those whose names an earlier one has."""
    taken = {symbol.name for symbol in symbols}
    seen: set[str] = set()
    renamed: dict[tirx.Var, tirx.Var] = {}
    for symbol in symbols:
        if symbol.name in seen:
            count = 1
            while f"{symbol.name}_{count}" in taken:
                count += 1
            name = f"{symbol.name}_{count}"
            taken.add(name)
            renamed[symbol] = tirx.Var(name, symbol.ty)
        seen.add(symbol.name)
    return renamed
