"""What can be told to a kernel about a node: names of numbers, by operator.

``codegen_cc.node`` defines the operators; here is what a C function needs to know of each of them:
sizes under the names of ``ext_kernels.h``, and which names tell which attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from codegen_cc.dim import Dim, product
from codegen_cc.node import Node

#: A number, or the name of a C enumerator.
Number = Dim | float | str

#: Whether an attribute is as a kernel that is not told it will assume, given what it is told.
Neutral = Callable[[Node, Collection[str]], bool]


@dataclass(frozen=True)
class Facts:
    """What is known of one operator.

    ``roles`` are the operands, those of an epilogue aside; ``ranks`` the ranks that ``numbers``
    relies on.  ``numbers`` gives the named numbers of a node, ``names`` says which there are.
    ``params`` is the C type of the parameter block.  ``told_by`` lists, for each attribute that
    changes what is computed, the sets of names of which one must be told; ``neutral`` says when
    that is not needed.
    """

    roles: tuple[str, ...]
    attributes: tuple[str, ...] = ()
    ranks: Mapping[str, int] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    numbers: Callable[[Node], dict[str, Number]] = lambda node: {}
    params: str | None = None
    told_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    neutral: Mapping[str, Neutral] = field(default_factory=dict)


_CONV2D = (
    "batch in_h in_w in_c out_h out_w out_c kernel_h kernel_w stride_h stride_w pad_top pad_left "
    "dilation_h dilation_w groups x_stride y_stride"
)
_CONV3D = (
    "batch in_d in_h in_w in_c out_d out_h out_w out_c kernel_d kernel_h kernel_w stride_d "
    "stride_h stride_w pad_front pad_top pad_left dilation_d dilation_h dilation_w groups"
)
_POOL2D = (
    "batch in_h in_w channels out_h out_w kernel_h kernel_w stride_h stride_w pad_top pad_left "
    "pad_bottom pad_right dilation_h dilation_w x_stride y_stride count_include_pad"
)
#: Names that tell what the block does not say, but many kernels want.
_FAR_SIDES = ("pad_bottom", "pad_right")


def _image(node: Node) -> dict[str, Number]:
    attrs = node.attrs
    batch, _, in_h, in_w = node.operand("input").shape
    top, left, bottom, right = attrs["padding"]
    return {
        "batch": batch,
        "in_h": in_h,
        "in_w": in_w,
        "out_h": node.shape[2],
        "out_w": node.shape[3],
        "stride_h": attrs["strides"][0],
        "stride_w": attrs["strides"][1],
        "pad_top": top,
        "pad_left": left,
        "pad_bottom": bottom,
        "pad_right": right,
        "dilation_h": attrs["dilation"][0],
        "dilation_w": attrs["dilation"][1],
        "x_stride": node.operand("input").shape[1],
        "y_stride": node.shape[1],
    }


def _conv2d(node: Node) -> dict[str, Number]:
    kernel_h, kernel_w = node.operand("weight").shape[2:]
    return _image(node) | {
        "in_c": node.operand("input").shape[1],
        "out_c": node.shape[1],
        "kernel_h": kernel_h,
        "kernel_w": kernel_w,
        "groups": node.attrs["groups"],
    }


def _pool2d(node: Node) -> dict[str, Number]:
    kernel_h, kernel_w = node.attrs["pool_size"]
    return _image(node) | {
        "channels": node.shape[1],
        "kernel_h": kernel_h,
        "kernel_w": kernel_w,
        "count_include_pad": int(node.attrs["count_include_pad"]),
    }


def _conv3d(node: Node) -> dict[str, Number]:
    attrs, weight = node.attrs, node.operand("weight").shape
    batch, in_c, *sizes = node.operand("input").shape
    numbers: dict[str, Number] = {"batch": batch, "in_c": in_c, "out_c": node.shape[1]}
    for pattern, values in (
        ("in_{}", sizes),
        ("out_{}", node.shape[2:]),
        ("kernel_{}", weight[2:]),
        ("stride_{}", attrs["strides"]),
        ("dilation_{}", attrs["dilation"]),
    ):
        numbers |= {pattern.format(a): v for a, v in zip("dhw", values, strict=True)}
    sides = ("front", "top", "left", "back", "bottom", "right")
    numbers |= {f"pad_{side}": pad for side, pad in zip(sides, attrs["padding"], strict=True)}
    return numbers | {"groups": attrs["groups"]}


def matmul_numbers(node: Node) -> dict[str, Number]:
    """m, n, k and batch; leading axes of lhs are rows where rhs is one matrix."""
    lhs, rhs = node.operand("lhs").shape, node.operand("rhs").shape
    one = product(rhs[:-2]) == 1
    m, batch = (product(lhs[:-1]), 1) if one else (lhs[-2], product(node.shape[:-2]))
    return {"m": m, "n": node.shape[-1], "k": lhs[-1], "batch": batch}


def _around(node: Node, axes: list[int]) -> dict[str, Number]:
    shape = node.operand("input").shape
    first, last = (axes[0], axes[-1] + 1) if axes else (len(shape), len(shape))
    return {
        "outer": product(shape[:first]),
        "reduce": product(shape[first:last]),
        "inner": product(shape[last:]),
    }


def _along_axis(node: Node) -> dict[str, Number]:
    return _around(node, [node.attrs["axis"]])


def _reduce(node: Node) -> dict[str, Number]:
    kind = f"EXT_REDUCE_{node.attrs['kind'].upper()}"
    return _around(node, sorted(node.attrs["axes"])) | {"kind": kind}


def _argreduce(node: Node) -> dict[str, Number]:
    return _along_axis(node) | {"least": int(node.attrs["kind"] == "argmin")}


def _cumsum(node: Node) -> dict[str, Number]:
    flags = {name: int(node.attrs[name]) for name in ("exclusive", "reverse")}
    return _along_axis(node) | flags


def _softmax(node: Node) -> dict[str, Number]:
    return _along_axis(node) | {"log": int(node.attrs["log"])}


def _norm(node: Node) -> dict[str, Number]:
    shape = node.operand("input").shape
    n = product(shape[axis] for axis in node.attrs["axes"])
    rows = product(e for axis, e in enumerate(shape) if axis not in node.attrs["axes"])
    return {"rows": rows, "n": n, "epsilon": float(node.attrs["epsilon"])}


def _attention(node: Node) -> dict[str, Number]:
    batch, heads, queries, depth = node.operand("query").shape
    keys, width = node.operand("value").shape[2:]
    numbers = {"batch": batch, "heads": heads, "queries": queries, "keys": keys}
    return numbers | {"depth": depth, "width": width, "scale": float(node.attrs["scale"])}


def _unary(node: Node) -> dict[str, Number]:
    parameters = {name: float(node.attrs.get(name, 0.0)) for name in ("alpha", "beta")}
    return {"kind": f"EXT_{node.attrs['kind'].upper()}", **parameters}


def _kind(node: Node) -> dict[str, Number]:
    return {"kind": f"EXT_{node.attrs['kind'].upper()}"}


def _take(node: Node) -> dict[str, Number]:
    shape, axis = node.operand("input").shape, node.attrs["axis"]
    return {
        "outer": product(shape[:axis]),
        "extent": shape[axis],
        "inner": product(shape[axis + 1 :]),
        "count": product(node.operand("indices").shape),
    }


def _pad(node: Node) -> dict[str, Number]:
    return {"mode": f"EXT_PAD_{node.attrs['mode'].upper()}", "value": float(node.attrs["value"])}


# ---------------------------------------------------------------- what need not be told


def _all(name: str, value: object) -> Neutral:
    def neutral(node: Node, told: Collection[str]) -> bool:
        del told
        found = node.attrs.get(name, value)
        return all(item == value for item in (found if isinstance(found, list) else [found]))

    return neutral


def _one_image(node: Node, told: Collection[str]) -> bool:
    del told
    return node.shape[0] == 1


def _padding(node: Node, told: Collection[str]) -> bool:
    """Nothing is padded, or both sides alike: a kernel infers the far sides from the near ones."""
    pads = node.attrs["padding"]
    near, far = pads[: len(pads) // 2], pads[len(pads) // 2 :]
    sides = ("front", "top", "left")[-len(near) :]
    return not any(pads) or (near == far and all(f"pad_{side}" in told for side in sides))


def _inside(node: Node, told: Collection[str]) -> bool:
    return node.op == "max_pool2d" or _padding(node, ()) or _all("count_include_pad", 0)(node, told)


_PADDING_2D = (
    "pad_top pad_left out_h out_w",
    "pad_top pad_left output.2 output.3",
    "pad_top pad_left pad_bottom pad_right",
)
_IMAGE_TOLD = {
    "batch": ("batch", "input.0", "output.0"),
    "strides": ("stride_h stride_w",),
    "dilation": ("dilation_h dilation_w",),
    "padding": _PADDING_2D,
}
_IMAGE_NEUTRAL: dict[str, Neutral] = {
    "batch": _one_image,
    "strides": _all("strides", 1),
    "dilation": _all("dilation", 1),
    "padding": _padding,
    "groups": _all("groups", 1),
    "count_include_pad": _inside,
}
_CONVOLUTION = Facts(
    roles=("input", "weight"),
    attributes=("strides", "padding", "dilation", "groups"),
    ranks={"input": 4, "weight": 4},
    names=(*_CONV2D.split(), *_FAR_SIDES),
    numbers=_conv2d,
    params="ext_conv2d_params",
    told_by={**_IMAGE_TOLD, "groups": ("groups",)},
    neutral=_IMAGE_NEUTRAL,
)
_CONVOLUTION_3D = Facts(
    roles=("input", "weight"),
    attributes=_CONVOLUTION.attributes,
    ranks={"input": 5, "weight": 5},
    names=(*_CONV3D.split(), "pad_back", *_FAR_SIDES),
    numbers=_conv3d,
    params="ext_conv3d_params",
    told_by={
        "batch": _IMAGE_TOLD["batch"],
        "strides": ("stride_d stride_h stride_w",),
        "dilation": ("dilation_d dilation_h dilation_w",),
        "padding": ("pad_front pad_top pad_left out_d out_h out_w",),
        "groups": ("groups",),
    },
    neutral=_IMAGE_NEUTRAL,
)
_POOLING = Facts(
    roles=("input",),
    attributes=(
        *("pool_size", "strides", "padding", "dilation", "ceil_mode", "count_include_pad"),
    ),
    ranks={"input": 4},
    names=tuple(_POOL2D.split()),
    numbers=_pool2d,
    params="ext_pool2d_params",
    told_by={
        **_IMAGE_TOLD,
        "pool_size": ("kernel_h kernel_w",),
        "count_include_pad": ("count_include_pad",),
    },
    neutral=_IMAGE_NEUTRAL,
)
_AXIS = ("outer", "reduce", "inner")
_AXIS_TOLD = ("outer reduce inner",)
_KIND_TOLD = {"kind": ("kind",)}
_RESIZING = ("method", "coordinate", "rounding", "cubic_alpha", "cubic_exclude")


def _along(numbers: Callable[[Node], dict[str, Number]], *flags: str) -> Facts:
    """An operator along one axis that has flags, which a kernel need not be told if unset."""
    return Facts(
        roles=("input",),
        attributes=("axis", *flags),
        names=(*_AXIS, *flags),
        numbers=numbers,
        told_by={"axis": _AXIS_TOLD, **{flag: (flag,) for flag in flags}},
        neutral={flag: _all(flag, 0) for flag in flags},
    )


def _normalisation(*roles: str) -> Facts:
    return Facts(
        roles=("input", *roles),
        attributes=("axes", "epsilon"),
        names=("rows", "n", "epsilon"),
        numbers=_norm,
        told_by={"axes": ("rows n",), "epsilon": ("epsilon",)},
    )


def _two_sided(params: str) -> Facts:
    return Facts(
        roles=("lhs", "rhs"),
        attributes=("kind",),
        names=("kind",),
        numbers=_kind,
        params=params,
        told_by=_KIND_TOLD,
    )


#: Facts of every operator.
FACTS: dict[str, Facts] = {
    "conv2d": _CONVOLUTION,
    "conv2d_transpose": replace(
        _CONVOLUTION, attributes=(*_CONVOLUTION.attributes, "output_padding")
    ),
    "conv3d": _CONVOLUTION_3D,
    "matmul": Facts(
        roles=("lhs", "rhs"),
        names=("m", "n", "k", "batch"),
        numbers=matmul_numbers,
        params="ext_matmul_params",
    ),
    "attention": Facts(
        roles=("query", "key", "value", "mask"),
        attributes=("scale",),
        ranks={"query": 4, "key": 4, "value": 4},
        names=("batch", "heads", "queries", "keys", "depth", "width", "scale"),
        numbers=_attention,
        told_by={"scale": ("scale",)},
    ),
    "max_pool2d": _POOLING,
    "avg_pool2d": _POOLING,
    "resize2d": Facts(
        roles=("input",),
        attributes=_RESIZING,
        ranks={"input": 4},
        told_by=dict.fromkeys(_RESIZING, ()),
    ),
    "pad": Facts(
        roles=("input",),
        attributes=("pads", "mode", "value"),
        names=("mode", "value"),
        numbers=_pad,
        told_by={"pads": (), "mode": ("mode",), "value": ("value",)},
        neutral={"value": _all("value", 0)},
    ),
    "reduce": Facts(
        roles=("input",),
        attributes=("kind", "axes", "keepdims"),
        names=(*_AXIS, "kind"),
        numbers=_reduce,
        told_by={"axes": _AXIS_TOLD, **_KIND_TOLD},
    ),
    "argreduce": Facts(
        roles=("input",),
        attributes=("kind", "axis", "keepdims"),
        names=(*_AXIS, "least"),
        numbers=_argreduce,
        told_by={"axis": _AXIS_TOLD, "kind": ("least",)},
    ),
    "cumsum": _along(_cumsum, "exclusive", "reverse"),
    "softmax": _along(_softmax, "log"),
    "layer_norm": _normalisation("gamma", "beta"),
    "rms_norm": _normalisation("gamma"),
    "unary": Facts(
        roles=("input",),
        attributes=("kind", "alpha", "beta"),
        names=("kind", "alpha", "beta"),
        numbers=_unary,
        told_by={**_KIND_TOLD, "alpha": ("alpha",), "beta": ("beta",)},
        neutral={"alpha": _all("alpha", 0), "beta": _all("beta", 0)},
    ),
    "binary": _two_sided("ext_binary_params"),
    "compare": _two_sided("ext_compare_params"),
    "logical": _two_sided("ext_compare_params"),
    "where": Facts(roles=("condition", "lhs", "rhs"), params="ext_where_params"),
    "cast": Facts(roles=("input",)),
    "take": Facts(
        roles=("input", "indices"),
        attributes=("axis",),
        names=("outer", "extent", "inner", "count"),
        numbers=_take,
        told_by={"axis": ("outer inner",)},
    ),
    "arange": Facts(roles=()),
    "reshape": Facts(roles=("input",)),
    "permute": Facts(roles=("input",), attributes=("axes",), told_by={"axes": ()}),
    "concat": Facts(roles=("input0", "input1"), attributes=("axis",), told_by={"axis": ()}),
    "slice": Facts(
        roles=("input",),
        attributes=("begin", "end", "strides"),
        told_by={"begin": (), "strides": ()},
        neutral={"begin": _all("begin", 0), "strides": _all("strides", 1)},
    ),
    "broadcast_to": Facts(roles=("input",)),
}
