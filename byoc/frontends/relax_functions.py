"""Functions of a Relax module that call each other, and the types of what they are called with."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sympy
import tvm
from tvm import relax, tirx
from tvm.relax.expr import _update_type

from byoc.frontends.free_names import take_name
from byoc.ir.dataflow import substitute
from byoc.ir.symbols import extents_of
from byoc.ir.walk import bindings_of
from codegen_cc.dim import Dim
from codegen_cc.region.relax_dims import relax_dims, relax_extent

Variables = dict[sympy.Symbol, tvm.ir.Var]
Make = Callable[[relax.BlockBuilder, Variables, list[relax.Var]], relax.Expr]

#: The attribute of functions that branch and repeat, and compute nothing.
FLOW = "byoc.flow"


@dataclass(frozen=True)
class Kind:
    """The type of a tensor in symbols that all functions know; None for an extent that varies.

    ``dims`` is None where not even the rank is known.
    """

    dtype: str
    dims: tuple[Dim | None, ...] | None

    @classmethod
    def of(cls, ty: relax.TensorType, known: Sequence[sympy.Symbol]) -> Kind:
        """The type of an expression; extents of symbols that are not ``known`` vary."""
        dtype = str(ty.dtype)
        if not isinstance(ty.shape, relax.ShapeExpr):
            return cls(dtype, None if ty.ndim < 0 else (None,) * ty.ndim)
        dims = []
        for extent in ty.shape.values:
            try:
                (dim,) = relax_dims([extent])
            except ValueError:
                dim = None
            told = dim is None or isinstance(dim, int) or dim.free_symbols.issubset(known)
            dims.append(dim if told else None)
        return cls(dtype, tuple(dims))

    def meet(self, other: Kind) -> Kind:
        """What both are."""
        if self.dims is None or other.dims is None or len(self.dims) != len(other.dims):
            return Kind(self.dtype, None)
        pairs = zip(self.dims, other.dims, strict=True)
        return Kind(self.dtype, tuple(a if a == b else None for a, b in pairs))

    def type(self, variables: Variables, name: str | None = None) -> relax.TensorType:
        """A type of these extents; those that vary are symbols after ``name``, or not told."""
        if self.dims is None:
            return relax.TensorType(dtype=self.dtype)
        if name is None and None in self.dims:
            return relax.TensorType(dtype=self.dtype, ndim=len(self.dims))
        return relax.TensorType(
            [
                tirx.Var(f"{name}_{axis}", "int64") if dim is None else relax_extent(dim, variables)
                for axis, dim in enumerate(self.dims)
            ],
            self.dtype,
        )

    def along(self, axis: int, extent: Dim | None = None) -> Kind:
        """The same with one more axis."""
        axis = axis % (len(self.dims) + 1)
        return Kind(self.dtype, (*self.dims[:axis], extent, *self.dims[axis:]))


@relax.expr_functor.mutator
class _Renaming(relax.PyExprMutator):
    def __init__(self, names: dict[tvm.ir.GlobalVar, tvm.ir.GlobalVar]) -> None:
        super().__init__()
        self._names = names

    def visit_global_var_(self, gvar: tvm.ir.GlobalVar) -> tvm.ir.GlobalVar:
        """The new name of a function."""
        return self._names.get(gvar, gvar)


class Functions:
    """The functions of a module besides ``main``: each knows the symbols ``known``, in order."""

    def __init__(self, builder: Callable[[], relax.BlockBuilder]) -> None:
        self.made: dict[tvm.ir.GlobalVar, relax.Function] = {}
        self._builder = builder
        self._taken: set[str] = set()

    def name(self, wanted: str) -> str:
        """A name that no other function has."""
        return take_name(wanted, self._taken)

    def add(
        self,
        wanted: str,
        known: Sequence[sympy.Symbol],
        kinds: Sequence[Kind],
        make: Make,
        gvar: tvm.ir.GlobalVar | None = None,
        computes: bool = False,
    ) -> tvm.ir.GlobalVar:
        """A function of tensors of these kinds; ``make`` builds its result.

        ``gvar`` is the name where the function calls itself. It only branches and repeats, unless
        it ``computes``.
        """
        variables, params = parameters(known, kinds)
        builder = self._builder()
        operands = params[1:] if known else params
        with builder.function("f", params, private=True):
            builder.emit_func_output(make(builder, variables, operands))
        function = self.with_loop_nests(builder.get())["f"]
        return self.named(wanted, function if computes else function.with_attr(FLOW, True), gvar)

    def with_loop_nests(self, module: tvm.IRModule) -> tvm.IRModule:
        """Add the loop nests that a function calls, under names that no other module has."""
        names: dict[tvm.ir.GlobalVar, tvm.ir.GlobalVar] = {}
        for gvar, function in module.functions.items():
            if isinstance(function, tirx.PrimFunc):
                names[gvar] = tvm.ir.GlobalVar(self.name(f"of_body_{gvar.name_hint}"))
                _update_type(names[gvar], gvar.ty)
                self.made[names[gvar]] = function
        if not names:
            return module
        renaming = _Renaming(names)
        return tvm.IRModule(
            {
                names.get(gvar, gvar): renaming.visit_expr(function)
                for gvar, function in module.functions.items()
                if isinstance(function, relax.Function)
            }
        )

    def named(
        self, wanted: str, function: relax.Function, gvar: tvm.ir.GlobalVar | None = None
    ) -> tvm.ir.GlobalVar:
        """Add a function; returns what it is called by."""
        if gvar is None:
            clean = re.sub(r"\W+", "_", wanted, flags=re.ASCII)
            gvar = global_name(self.name(clean), function.ty)
        self.made[gvar] = function
        return gvar


def global_name(name: str, ty: relax.FuncType) -> tvm.ir.GlobalVar:
    """The name of a function, typed so that calls of it are."""
    gvar = tvm.ir.GlobalVar(name)
    _update_type(gvar, ty)
    return gvar


def parameters(
    known: Sequence[sympy.Symbol], kinds: Sequence[Kind]
) -> tuple[Variables, list[relax.Var]]:
    """Variables for symbols, and parameters: a shape that tells them, and tensors."""
    variables = {symbol: tirx.Var(str(symbol), "int64") for symbol in known}
    params = [relax.Var("sizes", relax.ShapeType(list(variables.values())))] if known else []
    for place, kind in enumerate(kinds):
        name = f"t{place}"
        params.append(relax.Var(name, kind.type(variables, name)))
    return variables, params


def call(
    gvar: tvm.ir.GlobalVar, variables: Variables, operands: Sequence[relax.Expr]
) -> relax.Call:
    """A call of a function that knows these symbols."""
    sizes = [relax.ShapeExpr(list(variables.values()))] if variables else []
    return relax.Call(gvar, [*sizes, *operands])


def inlined(
    builder: relax.BlockBuilder,
    function: relax.Function,
    variables: Variables,
    operands: Sequence[relax.Expr],
) -> relax.Expr:
    """What a call of a function gives, by its bindings in place of the call."""
    sizes = [relax.ShapeExpr(list(variables.values()))] if variables else []
    given = [*sizes, *operands]
    symbols = {
        extent: value
        for param, operand in zip(function.params, given, strict=True)
        for extent, value in zip(extents_of(param.ty), extents_of(operand.ty), strict=True)
        if isinstance(extent, tirx.Var)
    }
    function = function.bind_symbolic_vars(symbols)
    mapping: dict[relax.Expr, relax.Expr] = dict(zip(function.params, given, strict=True))
    for binding in bindings_of(function):
        value = substitute(binding.value, mapping)
        if isinstance(binding, relax.MatchCast):
            mapping[binding.var] = builder.match_cast(value, binding.ty)
        else:
            mapping[binding.var] = builder.emit(value)
    return substitute(function.body.body, mapping)


def items(builder: relax.BlockBuilder, value: relax.Expr) -> list[relax.Expr]:
    """The items of a tuple that a function gives."""
    return [builder.emit(relax.TupleGetItem(value, n)) for n in range(len(value.ty.fields))]


def choice(
    builder: relax.BlockBuilder, flag: relax.Expr, yes: relax.Expr, no: relax.Expr
) -> relax.Var:
    """One of two values, of which only that one is computed."""
    return builder.emit(relax.If(flag, relax.SeqExpr([], yes), relax.SeqExpr([], no)))
