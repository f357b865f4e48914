"""Let a function's symbols be computed from the extents that it is called with.

Relax knows the symbols of a function from the axes of its parameters that are symbols themselves.
``x: [1, 3, 32 * h, 32 * w]`` names two that nothing defines. So the parameter gets plain axes,

    main(x: [1, 3, x_2, x_3])
        [h, w]                   = [x_2 // 32, x_3 // 32]
        x: [1, 3, 32 h, 32 w]    = x, checked at run time

and all that follows stays as it was imported.
"""

from __future__ import annotations

from collections.abc import Set

import sympy
import tvm
from tvm import relax, tirx

from byoc.ir.dataflow import is_candidate, sequence, typed, with_blocks
from byoc.ir.symbols import extents_of, named_in, told_by
from codegen_cc.dim import Dim, normal, symbols
from codegen_cc.region.relax_dims import relax_dims, relax_extent, variable_symbols


def define_symbols(mod: tvm.IRModule) -> tvm.IRModule:
    """Define the symbols of ``main`` that no parameter has as an axis. The module is not changed.

    Each must stand alone in some axis, times an integer, plus an integer or symbols that other axes
    are. Raises ``ValueError`` where it does not.
    """
    main = mod["main"]
    types = [parameter.ty for parameter in main.params]
    missing = set(named_in(*types)) - {symbol for ty in types for symbol in told_by(ty)}
    if not missing:
        return mod
    taken = {symbol.name for symbol in named_in(*types)}
    params: list[relax.Var] = []
    casts: list[relax.MatchCast] = []
    axes: list[tuple[Dim, tvm.ir.Var]] = []
    for parameter in main.params:
        plain = _with_plain_axes(parameter, axes, taken)
        params.append(plain)
        if plain is not parameter:
            # The name that the body knows is bound to the cast, so the body need not change.
            casts.append(relax.MatchCast(parameter, plain, parameter.ty))
    values = _solved(axes, variable_symbols(named_in(*types)), missing)
    if unknown := sorted(symbol.name for symbol in missing - values.keys()):
        raise ValueError(f"no axis tells {', '.join(unknown)}; give one its symbol alone")
    out = mod.clone()
    out["main"] = _with_casts(main, params, values, casts)
    return out


def without_definitions(main: relax.Function) -> relax.Function:
    """``main`` as it was before ``define_symbols``: parameters with expressions for axes."""
    blocks = list(main.body.blocks)
    bindings = list(blocks[0].bindings) if blocks else []
    typed = {parameter: parameter for parameter in main.params}
    while bindings and isinstance(bindings[0], relax.MatchCast):
        value = bindings[0].value
        if value in typed:
            typed[value] = bindings[0].var
        elif not isinstance(value, relax.ShapeExpr):
            break
        bindings.pop(0)
    if blocks:
        blocks[0] = type(blocks[0])(bindings)
    params, body = list(typed.values()), sequence(blocks, main.body.body)
    return relax.Function(params, body, main.ret_ty, main.is_pure, main.attrs, main.span)


def _with_plain_axes(
    parameter: relax.Var, axes: list[tuple[Dim, tvm.ir.Var]], taken: set[str]
) -> relax.Var:
    """The parameter with a variable for every axis that is an expression.

    Adds such axes to ``axes``, what each was beside its variable, and names to ``taken``.
    """
    shape = extents_of(parameter.ty)
    for axis, extent in enumerate(shape):
        if isinstance(extent, tirx.Var | tirx.IntImm):
            continue
        name = f"{parameter.name}_{axis}"
        while name in taken:
            name += "_"
        taken.add(name)
        shape[axis] = tirx.Var(name, "int64")
        axes.append((*relax_dims([extent]), shape[axis]))
    if all(map(tvm.ir.Expr.same_as, shape, extents_of(parameter.ty))):
        return parameter
    return relax.Var(parameter.name, relax.TensorType(shape, str(parameter.ty.dtype)))


def _solved(
    axes: list[tuple[Dim, tvm.ir.Var]],
    variables: dict[sympy.Symbol, tvm.ir.Var],
    missing: set[tvm.ir.Var],
) -> dict[tvm.ir.Var, tvm.ir.Expr]:
    """What missing symbols are, as far as axes tell; one may need what another one told."""
    values: dict[tvm.ir.Var, tvm.ir.Expr] = {}
    known: dict[sympy.Symbol, tvm.ir.Expr] = {
        symbol: variable for symbol, variable in variables.items() if variable not in missing
    }
    left = axes
    while left:
        waiting = []
        for dim, plain in left:
            solved = _affine(dim, variables.keys() - known.keys())
            if solved is None:
                waiting.append((dim, plain))
                continue
            symbol, factor, offset = solved
            rest = plain - relax_extent(offset, known)
            known[symbol] = rest if factor == 1 else tirx.floordiv(rest, factor)
            values[variables[symbol]] = known[symbol]
        if len(waiting) == len(left):
            break
        left = waiting
    return values


def _affine(dim: Dim, missing: Set[sympy.Symbol]) -> tuple[sympy.Symbol, int, Dim] | None:
    """The one missing symbol of ``factor * symbol + offset``, the factor and the offset.

    The offset is made of symbols that are known. None for anything else.
    """
    found = missing & set(symbols([dim]))
    if len(found) != 1:
        return None
    (symbol,) = found
    try:
        factor, offset = sympy.Poly(dim, symbol).all_coeffs()
    except (ValueError, sympy.PolynomialError):
        return None
    if not (factor.is_Integer and factor > 0):
        return None
    return symbol, int(factor), normal(offset)


def _with_casts(
    main: relax.Function,
    params: list[relax.Var],
    values: dict[tvm.ir.Var, tvm.ir.Expr],
    casts: list[relax.MatchCast],
) -> relax.Function:
    """The function with these parameters and the casts at its beginning."""
    ty = relax.ShapeType(list(values))
    sizes = relax.Var("sizes", ty)
    shape = relax.ShapeExpr(list(values.values()))
    first: list[relax.Binding] = [relax.MatchCast(sizes, shape, ty), *casts]
    blocks = list(main.body.blocks)
    if blocks and isinstance(blocks[0], relax.DataflowBlock):
        blocks[0] = relax.DataflowBlock([*first, *blocks[0].bindings])
    else:
        blocks.insert(0, relax.BindingBlock(first))
    body = sequence(blocks, main.body.body)
    return relax.Function(params, body, main.ret_ty, main.is_pure, main.attrs, main.span)


def hide_definitions(mod: tvm.IRModule) -> tvm.IRModule:
    """Take the definitions of symbols out of sight of TVM's fusion; the module is not changed.

    FuseTIR writes ``x_2 // 32`` wherever ``h`` stands, and then refuses arguments that are no plain
    symbol. It leaves shapes alone that come out of a tensor.
    """
    out = mod.clone()
    for gvar, func in mod.functions.items():
        if is_candidate(func):
            out[gvar] = with_blocks(func, [_with_hidden(block) for block in func.body.blocks])
    return out


def _with_hidden(block: relax.BindingBlock) -> relax.BindingBlock:
    bindings: list[relax.Binding] = []
    local = relax.DataflowVar if isinstance(block, relax.DataflowBlock) else relax.Var
    for binding in block.bindings:
        value = binding.value
        if isinstance(binding, relax.MatchCast) and isinstance(value, relax.ShapeExpr):
            for operator in (relax.op.shape_to_tensor, relax.op.tensor_to_shape):
                call = typed(operator(value))
                value = local("sizes", call.ty)
                bindings.append(relax.VarBinding(value, call))
            binding = relax.MatchCast(binding.var, value, binding.ty)
        bindings.append(binding)
    return type(block)(bindings)
