"""A network that is one call of one region: nothing else has to run for an answer.

Such a network needs no virtual machine: whoever has its inputs and room for its outputs can call
the region itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax, tirx

from byoc.ir.check_extents import check_extents
from byoc.ir.define_symbols import without_definitions
from byoc.ir.walk import bindings_of
from codegen_cc.region.relax_dims import dim_text


@dataclass(frozen=True)
class SingleRegion:
    """How ``main`` calls its one region.

    ``symbol`` is the region's global symbol.  ``inputs[i]`` is the number of the parameter of
    ``main`` that is the region's input ``i``; ``outputs[j]`` the number of the region's output
    that is output ``j`` of ``main``.  ``sizes`` are symbols of shapes that the region takes before
    its inputs, as one shape.  ``doubtful``: an extent may be below 0, which somebody has to check
    before there is room for the outputs.
    """

    symbol: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    sizes: tuple[str, ...] = ()
    doubtful: bool = False


def single_region(module: tvm.IRModule) -> SingleRegion | str:
    """How ``main`` of a partitioned module calls its only region, or why that is not all it does.

    With symbolic shapes, all that ``main`` may do beside is to read symbols from axes.
    """
    if reason := _unfit(module):
        return reason
    main = without_definitions(module["main"])
    calls: dict[relax.Var, relax.Call] = {}
    views: dict[relax.Var, tuple[relax.Var, int]] = {}
    same: dict[relax.Var, relax.Expr] = {}
    for binding in bindings_of(main):
        value = binding.value
        if isinstance(binding, relax.MatchCast):
            return "main checks shapes"
        if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
            calls[binding.var] = value
        elif isinstance(value, relax.TupleGetItem) and value.tuple_value in calls:
            views[binding.var] = (value.tuple_value, int(value.index))
        elif isinstance(value, relax.Var | relax.Tuple):
            same[binding.var] = value
        else:
            return f"main does more than call regions: {_name(value)}"
    if len(calls) != 1:
        return f"main calls {len(calls)} regions; need 1"
    ((result, call),) = calls.items()
    attributes = module[call.op].attrs
    if attributes is None or "Codegen" not in attributes:
        return f"main calls {call.op.name_hint}, which is no region"
    parameters = {parameter: index for index, parameter in enumerate(main.params)}
    arguments, sizes = list(call.args), ()
    if arguments and isinstance(arguments[0], relax.ShapeExpr):
        sizes = arguments.pop(0).values
    if not all(isinstance(size, tirx.Var) for size in sizes):
        return "the region is called with sizes that main computes"
    if any(argument not in parameters for argument in arguments):
        return "the region is called with other things than the network's inputs"
    outputs: list[int] = []
    for value in _results(main.body.body, same):
        if value == result:
            outputs.append(0)
            continue
        where = views.get(value)
        if isinstance(value, relax.TupleGetItem) and value.tuple_value == result:
            where = (result, int(value.index))
        if where is None:
            return "an output is no result of the region"
        outputs.append(where[1])
    if isinstance(result.ty, relax.TupleType) and main.body.body == result:
        outputs = list(range(len(result.ty.fields)))
    if sorted(outputs) != list(range(_count(result.ty))):
        return "the network gives a result of the region twice, or not at all"
    symbol = str(attributes["global_symbol"])
    inputs = tuple(parameters[argument] for argument in arguments)
    doubtful = not check_extents(module)["main"].same_as(module["main"])
    return SingleRegion(symbol, inputs, tuple(outputs), tuple(map(dim_text, sizes)), doubtful)


def _unfit(module: tvm.IRModule) -> str | None:
    kinds = [f for f in module.functions.values() if f.attrs and "Codegen" in f.attrs]
    if len(kinds) != 1:
        return f"the network has {len(kinds)} regions; need 1"
    return None


def _count(type_: relax.Type) -> int:
    return len(type_.fields) if isinstance(type_, relax.TupleType) else 1


def _results(body: relax.Expr, same: dict[relax.Var, relax.Expr]) -> list[relax.Expr]:
    while isinstance(body, relax.Var) and body in same:
        body = same[body]
    if not isinstance(body, relax.Tuple):
        return [body]
    return [part for field in body.fields for part in _results(field, same)]


def _name(value: relax.Expr) -> str:
    if isinstance(value, relax.Call):
        return str(getattr(value.op, "name", value.op))
    return type(value).__name__
