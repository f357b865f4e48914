"""An editable view of one Relax dataflow block.

Rewriting Relax by visitors rebuilds and re-normalises the whole function for every pass. The
passes here look at a block as what it is, a list of bindings in single-assignment form: they
look up definitions and users, rebind a variable to a better expression, and the block is put
together once at the end. Constants are shared, never copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr import _update_type

from byoc.ir.dense import dense
from byoc.ir.origin import UNKNOWN, Origin, origin_of, with_origin
from byoc.ir.walk import is_plain, operands_of, substitute, variables
from codegen_cc.dim import Dim, is_static
from codegen_cc.dtypes import KERNEL_FLOATS, KERNEL_HALVES
from codegen_cc.region.relax_dims import dim_text, known_dims

Var = relax.Var
Expr = relax.Expr
Constant = tvm.ir.GenericConst

_builder = relax.BlockBuilder()


def typed(expr: Expr) -> Expr:
    """Infer the type of an expression whose operands are variables and constants."""
    return _builder.normalize(expr)


def shape_of(expr: Expr) -> tuple[Dim, ...] | None:
    """The shape of a tensor, symbols included; None if it is no tensor or has no known shape."""
    return shape_in(expr.ty)


def shape_in(kind: tvm.ir.Type) -> tuple[Dim, ...] | None:
    """The shape that a type tells, as ``shape_of`` gives it."""
    if not isinstance(kind, relax.TensorType) or not isinstance(kind.shape, relax.ShapeExpr):
        return None
    return known_dims(kind.shape)


def static_shape_of(expr: Expr) -> tuple[int, ...] | None:
    """The shape of a tensor if all of it is integers, else None."""
    shape = shape_of(expr)
    return shape if shape is not None and is_static(shape) else None


def dtype_of(expr: Expr) -> str:
    """The dtype of a tensor, or the name of the type that it has instead."""
    if isinstance(expr.ty, relax.TensorType):
        return str(expr.ty.dtype)
    return type(expr.ty).__name__


def describe(expr: Expr) -> str:
    """Shape and dtype for a message, such as ``float32[1, 3, n]``; ``?`` where unknown."""
    return describe_type(expr.ty)


def describe_type(kind: tvm.ir.Type) -> str:
    """What ``describe`` says of a value of this type."""
    if isinstance(kind, relax.TupleType):
        return f"tuple of {len(kind.fields)}"
    if not isinstance(kind, relax.TensorType):
        return type(kind).__name__
    if not isinstance(kind.shape, relax.ShapeExpr):
        return f"{kind.dtype}[?]"
    return f"{kind.dtype}[{', '.join(map(dim_text, kind.shape.values))}]"


def array_of(expr: Expr) -> np.ndarray | None:
    """The values of a constant, without a copy (read only by convention); None for others."""
    if not isinstance(expr, Constant):
        return None
    try:
        return np.from_dlpack(expr.value)
    except (BufferError, RuntimeError, TypeError):  # dtypes that numpy's exchange lacks
        return expr.value.numpy()


def scalar_of(expr: Expr) -> float | None:
    """The value of a constant with one element, whatever its rank; None for others."""
    values = array_of(expr)
    return float(values.reshape(())) if values is not None and values.size == 1 else None


def is_kernel_float(expr: Expr, stored: bool = False) -> bool:
    """Whether a tensor has floating-point numbers that kernels compute with, or have ``stored``."""
    return dtype_of(expr) in (KERNEL_FLOATS + KERNEL_HALVES if stored else KERNEL_FLOATS)


def bound(bb: relax.BlockBuilder, value: Expr) -> Expr:
    """What a variable of the block that is built stands for; itself where nothing is bound."""
    found = bb.lookup_binding(value) if isinstance(value, relax.Var) else None
    return value if found is None else found


def constant(values: np.ndarray, dtype: str) -> Constant:
    """A Relax constant of these values."""
    return relax.const(dense(values, dtype), dtype)


def op_name(expr: Expr) -> str | None:
    """The operator's name if the expression calls one, such as ``relax.nn.conv2d``."""
    if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
        return expr.op.name
    return None


def touches_empty(call: relax.Call) -> bool:
    """Whether the result of a call or one of its operands has an extent of 0."""
    return any(0 in (shape_of(expr) or ()) for expr in (call, *operands_of(call)))


class Block:
    """Bindings of one dataflow block, open for rewriting.

    A variable that is no ``DataflowVar`` is visible outside and keeps a binding of its own.

    Where bindings come from (see ``origin``) is kept up here alone, so that no rule needs to think
    of it: a new binding comes from where its anchor does, and one that falls away hands its origin
    to the binding that was rewritten to do without it.

    With ``skip_empty``, ``calls`` leaves out those with a tensor without elements: an extent of 0
    means the operand's to Relax's reshape, so that rules could not write all that they need.
    """

    def __init__(
        self,
        block: relax.DataflowBlock,
        mod: tvm.IRModule | None = None,
        skip_empty: bool = False,
    ) -> None:
        self.mod = mod
        self.skip_empty = skip_empty
        self.values: dict[Var, Expr] = {}
        self._names: dict[Var, str | None] = {}  # of operators that are called
        self._casts: dict[Var, relax.MatchCast] = {}
        self._order: list[Var] = []
        #: What ``ordered`` found, until something changes, and where ``remove_unused`` left it.
        self._found: list[Var] | None = None
        self._swept: list[Var] | None = None
        self._before: dict[Var, list[Var]] = {}
        self._behind: dict[Var, list[Var]] = {}
        self._moved: set[Var] = set()
        self._users: dict[Var, list[Var]] = {}
        self._pinned: set[Var] = set()
        self._origins: dict[Var, Origin] = {}
        self._heirs: dict[Var, Var] = {}
        self._pieces: dict[Var, list[Var]] = {}
        self._handed: set[tuple[Var, int, str | None, Origin]] = set()
        for binding in block.bindings:
            # Each access makes a new Python object, and dictionaries compare other objects than
            # their own by TVM's slow equality.
            var, value = binding.var, binding.value
            if isinstance(binding, relax.MatchCast):
                self._casts[var] = binding
                self._pinned.update([var, *variables(value)])
            self._order.append(var)
            self._origins[var] = origin_of(value)
            self._bind(var, value)

    # ------------------------------------------------------------------ looking

    def ordered(self) -> list[Var]:
        """All bound variables, definitions before uses."""
        if self._found is not None:
            return self._found
        found: list[Var] = []

        def expand(var: Var) -> None:
            for earlier in self._before.get(var, ()):
                expand(earlier)
            if var in self.values and var not in self._moved:
                found.append(var)
            found.extend(later for later in self._behind.get(var, ()) if later in self.values)

        for base in self._order:
            if base in self._before or base in self._behind or base in self._moved:
                expand(base)
            elif base in self.values:
                found.append(base)
        self._found = found
        return found

    def calls(self, *names: str) -> Iterator[tuple[Var, relax.Call]]:
        """Bindings that call one of these operators, or any if none is named, in order.

        The list is taken at the start; bindings that the caller removes meanwhile are skipped, and
        so are casts, which check a value and define symbols.
        """
        for var in self.ordered():
            if names and self._names.get(var) not in names:
                continue
            value = None if var in self._casts else self.values.get(var)
            if isinstance(value, relax.Call) and not (self.skip_empty and touches_empty(value)):
                yield var, value

    def call(self, expr: Expr, *names: str) -> relax.Call | None:
        """The call to one of these operators that a variable is bound to; None for others."""
        value = self.values.get(expr) if isinstance(expr, relax.Var) else None
        return value if value is not None and self._names[expr] in names else None

    def users(self, var: Var) -> list[Var]:
        """Bindings that read a variable, one entry per use."""
        return self._users.get(var, [])

    def is_fixed(self, var: Var) -> bool:
        """Whether something outside the reach of rewriting reads the variable."""
        return not isinstance(var, relax.DataflowVar) or var in self._pinned

    def is_cast(self, var: Var) -> bool:
        """Whether a binding of this block checks what it binds to the variable."""
        return var in self._casts

    def is_private(self, expr: Expr) -> bool:
        """Whether a value of this block is used exactly once, inside it."""
        return (
            isinstance(expr, relax.Var)
            and expr in self.values
            and len(self.users(expr)) == 1
            and not self.is_fixed(expr)
        )

    def origin(self, var: Var) -> Origin:
        """Where the value of a variable comes from."""
        return self._origins.get(var, UNKNOWN)

    # ------------------------------------------------------------------ rewriting

    def emit(self, anchor: Var, expr: Expr, name: str = "lv") -> Var:
        """Bind a new variable to an expression just before ``anchor``."""
        expr = typed(expr)
        var = relax.DataflowVar(name, expr.ty)
        self._before.setdefault(anchor, []).append(var)
        self._origins[var] = self.origin(anchor).of_a_part
        self._pieces.setdefault(anchor, []).append(var)
        self._bind(var, expr)
        return var

    def move_behind(self, var: Var, anchor: Var) -> None:
        """Bind a variable just behind ``anchor``; nothing up to there may read it."""
        self._found = None
        self._moved.add(var)
        self._behind.setdefault(anchor, []).append(var)

    def replace(self, var: Var, expr: Expr) -> None:
        """Bind a variable to another expression of the same shape and dtype."""
        expr = typed(expr)
        if shape_of(expr) != shape_of(var) or dtype_of(expr) != dtype_of(var):
            raise ValueError(f"{var.name}: {describe(var)} cannot become {describe(expr)}")
        for read in variables(self.values[var]):
            self._heirs[read] = var
        self._unbind(var)
        self._bind(var, expr)

    def alias(self, var: Var, other: Expr) -> None:
        """Let all users of a variable read another variable or constant instead."""
        if var in self._pinned:
            return
        for user in dict.fromkeys(self.users(var)):
            value = self.values[user]
            self._unbind(user)
            self._bind(user, substitute(value, {var: other}))
        if isinstance(other, relax.Var) and other in self.values:
            self._inherit(other, var)
            for read in variables(self.values[var]):
                self._heirs[read] = other
        self._unbind(var)
        if self.is_fixed(var):
            self._bind(var, other)

    def remove_unused(self) -> None:
        """Drop bindings that nothing reads."""
        if self._found is not None and self._found is self._swept:
            return
        for var in reversed(self.ordered()):
            if not self.users(var) and not self.is_fixed(var):
                self._bequeath(var)
                self._unbind(var)
        self._swept = self.ordered()

    def finish(self) -> relax.DataflowBlock:
        """Put the block together, without bindings that nothing reads."""
        self.remove_unused()
        bindings: list[relax.Binding] = []
        for var in self.ordered():
            cast = self._casts.get(var)
            if cast is None:
                value = self.values[var]
                if origin_of(value) != self.origin(var):
                    value = self.values[var] = with_origin(value, self.origin(var))
                bindings.append(relax.VarBinding(var, value))
            else:
                bindings.append(relax.MatchCast(var, self.values[var], cast.ty))
        return relax.DataflowBlock(bindings)

    def _bind(self, var: Var, expr: Expr) -> None:
        self._found = None
        self.values[var] = expr
        self._names[var] = op_name(expr)
        read = variables(expr)
        for used in read:
            self._users.setdefault(used, []).append(var)
        if not is_plain(expr):
            self._pinned.update(read)

    def _inherit(self, heir: Var, var: Var) -> None:
        own = self.origin(heir)
        self._origins[heir] = replace(self.origin(var) | own, value=own.value)

    def _bequeath(self, var: Var) -> None:
        """Hand the origin of a binding that falls away to the one that does without it."""
        seen = {var}
        heir = self._heirs.get(var)
        while heir is not None and heir not in self.values and heir not in seen:
            seen.add(heir)
            heir = self._heirs.get(heir)
        if heir is None or heir not in self.values or heir == var:
            return
        pieces, name = self._pieces.get(heir, ()), op_name(self.values[var])
        handed = (heir, len(pieces), name, self.origin(var))
        if handed not in self._handed:  # a thousand operands of one node hand on the same
            self._handed.add(handed)
            # Several bindings may be in its place; one of the same operator is its like.
            group = [piece for piece in (*pieces, heir) if piece in self.values]
            like = [piece for piece in group if name and op_name(self.values[piece]) == name]
            for piece in like or group:
                self._inherit(piece, var)
        for read in variables(self.values[var]):
            self._heirs.setdefault(read, heir)

    def _unbind(self, var: Var) -> None:
        self._found = None
        for used in variables(self.values.pop(var)):
            self._users[used].remove(var)


#: The name that this backend is registered under, as ``relax.ext.<name>``.
CODEGEN = "ext"


def is_region(func: object) -> bool:
    """Whether a function of a module is a region of this backend; others have their own."""
    return isinstance(func, relax.Function) and (func.attrs or {}).get("Codegen") == CODEGEN


def is_candidate(func: object) -> bool:
    """Whether a function of a module is ordinary Relax: not some backend's, not a primitive."""
    if not isinstance(func, relax.Function):
        return False
    attrs = func.attrs or {}
    return not any(name in attrs for name in ("Codegen", "Composite", "Primitive"))


def sequence(blocks: list[relax.BindingBlock], result: Expr) -> relax.SeqExpr:
    """Blocks and the value that they end in, as the normalised body of a function."""
    body = relax.SeqExpr(blocks, result)
    _update_type(body, result.ty)
    return body


def global_var(name: str, func: relax.Function) -> tvm.ir.GlobalVar:
    """A name for a function to be added to a module, typed so that calls of it are."""
    gvar = tvm.ir.GlobalVar(name)
    _update_type(gvar, func.ty)
    return gvar


def with_blocks(func: relax.Function, blocks: list[relax.BindingBlock]) -> relax.Function:
    """The function with other binding blocks in its body; result and signature stay."""
    body = sequence(blocks, func.body.body)
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)


def map_blocks(
    mod: tvm.IRModule,
    rewrite: Callable[[relax.DataflowBlock], relax.DataflowBlock],
    nested: bool = False,
) -> tvm.IRModule:
    """Rewrite every dataflow block at the top level of every ordinary function.

    With ``nested``, those of branches and of functions inside of functions as well.
    """

    def rewritten(block: relax.BindingBlock) -> relax.BindingBlock:
        if nested:
            block = _with_inner(block, rewritten)
        return rewrite(block) if isinstance(block, relax.DataflowBlock) else block

    out = mod.clone()
    for gvar, func in mod.functions.items():
        if is_candidate(func):
            out[gvar] = with_blocks(func, [rewritten(block) for block in func.body.blocks])
    return out


def _with_inner(
    block: relax.BindingBlock, rewritten: Callable[[relax.BindingBlock], relax.BindingBlock]
) -> relax.BindingBlock:
    """The block with the blocks rewritten that its branches and functions have."""

    def inner(expr: Expr) -> Expr:
        if isinstance(expr, relax.SeqExpr):
            return sequence([rewritten(each) for each in expr.blocks], expr.body)
        if isinstance(expr, relax.If):
            branches = inner(expr.true_branch), inner(expr.false_branch)
            new = relax.If(expr.cond, *branches, expr.span)
            _update_type(new, expr.ty)
            return new
        return with_blocks(expr, list(map(rewritten, expr.body.blocks)))

    def is_open(binding: relax.Binding) -> bool:
        value = binding.value
        return isinstance(value, relax.If) or is_candidate(value)

    if not any(map(is_open, block.bindings)):
        return block
    bindings = [
        relax.VarBinding(binding.var, inner(binding.value)) if is_open(binding) else binding
        for binding in block.bindings
    ]
    return type(block)(bindings)
