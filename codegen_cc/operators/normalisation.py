"""reduce, softmax, norms and lrn: kernels that see x as [outer, reduce, inner] in memory order."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from codegen_cc.dim import Dim, product, same
from codegen_cc.dtypes import KERNEL_INDICES, SINGLE
from codegen_cc.node import Node
from codegen_cc.operator import Facts, Kernels, Layout, Narrow, Number, Operator
from codegen_cc.operators.bfloat16 import BFLOAT16, narrow, storage_struct
from codegen_cc.operators.dtype_rules import c_dtype, one_of, only, only_single
from codegen_cc.operators.operands import not_constant
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.operators.told import AXIS_NAMES, AXIS_TOLD, along_axis, around, flags, unless
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.plan.tensors import Tensor
from codegen_cc.region.graph import RegionNode

#: Of integers as well.
_EXACT_KINDS = ("sum", "max", "min", "prod")
REDUCE_KINDS = (*_EXACT_KINDS, "mean", "sum_squares", "mean_squares")


def _reduce_dtypes(node: Node) -> str | None:
    """float32, or integers, whose mean and squares no kernel computes."""
    stored, kind = node.operand("input").dtype, node.attrs["kind"]
    if stored in KERNEL_INDICES and kind not in _EXACT_KINDS:
        return f"{kind} of {stored}; need {SINGLE}"
    return only(node, (SINGLE, *KERNEL_INDICES)) or one_of("result", node.dtype, (stored,))


def supports(node: Node) -> str | None:
    """None if the kernels can compute the node, else the reason."""
    data = node.operand("input")
    if node.op == "reduce" and node.attrs["kind"] not in REDUCE_KINDS:
        return f"reduce kind {node.attrs['kind']}; need one of {', '.join(REDUCE_KINDS)}"
    if node.op in ("layer_norm", "rms_norm"):
        axes, rank = list(node.attrs["axes"]), len(data.shape)
        if axes != list(range(rank - len(axes), rank)):
            return f"axes {axes} of rank {rank}; need the last ones"
        for operand in node.operands[1:]:
            if not operand.constant:
                return not_constant(operand)
            if not same(product(operand.shape), product(data.shape[axis] for axis in axes)):
                return f"{operand.role} has shape {list(operand.shape)}; need that of axes {axes}"
    return None


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_reduce`` or its like, ``ext_softmax`` or a normalisation."""
    {"reduce": _reduce, "softmax": _softmax}.get(node.node.op, _norm)(node, builder)


def _reduce(node: RegionNode, builder: PlanBuilder) -> None:
    attrs = node.node.attrs
    x, outer, reduce, inner = adjacent(builder, builder.tensor(node.role("input")), attrs["axes"])
    kept = [axis for axis in x.order() if axis not in attrs["axes"]]
    if attrs["keepdims"]:
        y = builder.space(node.node.shape, node.node.dtype, (*attrs["axes"], *kept))
    else:
        rank_of = {axis: i for i, axis in enumerate(sorted(kept))}
        y = builder.space(node.node.shape, node.node.dtype, tuple(rank_of[axis] for axis in kept))
    kind = f"EXT_REDUCE_{attrs['kind'].upper()}"
    comment = f"{node.node.composite} axes {attrs['axes']}: {list(x.shape)} -> {list(y.shape)}"
    function = {BFLOAT16: "ext_reduce_bf16", SINGLE: "ext_reduce"}.get(
        x.dtype, "ext_reduce_integers"
    )
    first = [c_dtype(x.dtype)] if x.dtype in KERNEL_INDICES else []
    builder.call(function, [*first, kind, outer, reduce, inner, x, y], y, comment)
    builder.place(node.output, y)


def _softmax(node: RegionNode, builder: PlanBuilder) -> None:
    attrs = node.node.attrs
    x, outer, reduce, inner = adjacent(builder, builder.tensor(node.role("input")), [attrs["axis"]])
    y = builder.space(x.shape, node.node.dtype, x.order())
    comment = f"{node.node.composite} axis {attrs['axis']}: {list(x.shape)}"
    logarithm = int(attrs["log"])
    builder.call("ext_softmax", [outer, reduce, inner, logarithm, x, y], y, comment, over=[x])
    builder.place(node.output, y)


def _norm(node: RegionNode, builder: PlanBuilder) -> None:
    attrs = node.node.attrs
    axes = list(attrs["axes"])
    x, rows, n = innermost(builder, builder.tensor(node.role("input")), axes)
    y = builder.space(x.shape, builder.stored_dtype(node.output), x.order())
    affine = [builder.tensor(value) for value in node.inputs[1:]]
    comment = f"{node.node.composite} axes {axes}: {list(x.shape)}"
    arguments: list[object] = [rows, n, float(attrs["epsilon"]), x, *affine, y]
    function = f"ext_{node.node.op}"
    if y.dtype == BFLOAT16:
        arguments.insert(3, storage_struct(x, None, y))
        function += "_bf16"
    builder.call(function, arguments, y, comment, over=[x])
    builder.place(node.output, y)


def _lrn(node: RegionNode, builder: PlanBuilder) -> None:
    attrs = node.node.attrs
    x, outer, channels, inner = adjacent(builder, builder.tensor(node.role("input")), [1])
    y = builder.space(x.shape, node.node.dtype, x.order())
    comment = f"{node.node.composite} of {attrs['size']} channels: {list(x.shape)}"
    fields: dict[str, object] = {"outer": outer, "channels": channels, "inner": inner}
    fields |= {"size": attrs["size"], **{name: float(attrs[name]) for name in _LRN_NUMBERS}}
    builder.call("ext_lrn", [Struct("ext_lrn_params", fields), x, y], y, comment)
    builder.place(node.output, y)


def _wide(tensor: Tensor, axes: list[int] | tuple[int, ...]) -> list[int]:
    return [axis for axis in axes if tensor.shape[axis] != 1]


def innermost(builder: PlanBuilder, x: Tensor, axes: list[int]) -> tuple[Tensor, Dim, Dim]:
    """The tensor with ``axes`` innermost in memory, and the extents of the others and of them."""
    order = x.order()
    # Any order will do in which the normalised axes are innermost, as channels-last often has it.
    if order is None or _wide(x, order)[-len(_wide(x, axes)) :] != _wide(x, axes):
        x = builder.dense(x)
    n = product(x.shape[axis] for axis in axes)
    rows = product(extent for axis, extent in enumerate(x.shape) if axis not in axes)
    return x, rows, n


def adjacent(builder: PlanBuilder, x: Tensor, axes: list[int]) -> tuple[Tensor, Dim, Dim, Dim]:
    """The tensor with ``axes`` side by side in memory, and the extents around and of them."""
    order = x.order()
    positions = [] if order is None else [i for i, a in enumerate(_wide(x, order)) if a in axes]
    if order is None or (positions and positions[-1] - positions[0] + 1 != len(positions)):
        rest = tuple(axis for axis in range(len(x.shape)) if axis not in axes)
        order = (*rest, *axes)
        x = builder.dense(x, order)
        positions = [i for i, axis in enumerate(_wide(x, order)) if axis in axes]
    extents = [x.shape[axis] for axis in _wide(x, order)]
    if not positions:  # every reduced axis has one element
        return x, x.size, 1, 1
    first, last = positions[0], positions[-1] + 1
    return x, product(extents[:first]), product(extents[first:last]), product(extents[last:])


# ---------------------------------------------------------------- the records


def _reduce_numbers(node: Node) -> dict[str, Number]:
    kind = f"EXT_REDUCE_{node.attrs['kind'].upper()}"
    return around(node, sorted(node.attrs["axes"])) | {"kind": kind}


def _apart(node: Node, told: Collection[str], function: str) -> str | None:
    """Why the axes of a reduction are not one number, or None."""
    del told, function
    axes = sorted(node.attrs["axes"])
    if axes and axes != list(range(axes[0], axes[0] + len(axes))):
        return f"axes {axes}; need neighbours"
    return None


def _reduce_narrow(node: Node) -> Narrow:
    """What float sums read may be; integers are not."""
    return Narrow(frozenset({"input"})) if node.dtype == SINGLE else Narrow()


def _reduce_samples() -> Iterator[Sample]:
    for kind in REDUCE_KINDS:
        attrs = {"kind": kind, "axes": [1], "keepdims": False}
        yield Sample(kind, sample_node("reduce", _ROWS, (4,), **attrs))


_ROWS = {"input": ((4, 32), REAL)}

REDUCE = Operator(
    "reduce",
    roles=("input",),
    attributes={"kind": ", ".join(REDUCE_KINDS), "axes": "sorted", "keepdims": "true or false"},
    layout=Layout.AXES,
    named_by=("op", "kind"),
    facts=Facts(
        names=(*AXIS_NAMES, "kind"),
        numbers=_reduce_numbers,
        told_by={"axes": AXIS_TOLD, "kind": ("kind",)},
        unfit=_apart,
    ),
    kernels=Kernels(lower, _reduce_dtypes, supports, narrow=_reduce_narrow),
    samples=_reduce_samples,
)


def _softmax_samples() -> Iterator[Sample]:
    yield Sample("", sample_node("softmax", _ROWS, (4, 32), axis=1, log=False))
    yield Sample("logarithm", sample_node("softmax", _ROWS, (4, 32), axis=1, log=True))
    yield Sample("first axis", sample_node("softmax", _ROWS, (4, 32), axis=0, log=False))


SOFTMAX = Operator(
    "softmax",
    roles=("input",),
    attributes={"axis": "one", "log": "whether its logarithm is meant"},
    layout=Layout.KEEP,
    facts=along_axis(
        "log",
        numbers=lambda node: flags(node, "log"),
        told_by={"log": ("log",)},
        neutral={"log": unless("log", 0)},
    ),
    kernels=Kernels(lower, only_single, supports),
    samples=_softmax_samples,
)


def _norm_numbers(node: Node) -> dict[str, Number]:
    shape = node.operand("input").shape
    n = product(shape[axis] for axis in node.attrs["axes"])
    rows = product(e for axis, e in enumerate(shape) if axis not in node.attrs["axes"])
    return {"rows": rows, "n": n, "epsilon": float(node.attrs["epsilon"])}


def _not_rows(node: Node, told: Collection[str], function: str) -> str | None:
    """Why a normalisation is not one of rows, or None."""
    del told, function
    shape, axes = node.operand("input").shape, list(node.attrs["axes"])
    rank = len(shape)
    if axes != list(range(rank - len(axes), rank)):
        return f"axes {axes} of rank {rank}; need the last ones"
    for operand in node.operands[1:]:
        if not same(product(operand.shape), product(shape[axis] for axis in axes)):
            return f"{operand.role} has shape {list(operand.shape)}; need that of axes {axes}"
    return None


def _narrow(node: Node) -> Narrow:
    """The result of these norms may be; what they read are often sums of many layers."""
    return narrow() if node.op in ("layer_norm", "rms_norm") else Narrow()


def _normalisation(op: str, *roles: str) -> Operator:
    operands = _ROWS | {role: ((32,), "constant") for role in roles}
    return Operator(
        op,
        roles=("input", *roles),
        attributes={"axes": "the last ones", "epsilon": "a number"},
        layout=Layout.LAST_AXES,
        facts=Facts(
            names=("rows", "n", "epsilon"),
            numbers=_norm_numbers,
            told_by={"axes": ("rows n",), "epsilon": ("epsilon",)},
            unfit=_not_rows,
        ),
        kernels=Kernels(lower, only_single, supports, narrow=_narrow),
        samples=lambda: [Sample("", sample_node(op, operands, (4, 32), axes=[1], epsilon=1e-5))],
    )


_LRN_NUMBERS = ("alpha", "beta", "bias")
_LRN_SAMPLE = {"axis": 1, "size": 5, "alpha": 1e-4, "beta": 0.75, "bias": 1.0}


def _lrn_samples() -> Iterator[Sample]:
    image = {"input": ((1, 16, 8, 8), REAL)}
    yield Sample("", sample_node("lrn", image, (1, 16, 8, 8), **_LRN_SAMPLE))


LRN = Operator(
    "lrn",
    roles=("input",),
    attributes={"axis": "1", "size": "channels", **dict.fromkeys(_LRN_NUMBERS, "a number")},
    about="input / (bias + alpha mean of input^2 over the channels around)^beta",
    layout=Layout.KEEP,
    facts=along_axis(
        "window",
        *_LRN_NUMBERS,
        numbers=lambda node: {
            "window": node.attrs["size"],
            **{name: float(node.attrs[name]) for name in _LRN_NUMBERS},
        },
        told_by={"size": ("window",), **{name: (name,) for name in _LRN_NUMBERS}},
    ),
    kernels=Kernels(_lrn, only_single),
    samples=_lrn_samples,
)

OPERATORS = (
    REDUCE,
    SOFTMAX,
    _normalisation("layer_norm", "gamma", "beta"),
    _normalisation("rms_norm", "gamma"),
    LRN,
)
