"""Resize whose scales, sizes or region are computed while the model runs.

    y[.., o, ..] = sum over t of w(o, t) x[.., p(o, t), ..] / sum over t of w(o, t)

along one axis after another, with the positions p and weights w of ``resize``, here in loop nests:
scales are a vector in memory, and extents of the result are symbols.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax.frontend.onnx.onnx_frontend import _tensor_to_shape_expr

from byoc.frontends.onnx.converters.node import Node
from byoc.frontends.onnx.symbolic_resize import FIRST_WITH_MODES
from codegen_cc.dim import is_static
from codegen_cc.operators.resize2d import TIE

_F32, _I64 = "float32", "int64"


def resize(node: Node) -> relax.Expr:
    """Resize, or Upsample, of a tensor of known shape."""
    shape = node.shape()
    if shape is None or not is_static(shape) or 0 in shape:
        raise ValueError("scales or sizes that are computed, of a tensor of unknown shape")
    options = _Options.of(node)
    axes = [axis % len(shape) for axis in node.attrs.get("axes", range(len(shape)))]
    scales, extents = _scales(node, shape, axes)
    region = _region(node, len(axes), options)
    x = node.emit(node.inputs[0])
    for place, axis in enumerate(axes):
        loops = _loops(options, (place, axis, len(axes)), extents[place], shape[axis])
        x = node.emit(node.bb.emit_te(loops, x, scales, region))
    return x


def scaled_resize(node: Node) -> relax.Expr:
    """``ScaledResize`` (``scaled_images``): axes by scales, whose sizes are known extents."""
    sizes = node.inputs[2]
    if node.shape() is None or not _is_shape(sizes):
        raise ValueError("scales that are computed, of a tensor of unknown shape")
    extents = sizes.args[0].values
    options, scales = _Options.of(node), relax.op.astype(node.inputs[1], _F32)
    x, scales = node.emit(node.inputs[0]), node.emit(scales)
    axes = node.attrs["axes"]
    region = _region(node, len(axes), options)
    for place, axis in enumerate(axes):
        loops = _loops(options, (place, axis, len(axes)), extents[axis], 1)
        x = node.emit(node.bb.emit_te(loops, x, scales, region))
    return x


def _is_shape(expr: relax.Expr) -> bool:
    """Whether a vector is made of extents that are known as such."""
    made = isinstance(expr, tvm.ir.Call) and expr.op == tvm.ir.Op.get("relax.shape_to_tensor")
    return made and isinstance(expr.args[0], relax.ShapeExpr)


def _scales(
    node: Node, shape: tuple[int, ...], axes: list[int]
) -> tuple[relax.Expr, list[tirx.Expr]]:
    """Scales as float32 [axes], and the extents that they lead to."""
    first = node.operator == "Upsample" or node.opset < FIRST_WITH_MODES
    dims = relax.const(np.array([shape[axis] for axis in axes], np.float32), _F32)
    inputs = [*node.inputs, None, None, None]
    given, sizes = (inputs[1], None) if first else (inputs[2], inputs[3])
    if sizes is not None:
        if isinstance(sizes, relax.ShapeExpr):
            sizes = relax.op.shape_to_tensor(sizes)
        ratios = relax.op.divide(relax.op.astype(node.emit(sizes), _F32), dims)
        policy = node.attrs.get("keep_aspect_ratio_policy", b"stretch")
        whole = relax.op.astype(sizes, _I64)
        if policy != b"stretch":
            choose = relax.op.min if policy == b"not_larger" else relax.op.max
            one = choose(node.emit(ratios), 0, keepdims=True)
            ratios = relax.op.broadcast_to(one, [len(axes)])
            near = relax.op.floor(relax.op.add(relax.op.multiply(dims, ratios), _half()))
            whole = relax.op.astype(near, _I64)
    else:
        ratios = relax.op.astype(given, _F32)
        whole = relax.op.astype(relax.op.floor(relax.op.multiply(dims, ratios)), _I64)
    extents = _tensor_to_shape_expr(node.bb, node.emit(whole), len(axes), "resized")
    return node.emit(ratios), list(extents.values)


def _f(value: float) -> tirx.Expr:
    return tirx.const(value, _F32)


def _double(value: tirx.Expr) -> tirx.Expr:
    return tirx.Cast("float64", value)


def _half() -> relax.Expr:
    return relax.const(np.float32(0.5), _F32)


def _region(node: Node, axes: int, options: _Options) -> relax.Expr:
    """First and last positions, as shares of the axes: float32 [2 axes]."""
    if options.coordinates != "tf_crop_and_resize":
        return relax.const(np.repeat([0, 1], axes).astype(np.float32), _F32)
    return node.emit(relax.op.astype(node.inputs[1], _F32))


def _loops(
    options: _Options, where: tuple[int, int, int], extent: tirx.Expr, size: int
) -> Callable[[te.Tensor, te.Tensor, te.Tensor], te.Tensor]:
    """The loop nests along one axis.  ``where``: its place among the axes, itself, their number."""
    place, axis, axes = where
    taps = _taps(size, options)

    def loops(x: te.Tensor, scales: te.Tensor, region: te.Tensor) -> te.Tensor:
        ends = region(place), region(place + axes)
        along = _Along(options, axis, x.shape[axis], extent, taps, scales(place), ends)
        return along.loops(x)

    return loops


def _taps(size: int, options: _Options) -> int:
    """How many elements of the input an element of the result may come from.

    A scale is at least 1 / size where there is a result.
    """
    if options.mode == "nearest":
        return 1
    return 2 * options.reach * (size if options.antialias else 1)


@dataclass(frozen=True)
class _Options:
    mode: str
    coordinates: str
    rounding: str
    alpha: float
    exclude: bool
    antialias: bool
    extrapolation: float

    @property
    def reach(self) -> int:
        return 2 if self.mode == "cubic" else 1

    @classmethod
    def of(cls, node: Node) -> _Options:
        old = node.operator == "Upsample" or node.opset < FIRST_WITH_MODES
        attrs = node.attrs
        found = cls(
            attrs.get("mode", b"nearest").decode(),
            attrs.get(
                "coordinate_transformation_mode", b"asymmetric" if old else b"half_pixel"
            ).decode(),
            attrs.get("nearest_mode", b"up_if_smaller" if old else b"round_prefer_floor").decode(),
            attrs.get("cubic_coeff_a", -0.75),
            bool(attrs.get("exclude_outside", 0)),
            bool(attrs.get("antialias", 0)),
            attrs.get("extrapolation_value", 0.0),
        )
        if found.mode not in ("nearest", "linear", "cubic"):
            raise ValueError(f"mode {found.mode}; need one of nearest, linear, cubic")
        return found

    def position(
        self, at: tirx.Expr, size: tirx.Expr, result: tirx.Expr, scale: tirx.Expr, ends: tuple
    ) -> tirx.Expr:
        """Where in the input an element of the result lies, float32."""
        last, of_result = size - _f(1), tirx.Select(result > _f(1), result - _f(1), _f(1))
        half_pixel = (at + _f(0.5)) / scale - _f(0.5)
        if self.coordinates == "half_pixel":
            return half_pixel
        if self.coordinates == "pytorch_half_pixel":
            return tirx.Select(result > _f(1), half_pixel, _f(0))
        if self.coordinates == "tf_half_pixel_for_nn":
            return (at + _f(0.5)) / scale
        if self.coordinates == "asymmetric":
            return at / scale
        if self.coordinates == "align_corners":
            return tirx.Select(result > _f(1), at * last / of_result, _f(0))
        if self.coordinates == "half_pixel_symmetric":
            offset = size / _f(2) * (_f(1) - result / (scale * size))
            # ONNX Runtime adds doubles here, and rounds their sum.
            centre = (_double(at) + _double(_f(0.5))) / _double(scale)
            return tirx.Cast(_F32, _double(offset) + centre - _double(_f(0.5)))
        if self.coordinates == "tf_crop_and_resize":
            begin, end = ends
            inside = begin * last + at * (end - begin) * last / of_result
            return tirx.Select(result > _f(1), inside, _f(0.5) * (begin + end) * last)
        raise ValueError(f"coordinate_transformation_mode {self.coordinates}")

    def rounded(self, position: tirx.Expr, scale: tirx.Expr) -> tirx.Expr:
        """The nearest pixel."""
        floor, ceil = tirx.floor(position), tirx.ceil(position)
        past_half, tie = position - floor - _f(0.5), float(TIE)
        if self.rounding == "up_if_smaller":
            return tirx.Select(scale < _f(1), ceil, floor)
        choices = {
            "ceil": ceil,
            "floor": floor,
            "round_prefer_floor": tirx.Select(past_half <= _f(tie), floor, ceil),
            "round_prefer_ceil": tirx.Select(past_half < _f(-tie), floor, ceil),
        }
        if self.rounding not in choices:
            raise ValueError(f"nearest_mode {self.rounding}")
        return choices[self.rounding]

    def weight(self, distance: tirx.Expr) -> tirx.Expr:
        """Weight at a distance: a triangle, or Keys' cubic convolution."""
        d = distance
        if self.mode == "linear":
            return tirx.max(_f(0), _f(1) - d)
        a = self.alpha
        near = (_f(a + 2) * d - _f(a + 3)) * d * d + _f(1)
        far = ((_f(a) * d - _f(5 * a)) * d + _f(8 * a)) * d - _f(4 * a)
        return tirx.Select(d <= _f(1), near, tirx.Select(d < _f(2), far, _f(0)))


@dataclass(frozen=True)
class _Along:
    """One axis of a tensor as it is resized, in loop nests."""

    options: _Options
    axis: int
    size: tirx.Expr
    extent: tirx.Expr
    taps: int
    scale: tirx.Expr
    #: First and last position, as shares of the axis.
    ends: tuple[tirx.Expr, tirx.Expr]

    def position(self, at: tirx.Var) -> tirx.Expr:
        floats = [tirx.Cast(_F32, value) for value in (at, self.size, self.extent)]
        return self.options.position(*floats, self.scale, self.ends)

    def nearest(self, at: tirx.Var) -> tirx.Expr:
        return tirx.Cast(_I64, self.options.rounded(self.position(at), self.scale))

    def tap(self, at: tirx.Var, t: tirx.Var) -> tuple[tirx.Expr, tirx.Expr]:
        """The pixel of a tap, and its weight."""
        p = self.position(at)
        index = tirx.Cast(_I64, tirx.floor(p)) + t + 1 - self.taps // 2
        distance = tirx.abs(tirx.Cast(_F32, index) - p)
        if self.options.antialias:
            distance = distance * tirx.min(self.scale, _f(1))
        weight = self.options.weight(distance)
        if self.options.exclude:
            inside = tirx.And(index >= 0, index < self.size)
            weight = tirx.Select(inside, weight, _f(0))
        return index, weight

    def read(self, x: te.Tensor, place: tuple[tirx.Var, ...], index: tirx.Expr) -> tirx.Expr:
        """An element of the input, at the border where the index is beyond."""
        inside = tirx.max(tirx.min(index, self.size - 1), 0)
        return x(*(inside if i == self.axis else at for i, at in enumerate(place)))

    def outside(self, value: tirx.Expr, at: tirx.Var, dtype: str) -> tirx.Expr:
        """A value, or what stands for those beyond the input."""
        if self.options.coordinates != "tf_crop_and_resize":
            return value
        p = self.position(at)
        beyond = tirx.Or(p < _f(0), p > tirx.Cast(_F32, self.size - 1))
        return tirx.Select(beyond, tirx.const(self.options.extrapolation, dtype), value)

    def loops(self, x: te.Tensor) -> te.Tensor:
        shape = [self.extent if i == self.axis else e for i, e in enumerate(x.shape)]
        if self.options.mode == "nearest":

            def nearest(*at: tirx.Var) -> tirx.Expr:
                there = at[self.axis]
                return self.outside(self.read(x, at, self.nearest(there)), there, x.dtype)

            return te.compute(shape, nearest, name="nearest")
        inside = [te.reduce_axis((0, self.taps), name=f"t{i}") for i in range(2)]
        total = te.compute(
            [self.extent],
            lambda o: te.sum(self.tap(o, inside[0])[1], axis=inside[0]),
            name="total",
        )

        def mixed(*at: tirx.Var) -> tirx.Expr:
            index, weight = self.tap(at[self.axis], inside[1])
            if self.options.exclude or self.options.antialias:
                weight = weight / total(at[self.axis])
            part = self.read(x, at, index) * tirx.Cast(x.dtype, weight)
            return te.sum(part, axis=inside[1])

        y = te.compute(shape, mixed, name="mixed")
        if self.options.coordinates != "tf_crop_and_resize":
            return y

        def inner(*at: tirx.Var) -> tirx.Expr:
            return self.outside(y(*at), at[self.axis], x.dtype)

        return te.compute(shape, inner, name="inner")
