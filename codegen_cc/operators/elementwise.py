"""unary and binary: one pass over memory, in whatever order the first full operand lies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from codegen_cc.activations import ACTIVATIONS
from codegen_cc.dim import Dim, estimate
from codegen_cc.dtypes import KERNEL_INTEGERS, SINGLE
from codegen_cc.node import Node, Step
from codegen_cc.operator import Facts, Kernels, Layout, Narrow, Number, Operator, operator_of
from codegen_cc.operators.bfloat16 import BFLOAT16, narrow, storage_struct
from codegen_cc.operators.dtype_rules import c_dtype, only
from codegen_cc.operators.epilogue import activation_struct
from codegen_cc.operators.operands import all_constant
from codegen_cc.operators.requantise import (
    BINARY_SCALES,
    REQUANTISE,
    computed_scale,
    is_quantised,
    quantised_dtypes,
    sample_scales,
    scale_fields,
)
from codegen_cc.operators.sample import REAL, Sample, Shape, sample_node
from codegen_cc.operators.told import broadcast_operand, equal_shapes, kind_number, unless
from codegen_cc.plan.builder import PlanBuilder, candidate_orders
from codegen_cc.plan.call import Struct
from codegen_cc.plan.tensors import MAX_AXES, Pending, Tensor
from codegen_cc.region.graph import RegionNode, Value

#: What only integers have.
BIT_KINDS = ("bit_and", "bit_or", "bit_xor", "shift_left", "shift_right", "floor_div", "floor_mod")
BINARY_KINDS = ("add", "sub", "mul", "div", "max", "min", "pow", "prelu", "mod", *BIT_KINDS)
#: What integers have of them, without an epilogue. Quotients are cut off, but for those of
#: ``floor_div``; of 0 they are 0.
INTEGER_KINDS = ("add", "sub", "mul", "div", "max", "min", "mod", *BIT_KINDS)


#: What there is of them for quantised tensors.
QUANTISED_KINDS = ("add", "sub", "mul")


def check_dtypes(node: Node) -> str | None:
    """float32; integers for exact arithmetic, truth values for ``not``."""
    if is_quantised(node):
        return quantised_dtypes(node, ("lhs", "rhs"))
    kind = node.attrs["kind"]
    if kind == "not":
        return only(node, ("bool",))
    if node.op == "binary" and kind in INTEGER_KINDS and not node.epilogue:
        taken = KERNEL_INTEGERS if kind in BIT_KINDS else (SINGLE, *KERNEL_INTEGERS)
        return only(node, taken) or only(node, (node.dtype,))
    return only(node, (SINGLE,))


def supports(node: Node) -> str | None:
    """None if the kernels can compute the node, else the reason."""
    if is_quantised(node):
        return _unfit_integers(node)
    known = (*ACTIVATIONS, "not") if node.op == "unary" else BINARY_KINDS
    if node.attrs["kind"] not in known:
        return f"{node.op} kind {node.attrs['kind']}; need one of {', '.join(known)}"
    return all_constant(node)


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_unary`` or ``ext_binary``."""
    if is_quantised(node.node):
        _on_integers(node, builder)
    else:
        (_unary if node.node.op == "unary" else _binary)(node, builder)


def _unfit_integers(node: Node) -> str | None:
    """Why a function of quantised tensors has no kernel on integers, or None."""
    if node.attrs["kind"] not in QUANTISED_KINDS:
        kinds = ", ".join(QUANTISED_KINDS)
        return f"{node.attrs['kind']} of quantised tensors; need one of {kinds}"
    shapes = [operand.shape for operand in node.operands[:2]]
    if not all(equal_shapes(shape, node.shape) for shape in shapes):
        return f"quantised tensors {' and '.join(str(list(s)) for s in shapes)}; need one shape"
    return computed_scale(node) or all_constant(node)


def _on_integers(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_qbinary``."""
    a = builder.compact(builder.tensor(node.role("lhs")))
    b = builder.dense(builder.tensor(node.role("rhs")), a.order())
    y = builder.space(node.node.shape, node.node.dtype, a.order())
    fields: dict[str, object] = {"kind": f"EXT_{node.node.attrs['kind'].upper()}"}
    steps = [step for step in node.node.epilogue if step.kind in ACTIVATIONS]
    if steps:
        fields["activation"] = activation_struct(steps[0])
    fields["size"] = y.size
    fields |= {f"{name}_dtype": c_dtype(t.dtype) for name, t in (("a", a), ("b", b), ("y", y))}
    fields |= scale_fields(node, {"lhs": "a", "rhs": "b", "y": "y"})
    shape = list(y.shape)
    comment = f"{node.node.composite} on integers: {shape}"
    over = [tensor for tensor in (a, b) if tensor.dtype == y.dtype]
    arguments = [Struct("ext_qbinary_params", fields), a, b, y]
    builder.call("ext_qbinary", arguments, y, comment, over=over)
    builder.place(node.output, y)


def _unary(node: RegionNode, builder: PlanBuilder) -> None:
    attrs = node.node.attrs
    if attrs["kind"] == "not":
        _not(node, builder)
        return
    step = Step(attrs["kind"], attrs.get("alpha", 0.0), attrs.get("beta", 0.0))
    value = node.role("input")
    comment = f"{node.node.composite}: {list(value.shape)}"
    if builder.pending(value) is not None or builder.tensor(value).order() is None:
        # f(x) = f(1 x): the kernel with two operands reads across gaps, and repeated elements.
        fields = {"kind": "EXT_MUL", "activation": activation_struct(step)}
        one = Value("one", (), SINGLE, np.ones((), np.float32))
        _call_binary(node, builder, {"a": value, "b": one}, fields, comment)
        return
    x = builder.tensor(value)
    y = builder.space(x.shape, node.node.dtype, x.order())
    arguments = [activation_struct(step), x.size, x, y]
    builder.call("ext_unary", arguments, y, comment, over=[x])
    builder.place(node.output, y)


def _binary(node: RegionNode, builder: PlanBuilder) -> None:
    if node in builder.products:
        _multiply_add(node, builder, builder.products[node])
        return
    operands = {name: node.role(role) for name, role in (("a", "lhs"), ("b", "rhs"))}
    fields: dict[str, object] = {"kind": f"EXT_{node.node.attrs['kind'].upper()}"}
    if node.node.epilogue:
        fields["activation"] = activation_struct(node.node.epilogue[0])
    shapes = ", ".join(str(list(value.shape)) for value in operands.values())
    comment = f"{node.node.composite}: {shapes} -> {list(node.node.shape)}"
    _call_binary(node, builder, operands, fields, comment)


def _multiply_add(node: RegionNode, builder: PlanBuilder, product: RegionNode) -> None:
    """One call of ``ext_multiply_add`` for a sum and the product in it."""
    (added,) = (value for value in (node.role("lhs"), node.role("rhs")) if value != product.output)
    operands = {"a": product.role("lhs"), "b": product.role("rhs"), "c": added}
    loop = broadcast_loop(builder, node, operands)
    fields: dict[str, object] = {}
    if node.node.epilogue:
        fields["activation"] = activation_struct(node.node.epilogue[0])
    fields |= loop.fields
    factors = ", ".join(str(list(value.shape)) for value in product.inputs)
    comment = f"{product.node.composite} and {node.node.composite}: {factors}, "
    comment += f"{list(added.shape)} -> {list(node.node.shape)}"
    read = list(loop.operands.values())
    arguments = [Struct("ext_multiply_add_params", fields), *read, loop.y]
    builder.call("ext_multiply_add", arguments, loop.y, comment, over=read)
    builder.place(node.output, loop.y)


def _call_binary(
    node: RegionNode,
    builder: PlanBuilder,
    operands: dict[str, Value],
    fields: dict[str, object],
    comment: str,
) -> None:
    loop = broadcast_loop(builder, node, operands)
    fields |= loop.fields
    if node.node.dtype != SINGLE:
        fields["dtype"] = c_dtype(node.node.dtype)
    a, b = loop.operands["a"], loop.operands["b"]
    function, before = "ext_binary", [Struct("ext_binary_params", fields)]
    if BFLOAT16 in (a.dtype, b.dtype, loop.y.dtype):
        function = "ext_binary_bf16"
        before.append(storage_struct(a, b, loop.y))
    builder.call(function, [*before, a, b, loop.y], loop.y, comment, over=[a, b])
    builder.place(node.output, loop.y)


def _narrow(node: Node) -> Narrow:
    """Sums and products of images, whose vectors over channels stay as they are."""
    if node.attrs["kind"] not in ("add", "mul") or len(node.shape) != 4:
        return Narrow()
    whole = (each.role for each in node.operands if equal_shapes(each.shape, node.shape))
    return narrow(*whole)


def _not(node: RegionNode, builder: PlanBuilder) -> None:
    """x differs from true."""
    true = Value("true", (), "bool", np.ones((), np.bool_))
    loop = broadcast_loop(builder, node, {"a": node.role("input"), "b": true})
    fields = {"kind": "EXT_XOR", "dtype": c_dtype("bool"), **loop.fields}
    comment = f"{node.node.composite}: {list(loop.y.shape)}"
    arguments = [Struct("ext_compare_params", fields), *loop.operands.values(), loop.y]
    builder.call("ext_compare", arguments, loop.y, comment)
    builder.place(node.output, loop.y)


@dataclass(frozen=True)
class Loop:
    """Operands as a kernel reads them, space for the result, ``ndim``, ``shape`` and strides."""

    operands: dict[str, Tensor]
    y: Tensor
    fields: dict[str, object]


def broadcast_loop(builder: PlanBuilder, node: RegionNode, operands: dict[str, Value]) -> Loop:
    """Space for a node's result, and one loop over it and operands that are repeated to its shape.

    Axes come in the result's memory order: the one in which the fewest elements are moved, before
    or later.  No operand of the result's shape is read across its innermost axis: it is copied
    first, and that copy serves later readers.  A copy that was put off is read at its source, such
    as every pixel of an enlarged image from the small one.
    """
    shape = node.node.shape
    values = list(operands.values())
    once = (name for name, value in operands.items() if values.count(value) == 1)
    waiting = next((name for name in once if _readable(builder, operands[name], shape)), None)
    tensors = {name: builder.tensor(value) for name, value in operands.items() if name != waiting}
    full = {name: tensor for name, tensor in tensors.items() if tensor.shape == shape}
    orders = list(dict.fromkeys(tensor.walk() for tensor in _variable_first(full.values())))

    def turned(order: tuple[int, ...]) -> int:
        return sum(estimate(tensor.size) for tensor in full.values() if _is_across(tensor, order))

    order = builder.layout_cost.best(node.output, orders or candidate_orders(shape), turned)
    tensors |= {name: _along(builder, tensor, order) for name, tensor in full.items()}
    y = builder.space(shape, builder.stored_dtype(node.output), order)
    if waiting is not None:
        pending = builder.pending(operands[waiting])
        views = _unfolded(pending, tensors, y)
        if views is not None:
            read = {name: views.get(name, pending.source) for name in operands}
            inner = views["y"]
            return Loop(read, y, loop_fields(read, inner.shape, inner.walk()))
        tensors[waiting] = _along(builder, builder.tensor(operands[waiting]), order)
    read = {name: tensors[name] for name in operands}
    return Loop(read, y, loop_fields(read, shape, order))


def _readable(builder: PlanBuilder, value: Value, shape: tuple[Dim, ...]) -> bool:
    """Whether a value is a copy that was put off, and only loops like this one read it."""
    if builder.pending(value) is None or value.shape != shape or value in builder.region.outputs:
        return False
    readers = builder.consumers.get(value, ())
    layouts = {operator_of(reader.node.op).layout for reader in readers}
    return layouts <= {Layout.KEEP_GAPS, Layout.LOOP}


def _variable_first(tensors: Iterable[Tensor]) -> list[Tensor]:
    return sorted(tensors, key=lambda tensor: tensor.buffer.kind == "weights")


def _is_across(tensor: Tensor, order: tuple[int, ...]) -> bool:
    """Whether a loop in that order jumps from element to element of a tensor."""
    return tensor.innermost_stride(order) not in (0, 1)


def _along(builder: PlanBuilder, tensor: Tensor, order: tuple[int, ...]) -> Tensor:
    """The tensor, copied if a loop in that order would jump from element to element of it."""
    return builder.dense(tensor, order) if _is_across(tensor, order) else tensor


def _unfolded(pending: Pending, others: dict[str, Tensor], y: Tensor) -> dict[str, Tensor] | None:
    """``y`` and the other operands as the pending operand's source is shaped.

    None if one cannot be viewed so, or the source would be read across the innermost axis.
    """
    views = {name: tensor.broadcast_to(y.shape) for name, tensor in others.items()} | {"y": y}
    views = {name: view.reshape(pending.source.shape) for name, view in views.items()}
    if None in views.values() or len(pending.source.shape) > MAX_AXES:
        return None
    return None if _is_across(pending.source, views["y"].walk()) else views


def loop_fields(
    operands: dict[str, Tensor], shape: tuple[Dim, ...], order: tuple[int, ...]
) -> dict[str, object]:
    """``ndim``, ``shape`` and ``<name>_strides``: operands repeated to ``shape``, axes in order."""
    axes = [axis for axis in order if shape[axis] != 1] or list(order[-1:])
    fields: dict[str, object] = {"ndim": max(len(axes), 1)}
    fields["shape"] = [shape[axis] for axis in axes] or [1]
    for name, tensor in operands.items():
        view = tensor.broadcast_to(shape)
        fields[f"{name}_strides"] = [view.strides[axis] for axis in axes] or [1]
    return fields


# ---------------------------------------------------------------- the records

_SHAPE: Shape = (4, 32)


def _unary_numbers(node: Node) -> dict[str, Number]:
    parameters = {name: float(node.attrs.get(name, 0.0)) for name in ("alpha", "beta")}
    return {**kind_number(node), **parameters}


def _unary_samples() -> Iterator[Sample]:
    for kind, activation in ACTIVATIONS.items():
        alpha, beta, *_ = (*activation.usual, 0.0, 0.0)
        attrs = {"kind": kind, "alpha": alpha, "beta": beta}
        yield Sample(kind, sample_node("unary", {"input": (_SHAPE, REAL)}, _SHAPE, **attrs))


UNARY = Operator(
    "unary",
    roles=("input",),
    attributes={
        "kind": f"{', '.join(ACTIVATIONS)}, not",
        "alpha": "a number",
        "beta": "a number",
    },
    layout=Layout.KEEP_GAPS,
    elementwise=True,
    named_by=("kind",),
    facts=Facts(
        names=("kind", "alpha", "beta"),
        numbers=_unary_numbers,
        told_by={"kind": ("kind",), "alpha": ("alpha",), "beta": ("beta",)},
        neutral={"alpha": unless("alpha", 0), "beta": unless("beta", 0)},
    ),
    kernels=Kernels(lower, check_dtypes, supports),
    samples=_unary_samples,
)


def _binary_samples() -> Iterator[Sample]:
    sides = {role: (_SHAPE, REAL) for role in ("lhs", "rhs")}
    whole = {role: (_SHAPE, "int32") for role in ("lhs", "rhs")}
    for kind in BINARY_KINDS:
        given = (whole, _SHAPE, "int32") if kind in BIT_KINDS else (sides, _SHAPE)
        yield Sample(kind, sample_node("binary", *given, kind=kind))
    row = sides | {"rhs": ((32,), "constant")}
    yield Sample("broadcast", sample_node("binary", row, _SHAPE, kind="add"))
    yield Sample("int32", sample_node("binary", whole, _SHAPE, "int32", kind="add"))
    plain = sample_node("binary", sides, _SHAPE, kind="add")
    yield Sample("activation", replace(plain, epilogue=(Step("relu"),)))
    quantised = {role: (_SHAPE, "uint8") for role in ("lhs", "rhs")}
    quantised |= sample_scales("lhs", "rhs")
    yield Sample("quantised", sample_node("binary", quantised, _SHAPE, kind="add"))


BINARY = Operator(
    "binary",
    roles=("lhs", "rhs", *BINARY_SCALES),
    optional=BINARY_SCALES,
    attributes={"kind": ", ".join(BINARY_KINDS)},
    about="operands are repeated to the result; prelu is lhs < 0 ? lhs * rhs : lhs; of 8-bit "
    "integers where it has their scales",
    layout=Layout.LOOP,
    elementwise=True,
    epilogue=("activation", REQUANTISE),
    named_by=("kind",),
    facts=Facts(
        names=("kind",),
        numbers=kind_number,
        told_by={"kind": ("kind",)},
        unfit=broadcast_operand,
        params="ext_binary_params",
    ),
    kernels=Kernels(
        lower,
        check_dtypes,
        supports,
        lambda node: "binary" + ", int8" * is_quantised(node),
        narrow=_narrow,
    ),
    samples=_binary_samples,
)

OPERATORS = (UNARY, BINARY)
