"""Transposed and 3-D convolution against ONNX Runtime; resize2d against it and against TVM."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import relax

from codegen_cc.dim import symbol
from codegen_cc.node import Step
from codegen_cc.region.graph import Region, Value
from tests.ir.regions import RegionBuilder
from tests.ir.run_regions import CompiledRegions
from tests.reference import onnxruntime_outputs


def _onnx_model(op: str, inputs: dict[str, np.ndarray], **attributes) -> onnx.ModelProto:
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
        for name, array in inputs.items()
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    names = list(inputs) if op != "Resize" else ["x", "", "", "size"]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attributes)], op, infos, [result]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    model.ir_version = 9
    return model


@dataclass(frozen=True)
class Transposed:
    """One ConvTranspose."""

    name: str
    x: tuple[int, ...]
    weight: tuple[int, ...]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    output_padding: tuple[int, int] = (0, 0)
    groups: int = 1

    @property
    def attributes(self) -> dict[str, object]:
        """The node's attributes."""
        return {
            "strides": list(self.strides),
            "padding": list(self.padding),
            "dilation": list(self.dilation),
            "output_padding": list(self.output_padding),
            "groups": self.groups,
        }


TRANSPOSED = (
    Transposed("disjoint", (2, 6, 5, 4), (6, 9, 2, 2), (2, 2)),
    Transposed("overlapping", (1, 6, 5, 4), (6, 20, 4, 4), (2, 2), (1, 1, 1, 1)),
    Transposed("padded", (1, 3, 5, 4), (3, 4, 3, 3), (2, 3), (1, 0, 1, 2), output_padding=(1, 1)),
    Transposed("grouped", (1, 6, 5, 4), (6, 4, 3, 3), (2, 2), (1, 1, 1, 1), groups=2),
    Transposed("dilated", (1, 3, 5, 4), (3, 4, 3, 2), (2, 1), dilation=(2, 3)),
    Transposed("depthwise", (1, 40, 5, 4), (40, 1, 4, 4), (2, 2), (1, 1, 1, 1), groups=40),
    Transposed("wide", (1, 34, 5, 4), (34, 6, 4, 4), (2, 2), (1, 1, 1, 1)),
    Transposed("wide_grouped", (1, 40, 5, 4), (40, 4, 3, 3), (2, 2), groups=2),
    Transposed("full_disjoint", (2, 6, 5, 4), (6, 16, 2, 2), (2, 2)),
    Transposed("full_padded", (1, 3, 5, 4), (3, 12, 3, 3), (2, 3), (1, 0, 1, 2)),
    Transposed("full_grouped", (1, 6, 5, 24), (6, 10, 3, 3), (2, 2), (1, 1, 1, 1), groups=2),
    Transposed("full_dilated", (2, 3, 9, 30), (3, 37, 3, 2), (2, 1), dilation=(3, 3)),
    Transposed("full_untouched", (1, 3, 5, 4), (3, 16, 1, 3), (2, 2)),
    Transposed("full_stride_1", (1, 3, 5, 4), (3, 16, 3, 3), padding=(3, 0, 1, 3)),
    Transposed("stride_1", (1, 3, 5, 4), (3, 4, 3, 3), padding=(1, 0, 1, 2)),
    Transposed("stride_1_grouped", (2, 6, 5, 4), (6, 4, 3, 2), dilation=(2, 1), groups=3),
)  # fmt: skip


@dataclass(frozen=True)
class Volume:
    """One Conv of three axes."""

    name: str
    x: tuple[int, ...]
    weight: tuple[int, ...]
    strides: tuple[int, ...] = (1, 1, 1)
    padding: tuple[int, ...] = (0, 0, 0, 0, 0, 0)
    dilation: tuple[int, ...] = (1, 1, 1)
    groups: int = 1

    @property
    def attributes(self) -> dict[str, object]:
        """The node's attributes."""
        return {
            "strides": list(self.strides),
            "padding": list(self.padding),
            "dilation": list(self.dilation),
            "groups": self.groups,
        }


#: Of fewer than 17 inputs they are convolutions of images.
VOLUMES = (
    Volume("plain", (1, 17, 4, 5, 6), (8, 17, 3, 3, 3)),
    Volume("same", (2, 17, 4, 5, 6), (8, 17, 3, 3, 3), padding=(1,) * 6),
    Volume("uneven", (1, 36, 5, 6, 7), (6, 18, 2, 3, 1), (2, 1, 3), (0, 1, 0, 1, 2, 0), groups=2),
    Volume("dilated", (1, 17, 7, 6, 7), (6, 17, 2, 2, 2), dilation=(3, 2, 1)),
)


@dataclass(frozen=True)
class Resize:
    """One resize; the names are those of ``relax.image.resize2d``."""

    size: tuple[int, int]
    method: str
    coordinate: str
    rounding: str = ""
    exclude: bool = False

    @property
    def name(self) -> str:
        """An identifier."""
        parts = [self.method, self.coordinate, self.rounding, "exclude" * self.exclude]
        return "_".join([*filter(None, parts), *map(str, self.size)])


X = np.random.default_rng(21).standard_normal((2, 3, 5, 7)).astype(np.float32)
SIZES = ((10, 14), (8, 9), (3, 4))
COORDINATES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
ROUNDINGS = ("", "round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
SMOOTH = (
    *(Resize(size, method, c) for size in SIZES for method in ("linear", "cubic")
      for c in COORDINATES),
    *(Resize(size, "cubic", "half_pixel", exclude=True) for size in SIZES),
)  # fmt: skip
RESIZE = (
    *SMOOTH,
    *(Resize((10, 9), "nearest", c, r) for c in COORDINATES for r in ROUNDINGS),
    *(Resize((4, 14), "nearest", "tf_half_pixel_for_nn", r) for r in ROUNDINGS[:2]),
    Resize((15, 21), "nearest", "asymmetric"),
    *(Resize((1, 1), method, "pytorch_half_pixel") for method in ("nearest", "linear")),
)
ALPHA = -0.75


def _convolution(op: str, case: Transposed | Volume) -> tuple[Region, dict[str, np.ndarray]]:
    rng = np.random.default_rng(22)
    arrays = {
        "x": rng.standard_normal(case.x).astype(np.float32),
        "w": (rng.standard_normal(case.weight) / 4).astype(np.float32),
    }
    channels = case.weight[1] * case.groups if op == "conv2d_transpose" else case.weight[0]
    arrays["b"] = rng.standard_normal(channels).astype(np.float32)
    b = RegionBuilder(f"ext_{op}_{case.name}")
    shape = _reference(case, arrays).shape
    bias = arrays["b"].reshape(-1, *(1,) * (len(shape) - 2))
    operands = {"input": b.input(*case.x), "weight": b.value(arrays["w"]), "bias": b.value(bias)}
    steps = [Step("bias"), Step("relu")]
    return b.done(b.add(op, operands, shape, steps, **case.attributes)), arrays


def _reference(case: Transposed | Volume, arrays: dict[str, np.ndarray]) -> np.ndarray:
    attributes = {
        "strides": case.strides,
        "pads": case.padding,
        "dilations": case.dilation,
        "group": case.groups,
    }
    op = "Conv"
    if isinstance(case, Transposed):
        op, attributes["output_padding"] = "ConvTranspose", case.output_padding
    model = _onnx_model(op, arrays, **attributes)
    return np.maximum(onnxruntime_outputs(model, arrays)["y"], 0)


def _resize_region(case: Resize, symbolic: bool = False) -> Region:
    """To a fixed size from a fixed one, or from any."""
    b = RegionBuilder(f"ext_{case.name}{'_symbolic' if symbolic else ''}")
    sides = (symbol("h"), symbol("w")) if symbolic else X.shape[2:]
    x: Value = b.input(*X.shape[:2], *sides)
    attrs = {
        "method": case.method,
        "coordinate": case.coordinate,
        "rounding": case.rounding,
        "cubic_alpha": ALPHA,
        "cubic_exclude": case.exclude,
        "divided": False,
    }
    return b.done(b.add("resize2d", {"input": x}, (*X.shape[:2], *case.size), **attrs))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> CompiledRegions:
    regions = [_convolution("conv2d_transpose", case)[0] for case in TRANSPOSED]
    regions += [_convolution("conv3d", case)[0] for case in VOLUMES]
    regions += [_resize_region(case, symbolic) for case in RESIZE for symbolic in (False, True)]
    return CompiledRegions(regions, tmp_path_factory.mktemp("regions"))


@pytest.fixture(scope="module")
def tvm_resize() -> relax.VirtualMachine:
    """The same resizes compiled by TVM, one function each."""
    builder = relax.BlockBuilder()
    for case in RESIZE:
        x = relax.Var("x", relax.TensorType(X.shape, "float32"))
        with builder.function(case.name, [x]):
            y = relax.op.image.resize2d(
                x,
                relax.ShapeExpr(case.size),
                roi=[0.0, 0.0, 0.0, 0.0],
                layout="NCHW",
                method={"nearest": "nearest_neighbor"}.get(case.method, case.method),
                coordinate_transformation_mode=case.coordinate,
                rounding_method=case.rounding,
                cubic_alpha=ALPHA,
                cubic_exclude=int(case.exclude),
            )
            builder.emit_func_output(builder.emit(y))
    return relax.VirtualMachine(tvm.compile(builder.get(), "llvm"), tvm.cpu())


@pytest.mark.parametrize("case", TRANSPOSED, ids=lambda case: case.name)
def test_conv2d_transpose(compiled: CompiledRegions, case: Transposed) -> None:
    region, arrays = _convolution("conv2d_transpose", case)
    # Many outputs or few inputs, and each place in the strides has taps.
    apart = case.name not in ("dilated", "full_untouched", "wide", "wide_grouped")
    kernel = "ext_conv2d_apart" if apart else "ext_conv2d_transpose"
    assert kernel in compiled.functions[region.symbol]
    (got,) = compiled.run(region.symbol, arrays["x"])
    np.testing.assert_allclose(got, _reference(case, arrays), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("case", VOLUMES, ids=lambda case: case.name)
def test_conv3d(compiled: CompiledRegions, case: Volume) -> None:
    region, arrays = _convolution("conv3d", case)
    assert "ext_conv3d" in compiled.functions[region.symbol]
    (got,) = compiled.run(region.symbol, arrays["x"])
    np.testing.assert_allclose(got, _reference(case, arrays), rtol=1e-5, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("case", RESIZE, ids=lambda case: case.name)
def test_resize_is_that_of_tvm(
    compiled: CompiledRegions, tvm_resize: relax.VirtualMachine, case: Resize
) -> None:
    assert "ext_resize2d" in compiled.functions[f"ext_{case.name}"]
    (got,) = compiled.run(f"ext_{case.name}", X)
    want = tvm_resize[case.name](tvm.runtime.tensor(X)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("case", RESIZE, ids=lambda case: case.name)
def test_resize_of_any_size_is_that_of_a_fixed_one(compiled: CompiledRegions, case: Resize) -> None:
    name = f"ext_{case.name}_symbolic"
    assert compiled.functions[name].count("ext_resize_taps") == 2
    np.testing.assert_array_equal(compiled.run(name, X), compiled.run(f"ext_{case.name}", X))


@pytest.mark.parametrize("case", SMOOTH, ids=lambda case: case.name)
def test_resize_is_that_of_onnxruntime(compiled: CompiledRegions, case: Resize) -> None:
    (got,) = compiled.run(f"ext_{case.name}", X)
    size = np.array([*X.shape[:2], *case.size], np.int64)
    model = _onnx_model(
        "Resize",
        {"x": X},
        mode=case.method,
        coordinate_transformation_mode=case.coordinate,
        cubic_coeff_a=ALPHA,
        exclude_outside=int(case.exclude),
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(size, "size"))
    want = onnxruntime_outputs(model, {"x": X})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5)
