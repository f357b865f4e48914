"""fourier on ``ext_fourier``: discrete Fourier transforms along one axis.

    y[k] = length^(-norm / 2) sum_n input[n] window[n] exp(-2 pi i n k / length)

or with ``exp(+ ...)`` where it is ``inverse``. Complex numbers are pairs along the last axis.
``input`` is of real numbers, of complex ones, or the half of a spectrum that tells real numbers; of
an axis that is longer than the transform the first elements count, and a shorter one ends in zeros.
With a ``step`` the transforms are those of frames, which begin so far apart, and ``axis`` of the
result is that of the frames, behind which their elements are.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from codegen_cc.dim import Dim, is_static, product, same
from codegen_cc.node import Node
from codegen_cc.operator import Facts, Kernels, Operator
from codegen_cc.operators.dtype_rules import only_single
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.region.graph import RegionNode

REAL_NUMBERS, COMPLEX_NUMBERS, HALF = KINDS = ("real", "complex", "half")

#: Doublings of a length that is not known, where operations are counted.
_USUAL_DOUBLINGS = 10


def length_of(node: Node) -> Dim:
    """Elements of one transform."""
    axis = node.attrs["axis"]
    whole = node.shape if node.attrs["kind"] == HALF else node.operand("input").shape
    return node.attrs["length"] or whole[axis]


def supports(node: Node) -> str | None:
    """None if the kernel can compute the node, else the reason."""
    attrs = node.attrs
    if attrs["kind"] not in KINDS:
        return f"fourier kind {attrs['kind']}; need one of {', '.join(KINDS)}"
    length = length_of(node)
    if same(length, 0):
        return "a transform of no elements; need one or more"
    window = [operand for operand in node.operands if operand.role == "window"]
    if window and tuple(window[0].shape) != (length,):
        return f"window {list(window[0].shape)}; need [{length}]"
    axes = len(node.operand("input").shape) - (attrs["kind"] != REAL_NUMBERS)
    if attrs["step"] and attrs["axis"] != axes - 1:
        return f"frames along axis {attrs['axis']}; need the last one"
    return None


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_fourier``."""
    attrs = node.node.attrs
    kind, axis, step = (attrs[name] for name in ("kind", "axis", "step"))
    length = length_of(node.node)
    x = builder.dense(builder.tensor(node.role("input")))
    window = node.role("window")
    y = builder.space(node.node.shape, node.node.dtype, tuple(range(len(node.node.shape))))
    parts = 1 if kind == REAL_NUMBERS else 2
    inner = product(x.shape[axis + 1 : len(x.shape) - (kind != REAL_NUMBERS)])
    fields: dict[str, object] = {
        "outer": product(x.shape[:axis]),
        "frames": y.shape[axis] if step else 1,
        "inner": inner,
        "x_outer": product([x.shape[axis], inner, parts]),
        "x_frame": step * parts,
        "given": length if step else x.shape[axis],
        "length": length,
        "count": y.shape[axis + 1 if step else axis],
        "kind": f"EXT_FOURIER_{kind.upper()}",
        "inverse": int(attrs["inverse"]),
        "norm": attrs["norm"],
    }
    comment = f"{node.node.composite}: {list(x.shape)} -> {list(y.shape)}, {length} elements each"
    waves = builder.constant(_pairs(waves_of(length))) if is_static([length]) else None
    taken = None if window is None else builder.dense(builder.tensor(window))
    arguments = [Struct("ext_fourier_params", fields), x, waves, taken, y]
    builder.call("ext_fourier", arguments, y, comment)
    builder.place(node.output, y)


def waves_of(length: int) -> np.ndarray:
    """[length], complex: ``exp(-2 pi i n / length)``, whose zeros and ones are exact: what is half
    of a turn away from real numbers is real, and of an angle of pi, not of -pi."""
    waves = np.exp(np.arange(length) * (-2j * np.pi / length))
    for quarter, wave in enumerate((1, -1j, -1, 1j)):
        if quarter * length % 4 == 0 and length:
            waves[quarter * length // 4] = wave
    return waves


def _pairs(numbers: np.ndarray) -> np.ndarray:
    """[n, 2] of complex numbers, in float32."""
    return np.stack([numbers.real, numbers.imag], 1).astype(np.float32)


# ---------------------------------------------------------------- the record


def _macs(node: Node) -> Dim:
    """A fast transform doubles its way to each result."""
    length = length_of(node)
    doublings = length.bit_length() if isinstance(length, int) else _USUAL_DOUBLINGS
    return product([*node.shape, doublings])


def _filled(node: Node) -> tuple[int, ...]:
    """The axis, where the transform has its length."""
    axis = node.attrs["axis"]
    return (axis,) if same(node.operand("input").shape[axis], length_of(node)) else ()


def _samples() -> Iterator[Sample]:
    rest = {"axis": 1, "length": 64, "inverse": False, "norm": 0}
    signal = {"input": ((8, 64), REAL)}
    yield Sample("real", sample_node("fourier", signal, (8, 33, 2), kind="real", step=0, **rest))
    pairs = {"input": ((8, 64, 2), REAL)}
    made = sample_node("fourier", pairs, (8, 64, 2), kind="complex", step=0, **rest)
    yield Sample("complex", made)
    half = {"input": ((8, 33, 2), REAL)}
    rest["inverse"] = True
    yield Sample("half", sample_node("fourier", half, (8, 64), kind="half", step=0, **rest))


FOURIER = Operator(
    "fourier",
    roles=("input", "window"),
    optional=("window",),
    attributes={
        "kind": ", ".join(KINDS),
        "axis": "the one that is transformed",
        "length": "elements of a transform; 0: as many as the axis has, of the result for a half",
        "inverse": "whether it is the way back",
        "norm": "0, 1, 2: times 1, 1 / sqrt(length), 1 / length",
        "step": "how far frames are apart; 0 where there are none",
    },
    about="discrete Fourier transforms; complex numbers are pairs along the last axis",
    macs=_macs,
    filled=_filled,
    facts=Facts(
        told_by=dict.fromkeys(("kind", "axis", "length", "inverse", "norm", "step"), ()),
    ),
    kernels=Kernels(lower, only_single, supports),
    samples=_samples,
)

OPERATORS = (FOURIER,)
