"""Steps that sum up: matrices, einsum, reductions, norms, softmax, attention, quantisation."""

from __future__ import annotations

import numpy as np

from tests.fuzz.draft import Draft
from tests.fuzz.steps import axes_form, axis_of, partner, require, source, step

REDUCTIONS = (
    *("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"),
    *("ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceMax", "ReduceSum"),
)

EQUATIONS = (
    *("ij,jk->ik", "bij,bjk->bik", "ij->ji", "ij->i", "ij->", "i,j->ij", "bij,bkj->bik"),
    *(
        "...ij,...jk->...ik",
        "bhid,bhjd->bhij",
        "ij,ij->ij",
        "ij,ij->",
        "ijk->kji",
        "ii->i",
        "ij,jk",
    ),
)


@step(4)
def matmul(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32", "float32", "float32", "float64", "int32"), range(1, 6))
    shape, dtype = draft.shape(x), draft.dtype(x)
    require(draft.is_fixed(x, -1), "symbolic inner extent")
    inner, columns = shape[-1], draft.between(1, 17)
    form = draft.pick(("matrix", "matrix", "matrix", "batched", "vector", "left", "self"))
    scale = 1 if dtype == "int32" else 1 / max(1, inner) ** 0.5
    if form == "self" and len(shape) > 1:
        order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        return draft.op("MatMul", [x, draft.op("Transpose", [x], perm=order)])
    if form == "left" and len(shape) > 1 and draft.is_fixed(x, -2):
        return draft.op("MatMul", [draft.weight((columns, shape[-2]), scale, dtype), x])
    right = {"matrix": (inner, columns), "vector": (inner,)}.get(form, (inner, columns))
    if form == "batched":
        batch = [
            e if draft.chance(0.6) and draft.is_fixed(x, a) else 1 for a, e in enumerate(shape[:-2])
        ]
        right = (*([draft.between(1, 3)] if draft.chance(0.2) else []), *batch, inner, columns)
    y = draft.op("MatMul", [x, draft.weight(right, scale, dtype)])
    if dtype == "float32" and draft.chance(0.5) and draft.rank(y):
        y = draft.op("Add", [y, partner(draft, y)])
    return y


@step(2)
def gemm(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32", "float32", "float64"), (2,))
    dtype = draft.dtype(x)
    turn_a, turn_b = draft.pick((None, None, 1)), draft.pick((None, 1))
    place = 0 if turn_a else 1
    require(draft.is_fixed(x, place), "symbolic inner extent")
    inner, rows, columns = draft.shape(x)[place], draft.shape(x)[1 - place], draft.between(1, 9)
    right = draft.weight((columns, inner) if turn_b else (inner, columns), 0.5, dtype)
    forms = [(columns,), (1, columns), (1,), ()]
    if draft.is_fixed(x, 1 - place):
        forms += [(rows, 1), (rows, columns)]
    third = [draft.weight(draft.pick(forms), 1.0, dtype)]
    if draft.opset >= 11 and draft.chance(0.3):
        third = []
    scales = {name: draft.pick((None, None, 0.5, 2.0)) for name in ("alpha", "beta")}
    return draft.op("Gemm", [x, right, *third], transA=turn_a, transB=turn_b, **scales)


@step(1.5, since=12)
def einsum(draft: Draft, x: str) -> str:
    equation = str(draft.pick(EQUATIONS))
    sizes: dict[str, int] = {}
    operands = []
    for part in equation.partition("->")[0].split(","):
        letters = part.replace("...", "AB" if draft.chance(0.5) else "A")
        wanted = [sizes.setdefault(letter, draft.between(1, 5)) for letter in letters]
        same = [n for n in draft.candidates() if list(draft.shape(n)) == wanted]
        operands.append(draft.pick(same) if same else draft.input(wanted))
    return draft.op("Einsum", operands, equation=equation)


@step(5)
def reduction(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32", "float32", "float32", "int64", "int32", "float64"), range(7))
    kind = str(draft.pick(REDUCTIONS))
    if kind == "ReduceLogSum" and draft.dtype(x)[0] == "f" and not draft.special:
        x = draft.op("Exp", [x])
    rank = draft.rank(x)
    count = draft.pick((0, 1, 1, 1, 2, rank))
    axes = sorted(int(a) for a in draft.rng.permutation(rank)[:count])
    if draft.chance(0.4) and draft.opset >= 11:
        axes = [axis - rank for axis in axes]
    since = 13 if kind == "ReduceSum" else 18
    inputs, attributes = axes_form(draft, axes or None, since)
    attributes["keepdims"] = draft.pick((None, 0, 1))
    if draft.opset >= since and not axes and draft.chance(0.5):
        attributes["noop_with_empty_axes"] = draft.pick((0, 1))
        if draft.chance(0.3):
            inputs = [draft.constant(np.zeros(0, "int64"))]
    return draft.op(kind, [x, *inputs], **attributes)


@step(1.5)
def arg_extreme(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32", "float32", "int32"), range(1, 6))
    last = draft.pick((None, 1)) if draft.opset >= 12 else None
    axis = axis_of(draft, x)
    axis = axis if draft.opset >= 11 else axis % draft.rank(x)
    kind = draft.pick(("ArgMax", "ArgMin"))
    return draft.op(kind, [x], axis=axis, keepdims=draft.pick((None, 0)), select_last_index=last)


@step(1, since=11)
def cumulative_sum(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32", "float32", "int64", "int32", "float64"), range(1, 5))
    axis = draft.constant(np.array(axis_of(draft, x), draft.pick(("int64", "int32"))))
    flags = {"exclusive": draft.pick((None, 1)), "reverse": draft.pick((None, 1))}
    return draft.op("CumSum", [x, axis], **flags)


@step(3)
def softmax(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32", "float32", "float32", "float64"), range(1, 6))
    kind = draft.pick(("Softmax", "Softmax", "LogSoftmax", "Hardmax"))
    axis = axis_of(draft, x)
    axis = axis if draft.opset >= 11 else axis % draft.rank(x)
    return draft.op(kind, [x], axis=None if draft.chance(0.2) else axis)


@step(3)
def layer_norm(draft: Draft, x: str) -> str:
    """LayerNormalization, RMSNormalization, and both in pieces as exporters write them."""
    x = source(draft, x, ("float32",), range(2, 5))
    extent = draft.shape(x)[-1]
    require(draft.is_fixed(x, -1) and extent > 0, "symbolic last axis")
    kind = draft.pick(("node", "pieces", "pieces", "rms_pieces", "rms", "mvn"))
    scale, bias = draft.weight((extent,)), draft.weight((extent,))
    if kind == "node":
        require(draft.opset >= 17, "LayerNormalization is of opset 17")
        axis = draft.pick((None, -1, draft.rank(x) - 1))
        epsilon = draft.pick((None, 1e-3))
        return draft.op(
            "LayerNormalization",
            [x, scale, *([bias] * draft.between(0, 1))],
            axis=axis,
            epsilon=epsilon,
        )
    if kind == "rms":
        require(draft.opset >= 23, "RMSNormalization is of opset 23")
        return draft.op("RMSNormalization", [x, scale])
    if kind == "mvn":
        require(draft.opset >= 9, "MeanVarianceNormalization is of opset 9")
        axes = (
            draft.pick((None, [0, 2, 3], [2, 3], [1]))
            if draft.rank(x) == 4
            else [draft.rank(x) - 1]
        )
        return draft.op("MeanVarianceNormalization", [x], axes=axes)
    square = draft.constant(np.float32(2))
    epsilon = draft.constant(np.float32(draft.pick((1e-5, 1e-3))))
    centred = x
    if kind == "pieces":
        centred = draft.op("Sub", [x, _mean(draft, x)])
    power = (
        draft.op("Pow", [centred, square]) if draft.chance(0.7) else draft.op("Mul", [centred] * 2)
    )
    root = draft.op("Sqrt", [draft.op("Add", [_mean(draft, power), epsilon])])
    if draft.chance(0.6):
        y = draft.op("Div", [centred, root])
    else:
        y = draft.op("Mul", [centred, draft.op("Reciprocal", [root])])
    y = draft.op("Mul", [y, scale])
    return y if kind == "rms_pieces" else draft.op("Add", [y, bias])


def _mean(draft: Draft, x: str) -> str:
    inputs, attributes = axes_form(draft, [-1 if draft.opset >= 11 else draft.rank(x) - 1], 18)
    return draft.op("ReduceMean", [x, *inputs], **attributes)


@step(3)
def attention(draft: Draft, x: str) -> str:
    """softmax(q k^T / sqrt(d) + mask) v over heads, as exporters write it."""
    x = source(draft, x, ("float32",), (3,))
    length, width = draft.shape(x)[1:]
    require(draft.is_fixed(x, -1) and width > 0, "symbolic width")
    heads = draft.pick([h for h in range(1, 5) if width % h == 0])
    size = width // heads
    q, k, v = (_heads(draft, x, heads, size) for _ in range(3))
    if draft.chance(0.3):
        q = draft.op("Mul", [q, draft.constant(np.float32(size**-0.5))])
        scores = draft.op("MatMul", [q, draft.op("Transpose", [k], perm=[0, 1, 3, 2])])
    else:
        scores = draft.op("MatMul", [q, draft.op("Transpose", [k], perm=[0, 1, 3, 2])])
        if draft.chance(0.8):
            scores = draft.op("Div", [scores, draft.constant(np.float32(size**0.5))])
    if draft.chance(0.5) and draft.is_fixed(x, 1):
        masked = np.where(draft.rng.random((1, 1, length, length)) < 0.3, -1e4, 0)
        if draft.chance(0.5):
            masked = np.triu(np.full((1, 1, length, length), -1e4), 1)
        scores = draft.op("Add", [scores, draft.constant(masked.astype("float32"))])
    y = draft.op("MatMul", [draft.op("Softmax", [scores], axis=-1 if draft.opset >= 11 else 3), v])
    y = draft.op("Transpose", [y], perm=[0, 2, 1, 3])
    y = draft.op("Reshape", [y, draft.constant(np.array([0, 0, width], "int64"))])
    return draft.op("MatMul", [y, draft.weight((width, width), 0.5)]) if draft.chance(0.5) else y


def _heads(draft: Draft, x: str, heads: int, size: int) -> str:
    width = heads * size
    y = draft.op("MatMul", [x, draft.weight((width, width), width**-0.5)])
    if draft.chance(0.5):
        y = draft.op("Add", [y, draft.weight((width,))])
    form = draft.constant(np.array([0, 0, heads, size], "int64"))
    return draft.op("Transpose", [draft.op("Reshape", [y, form])], perm=[0, 2, 1, 3])


@step(1, since=23)
def attention_node(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32",), (4,))
    return draft.op(
        "Attention", [x, x, x], is_causal=draft.pick((None, 1)), scale=draft.pick((None, 0.3))
    )


@step(1.5)
def quantised(draft: Draft, x: str) -> str:
    """Quantisation and back; integer products."""
    require(draft.opset >= 10, "QuantizeLinear is of opset 10")
    x = source(draft, x, ("float32",), range(1, 5))
    kind = draft.pick(("round", "round", "channels", "dynamic", "matmul"))
    dtype = str(draft.pick(("uint8", "int8")))
    if kind == "dynamic":
        require(draft.opset >= 11, "DynamicQuantizeLinear is of opset 11")
        parts = draft.op("DynamicQuantizeLinear", [x], outputs=3)
        return draft.op("DequantizeLinear", parts)
    if kind == "matmul":
        require(draft.is_fixed(x, -1), "symbolic inner extent")
        inner = draft.shape(x)[-1]
        scale, zero = draft.constant(np.float32(0.05)), draft.constant(np.uint8(128))
        q = draft.op("QuantizeLinear", [x, scale, zero])
        right = draft.constant(draft.array((inner, draft.between(1, 6)), "int8"))
        return draft.op("MatMulInteger", [q, right, zero])
    axis, size = None, ()
    if kind == "channels":
        require(draft.opset >= 13, "an axis is of opset 13")
        axis = axis_of(draft, x)
        require(draft.is_fixed(x, axis), "symbolic axis")
        size = (draft.shape(x)[axis],)
    scale = draft.constant((draft.rng.random(size) * 0.2 + 0.01).astype("float32"))
    zero = draft.constant(draft.array(size, dtype)) if draft.chance(0.7) else None
    operands = [scale, *([zero] if zero else [])]
    q = draft.op("QuantizeLinear", [x, *operands], axis=axis)
    return draft.op("DequantizeLinear", [q, *operands], axis=axis)
