"""Tensors of few bits whose blocks have scales of their own, and products with them.

    MatMulNBits(a, b, scales, zero_points)          = a x transpose((b - zero_points) scales)
    MatMulBnb4(a, b, factors)                       = a x transpose(table[b] factors)
    GatherBlockQuantized(b, i, scales, zero_points) = (b[i] - zero_points[i]) scales[i]
    QuantizeLinear(x, scales, zero_points)          = clip(round(x / scales) + zero_points)
    DequantizeLinear(x, scales, zero_points)        = (x - zero_points) scales

Constant weights become the form that ``byoc.canonicalise.block_weight`` describes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import helper
from tvm import relax

from byoc.canonicalise.block_weight import emit_block_weight
from byoc.frontends.onnx.converters.node import Node
from byoc.ir.dataflow import constant, dtype_of, shape_of

#: What QuantizeLinear in blocks may give.
_BLOCKS_BECOME = ("uint8", "int8", "uint16", "int16")

#: What block_size of MatMulNBits may be.
LEAST_BLOCK = 16

#: What 4 bits stand for in bitsandbytes: floats with a sign, quantiles of a normal distribution.
_POSITIVE = (0, 0.0052083333, 0.66666667, 1, 0.33333333, 0.5, 0.16666667, 0.25)
_FLOATS_OF_4_BITS = (*_POSITIVE, *(-number for number in _POSITIVE))
# fmt: off
_NORMAL_FLOATS = (
    -1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1,
)
# fmt: on


def mat_mul_n_bits(node: Node) -> relax.Expr:
    """A product of floats with a constant weight of 2, 4 or 8 bits, and a bias.

    ``accuracy_level`` lets a kernel round the data; ours do so where the user says int8-data.
    """
    node.attrs.get("accuracy_level")
    k, n = (_whole(node, name) for name in ("K", "N"))
    bits, block = node.attrs.get("bits", 4), _whole(node, "block_size")
    if bits not in (2, 4, 8):
        raise ValueError(f"bits={bits}; need 2, 4 or 8")
    if block < LEAST_BLOCK or block & (block - 1):
        raise ValueError(f"block_size={block}; need a power of 2, {LEAST_BLOCK} or more")
    dtype = node.dtype()
    if dtype not in ("float32", "float16"):
        raise ValueError(f"the input is {dtype}; need float32 or float16")
    if node.shape() is not None and node.shape()[-1] != k:
        raise ValueError(f"the input has shape {list(node.shape())}; need K={k} columns")
    blocks = -(-k // block)
    stored = _array(node, 1, "the weight", ("uint8",), [(n, blocks, block * bits // 8)])
    q = unpacked(stored, bits).reshape(n, blocks, block)
    scale = _array(node, 2, "scales", (dtype,), [(n * blocks,), (n, blocks)]).astype(np.float32)
    if not np.isfinite(scale).all():
        raise ValueError(f"scale {scale[~np.isfinite(scale)][0]:g}; need finite ones")
    zero = np.full((n, blocks), 1 << (bits - 1), np.float32)
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        zero = _zero_points(node, n, blocks, bits)
    x, scale = _as(node, node.inputs[0], "float32"), scale.reshape(n, blocks)
    group = _groups(node, k, blocks)
    order = np.argsort(group, kind="stable")
    if np.array_equal(group[order], np.arange(k) // block):
        weight = _block_weight(node, _in_order(q, order), scale, zero, k)
        if not np.array_equal(order, np.arange(k)):
            x = node.emit(relax.op.take(x, constant(order, "int64"), axis=-1))
    else:
        integers = q.reshape(n, -1)[:, :k].astype(np.float32)
        weight = constant(((integers - zero[:, group]) * scale[:, group]).T, "float32")
    product = _as(node, node.emit(relax.op.matmul(x, weight)), dtype)
    bias = node.inputs[5] if len(node.inputs) > 5 else None
    if bias is None:
        return product
    if shape_of(bias) != (n,) or dtype_of(bias) != dtype:
        raise ValueError(f"the bias is {dtype_of(bias)}{list(shape_of(bias) or ())}; need [{n}]")
    return relax.op.add(product, bias)


def _groups(node: Node, k: int, blocks: int) -> np.ndarray:
    """The group whose scale a row of the weight has: its block, unless ``g_idx`` says otherwise."""
    if len(node.inputs) < 5 or node.inputs[4] is None:
        return np.arange(k) // _whole(node, "block_size")
    group = _array(node, 4, "g_idx", ("int32",), [(k,), (blocks * node.attrs["block_size"],)])[:k]
    if group.min() < 0 or group.max() >= blocks:
        raise ValueError(f"g_idx from {group.min()} to {group.max()}; need groups below {blocks}")
    return group


def _in_order(q: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Rows of a weight [N, blocks, block] in another order, those that fill it up last."""
    flat = q.reshape(len(q), -1)
    return flat[:, [*order, *range(len(order), flat.shape[1])]].reshape(q.shape)


def _block_weight(
    node: Node, q: np.ndarray, scale: np.ndarray, zero: np.ndarray, k: int
) -> relax.Expr:
    """Integers [N, blocks, block] and what each block has, as a weight [K, N]."""
    parts = [_blocks_first(array.reshape(*q.shape[:2], -1)) for array in (q, scale, zero)]
    weight = emit_block_weight(node.emit, *parts)
    if q.shape[1] * q.shape[2] == k:
        return weight
    return node.emit(relax.op.strided_slice(weight, [0], [0], [k]))


def mat_mul_bnb4(node: Node) -> relax.Expr:
    """A product of floats with a constant weight of numbers of 4 bits that stand for others.

    Blocks of the weight [N, K], read row by row, have a factor each. It is kept as float32.
    """
    k, n, block = (_whole(node, name) for name in ("K", "N", "block_size"))
    kind = node.attrs.get("quant_type", 0)
    if node.attrs.get("training_mode", 0) or not node.attrs.get("transB", 1) or kind not in (0, 1):
        raise ValueError(f"quant_type={kind}, or a form for training; need 0 or 1, and transB=1")
    count, dtype = n * k, node.dtype()
    stored = _array(node, 1, "the weight", ("uint8",), [((count + 1) // 2,)])
    factor = _array(node, 2, "factors", (dtype,), [(-(-count // block),)]).astype(np.float32)
    if dtype not in ("float32", "float16") or not np.isfinite(factor).all():
        raise ValueError(f"the input is {dtype}; need float32 or float16, and finite factors")
    places = np.stack([stored >> 4, stored & 15], -1).reshape(-1)[:count]
    table = np.array((_FLOATS_OF_4_BITS, _NORMAL_FLOATS)[kind], np.float32)
    weight = (table[places] * np.repeat(factor, block)[:count]).reshape(n, k)
    matrix = constant(weight.T, "float32")
    product = relax.op.matmul(_as(node, node.inputs[0], "float32"), matrix)
    return _as(node, node.emit(product), dtype)


def _as(node: Node, expr: relax.Expr, dtype: str) -> relax.Expr:
    return expr if dtype_of(expr) == dtype else node.emit(relax.op.astype(expr, dtype))


def _whole(node: Node, name: str, usual: int = 0) -> int:
    value = node.attrs.get(name, usual)
    if value < 1:
        raise ValueError(f"{name}={value}; need 1 or more")
    return int(value)


def _array(
    node: Node, place: int, what: str, dtypes: Sequence[str], shapes: Sequence[tuple[int, ...]]
) -> np.ndarray:
    """The value of an input that must be a constant of such a dtype and shape."""
    array = node.constant(place)
    if array is None:
        raise ValueError(f"{what}: computed; need constants")
    if str(array.dtype) not in dtypes:
        raise ValueError(f"{what}: {array.dtype}; need {' or '.join(dtypes)}")
    if array.shape not in shapes:
        wanted = " or ".join(str(list(shape)) for shape in shapes)
        raise ValueError(f"{what}: of shape {list(array.shape)}; need {wanted}")
    return array


def _zero_points(node: Node, n: int, blocks: int, bits: int) -> np.ndarray:
    """Float32 [N, blocks], of integers packed as the weight is, or of floats."""
    packed = -(-blocks * bits // 8)
    shapes = [(n * packed,), (n, packed)]
    if node.dtype(3) != "uint8":
        shapes = [(n * blocks,), (n, blocks)]
    zero = _array(node, 3, "zero_points", ("uint8", node.dtype()), shapes)
    if zero.dtype != np.uint8:
        zero = zero.astype(np.float32)
        if not np.isfinite(zero).all():
            raise ValueError(f"zero point {zero[~np.isfinite(zero)][0]:g}; need finite ones")
        return zero.reshape(n, blocks)
    return unpacked(zero.reshape(n, packed), bits)[:, :blocks].astype(np.float32)


def unpacked(stored: np.ndarray, bits: int) -> np.ndarray:
    """Integers, two of 4 bits or four of 2 in a byte, the lower ones first."""
    if bits == 8:
        return stored
    mask = (1 << bits) - 1
    parts = np.stack([stored >> shift & mask for shift in range(0, 8, bits)], -1)
    return parts.reshape(*stored.shape[:-1], -1)


def _blocks_first(array: np.ndarray) -> relax.Expr:
    """[N, blocks, block] as the constant [blocks, block, N]."""
    turned = np.ascontiguousarray(array.transpose(1, 2, 0))
    return constant(turned, str(turned.dtype))


# ---------------------------------------------------------------------- GatherBlockQuantized


def gather_block_quantised(node: Node) -> relax.Expr:
    """Rows of a constant table of 4 or 8 bits, whose blocks along the row have scales.

    Two numbers of 4 bits share a byte where the table is uint8, else ``narrow_constants`` made them
    int8. Rows are taken as integers, so that the table stays as small as it is.
    """
    bits, block = node.attrs.get("bits", 4), _whole(node, "block_size", 128)
    axes = node.attrs.get("gather_axis", 0), node.attrs.get("quantize_axis", 1)
    table, scale = node.constant(0), node.constant(2)
    zero = node.constant(3) if len(node.inputs) > 3 and node.inputs[3] is not None else None
    if table is None or scale is None or (zero is None and len(node.inputs) > 3):
        raise ValueError("the table or its scales are computed; need constants")
    if table.ndim != 2 or axes[0] not in (0, -2) or axes[1] not in (1, -1) or bits not in (4, 8):
        raise ValueError(
            f"a table of {table.ndim} axes, bits={bits}, gather_axis={axes[0]},"
            f" quantize_axis={axes[1]}; need rows of two axes, of 4 or 8 bits"
        )
    packed, usual = table.dtype == np.uint8, 0
    if packed:
        table, usual = unpacked(table, bits), 1 << (bits - 1)
        zero = None if zero is None else unpacked(zero, bits)
    rows, columns = table.shape
    blocks = -(-columns // block)
    if scale.shape != (rows, blocks) or (zero is not None and len(zero) != rows):
        raise ValueError(f"scales of shape {list(scale.shape)}; need {[rows, blocks]}")
    if not np.isfinite(scale.astype(np.float32)).all():
        raise ValueError("a scale is no finite number; need finite ones")
    table = np.pad(table, ((0, 0), (0, blocks * block - columns)))
    dtype = str(scale.dtype)
    value = _taken(node, table.reshape(rows, blocks, block), dtype)
    if zero is not None:
        moved = _taken(node, zero[:, :blocks, None], dtype)
    else:
        moved = constant(np.array(usual), dtype)
    value = node.emit(relax.op.subtract(value, moved)) if zero is not None or usual else value
    value = node.emit(relax.op.multiply(value, _taken(node, scale[:, :, None], dtype)))
    places = len(shape_of(node.inputs[1]))
    flat = constant(np.array([0] * places + [-1]), "int64")
    value = node.part("Reshape", [value, flat], {}, node.opset)
    if blocks * block == columns:
        return value
    return relax.op.strided_slice(value, [places], [0], [columns])


def _taken(node: Node, table: np.ndarray, dtype: str) -> relax.Expr:
    """Rows of a table at the indices, as floats."""
    stored = constant(table, str(table.dtype))
    rows = node.part("Gather", [stored, node.inputs[1]], {"axis": 0}, node.opset)
    return _as(node, rows, dtype)


# ---------------------------------------------------------------------- QuantizeLinear and back


def _blocks(node: Node) -> tuple[int, int, tuple[int, ...]]:
    """Size and axis of blocks of elements with a scale each, and the tensor's shape, checked."""
    size = node.attrs.get("block_size", 0)
    shape, axis = node.shape(), node.attrs.get("axis", 1)
    if shape is None or not all(isinstance(extent, int) for extent in shape):
        raise ValueError("block_size for a tensor of unknown shape; need a known one")
    if size < 0 or not -len(shape) <= axis < len(shape):
        raise ValueError(f"block_size={size} along axis {axis} of {list(shape)}")
    axis %= len(shape)
    blocks = -(-shape[axis] // size)
    wanted = (*shape[:axis], blocks, *shape[axis + 1 :])
    for what, place in (("scale", 1), ("zero point", 2)):
        if node.inputs[place] is not None and node.shape(place) != wanted:
            raise ValueError(
                f"the {what} has shape {list(node.shape(place) or ())}; need {list(wanted)},"
                f" one for each {size} along axis {axis} of {list(shape)}"
            )
    return size, axis, shape


def quantise_blocks(node: Node) -> relax.Expr:
    """QuantizeLinear with a scale for each block of elements along an axis, to 8 or 16 bits."""
    size, axis, shape = _blocks(node)
    x, scale, zero = node.inputs[0], node.inputs[1], node.inputs[2]
    element = node.attrs.get("output_dtype", 0)
    dtype = "uint8" if zero is None else dtype_of(zero)
    if zero is None and element:
        dtype = str(helper.tensor_dtype_to_np_dtype(element))
    if dtype not in _BLOCKS_BECOME or {dtype_of(x), dtype_of(scale)} != {"float32"}:
        raise ValueError(
            f"block_size for {dtype_of(x)} that becomes {dtype}; need float32 that becomes"
            f" {' or '.join(_BLOCKS_BECOME)}"
        )
    bounds = np.iinfo(dtype)
    value = node.emit(relax.op.divide(x, _repeated(node, scale, size, axis, shape)))
    value = node.emit(relax.op.round(value))
    if zero is not None:
        moved = _repeated(node, node.emit(relax.op.astype(zero, "float32")), size, axis, shape)
        value = node.emit(relax.op.add(value, moved))
    value = node.emit(relax.op.clip(value, float(bounds.min), float(bounds.max)))
    return relax.op.astype(value, dtype)


def dequantise_blocks(node: Node) -> relax.Expr:
    """DequantizeLinear with a scale for each block of elements along an axis."""
    size, axis, shape = _blocks(node)
    x, scale, zero = node.inputs[0], node.inputs[1], node.inputs[2]
    if dtype_of(scale) != "float32" or node.attrs.get("output_dtype", 0) not in (0, 1):
        raise ValueError(f"scales of {dtype_of(scale)}; need float32, as the result is")
    arrays = [None if expr is None else node.constant(i) for i, expr in enumerate((x, scale, zero))]
    known = [array is not None for array in arrays[: 2 if zero is None else 3]]
    if len(shape) == 2 and all(known):
        return _constant_blocks(node, arrays, axis, size)
    value = node.emit(relax.op.astype(x, "float32"))
    if zero is not None:
        repeated = _repeated(node, node.emit(relax.op.astype(zero, "float32")), size, axis, shape)
        value = node.emit(relax.op.subtract(value, repeated))
    return relax.op.multiply(value, _repeated(node, scale, size, axis, shape))


def _repeated(
    node: Node, numbers: relax.Expr, size: int, axis: int, shape: tuple[int, ...]
) -> relax.Expr:
    """Numbers of blocks, one for each element."""
    wide = node.emit(relax.op.repeat(numbers, size, axis))
    if shape_of(wide)[axis] != shape[axis]:
        wide = node.emit(relax.op.strided_slice(wide, [axis], [0], [shape[axis]]))
    return wide


def _constant_blocks(
    node: Node, arrays: list[np.ndarray | None], axis: int, size: int
) -> relax.Expr:
    x, scale, zero = arrays
    rows, columns = x.shape
    blocks = scale.shape[axis]
    padding = [(0, 0), (0, 0)]
    padding[axis] = (0, blocks * size - x.shape[axis])
    x = np.pad(x, padding)
    if axis == 0:
        parts = x.reshape(blocks, size, columns), scale.reshape(blocks, 1, columns)
    else:
        parts = x.reshape(rows, blocks, size), scale.reshape(rows, blocks, 1)
    values = [constant(array, str(array.dtype)) for array in parts]
    if zero is not None and zero.any():
        moved = zero.astype(np.float32).reshape(parts[1].shape)
        values.append(constant(moved, "float32"))
    weight = emit_block_weight(node.emit, *values, shape=x.shape)
    if x.shape == (rows, columns):
        return weight
    return relax.op.strided_slice(weight, [axis], [0], [(rows, columns)[axis]])
