"""Compute networks that are stored in float16 or bfloat16 in single precision.

    y = f(a, b)                  ->  y' = f(a', b')        a', b', y' wide, attributes too
    a' of a value from outside   =   astype(a, WIDE)       parameters, results of other blocks
    a' of a constant             =   the same values, wide
    y where it leaves the block  =   astype(y', half)

So no inner value is rounded to 16 bits: ``astype`` from one floating-point dtype to another is
nothing inside, and what would overflow to infinity does not.  The signatures of all functions stay.
What is no operator on numbers (``call_tir``, calls of functions, branches, operators of users) is
computed as it is written, on values that are rounded for it, and so is what TVM cannot type when
wide, values without a known shape, which it cannot cast, and those that elements are stored in
(``stored_halves``).
"""

from __future__ import annotations

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from byoc.canonicalise.clip_from_call_tir import clip_from_call_tir
from byoc.canonicalise.inline_tuples import inline_tuples
from byoc.canonicalise.movement_from_call_tir import movement_from_call_tir
from byoc.canonicalise.stored_halves import stored_halves
from byoc.ir.dataflow import (
    Block,
    Constant,
    array_of,
    constant,
    dtype_of,
    is_plain,
    map_blocks,
    op_name,
    typed,
    variables,
)
from byoc.ir.origin import Origin, origin_of, with_origin
from codegen_cc.dtypes import KERNEL_HALVES, SINGLE

#: What the rewritten network computes in.
WIDE = SINGLE

#: Where operators on numbers are: ``relax.add``, ``relax.nn.relu`` and so on.
_NUMERIC = ("", "nn", "image", "vision", "ext")
#: Those that call what is written for one dtype, or that are about places and not about numbers.
_OTHERS = ("call_", "invoke_", "make_closure", "print", "assert_op", "wrap_param", "null_value")
_PLACES = ("to_vdevice", "hint_on_device")


def widen_halves(mod: tvm.IRModule) -> tvm.IRModule:
    """Rewrite every dataflow block that has values of 16 bits; the given module is not changed."""
    constants: dict[Constant, Constant] = {}

    def rewrite(block: relax.DataflowBlock) -> relax.DataflowBlock:
        if not _have_halves(block):
            return block
        # What importers write as loop nests becomes operators, which have no dtype of their own.
        open_block = Block(block, mod, skip_empty=True)
        for rule in (inline_tuples, clip_from_call_tir, movement_from_call_tir):
            rule(open_block)
        return _Widened(constants).block(open_block.finish())

    return map_blocks(mod, rewrite)


def has_half(kind: tvm.ir.Type) -> bool:
    """Whether a type is a tensor of 16-bit floats, or a tuple with one."""
    if isinstance(kind, relax.TupleType):
        return any(map(has_half, kind.fields))
    return isinstance(kind, relax.TensorType) and str(kind.dtype) in KERNEL_HALVES


def _have_halves(block: relax.DataflowBlock) -> bool:
    """Whether any binding has such a value, where each variable's type is looked at once."""
    found: set[relax.Expr] = set()
    for binding in block.bindings:
        value = binding.value
        operands = _flat(value.args) if isinstance(value, relax.Call) else []
        found.update([binding.var, *variables(value), *operands])
    return any(has_half(expr.ty) for expr in found)


def _has_half_in(binding: relax.Binding) -> bool:
    if has_half(binding.var.ty) or any(has_half(var.ty) for var in variables(binding.value)):
        return True
    value = binding.value
    return isinstance(value, relax.Call) and any(has_half(arg.ty) for arg in _flat(value.args))


def _flat(items: list[relax.Expr]) -> list[relax.Expr]:
    """Operands, those in tuples too."""
    return [
        inner
        for item in items
        for inner in (_flat(list(item.fields)) if isinstance(item, relax.Tuple) else [item])
    ]


def _is_castable(kind: tvm.ir.Type) -> bool:
    """Whether TVM can cast values of a type at a border: it needs shapes for that."""
    if isinstance(kind, relax.TupleType):
        return all(map(_is_castable, kind.fields))
    return not has_half(kind) or isinstance(kind.shape, relax.ShapeExpr)


def _wide(kind: tvm.ir.Type) -> tvm.ir.Type:
    """The type with ``WIDE`` in place of 16-bit floats."""
    if not has_half(kind):
        return kind
    if isinstance(kind, relax.TupleType):
        return relax.TupleType([_wide(field) for field in kind.fields])
    rank = -1 if kind.shape is not None else kind.ndim
    return relax.TensorType(kind.shape, WIDE, kind.vdevice, rank)


class _Widened:
    """One block as it is rewritten.

    ``_wide`` holds the wide form of each variable that has one, which for a variable of another
    dtype is what it is the same as.  Variables of the block are bound as they were only where
    something needs them so.
    """

    def __init__(self, constants: dict[Constant, Constant]) -> None:
        self._constants = constants
        self._wide: dict[relax.Var, relax.Expr] = {}
        self._origins: dict[relax.Var, Origin] = {}
        self._bound: set[relax.Var] = set()
        self._bindings: list[relax.Binding] = []
        self._stored: set[relax.Var] = set()

    def block(self, block: relax.DataflowBlock) -> relax.DataflowBlock:
        outside: list[relax.Var] = []
        self._stored = stored_halves(block)
        for binding in block.bindings:
            var, value = binding.var, binding.value
            self._origins[var] = origin_of(value)
            if not self._widen(var, value, binding):
                for read in variables(value):
                    self._require(read)
                self._bind(binding, var)
            if not isinstance(var, relax.DataflowVar):
                outside.append(var)
        for var in outside:
            self._require(var)
        return relax.DataflowBlock(self._bindings)

    # ------------------------------------------------------------------ bindings

    def _widen(self, var: relax.Var, value: relax.Expr, binding: relax.Binding) -> bool:
        """Bind a variable's wide form; False where the binding has to stay as it is."""
        if var in self._stored or not _has_half_in(binding) or not is_plain(value):
            return False
        if not all(_is_castable(ty) for ty in (var.ty, *(read.ty for read in variables(value)))):
            return False
        if isinstance(binding, relax.MatchCast):
            if not isinstance(value, relax.Var) or value not in self._wide:
                return False  # a value from outside is cast behind it, in the region
            kind = _wide(binding.ty)
            wide = relax.DataflowVar(var.name, kind)
            self._bindings.append(relax.MatchCast(wide, self._read(value, var), kind))
            self._wide[var] = wide
            return True
        if isinstance(value, relax.Var | Constant):
            self._wide[var] = self._read(value, var)
            return True
        if isinstance(value, relax.Call):
            return self._widen_call(var, value)
        if isinstance(value, relax.TupleGetItem):
            whole = self._read(value.tuple_value, var)
            return self._give(var, relax.TupleGetItem(whole, value.index, value.span))
        if isinstance(value, relax.Tuple) and isinstance(var, relax.DataflowVar):
            return self._give(var, self._read(value, var))
        return False

    def _widen_call(self, var: relax.Var, call: relax.Call) -> bool:
        if not _is_numeric(call):
            return False
        if op_name(call) == "relax.astype" and dtype_of(call) in (WIDE, *KERNEL_HALVES):
            of = call.args[0]
            if dtype_of(of) in (WIDE, *KERNEL_HALVES):
                self._wide[var] = self._read(of, var)
                return True
        arguments = [self._read(argument, var) for argument in call.args]
        return self._give(
            var, relax.Call(call.op, arguments, _wide_attributes(call.attrs), None, call.span)
        )

    def _give(self, var: relax.Var, value: relax.Expr) -> bool:
        """Bind the wide form of a variable, if that is of the type that it has to be."""
        try:
            value = typed(value)
        except (tvm.error.InternalError, TypeError, ValueError):
            return False
        if not tvm_ffi.structural_equal(value.ty, _wide(var.ty)):
            return False
        if has_half(var.ty):
            self._wide[var] = self._emit(value, var)
        else:
            self._bind(relax.VarBinding(var, value), var)
        return True

    def _bind(self, binding: relax.Binding, var: relax.Var) -> None:
        self._bindings.append(binding)
        self._bound.add(var)

    def _emit(self, value: relax.Expr, anchor: relax.Var) -> relax.Var:
        """Bind a new variable, which comes from where ``anchor`` does."""
        value = with_origin(typed(value), self._origins[anchor])
        var = relax.DataflowVar(anchor.name, value.ty)
        self._bindings.append(relax.VarBinding(var, value))
        return var

    # ------------------------------------------------------------------ values

    def _read(self, expr: relax.Expr, reader: relax.Var) -> relax.Expr:
        """The wide form of an operand."""
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self._read(item, reader) for item in expr.fields])
        if isinstance(expr, Constant):
            return self._constant(expr) if has_half(expr.ty) else expr
        if not isinstance(expr, relax.Var):
            return expr
        if expr not in self._wide:
            if not has_half(expr.ty):
                return expr
            self._wide[expr] = self._emit(self._cast(expr, _wide(expr.ty), reader), reader)
        return self._wide[expr]

    def _require(self, var: relax.Var) -> None:
        """Bind a variable of this block as it was, if it is not."""
        if var in self._origins and var not in self._bound:
            value = with_origin(self._cast(self._wide[var], var.ty, var), self._origins[var])
            self._bind(relax.VarBinding(var, value), var)

    def _cast(self, expr: relax.Expr, kind: tvm.ir.Type, anchor: relax.Var) -> relax.Expr:
        """What gives the values of a variable or constant as another type has them."""
        if tvm_ffi.structural_equal(expr.ty, kind):
            return expr
        if isinstance(kind, relax.TensorType):
            return typed(relax.op.astype(expr, kind.dtype))
        parts = []
        for index, field in enumerate(kind.fields):
            part = self._emit(relax.TupleGetItem(expr, index), anchor)
            if not tvm_ffi.structural_equal(part.ty, field):
                part = self._emit(self._cast(part, field, anchor), anchor)
            parts.append(part)
        return typed(relax.Tuple(parts))

    def _constant(self, expr: Constant) -> Constant:
        if expr not in self._constants:
            self._constants[expr] = constant(array_of(expr).astype(np.single), WIDE)
        return self._constants[expr]


def _is_numeric(call: relax.Call) -> bool:
    """Whether a call is of an operator that means the same on numbers of another dtype."""
    name = op_name(call)
    if name is None or not name.startswith("relax."):
        return False
    space, _, short = name.removeprefix("relax.").rpartition(".")
    if space not in _NUMERIC or short in _PLACES or short.startswith(_OTHERS):
        return False
    return not call.ty_args


def _wide_attributes(attributes: tvm.ir.Attrs | None) -> tvm.ir.Attrs | None:
    """Attributes with ``WIDE`` wherever they name a dtype of 16 bits."""
    if attributes is None:
        return None
    about = type(attributes).__tvm_ffi_type_info__
    fields = {field.name: getattr(attributes, field.name) for field in about.fields}
    wide = {name: WIDE for name, value in fields.items() if str(value) in KERNEL_HALVES}
    return tvm.ir.make_node(about.type_key, **(fields | wide)) if wide else attributes
