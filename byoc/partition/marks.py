"""Marks: a user says which bindings of a module may be offloaded, and nothing else will be.

A mark is part of a binding's origin (see ``origin``), so it follows the binding through
canonicalisation: where several bindings become one, the result is marked if any of them was. The
module's attribute ``ext.marked`` tells the partitioner that there are marks to honour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import tvm
from tvm import relax

from byoc.arguments import as_texts
from byoc.errors import ControlError
from byoc.ir.dataflow import is_candidate, op_name, with_blocks
from byoc.ir.names import matches, resolve_op
from byoc.ir.origin import origin_of, with_origin
from byoc.ir.walk import bindings_of

#: Attribute of a module of which only marked bindings are offloaded.
MARKED_ATTRIBUTE = "ext.marked"

#: Decides for one binding whether it is marked.
Select = Callable[[relax.Binding], bool]


def mark(
    mod: tvm.IRModule,
    *,
    ops: Iterable[str] = (),
    nodes: Iterable[str] = (),
    pattern: relax.dpl.DFPattern | None = None,
    select: Select | None = None,
    begin: str | relax.Var | None = None,
    end: str | relax.Var | None = None,
) -> tvm.IRModule:
    """Mark bindings; partitioning offloads marked bindings alone. The given module stays as it is.

    What is marked, in the functions of ``mod`` as they stand (before canonicalisation):

    - ``ops``: calls of these operators (``relax.nn.conv2d`` or just ``conv2d``),
    - ``nodes``: bindings whose ONNX node (or, without one, whose variable) has such a name; shell
      patterns such as ``encoder/*``,
    - ``pattern``: all bindings that a ``tvm.relax.dpl`` pattern covers, wherever it matches,
    - ``select(binding)``: bindings that it returns true for,
    - ``begin``, ``end``: all bindings from one to the other, both included, in the order in which
      ``mod.show()`` prints them. Each is a node's or a variable's name, or the variable itself; an
      end left out is that of the function.

    Marks of several calls add up. Raises ``ControlError`` if nothing is marked.
    """
    _require_kinds(mod, pattern, select)
    wanted = {name for op in as_texts(ops, "ops", ControlError) for name in resolve_op(op)}
    globs = as_texts(nodes, "nodes", ControlError)

    def chosen(binding: relax.Binding) -> bool:
        names = _names(binding)
        return (
            op_name(binding.value) in wanted
            or any(matches(glob, names) for glob in globs)
            or (select is not None and bool(select(binding)))
        )

    _check(mod, begin, "begin")
    _check(mod, end, "end")
    out = mod.clone()
    count = 0
    for gvar, func in mod.functions.items():
        if is_candidate(func):
            inside = _matched(func, pattern) | _between(func, begin, end)
            marks = {
                binding.var
                for binding in bindings_of(func)
                if binding.var in inside or chosen(binding)
            }
            count += len(marks)
            out[gvar] = _with_marks(func, marks)
    if not count:
        raise ControlError("nothing to mark; mod.show() prints the bindings that can be marked")
    return out.with_attr(MARKED_ATTRIBUTE, True)


def _require_kinds(mod: object, pattern: object, select: object) -> None:
    """Raise ``ControlError`` for what is no module, no pattern, or no function."""
    for value, name, fits, need in (
        (mod, "the module", isinstance(mod, tvm.IRModule), "a tvm.IRModule"),
        (
            pattern,
            "pattern",
            isinstance(pattern, relax.dpl.DFPattern | None),
            "one of tvm.relax.dpl",
        ),
        (select, "select", select is None or callable(select), "a function of a binding"),
    ):
        if not fits:
            raise ControlError(f"{name} is of type {type(value).__name__}; need {need}")


def is_marked(mod: tvm.IRModule) -> bool:
    """Whether only marked bindings of a module may be offloaded."""
    return bool(mod.attrs) and MARKED_ATTRIBUTE in mod.attrs


def _names(binding: relax.Binding) -> tuple[str, ...]:
    return (*origin_of(binding.value).names, binding.var.name)


def _matched(func: relax.Function, pattern: relax.dpl.DFPattern | None) -> set[relax.Var]:
    """The variables that a pattern covers wherever it matches, what it reads as inputs left out."""
    found: set[relax.Var] = set()
    if pattern is None:
        return found
    values = {binding.var: binding.value for binding in bindings_of(func)}
    owners: dict[relax.Expr, relax.Var] = {value: var for var, value in values.items()}
    for value in values.values():
        matched = pattern.extract_matched_expr(value, values)
        for part, expr in (matched or {}).items():
            if not isinstance(part, relax.dpl.pattern.WildcardPattern):
                var = expr if isinstance(expr, relax.Var) else owners.get(expr)
                if var in values:
                    found.add(var)
    return found


def _check(mod: tvm.IRModule, wanted: str | relax.Var | None, what: str) -> None:
    """Raise ``ControlError`` if ``wanted`` names no binding of any function."""
    candidates = [func for func in mod.functions.values() if is_candidate(func)]
    if wanted is not None and not any(_positions(func, wanted) for func in candidates):
        raise ControlError(
            f"{what} {_text(wanted)} names no binding; mod.show() prints the variables"
        )


def _between(
    func: relax.Function, begin: str | relax.Var | None, end: str | relax.Var | None
) -> set[relax.Var]:
    bindings = bindings_of(func)
    if (begin is None and end is None) or not bindings:
        return set()
    firsts = [0] if begin is None else _positions(func, begin)
    lasts = [len(bindings) - 1] if end is None else _positions(func, end)
    if not firsts or not lasts:
        return set()
    if firsts[0] > lasts[-1]:
        raise ControlError(f"begin {_text(begin)} comes after end {_text(end)}; exchange them")
    return {binding.var for binding in bindings[firsts[0] : lasts[-1] + 1]}


def _positions(func: relax.Function, wanted: str | relax.Var) -> list[int]:
    """Indices of the bindings of a node, or of the binding of a variable."""
    return [
        index
        for index, binding in enumerate(bindings_of(func))
        if (wanted in _names(binding) if isinstance(wanted, str) else binding.var.same_as(wanted))
    ]


def _text(wanted: str | relax.Var | None) -> str:
    return repr(wanted.name if isinstance(wanted, relax.Var) else wanted)


def _with_marks(func: relax.Function, marks: set[relax.Var]) -> relax.Function:
    blocks: list[relax.BindingBlock] = []
    for block in func.body.blocks:
        bindings = [
            relax.VarBinding(binding.var, _marked(binding.value))
            if binding.var in marks and isinstance(binding, relax.VarBinding)
            else binding
            for binding in block.bindings
        ]
        dataflow = isinstance(block, relax.DataflowBlock)
        blocks.append((relax.DataflowBlock if dataflow else relax.BindingBlock)(bindings))
    return with_blocks(func, blocks)


def _marked(value: relax.Expr) -> relax.Expr:
    return with_origin(value, replace(origin_of(value), marked=True))
