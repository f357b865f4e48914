"""Matrix products, convolutions, and attention."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import torch
from tvm import relax, tirx

from byoc.frontends.torch.converters.open_groups import convolution_of_open_groups
from byoc.frontends.torch.sizes import size_tensor
from byoc.frontends.torch.values import Graph, Value
from byoc.ir.dataflow import dtype_of

op = relax.op

#: Products of bytes whose sum float32 holds exactly: 255 times 128 each, up to 2 to the 24.
EXACT_BYTES = 512

_KEY = [0, 1, 3, 2]


def matmul(g: Graph, x: Value, other: Value) -> relax.Expr:
    """The product over the last axis of ``x`` and the last but one of ``other``."""
    return op.matmul(*_of_one_batch(g, g.tensor(x), g.tensor(other)))


def _of_one_batch(g: Graph, *tensors: relax.Expr) -> list[relax.Expr]:
    """Operands whose axes before the last two are as long as the result's."""
    rank = len(g.shape)
    if rank < 3 or any(tensor.ty.ndim != rank for tensor in tensors):
        return list(tensors)
    return [g.beside(tensor, rank - 2, rank - 1) for tensor in tensors]


def mm(g: Graph, x: Value, mat2: Value) -> relax.Expr:
    """[M, K] [K, N], or the same for each of a batch."""
    return matmul(g, x, mat2)


def integer_mm(g: Graph, x: Value, mat2: Value) -> relax.Expr:
    """[M, K] [K, N] of bytes, as exact sums of 32 bits.

    Kernels give the sums as float32, which holds those of so many products exactly.
    """
    if not isinstance(mat2, torch.Tensor):
        return op.matmul(g.tensor(x, g.dtype), g.tensor(mat2, g.dtype))
    data, whole = g.tensor(x), None
    one, none = relax.const(1.0, "float32"), relax.const(0, dtype_of(data))
    for first in range(0, max(mat2.shape[0], 1), EXACT_BYTES):
        rows = mat2[first : first + EXACT_BYTES]
        part = data
        if rows.shape[0] < mat2.shape[0]:
            part = op.strided_slice(data, [1], [first], [first + rows.shape[0]])
        floats = op.dequantize(g.emit(part), one, none, 1, "float32")
        weight = op.dequantize(g.tensor(rows), one, relax.const(0, "int8"), 1, "float32")
        sums = op.astype(op.matmul(g.emit(floats), g.emit(weight)), g.dtype)
        whole = sums if whole is None else op.add(whole, sums)
    return whole


def mv(g: Graph, x: Value, vec: Value) -> relax.Expr:
    """[M, K] [K]."""
    return matmul(g, x, vec)


def dot(g: Graph, x: Value, tensor: Value) -> relax.Expr:
    """[K] [K]."""
    return matmul(g, x, tensor)


def addmm(
    g: Graph, x: Value, mat1: Value, mat2: Value, beta: float = 1, alpha: float = 1
) -> relax.Expr:
    """``beta x + alpha mat1 mat2``."""
    product = matmul(g, mat1, mat2)
    if alpha != 1:
        product = op.multiply(product, g.tensor(alpha))
    if beta == 0:
        return product
    addend = g.tensor(x)
    return op.add(product, addend if beta == 1 else op.multiply(addend, g.tensor(beta)))


def baddbmm(
    g: Graph, x: Value, batch1: Value, batch2: Value, beta: float = 1, alpha: float = 1
) -> relax.Expr:
    """The same for each of a batch."""
    return addmm(g, x, batch1, batch2, beta, alpha)


def addmv(
    g: Graph, x: Value, mat: Value, vec: Value, beta: float = 1, alpha: float = 1
) -> relax.Expr:
    """``beta x + alpha mat vec``."""
    return addmm(g, x, mat, vec, beta, alpha)


def trilinear(
    g: Graph,
    i1: Value,
    i2: Value,
    i3: Value,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> relax.Expr:
    """The product of three tensors with axes put in, summed over some axes."""
    parts = []
    for value, axes in ((i1, expand1), (i2, expand2), (i3, expand3)):
        tensor = g.tensor(value)
        parts.append(g.emit(op.expand_dims(tensor, list(axes))) if axes else tensor)
    # The inputs first, which are smaller than the weight between them.
    product = op.multiply(op.multiply(parts[0], parts[2]), parts[1])
    return op.sum(product, list(sumdim)) if sumdim else product


def linear(g: Graph, input: Value, weight: Value, bias: Value | None = None) -> relax.Expr:
    """``input weight^T + bias``: [..., K] and [N, K]."""
    matrix = g.tensor(weight)
    if matrix.ty.ndim > 1:
        matrix = op.permute_dims(matrix)
    product = op.matmul(g.tensor(input), matrix)
    return product if bias is None else op.add(product, g.tensor(bias))


def grouped_product(g: Graph, input: Value, weight: Value, offs: Value) -> relax.Expr:
    """Rows of [S, K] by the matrix of their group, of [G, K, N]: a mixture of experts.

    ``offs`` says where each group ends; rows behind the last one are 0. Written as a choice of what
    each matrix gives, which ``patterns.grouped_matmul`` knows: a kernel computes a row once.
    """
    x, matrices, ends = g.tensor(input), g.tensor(weight), g.tensor(offs)
    rows, groups = x.ty.shape.values[0], int(matrices.ty.shape.values[0])
    places = g.emit(op.reshape(op.arange(0, rows, 1, "int64"), [rows, 1]))
    past = g.emit(op.greater_equal(places, op.reshape(g.tensor(ends, "int64"), [1, groups])))
    group = g.emit(op.sum(op.astype(past, "int64"), [1], True))
    made = g.tensor(0.0, g.dtype)
    for number in range(groups):
        if isinstance(weight, torch.Tensor):
            matrix = g.tensor(weight[number])
        else:
            matrix = op.squeeze(op.strided_slice(matrices, [0], [number], [number + 1]), [0])
        product = g.emit(op.matmul(x, matrix))
        own = op.equal(group, g.tensor(number, "int64"))
        made = g.emit(op.where(own, product, made))
    return made


def grouped_mm(
    g: Graph,
    x: Value,
    mat2: Value,
    offs: Value | None = None,
    bias: Value | None = None,
    out_dtype: torch.dtype | None = None,
) -> relax.Expr:
    """PyTorch's own product of groups, where ``x`` is rows and ``mat2`` a matrix for each group."""
    rows, matrices = g.tensor(x).ty, g.tensor(mat2).ty
    if offs is None or (rows.ndim, matrices.ndim) != (2, 3):
        raise ValueError(
            f"groups of {rows.shape} and {matrices.shape}; need rows [S, K], a matrix for each"
            " group, [G, K, N], and where groups end"
        )
    if bias is not None or str(rows.dtype) != g.dtype:
        raise ValueError(f"a bias, or a result in {g.dtype} of {rows.dtype}; need neither")
    return grouped_product(g, x, mat2, offs)


# ---------------------------------------------------------------------- convolutions

_CONVOLUTIONS = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}
_TRANSPOSED = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose, 3: op.nn.conv3d_transpose}


def convolution(
    g: Graph,
    input: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: Value,
) -> relax.Expr:
    """A convolution or its transpose, of 1 to 3 spatial axes, with or without an axis of images."""
    x, w = g.tensor(input), g.tensor(weight)
    spatial = w.ty.ndim - 2
    alone = x.ty.ndim == spatial + 1
    if alone:
        x = op.expand_dims(x, 0)
    stride, padding, dilation = (_each(v, spatial) for v in (stride, padding, dilation))
    if not isinstance(groups, int):
        if transposed:
            raise ValueError(f"{groups} groups, of a transposed convolution; need a fixed number")
        made = g.emit(convolution_of_open_groups(g, x, w, stride, padding, dilation, groups))
    elif transposed:
        made = _TRANSPOSED[spatial](
            x,
            w,
            strides=stride,
            padding=padding * 2,
            output_padding=_each(output_padding, spatial),
            dilation=dilation,
            groups=groups,
        )
    else:
        made = _CONVOLUTIONS[spatial](
            x, w, strides=stride, padding=padding * 2, dilation=dilation, groups=groups
        )
    if bias is not None:
        made = op.add(made, op.reshape(g.tensor(bias), [1, -1] + [1] * spatial))
    return op.squeeze(made, [0]) if alone else made


def conv(
    g: Graph,
    input: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int] | str,
    dilation: Sequence[int],
    groups: int,
) -> relax.Expr:
    """A convolution; ``padding`` is widths, ``valid`` or ``same``."""
    spatial = g.tensor(weight).ty.ndim - 2
    dilation = _each(dilation, spatial)
    if isinstance(padding, str):
        taps = g.tensor(weight).ty.shape.values[2:]
        reach = [int(n) - 1 if padding == "same" else 0 for n in taps]
        total = [r * d for r, d in zip(reach, dilation, strict=True)]
        padding = [t // 2 for t in total]
        if any(t % 2 for t in total):  # the odd one is at the end
            odd = [w for t in total for w in (0, t % 2)]
            rank = g.tensor(input).ty.ndim
            input = g.emit(op.nn.pad(g.tensor(input), [0] * 2 * (rank - spatial) + odd))
    return convolution(g, input, weight, bias, stride, padding, dilation, False, [0], groups)


def conv_transpose(
    g: Graph,
    input: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> relax.Expr:
    """The transpose of a convolution."""
    return convolution(
        g, input, weight, bias, stride, padding, dilation, True, output_padding, groups
    )


def _each(values: int | Sequence[int], count: int) -> list[int]:
    """One value for each axis, of which PyTorch takes one for all."""
    values = [values] if isinstance(values, int) else list(values)
    return values * count if len(values) == 1 else values


# ---------------------------------------------------------------------- attention


def attention(
    g: Graph,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> relax.Expr:
    """``softmax(query key^T scale + mask) value``: [..., S, E], [..., T, E], [..., T, V].

    A mask of booleans keeps what is true. Rows of queries that a mask leaves no key are 0.
    """
    if dropout_p:
        raise ValueError("attention of a module in training mode; call .eval() before exporting it")
    q, k, v = g.tensor(query), g.tensor(key), g.tensor(value)
    if enable_gqa:
        k, v = (_repeated(g, heads, q) for heads in (k, v))
    q, k, v = _of_one_batch(g, q, k, v)
    rank = q.ty.ndim
    turned = op.permute_dims(k, [*range(rank - 2), rank - 1, rank - 2])
    scores = op.matmul(q, turned)
    scores = op.multiply(scores, _factor(g, q, scale))
    mask, guard = attn_mask, False
    if is_causal:
        mask = _causal(g, q.ty.shape.values[-2], k.ty.shape.values[-2])
    if mask is not None:
        mask, guard = _as_addend(g, mask)
        scores = g.emit(op.add(scores, mask))
    weights = g.emit(op.nn.softmax(scores, -1))
    if guard:
        hidden = op.astype(op.equal(scores, g.tensor(float("-inf"))), g.dtype)
        hidden = op.greater(op.min(hidden, -1, keepdims=True), g.tensor(0.0))
        weights = op.where(hidden, g.tensor(0.0), weights)
    return op.matmul(weights, v)


def _factor(g: Graph, query: relax.Expr, scale: float | None) -> relax.Expr:
    """What scores are multiplied by: one by the root of a head's width where nothing is said."""
    (width,) = query.ty.shape.values[-1:]
    if scale is not None or isinstance(width, int | tirx.IntImm):
        return g.tensor(float(scale if scale is not None else 1 / sqrt(int(width))))
    root = g.emit(op.sqrt(size_tensor(g.builder, width, g.dtype)))
    return g.emit(op.divide(g.tensor(1.0), root))


def _repeated(g: Graph, heads: relax.Expr, query: relax.Expr) -> relax.Expr:
    """Every head of keys as often as there are queries for it."""
    count, own = (int(t.ty.shape.values[-3]) for t in (query, heads))
    if count == own:
        return heads
    *before, length, width = heads.ty.shape.values
    each = op.expand_dims(heads, heads.ty.ndim - 2)
    wide = g.emit(op.broadcast_to(each, [*before, count // own, length, width]))
    return g.emit(op.reshape(wide, [*before[:-1], count, length, width]))


def _causal(g: Graph, rows: relax.Expr, columns: relax.Expr) -> Value:
    """[rows, columns]: true up to the diagonal through the upper left corner."""
    sizes = [getattr(size, "value", None) for size in (rows, columns)]
    if None not in sizes:
        return torch.ones(sizes, dtype=torch.bool).tril()
    down = op.reshape(op.arange(0, rows, 1, "int64"), [rows, 1])
    across = op.reshape(op.arange(0, columns, 1, "int64"), [1, columns])
    return g.emit(op.greater_equal(down, across))


def _as_addend(g: Graph, mask: Value) -> tuple[relax.Expr, bool]:
    """What is added to the scores, and whether a row of it may be minus infinity alone.

    A causal mask that is computed has a key in every row.
    """
    if isinstance(mask, torch.Tensor):
        if mask.dtype == torch.bool:
            zero = torch.zeros((), dtype=getattr(torch, g.dtype))
            mask = torch.where(mask, zero, -torch.inf)
        return g.tensor(mask, g.dtype), bool(torch.isneginf(mask).all(-1).any())
    if str(mask.ty.dtype) != "bool":
        return g.tensor(mask, g.dtype), True
    addend = op.where(mask, g.tensor(0.0), g.tensor(float("-inf")))
    return g.emit(addend), True


def flash_attention(
    g: Graph,
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> list[relax.Expr | None]:
    """The same under the name that PyTorch's own kernel for CPUs has; its second result unread."""
    return [attention(g, query, key, value, attn_mask, dropout_p, is_causal, scale), None]


CONTRACTION = {
    "matmul": matmul,
    "mm": mm,
    "_int_mm": integer_mm,
    "bmm": mm,
    "mv": mv,
    "dot": dot,
    "addmm": addmm,
    "baddbmm": baddbmm,
    "addmv": addmv,
    "_trilinear": trilinear,
    "linear": linear,
    "transformers::grouped_mm_fallback": grouped_product,
    "_grouped_mm": grouped_mm,
    "convolution": convolution,
    **{f"conv{n}d": conv for n in (1, 2, 3)},
    **{f"conv_transpose{name}": conv_transpose for name in ("1d", "2d.input", "3d.input")},
    "scaled_dot_product_attention": attention,
    "_scaled_dot_product_flash_attention_for_cpu": flash_attention,
}
