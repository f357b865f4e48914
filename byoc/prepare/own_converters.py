"""Converters for forms of ONNX operators that TVM's get wrong or refuse.

Each takes ``Node`` and gives a Relax expression; many only write a form as another one that TVM's
converter computes right, and hand over to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import _tensor_to_shape_expr, onnx_input

from byoc.partition.dataflow import array_of, shape_of
from byoc.prepare.resize import resize
from byoc.prepare.same_padding import same_pads
from codegen_cc.dim import Dim, broadcast_shape, is_static


@dataclass
class Node:
    """A node to convert: ``tvm()`` does it TVM's way, with ``inputs`` and ``attrs`` as they are."""

    bb: relax.BlockBuilder
    operator: str
    inputs: onnx_input
    attrs: dict[str, Any]
    opset: int
    tvm: Callable[[], relax.Expr]

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return self.attrs["tvm_custom"]["num_outputs"]

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """An expression with a type."""
        return self.bb.normalize(expr)

    def shape(self, place: int = 0) -> tuple[Dim, ...] | None:
        """The shape of an input; None where it is not known."""
        return shape_of(self.inputs[place])

    def dtype(self, place: int = 0) -> str:
        """The dtype of an input."""
        return str(self.inputs[place].ty.dtype)

    def constant(self, place: int) -> np.ndarray | None:
        """The value of an input; None where it is computed or left out."""
        expr = self.inputs[place]
        return array_of(expr) if isinstance(expr, tvm.ir.GenericConst) else None


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


# ---------------------------------------------------------------------- elementwise


def power(node: Node) -> relax.Expr:
    """The base's dtype; integers through float64, as ONNX Runtime does."""
    base, exponent = node.inputs
    to, of = node.dtype(0), node.dtype(1)
    if to == of and _is_float(to):
        return node.tvm()
    within = to if _is_float(to) else "float64"
    result = relax.op.power(*(relax.op.astype(x, within) for x in (base, exponent)))
    return result if within == to else relax.op.astype(result, to)


def mod(node: Node) -> relax.Expr:
    """Of fractions with fmod=0: the sign of the divisor, of a zero too, as Python's ``%``."""
    if node.attrs.get("fmod", 0) or not _is_float(node.dtype()):
        return node.tvm()
    value, divisor = node.inputs
    zero = relax.const(0, node.dtype())
    rest = node.emit(relax.op.mod(value, divisor))
    below = node.emit(relax.op.less(divisor, zero))
    turn = relax.op.logical_xor(relax.op.less(rest, zero), below)
    signed = relax.op.where(below, relax.const(-0.0, node.dtype()), zero)
    moved = relax.op.where(turn, relax.op.add(rest, divisor), rest)
    return relax.op.where(relax.op.equal(rest, zero), signed, moved)


def div(node: Node) -> relax.Expr:
    """Of integers, by constants with 0 too, which TVM refuses (see ``division_by_zero``)."""
    divisor = node.constant(1)
    tensor = isinstance(node.inputs[0].ty, relax.TensorType)
    if divisor is None or not tensor or _is_float(node.dtype()) or divisor.all():
        return node.tvm()
    return relax.op.divide(*node.inputs)


def bit_shift(node: Node) -> relax.Expr:
    """By as many bits as there are, or more, nothing is left but the sign; C leaves that open."""
    value, by = node.inputs
    dtype = node.dtype()
    bits, zero = relax.const(np.iinfo(dtype).bits, dtype), relax.const(0, dtype)
    inside = relax.op.less(by, bits)
    if dtype.startswith("int"):
        inside = relax.op.logical_and(inside, relax.op.greater_equal(by, zero))
    inside = node.emit(inside)
    node.inputs[1] = node.emit(relax.op.where(inside, by, zero))
    rest = zero
    if dtype.startswith("int") and node.attrs["direction"] == b"RIGHT":
        rest = relax.op.where(relax.op.less(value, zero), relax.const(-1, dtype), zero)
    return relax.op.where(inside, node.emit(node.tvm()), rest)


def is_inf(node: Node) -> relax.Expr:
    """Infinities of the signs that are asked for."""
    found, zero = node.tvm(), relax.const(0, node.dtype())
    if not node.attrs.get("detect_negative", 1):
        found = relax.op.logical_and(found, relax.op.greater(node.inputs[0], zero))
    if not node.attrs.get("detect_positive", 1):
        found = relax.op.logical_and(found, relax.op.less(node.inputs[0], zero))
    return found


def prelu(node: Node) -> relax.Expr:
    """Before opset 7 a vector of slopes is one per channel; later it broadcasts as ever."""
    slopes, image = node.shape(1), node.shape(0)
    if node.opset < 7 and slopes is not None and len(slopes) == 1 and slopes[0] != 1:
        channels = node.inputs[1].ty.shape.values[0]
        slope = relax.op.reshape(node.inputs[1], (channels, *(1 for _ in image[2:])))
        node.inputs[1] = node.emit(slope)
    elif slopes is not None and image is not None and broadcast_shape(image, slopes) != image:
        raise ValueError(
            f"slopes {list(slopes)} of an image {list(image)}; need slopes that broadcast to it at"
            " every size"
        )
    return node.tvm()


def dropout(node: Node) -> relax.Expr:
    """Inference drops nothing."""
    image = node.inputs[0]
    if node.outputs == 1:
        return image
    kept = relax.op.full(image.ty.shape, relax.const(True, "bool"), "bool")
    return relax.Tuple([image, kept if node.opset >= 10 else relax.op.ones_like(image)])


def sign(node: Node) -> relax.Expr:
    """Of numbers without a sign: 0 or 1."""
    if not node.dtype().startswith("uint"):
        return node.tvm()
    return relax.op.minimum(node.inputs[0], relax.const(1, node.dtype()))


# ---------------------------------------------------------------------- reductions


def of_bool(node: Node) -> relax.Expr:
    """Greatest and least of truth values, through bytes."""
    if node.dtype() != "bool":
        return node.tvm()
    if 0 in (node.shape() or ()):
        raise ValueError("truth values of an empty tensor; need another dtype")
    node.inputs[0] = node.emit(relax.op.astype(node.inputs[0], "uint8"))
    return relax.op.astype(node.emit(node.tvm()), "bool")


def mean(node: Node) -> relax.Expr:
    """Of integers: their sum of 64 bits by their number, cut off, in the operand's dtype."""
    dtype = node.dtype()
    if _is_float(dtype):
        return node.tvm()
    shape = node.shape()
    if shape is None or not is_static(shape) or 0 in shape:
        raise ValueError(f"integers of shape {list(shape or ())}; need extents known and above 0")
    if not dtype.endswith("64"):
        node.inputs[0] = node.emit(relax.op.astype(node.inputs[0], "int64"))
    result = node.emit(node.tvm())
    return result if dtype.endswith("64") else relax.op.astype(result, dtype)


def unreduced(node: Node) -> relax.Expr:
    """With ``noop_with_empty_axes`` and no axes, what is done to each element is left."""
    axes = node.constant(1)
    given = node.inputs[1] is not None and (axes is None or axes.size)
    if not node.attrs.get("noop_with_empty_axes", 0) or given:
        return node.tvm()
    image = node.inputs[0]
    node.attrs.get("keepdims")  # there is no axis to keep
    if node.operator == "ReduceSumSquare":
        return relax.op.multiply(image, image)
    by = {"ReduceLogSum": relax.op.log, "ReduceL1": relax.op.abs, "ReduceL2": relax.op.abs}
    return by[node.operator](image)


def top_k(node: Node) -> relax.Expr:
    """In opset 10 ``k`` became an input, and nothing else changed."""
    if node.opset == 10:
        if node.constant(1) is None:
            raise ValueError("k is computed; need a constant")
        node.attrs["k"] = int(node.constant(1).reshape(-1)[0])
    return node.tvm()


def layer_norm(node: Node) -> relax.Expr:
    """With mean and inverse deviation where they are asked for; parameters may broadcast."""
    shape = node.shape()
    axis = node.attrs.get("axis", -1) % len(shape)
    inside = shape[axis:]
    for place in (1, 2):
        given = None if node.inputs[place] is None else node.shape(place)
        if given is not None and given != inside and is_static(inside):
            wide = relax.op.broadcast_to(node.inputs[place], inside)
            node.inputs[place] = node.emit(wide)
    result = node.tvm()
    if node.outputs == 1:
        return result
    axes = list(range(axis, len(shape)))
    image = relax.op.astype(node.inputs[0], "float32")
    mean = relax.op.mean(image, axes, keepdims=True)
    epsilon = relax.const(node.attrs.get("epsilon", 1e-5), "float32")
    variance = relax.op.variance(image, axes, keepdims=True)
    deviation = relax.op.sqrt(relax.op.add(variance, epsilon))
    return relax.Tuple([result[0], mean, relax.op.divide(relax.const(1, "float32"), deviation)])


def rms_norm(node: Node) -> relax.Expr:
    """Over all axes: as the only row of a tensor with one more, since TVM needs another axis."""
    shape, scale = node.shape(), node.shape(1)
    if None not in (shape, scale) and broadcast_shape(shape, scale) != shape:
        raise ValueError(
            f"scale {list(scale)} of an input {list(shape)}; need a scale that broadcasts to it at"
            " every size"
        )
    if shape is None or node.attrs.get("axis", -1) % len(shape) != 0:
        return node.tvm()
    node.inputs[0] = node.emit(relax.op.expand_dims(node.inputs[0], 0))
    node.attrs["axis"] = 1
    return relax.op.squeeze(node.emit(node.tvm()), 0)


# ---------------------------------------------------------------------- windows


def pool(node: Node) -> relax.Expr:
    """Padding in place of its name, and of ``ceil_mode``.

    Where rounding up gives one more window, the padding at the end grows until that fits, unless it
    would begin there: ``(n - 1) stride >= extent + begin`` (ONNX operator specification, MaxPool).
    An average that counts padding does not count what was added so; the padding that counts is then
    written as zeros before.
    """
    shape, kernel = node.shape(), node.attrs["kernel_shape"]
    if shape is None or not is_static(shape):
        return node.tvm()
    attrs, rank = node.attrs, len(kernel)
    ones = [1] * rank
    strides, dilations = (list(attrs.get(name, ones)) for name in ("strides", "dilations"))
    pads = list(attrs.get("pads", [0] * 2 * rank))
    named = attrs.pop("auto_pad", b"NOTSET")
    if named.startswith(b"SAME"):
        if node.operator == "LpPool" and any(gap > 1 for gap in dilations):
            raise ValueError("auto_pad with dilations, where ONNX Runtime gives another size")
        pads = same_pads(shape[2:], kernel, strides, dilations, named == b"SAME_LOWER")
    elif named == b"VALID":
        pads = [0] * 2 * rank
    ends = list(pads[rank:])
    if attrs.pop("ceil_mode", 0):
        for i, (size, taps, step, gap) in enumerate(
            zip(shape[2:], kernel, strides, dilations, strict=True)
        ):
            reach = (taps - 1) * gap + 1
            count = -(-(size + pads[i] + pads[rank + i] - reach) // step) + 1
            count -= (count - 1) * step >= size + pads[i]
            ends[i] = max(ends[i], (count - 1) * step + reach - size - pads[i])
    counted = node.operator == "LpPool" or (
        attrs.get("count_include_pad", 0) and ends != pads[rank:]
    )
    if counted and any([*pads, *ends]):
        counts = ends if node.operator == "LpPool" else pads[rank:]
        widths = [0] * 4 + [w for pair in zip(pads[:rank], counts, strict=True) for w in pair]
        node.inputs[0] = node.emit(relax.op.nn.pad(node.inputs[0], widths))
        pads, ends = [0] * rank, [e - c for e, c in zip(ends, counts, strict=True)]
        attrs["count_include_pad"] = 0
    attrs["pads"] = (*pads[:rank], *ends)
    return node.tvm()


def conv_transpose(node: Node) -> relax.Expr:
    """The padding that ``output_shape`` asks for (ONNX operator specification, ConvTranspose)."""
    wanted, shape, attrs = node.attrs.pop("output_shape", None), node.shape(), node.attrs
    weight, groups = node.shape(1), attrs.get("group", 1)
    if weight is None or not is_static(weight):
        raise ValueError(f"weight {list(weight or ())}; need extents that are known")
    if groups > 1 and shape is not None and shape[1] != weight[0]:
        raise ValueError(
            f"{shape[1]} channels in {groups} groups for a weight {list(weight)}; need"
            f" {weight[0]} channels"
        )
    if wanted is None:
        return node.tvm()
    if shape is None or not is_static(shape):
        raise ValueError("output_shape of an image of unknown size; need a fixed one")
    kernel = node.shape(1)[2:]
    ones, rank = [1] * len(kernel), len(kernel)
    strides, dilations = (attrs.get(name, ones) for name in ("strides", "dilations"))
    extra = list(attrs.get("output_padding", [0] * rank))
    named = attrs.pop("auto_pad", b"NOTSET")
    begins, ends = [], []
    for i, target in enumerate(wanted[-rank:]):
        full = (shape[2 + i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 + extra[i]
        total = full - target
        if total < 0:
            extra[i], total = extra[i] - total, 0
        if extra[i] >= max(strides[i], dilations[i]):
            raise ValueError(f"output_shape {target} of axis {2 + i} is beyond all inputs' reach")
        small, large = total // 2, total - total // 2
        begins.append(small if named == b"SAME_UPPER" else large)
        ends.append(large if named == b"SAME_UPPER" else small)
    attrs["pads"], attrs["output_padding"] = (*begins, *ends), tuple(extra)
    return node.tvm()


def roi_align(node: Node) -> relax.Expr:
    """Half a pixel is one of the image: TVM takes it off before the regions are scaled to that."""
    mode = b"half_pixel" if node.opset >= 16 else b"output_half_pixel"
    scale = node.attrs.get("spatial_scale", 1.0)
    if node.attrs.get("coordinate_transformation_mode", mode) == b"half_pixel" and scale != 1:
        shift = relax.const(0.5 - 0.5 / scale, node.dtype(1))
        node.inputs[1] = node.emit(relax.op.add(node.inputs[1], shift))
    return node.tvm()


# ---------------------------------------------------------------------- shapes


def one_hot(node: Node) -> relax.Expr:
    """``depth`` comparisons of each index, of the dtype of the values.

    A fraction equals none of them, as in ONNX Runtime and the reference evaluator.
    """
    indices, _, values = node.inputs
    depth = node.constant(1)
    if depth is None:
        raise ValueError("the depth is computed; need a constant")
    depth = int(depth.reshape(-1)[0])
    if node.dtype() not in ("int32", "int64") and not _is_float(node.dtype()):
        indices = relax.op.astype(indices, "int64")
    indices = node.emit(indices)
    dtype, rank = str(indices.ty.dtype), indices.ty.ndim + 1
    axis = node.attrs.get("axis", -1) % rank
    zero, whole = relax.const(0, dtype), relax.const(depth, dtype)
    wrapped = relax.op.where(relax.op.less(indices, zero), relax.op.add(indices, whole), indices)
    places = np.arange(depth, dtype=dtype).reshape([-1 if i == axis else 1 for i in range(rank)])
    hot = relax.op.equal(relax.op.expand_dims(wrapped, axis), relax.const(places, dtype))
    off, on = (relax.op.take(values, relax.const(i, "int64"), 0) for i in (0, 1))
    return relax.op.where(hot, on, off)


def split(node: Node) -> relax.Expr:
    """Parts of no extent as well, which ``relax.split`` does not make."""
    sizes = node.attrs.get("split") or node.constant(1)
    shape = node.shape()
    if sizes is None or min(sizes) > 0 or shape is None:
        return node.tvm()
    return _parts(node, node.attrs.get("axis", 0) % len(shape), [int(size) for size in sizes])


def split_to_sequence(node: Node) -> relax.Expr:
    """Parts of the given sizes, or of one size but for the last."""
    shape, sizes = node.shape(), node.constant(1)
    axis = node.attrs.get("axis", 0) % len(shape)
    keep = node.attrs.get("keepdims", 1) or node.inputs[1] is not None
    if not isinstance(shape[axis], int) or (sizes is None and node.inputs[1] is not None):
        raise ValueError("sizes that are not known; need constants")
    if sizes is None or sizes.ndim == 0:
        size = 1 if sizes is None else int(sizes)
        sizes = [min(size, shape[axis] - at) for at in range(0, shape[axis], size)]
    parts = _parts(node, axis, [int(size) for size in sizes])
    return parts if keep else relax.Tuple([relax.op.squeeze(part, [axis]) for part in parts])


def _parts(node: Node, axis: int, sizes: list[int]) -> relax.Tuple:
    ends = np.cumsum(sizes).tolist()
    return relax.Tuple(
        [
            node.emit(relax.op.strided_slice(node.inputs[0], [axis], [end - size], [end]))
            for size, end in zip(sizes, ends, strict=True)
        ]
    )


def sequence_insert(node: Node) -> relax.Expr:
    """A place counted from the end is that of the element which the new one comes before."""
    place = node.constant(2)
    if place is not None and place < 0:
        node.inputs[2] = relax.const(place + len(node.inputs[0]), "int64")
    return node.tvm()


def constant_of_shape(node: Node) -> relax.Expr:
    """A shape that is computed while the model runs."""
    length = None if isinstance(node.inputs[0], relax.ShapeExpr) else node.shape()
    if node.constant(0) is None and length is not None and isinstance(length[0], int):
        node.inputs[0] = _tensor_to_shape_expr(node.bb, node.inputs[0], length[0], "extent")
    return node.tvm()


def expand(node: Node) -> relax.Expr:
    """A shape that is computed while the model runs: the larger extent wins over 1."""
    shape, wanted = node.shape(), node.inputs[1]
    computed = not isinstance(wanted, relax.ShapeExpr) and node.constant(1) is None
    length = node.shape(1) if computed else None
    if length is None or shape is None or not is_static(shape) or not isinstance(length[0], int):
        return node.tvm()
    rank = max(len(shape), length[0])
    own = relax.const(np.array([1] * (rank - len(shape)) + list(shape)), "int64")
    ones = relax.const(np.ones(rank - length[0], "int64"), "int64")
    wanted = relax.op.concat([ones, wanted], 0) if length[0] < rank else wanted
    # An extent of 0 wins over 1 as well.
    larger = relax.op.where(relax.op.equal(own, relax.const(1, "int64")), wanted, own)
    extents = _tensor_to_shape_expr(node.bb, node.emit(larger), rank, "extent")
    return relax.op.broadcast_to(node.inputs[0], extents)


def non_max_suppression(node: Node) -> relax.Expr:
    """ONNX's defaults for what is left out, and boxes that overlap as much as allowed stay.

    TVM suppresses no box by one whose score is not positive. Where such scores may count, their
    ranks take their place.
    """
    node.inputs.extend([None] * (5 - len(node.inputs)))
    limits = []
    for place, default in ((2, 0), (3, 0.0), (4, -np.inf)):
        value = node.constant(place)
        if value is None and node.inputs[place] is not None:
            raise ValueError("limits that are computed; need constants")
        limits.append(default if value is None else value.reshape(-1)[0])
    most, overlap, least = limits
    if least < 0:
        scores = node.inputs[1]
        order = node.emit(relax.op.argsort(scores, -1, descending=True, dtype="int64"))
        rank = relax.op.astype(relax.op.argsort(order, -1, dtype="int64"), "float32")
        count = relax.const(float(node.shape(1)[-1]), "float32")
        inside = relax.op.greater(scores, relax.const(least, "float32"))
        ranks = relax.op.where(inside, relax.op.subtract(count, rank), relax.const(0, "float32"))
        node.inputs[1], least = node.emit(ranks), 0.0
    # TVM suppresses at the threshold, ONNX above it.
    above = np.nextafter(np.maximum(np.float32(overlap), 1e-30), np.float32(np.inf))
    node.inputs[2] = relax.const(np.int64(most), "int64")
    node.inputs[3] = relax.const(np.float32(above), "float32")
    node.inputs[4] = relax.const(np.float32(least), "float32")
    return node.tvm()


def any_resize(node: Node) -> relax.Expr:
    """Fixed shapes here; symbolic ones TVM's way."""
    shape = node.shape()
    if shape is None or not is_static(shape):
        return node.tvm()
    opset = node.opset if node.operator == "Resize" else 0
    return resize(node.bb, node.inputs, node.attrs, opset)


#: By operator.
CONVERTERS: dict[str, Callable[[Node], relax.Expr]] = {
    "AveragePool": pool,
    "BitShift": bit_shift,
    "ConstantOfShape": constant_of_shape,
    "ConvTranspose": conv_transpose,
    "Div": div,
    "Dropout": dropout,
    "Expand": expand,
    "IsInf": is_inf,
    "LayerNormalization": layer_norm,
    "LpPool": pool,
    "MaxPool": pool,
    "Mod": mod,
    "NonMaxSuppression": non_max_suppression,
    "OneHot": one_hot,
    "PRelu": prelu,
    "Pow": power,
    "RMSNormalization": rms_norm,
    "ReduceL1": unreduced,
    "ReduceL2": unreduced,
    "ReduceLogSum": unreduced,
    "ReduceMax": of_bool,
    "ReduceMean": mean,
    "ReduceMin": of_bool,
    "ReduceSumSquare": unreduced,
    "Resize": any_resize,
    "RoiAlign": roi_align,
    "SequenceInsert": sequence_insert,
    "Sign": sign,
    "Split": split,
    "SplitToSequence": split_to_sequence,
    "TopK": top_k,
    "Upsample": any_resize,
}
