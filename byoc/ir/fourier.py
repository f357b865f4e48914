"""A discrete Fourier transform along one axis, which Relax has no operator for.

    y[k] = length^(-norm / 2) sum_n x[n] window[n] exp(-2 pi i n k / length)

has the operands and attributes of the operator ``fourier`` of ``codegen_cc.operators``, and the
length as a shape. TVM infers its type, and where no kernel of ours takes it, loops over all n and k
are what TVM compiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import pi
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from byoc.ir.dataflow import constant, dtype_of
from byoc.ir.own_operators import register
from codegen_cc.dtypes import SINGLE
from codegen_cc.operators.fourier import HALF, REAL_NUMBERS, waves_of

NAME = "relax.ext.fourier"

Extent = int | tirx.Expr

#: Elements of a transform that may be a product, whose matrix is 8 times as large in bytes.
MOST_IN_PRODUCTS = 2048


@dataclass(frozen=True)
class Form:
    """What a transform is, its length aside: see ``codegen_cc.operators.fourier``.

    ``onesided`` results are those of k up to half the length.
    """

    kind: str
    axis: int
    inverse: bool = False
    norm: int = 0
    onesided: bool = False
    step: int = 0

    @property
    def of_pairs(self) -> bool:
        """Whether the input is complex, or the half of what is."""
        return self.kind != REAL_NUMBERS

    @property
    def to_pairs(self) -> bool:
        """Whether the result is complex."""
        return self.kind != HALF

    def count(self, length: Extent) -> Extent:
        """Results along the axis."""
        return length // 2 + 1 if self.onesided else length


def transform(
    emit: Callable[[relax.Expr], relax.Expr],
    x: relax.Expr,
    form: Form,
    length: Extent,
    window: relax.Expr | None = None,
) -> relax.Expr:
    """The transform as a call of the operator, or as a product where that is faster.

    Products are for short axes, and for other dtypes than float32, of which TVM computes either.

    ``x`` is [..., axis, ...], with pairs as a last axis where ``form.of_pairs``; so is the result,
    with an axis of frames before ``axis`` where there is a step.
    """
    fixed = int(length) if isinstance(length, int | tirx.IntImm) else None
    extent = x.ty.shape.values[form.axis]
    plain = fixed is not None and isinstance(extent, tirx.IntImm) and not form.step
    plain = plain and window is None and 0 < fixed <= MOST_IN_PRODUCTS
    if plain and (dtype_of(x) != SINGLE or _is_small(fixed)):
        return _product(emit, x, form, int(extent), fixed)
    attrs = tvm.ir.DictAttrs(asdict(form))
    operands = [x, relax.ShapeExpr([length]), *([] if window is None else [window])]
    return emit(relax.Call(tvm.ir.Op.get(NAME), operands, attrs))


def form_of(call: relax.Call) -> dict[str, Any]:
    """The attributes of the operator, of a call, in Python's own types; those of its node."""
    form = asdict(_form(call))
    del form["onesided"]
    return form


def _form(call: relax.Call) -> Form:
    attrs = call.attrs
    axis, norm, step = (int(attrs[name]) for name in ("axis", "norm", "step"))
    inverse, onesided = (bool(attrs[name]) for name in ("inverse", "onesided"))
    return Form(str(attrs["kind"]), axis, inverse, norm, onesided, step)


# ---------------------------------------------------------------------- products


def _is_small(length: int) -> bool:
    """Whether sums over all elements take no longer than a fast transform's passes.

    A pass over elements costs some two multiplications for each, times its radix.
    """
    rest, passes, radix = length, 0, 2
    while rest > 1:
        if radix * radix > rest:
            radix = rest
        while rest % radix == 0:
            rest, passes = rest // radix, passes + radix
        radix += 1
    return 2 * passes > length


def _product(
    emit: Callable[[relax.Expr], relax.Expr], x: relax.Expr, form: Form, size: int, length: int
) -> relax.Expr:
    """[..., elements, parts] times a matrix whose rows are the transforms of unit vectors."""
    matrix = _transforms_of_units(form, size, length)
    rank = x.ty.ndim - form.of_pairs
    order = [*(i for i in range(rank) if i != form.axis), form.axis]
    turned = emit(relax.op.permute_dims(x, [*order, *([rank] if form.of_pairs else [])]))
    outer = list(turned.ty.shape.values)[: rank - 1]
    rows = emit(relax.op.reshape(turned, [*outer, matrix.shape[0]]))
    made = emit(relax.op.matmul(rows, constant(matrix, dtype_of(x))))
    pair = [2] if form.to_pairs else []
    made = emit(relax.op.reshape(made, [*outer, form.count(length), *pair]))
    back = [order.index(i) for i in range(rank)]
    return emit(relax.op.permute_dims(made, [*back, *([rank] if pair else [])]))


def _transforms_of_units(form: Form, size: int, length: int) -> np.ndarray:
    """[size x parts, count x parts], in float64."""
    units = np.eye(size, dtype=np.complex128 if form.of_pairs else np.float64)
    if form.of_pairs:
        units = np.stack([units, units * 1j], 1).reshape(2 * size, size)
    if form.kind == HALF:
        made = np.fft.irfft(units, length) * length
    else:
        given = units[:, :length]
        turns = np.outer(np.arange(given.shape[1]), np.arange(length)) % length
        waves = waves_of(length)[turns]
        made = given @ (waves.conj() if form.inverse else waves)
    made = made[:, : form.count(length)] * float(length) ** (-form.norm / 2)
    return made.view(np.float64) if form.to_pairs else made


# ---------------------------------------------------------------------- what TVM is told


def _infer(call: relax.Call, builder: relax.BlockBuilder) -> relax.Type:
    del builder
    x, form = call.args[0].ty, _form(call)
    rank = x.ndim + form.to_pairs - form.of_pairs + bool(form.step)
    if not isinstance(x.shape, relax.ShapeExpr):
        return relax.TensorType(dtype=x.dtype, ndim=rank)
    (length,) = call.args[1].values
    shape = list(x.shape.values)[: x.ndim - form.of_pairs]
    frames = [(shape[form.axis] - length) // form.step + 1] if form.step else []
    shape[form.axis : form.axis + 1] = [*frames, form.count(length)]
    return relax.TensorType([*shape, *([2] if form.to_pairs else [])], x.dtype)


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    form, (length,) = _form(call), call.args[1].values
    shape = list(call.ty.shape.values)
    operands = [call.args[0], *call.args[2:]]
    return builder.call_te(
        lambda x, *window: _loops(x, window, form, length, shape),
        *operands,
        primfunc_name_hint="fourier",
    )


def _loops(
    x: te.Tensor, window: Sequence[te.Tensor], form: Form, length: Extent, shape: list
) -> te.Tensor:
    """Sums over all elements, in float32 at least."""
    dtype = "float64" if x.dtype == "float64" else "float32"
    size = tirx.const(length, "int64") if isinstance(length, int) else length
    given = size if form.step else x.shape[form.axis]
    reads = size // 2 + 1 if form.kind == HALF else size
    n = te.reduce_axis((0, tirx.min(given, reads)), "n")
    scale = tirx.const(1.0, dtype) / tirx.pow(
        tirx.Cast(dtype, size), tirx.const(form.norm / 2, dtype)
    )

    turn = tirx.const(2 * pi if form.inverse else -2 * pi, dtype) / tirx.Cast(dtype, size)
    cosines = te.compute([size], lambda m: tirx.cos(tirx.Cast(dtype, m) * turn), name="cosines")
    sines = te.compute([size], lambda m: tirx.sin(tirx.Cast(dtype, m) * turn), name="sines")

    def part(index: Sequence[tirx.Var], place: int) -> tirx.Expr:
        """Real or imaginary part of element n."""
        if place and not form.of_pairs:
            return tirx.const(0.0, dtype)
        outer, behind = index[: form.axis], list(index[form.axis + 1 + bool(form.step) :])
        at = index[form.axis] * form.step + n if form.step else n
        inner = behind[: len(behind) - form.to_pairs]
        value = x(*outer, at, *inner, *([place] if form.of_pairs else []))
        value = value.astype(dtype)
        return value * window[0](n).astype(dtype) if window else value

    def result(*index: tirx.Var) -> tirx.Expr:
        wave = index[form.axis + bool(form.step)]
        turns = tirx.indexmod(tirx.Cast("int64", n) * tirx.Cast("int64", wave), size)
        cosine, sine = cosines(turns), sines(turns)
        real, imaginary = part(index, 0), part(index, 1)
        made = real * cosine - imaginary * sine
        if form.kind == HALF:
            alone = tirx.any(n == 0, n * 2 == size)
            made = tirx.Select(alone, real * cosine, made * 2)
        elif form.to_pairs:
            turned = real * sine + imaginary * cosine
            made = tirx.Select(index[-1] == 0, made, turned)
        return te.sum(made * scale, axis=n)

    sums = te.compute(shape, result, name="fourier")
    return te.compute(shape, lambda *index: sums(*index).astype(x.dtype), name="transformed")


register(NAME, _infer, _legalize)
