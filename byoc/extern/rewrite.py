"""Calls of an operator that a user's function computes instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import tvm
from tvm import relax, tirx

from byoc.extern.shapes import extents

#: Gives the call that stands for another one, or raises ``ValueError`` or ``TypeError``.
StandIn = Callable[[relax.Call], relax.Call]

#: Attributes that only repeat the type of the result, which is compared anyway.
_TYPE_ONLY = ("out_dtype",)


def replace_calls(
    module: tvm.IRModule, operator: str, stand_in: StandIn
) -> tuple[tvm.IRModule, list[str]]:
    """Replace calls of a Relax operator wherever ``stand_in`` has another one of equal type.

    Gives the new module, and one reason per call that stayed.
    """
    tvm.ir.Op.get(operator)  # an unknown name is an error of its own
    reasons: list[str] = []

    @relax.expr_functor.mutator
    class Replace(relax.PyExprMutator):
        def visit_call_(self, call: relax.Call) -> relax.Expr:
            call = super().visit_call_(call)
            if not isinstance(call.op, tvm.ir.Op) or call.op.name != operator:
                return call
            try:
                found = self.builder_.normalize(stand_in(self._spread(call)))
                _need_equal_type(found, call)
            except (TypeError, ValueError) as error:
                reasons.append(str(error))
                return call
            return found

        def _spread(self, call: relax.Call) -> relax.Call:
            """The call with the items of a tuple (concat has one) as its arguments."""
            if len(call.args) != 1 or not isinstance(call.args[0].ty, relax.TupleType):
                return call
            items = call.args[0]
            if isinstance(items, relax.Var):
                items = self.lookup_binding(items)
            if not isinstance(items, relax.Tuple):
                raise ValueError(f"{operator}: its inputs are a tuple that is built elsewhere")
            return relax.Call(call.op, list(items.fields), call.attrs)

    mutator = Replace(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function) and not _is_composite(function):
            mutator.builder_.update_func(variable, mutator.visit_expr(function))
    result = mutator.builder_.finalize()
    return result.with_attrs(module.attrs) if module.attrs else result, reasons


def _is_composite(function: relax.Function) -> bool:
    attributes = function.attrs or {}
    return any(name in attributes for name in ("Primitive", "Codegen", "Composite"))


def _need_equal_type(found: relax.Expr, call: relax.Call) -> None:
    """Raise ``ValueError`` unless both give a tensor of the same shape and dtype for certain."""
    left, right = found.ty, call.ty
    shapes = [getattr(kind, "shape", None) for kind in (left, right)]
    if not all(isinstance(shape, relax.ShapeExpr) for shape in shapes):
        raise ValueError(f"{call.op.name} gives {right}; need a tensor of known shape")
    analyzer = tvm.sym.Analyzer()
    pairs = list(zip(*(extents(shape.values) for shape in shapes), strict=False))
    same = len(shapes[0].values) == len(shapes[1].values) and all(
        a == b if isinstance(a, int) and isinstance(b, int) else analyzer.can_prove_equal(a, b)
        for a, b in pairs
    )
    if not same or str(left.dtype) != str(right.dtype):
        raise ValueError(f"{call.op.name} gives {right}; the function gives {left}")


def operands(function: str, call: relax.Call, count: int) -> list[relax.Expr]:
    """The tensor arguments of a call. Raises ``ValueError`` for another number of them."""
    if len(call.args) != count:
        raise ValueError(f"{function}: {call.op.name} has {len(call.args)} inputs; need {count}")
    for argument in call.args:
        if not isinstance(argument.ty, relax.TensorType):
            raise ValueError(
                f"{function}: {call.op.name} has the argument {argument}; need tensors"
            )
    return list(call.args)


def attributes(
    function: str, call: relax.Call, told: Iterable[str], **assumed: object
) -> dict[str, Any]:
    """The attributes of a call that the function is told, as plain numbers.

    Raises ``ValueError`` where one that it is not told differs from what it assumes.
    """
    told = tuple(told)
    found = {}
    for name, value in _attributes(call).items():
        if name in told:
            found[name] = value
        elif name in assumed:
            # An empty layout of the result means that of the input.
            wanted = assumed[name]
            if name == "out_layout" and value == "":
                value = _attributes(call)["data_layout"]
            if value != wanted:
                raise ValueError(
                    f"{function}: {call.op.name} has {name} {value}; the function needs {wanted}"
                )
        elif name not in _TYPE_ONLY:
            raise ValueError(
                f"{function}: {call.op.name} has the attribute {name}, which the annotation of the"
                " function does not name"
            )
    missing = [name for name in told if name not in found]
    if missing:
        raise ValueError(f"{function}: {call.op.name} has no attribute {', '.join(missing)}")
    return found


def _attributes(call: relax.Call) -> dict[str, Any]:
    if call.attrs is None:
        return {}
    fields = type(call.attrs).__tvm_ffi_type_info__.fields
    values = {field.name: _plain(getattr(call.attrs, field.name)) for field in fields}
    if isinstance(values.get("padding"), list) and "kernel_layout" in values:
        from byoc.patterns.row import four_sides

        values["padding"] = four_sides(values["padding"])
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, tirx.IntImm):
        return int(value)
    if isinstance(value, tirx.FloatImm):
        return float(value)
    if isinstance(value, str | bool | int | float) or value is None:
        return value
    if isinstance(value, tvm.ir.Array | list | tuple):
        return [_plain(item) for item in value]
    return value


def equal(function: str, name: str, values: list[int]) -> int:
    """The one value of a list. Raises ``ValueError`` where its entries differ."""
    if len(set(values)) != 1:
        raise ValueError(f"{function}: {name} is {values}; the function needs equal entries")
    return values[0]


def embed_object(module: tvm.IRModule, path: Path, name: str) -> tvm.IRModule:
    """Have ``tvm.compile`` link an object that exports the packed function of that name.

    Raises ``FileNotFoundError`` where the object is not built.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path} is not built; run make -C {path.parent}")
    library = tvm.runtime.load_static_library(str(path), [name])
    others = list((module.attrs or {}).get("external_mods", []))
    return module.with_attr("external_mods", [*others, library])
