"""Graphs with symbolic height and width, as exporters write them: offloaded, and equal in value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import relax

import byoc
from byoc.errors import ImportFailure
from byoc.frontends.onnx import import_onnx, prepare
from byoc.ir.define_symbols import define_symbols, hide_definitions
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import onnx_model, operators, random, regions

Nodes = list[onnx.NodeProto]
Weights = dict[str, np.ndarray]

NEAREST = {
    "mode": "nearest",
    "coordinate_transformation_mode": "asymmetric",
    "nearest_mode": "floor",
}
LINEAR = {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}
CUBIC = {"mode": "cubic", "coordinate_transformation_mode": "align_corners"}


def value_of(number: float) -> onnx.TensorProto:
    """The attribute of ConstantOfShape."""
    return onnx.numpy_helper.from_array(np.array([number], np.float32))


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


# ---------------------------------------------------------------------- graphs


def size_by_slice() -> tuple[Nodes, Weights]:
    """The last two of a shape, as for ``interpolate(y, size=x.shape[2:])``."""
    nodes = [
        helper.make_node("Shape", ["fine"], ["of_fine"]),
        helper.make_node("Slice", ["of_fine", "two", "four", "zero"], ["sides"]),
        helper.make_node("Shape", ["coarse"], ["of_coarse"]),
        helper.make_node("Slice", ["of_coarse", "zero", "two", "zero"], ["front"]),
        helper.make_node("Concat", ["front", "sides"], ["sizes"], axis=0),
    ]
    return nodes, {"zero": ints(0), "two": ints(2), "four": ints(4)}


def size_by_gather() -> tuple[Nodes, Weights]:
    """One extent after the other."""
    nodes = [helper.make_node("Shape", ["fine"], ["of_fine"])]
    for side, axis in (("height", "two"), ("width", "three")):
        nodes += [
            helper.make_node("Gather", ["of_fine", axis], [f"{side}_number"]),
            helper.make_node("Unsqueeze", [f"{side}_number", "axes"], [side]),
        ]
    nodes.append(helper.make_node("Concat", ["front", "height", "width"], ["sizes"], axis=0))
    weights = {"two": np.int64(2), "three": np.int64(3), "axes": ints(0), "front": ints(1, 8)}
    return nodes, {name: np.asarray(value) for name, value in weights.items()}


def size_by_floats() -> tuple[Nodes, Weights]:
    """floor(float(h) * 2.0), as older exporters wrote a scale."""
    nodes = [
        helper.make_node("Shape", ["coarse"], ["of_coarse"]),
        helper.make_node("Gather", ["of_coarse", "places"], ["sides"]),
        helper.make_node("Cast", ["sides"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["floats", "scale"], ["scaled"]),
        helper.make_node("Floor", ["scaled"], ["whole"]),
        helper.make_node("Cast", ["whole"], ["target"], to=TensorProto.INT64),
        helper.make_node("Concat", ["front", "target"], ["sizes"], axis=0),
    ]
    return nodes, {"places": ints(2, 3), "scale": np.float32(2.0).reshape(()), "front": ints(1, 8)}


def size_by_product() -> tuple[Nodes, Weights]:
    """A whole shape times a vector."""
    nodes = [
        helper.make_node("Shape", ["coarse"], ["of_coarse"]),
        helper.make_node("Mul", ["of_coarse", "factors"], ["sizes"]),
    ]
    return nodes, {"factors": ints(1, 1, 2, 2)}


def pyramid(nodes: Nodes, weights: Weights, scales: bool = False, **modes: str) -> onnx.ModelProto:
    """Two strided convolutions; the second's image at the size of the first's, and their sum."""
    operands = ["coarse", "", "scales"] if scales else ["coarse", "", "", "sizes"]
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["fine"], strides=[2, 2], pads=[1] * 4),
        helper.make_node("Conv", ["fine", "w"], ["coarse"], strides=[2, 2], pads=[1] * 4),
        *nodes,
        helper.make_node("Resize", operands, ["large"], name="enlarge", **modes),
        helper.make_node("Add", ["large", "fine"], ["y"], name="sum"),
    ]
    weights = {**weights, "v": random(8, 3, 3, 3, scale=0.2), "w": random(8, 8, 3, 3, scale=0.1)}
    if scales:
        weights["scales"] = np.array([1, 1, 2, 2], np.float32)
    return onnx_model(nodes, {"x": [1, 3, "height", "width"]}, ["y"], weights)


def after_conv(
    *nodes: onnx.NodeProto, channels: int = 3, opset: int = 17, **weights: np.ndarray
) -> onnx.ModelProto:
    """A convolution ``c`` of the image, and what follows it."""
    conv = helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4)
    weights["w"] = random(8, channels, 3, 3, scale=0.2)
    image: list[int | str] = [1, channels, "height", "width"]
    return onnx_model([conv, *nodes], {"x": image}, ["y"], weights, opset)


def focus() -> onnx.ModelProto:
    """Every other pixel of both axes, four times, as channels."""
    weights = {"end": ints(2**62, 2**62), "axes": ints(2, 3), "steps": ints(2, 2)}
    nodes = []
    for part, (row, column) in enumerate(np.ndindex(2, 2)):
        weights[f"begin{part}"] = ints(row, column)
        operands = ["x", f"begin{part}", "end", "axes", "steps"]
        nodes.append(helper.make_node("Slice", operands, [f"part{part}"]))
    nodes += [
        helper.make_node("Concat", [f"part{part}" for part in range(4)], ["deep"], axis=1),
        helper.make_node("Conv", ["deep", "w"], ["y"], pads=[1] * 4),
    ]
    weights["w"] = random(8, 12, 3, 3, scale=0.1)
    return onnx_model(nodes, {"x": [1, 3, "height", "width"]}, ["y"], weights)


def numbered_columns(dtype: int) -> onnx.ModelProto:
    """The image plus the number of each column, of this dtype before it is fp32."""
    return after_conv(
        helper.make_node("Shape", ["c"], ["shape"]),
        helper.make_node("Gather", ["shape", "three"], ["width"]),
        helper.make_node("Cast", ["width"], ["limit"], to=dtype),
        helper.make_node("Range", ["zero", "limit", "step"], ["numbers"]),
        helper.make_node("Cast", ["numbers"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["c", "floats"], ["y"]),
        three=np.array(3, np.int64),
        zero=np.array(0, helper.tensor_dtype_to_np_dtype(dtype)),
        step=np.array(1, helper.tensor_dtype_to_np_dtype(dtype)),
    )


def padded_by_name(name: str) -> onnx.ModelProto:
    """A convolution and a pool with strides and padding by name."""
    same = {"auto_pad": name, "strides": [2, 2]}
    return after_conv(
        helper.make_node("Conv", ["c", "v"], ["half"], **same),
        helper.make_node("MaxPool", ["half"], ["y"], kernel_shape=[3, 2], **same),
        v=random(8, 8, 3, 5, scale=0.1),
    )


# ---------------------------------------------------------------------- checks


def check(
    model: onnx.ModelProto,
    shape: list[int | str],
    sizes: list[tuple[int, int]],
    folder: Path,
) -> byoc.Model:
    """One library, wholly offloaded, gives what ONNX Runtime gives at all these sizes."""
    compiled = byoc.compile(model, folder / "m.so", {"x": shape})
    assert len(compiled.report.regions) == 1 and not compiled.report.left
    loaded = byoc.load(folder / "m.so")
    for height, width in sizes:
        x = {"x": random(1, shape[1], height, width, seed=height)}
        assert_agrees(loaded.run(x), onnxruntime_outputs(model, x))
    return loaded


@pytest.mark.parametrize("modes", [NEAREST, LINEAR, CUBIC], ids=lambda modes: modes["mode"])
@pytest.mark.parametrize("sizes", [size_by_slice, size_by_gather])
def test_resize_to_the_size_of_another(sizes, modes: dict[str, str], tmp_path: Path) -> None:
    model = pyramid(*sizes(), **modes)
    loaded = check(model, [1, 3, "h", "w"], [(32, 48), (37, 61), (1, 6)], tmp_path)
    assert loaded.outputs[0].shape == (1, 8, "floor(h/2 + 1/2)", "floor(w/2 + 1/2)")


@pytest.mark.parametrize("sizes", [size_by_floats, size_by_product])
def test_sizes_by_arithmetic(sizes, tmp_path: Path) -> None:
    loaded = check(pyramid(*sizes(), **LINEAR), [1, 3, "4*h", "4*w"], [(32, 48), (4, 8)], tmp_path)
    assert loaded.outputs[0].shape == (1, 8, "2*h", "2*w")


def test_scales(tmp_path: Path) -> None:
    model = pyramid([], {}, scales=True, **NEAREST)
    check(model, [1, 3, "4*h", 20], [(32, 20), (4, 20)], tmp_path)


@pytest.mark.parametrize(
    ("model", "shape", "sizes"),
    [
        (focus(), [1, 3, "2*h", "2*w"], [(8, 10), (2, 64)]),
        (padded_by_name("SAME_UPPER"), [1, 3, "4*h", "4*w"], [(8, 12), (4, 64)]),
        (padded_by_name("SAME_LOWER"), [1, 3, "4*h", 9], [(8, 9), (4, 9)]),
        (padded_by_name("SAME_UPPER"), [1, 3, "h", 9], [(7, 9), (6, 9), (5, 9)]),
        (numbered_columns(TensorProto.INT64), [1, 3, "h", "w"], [(8, 10), (3, 65)]),
        (numbered_columns(TensorProto.FLOAT), [1, 3, "h", "5*w"], [(8, 10), (3, 65)]),
        (
            after_conv(helper.make_node("Flatten", ["c"], ["y"], axis=2)),
            [1, 3, "h", "3*w"],
            [(8, 9), (1, 3)],
        ),
        (
            after_conv(
                helper.make_node("Slice", ["c", "one", "last", "axes"], ["y"]),
                one=ints(1, 1),
                last=ints(-1, -2),
                axes=ints(2, 3),
            ),
            [1, 3, "2*h+1", "8*w"],
            [(9, 8), (3, 16)],
        ),
        (
            after_conv(
                helper.make_node("Upsample", ["c", "scales"], ["y"], mode="nearest"),
                opset=9,
                scales=np.array([1, 1, 2, 3], np.float32),
            ),
            [1, 3, "h", "w"],
            [(8, 10), (3, 5)],
        ),
        (
            after_conv(
                helper.make_node("Resize", ["c", "scales"], ["y"], mode="nearest"),
                opset=10,
                scales=np.array([1, 1, 2, 2], np.float32),
            ),
            [1, 3, "h", "w"],
            [(8, 10), (3, 5)],
        ),
        (
            after_conv(
                helper.make_node("Resize", ["c", "", "scales"], ["y"], mode="linear", axes=[3, 2]),
                opset=18,
                scales=np.array([0.5, 1.5], np.float32),
            ),
            [1, 3, "2*h", "4*w"],
            [(8, 12), (2, 4)],
        ),
        (
            after_conv(
                helper.make_node(
                    "ConvTranspose", ["c", "v"], ["y"], strides=[2, 2], kernel_shape=[2, 2]
                ),
                v=random(8, 4, 2, 2),
            ),
            [1, 3, "h", "w"],
            [(8, 12), (3, 4)],
        ),
    ],
    ids=[
        *(
            "focus",
            "same_upper",
            "same_lower",
            "same_of_any_height",
            "columns",
            "fp32_columns",
            "flatten",
            "crop",
            "upsample9",
            "resize10",
        ),
        *("resize18", "transposed"),
    ],
)
def test_on_the_way(
    model: onnx.ModelProto,
    shape: list[int | str],
    sizes: list[tuple[int, int]],
    tmp_path: Path,
) -> None:
    check(model, shape, sizes, tmp_path)


def test_a_size_as_a_number(tmp_path: Path) -> None:
    """What computes on more than shapes gets a tensor, which TVM makes."""
    model = after_conv(
        helper.make_node("Shape", ["c"], ["shape"]),
        helper.make_node("Gather", ["shape", "three"], ["width"]),
        helper.make_node("Cast", ["width"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["float", "third"], ["divisor"]),
        helper.make_node("Div", ["c", "divisor"], ["y"]),
        three=np.array(3, np.int64),
        third=np.array(0.3, np.float32),
    )
    byoc.compile(model, tmp_path / "m.so", {"x": [1, 3, "h", "2*w"]})
    loaded = byoc.load(tmp_path / "m.so")
    for size in ((8, 10), (5, 64)):
        x = {"x": random(1, 3, *size)}
        assert_agrees(loaded.run(x), onnxruntime_outputs(model, x))


@pytest.mark.parametrize(
    "names", [("h", "w"), ("x", "w"), ("lambda", "floor"), ("N", "E"), ("sizes", "x_2"), ("I", "S")]
)
def test_symbols_of_any_name(names: tuple[str, str], tmp_path: Path) -> None:
    """A number per position, whose count is a product of two symbols, beside a reshaped image."""
    model = after_conv(
        helper.make_node("Shape", ["c"], ["shape"]),
        helper.make_node("Gather", ["shape", "two"], ["height"]),
        helper.make_node("Gather", ["shape", "three"], ["width"]),
        helper.make_node("Mul", ["width", "height"], ["count"]),
        helper.make_node("Unsqueeze", ["count", "zero"], ["counts"]),
        helper.make_node("Concat", ["one", "counts"], ["sizes"], axis=0),
        helper.make_node("ConstantOfShape", ["sizes"], ["halves"], value=value_of(0.5)),
        helper.make_node("Reshape", ["c", "flat"], ["line"]),
        helper.make_node("Mul", ["line", "halves"], ["y"]),
        two=np.array(2, np.int64),
        three=np.array(3, np.int64),
        zero=ints(0),
        one=ints(1),
        flat=ints(0, 0, -1),
    )
    shape = [1, 3, f"8*{names[0]}", names[1]]
    loaded = check(model, shape, [(8, 3), (16, 10)], tmp_path)
    assert list(loaded.inputs[0].shape) == shape


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("model", "shape", "works"),
    [
        (pyramid([], {}, scales=True, **NEAREST), [1, 3, "h", "w"], "x:[1,3,4*h,4*w]"),
        (pyramid([], {}, scales=True, **NEAREST), [1, 3, "2*h", 16], "x:[1,3,4*h,16]"),
        (focus(), [1, 3, "h", "w"], "x:[1,3,2*h,2*w]"),
    ],
)
def test_multiples_that_a_network_needs_are_named(
    model: onnx.ModelProto, shape: list[int | str], works: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ImportFailure) as error:
        import_onnx(prepare(model, {"x": shape}))
    text = ", ".join(map(str, shape))
    assert str(error.value) == (
        f"sizes inside the network depend on whether those of [{text}] divide evenly;"
        f' give multiples: --input-shapes "{works}"'
    )
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("node", "weights", "message"),
    [
        (
            helper.make_node("Resize", ["c", "", "scales"], ["y"], name="half", mode="linear"),
            {"scales": np.array([1, 1, 0.7, 1], np.float32)},
            "scale 0.7 of axis 2, 8*h, gives no whole number for every h",
        ),
        (
            helper.make_node("Resize", ["c", "", "s"], ["y"], name="half", antialias=1),
            {"s": np.array([1, 1, 2, 2], np.float32)},
            "antialias=1 with symbolic extents; need 0",
        ),
        (
            helper.make_node("Resize", ["c", "", "s"], ["y"], name="half"),
            {"s": np.array([1, 2, 2, 2], np.float32)},
            "batch and channels [1, 8] become [1, 16]; need the same",
        ),
    ],
)
def test_resizes_that_cannot_be_converted(
    node: onnx.NodeProto, weights: Weights, message: str
) -> None:
    model = after_conv(node, opset=18, **weights)
    with pytest.raises(ImportFailure) as error:
        import_onnx(prepare(model, {"x": [1, 3, "8*h", "8*w"]}))
    assert "operator Resize (node 'half')" in str(error.value)
    assert message in str(error.value)


# ---------------------------------------------------------------------- definitions of symbols


def module_of(*shapes: list[int | tvm.ir.Expr]) -> tvm.IRModule:
    """The ReLU of the first of some parameters."""
    params = [
        relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(relax.op.nn.relu(params[0])))
        builder.emit_func_output(result)
    return builder.get()


def test_symbols_that_are_axes_need_no_definition() -> None:
    h = tvm.tirx.Var("h", "int64")
    for shape in ([h, 3], [2 * h, h], [2, 3]):
        module = module_of(shape)
        assert define_symbols(module) is module


def test_main_computes_its_symbols() -> None:
    h, w = (tvm.tirx.Var(name, "int64") for name in "hw")
    defined = define_symbols(module_of([1, 32 * h, 2 * w + 1], [w, 5]))
    relax.analysis.well_formed(defined)
    assert [str(extent) for extent in defined["main"].params[0].ty.shape.values[1:]] == [
        "x0_1",
        "x0_2",
    ]
    machine = relax.VirtualMachine(
        tvm.compile(relax.get_pipeline("zero")(hide_definitions(defined)), "llvm"), tvm.cpu()
    )
    x, other = random(1, 64, 7), random(3, 5)
    got = machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(other)).numpy()
    np.testing.assert_array_equal(got, np.maximum(x, 0))
    with pytest.raises(Exception, match="mismatch"):
        machine["main"](tvm.runtime.tensor(random(1, 65, 7)), tvm.runtime.tensor(other))


def test_symbols_that_nothing_tells() -> None:
    h, w = (tvm.tirx.Var(name, "int64") for name in "hw")
    with pytest.raises(ValueError, match="no axis tells h, w"):
        define_symbols(module_of([1, h * w]))


def test_regions_are_passed_what_their_inputs_do_not_tell() -> None:
    model = pyramid(*size_by_slice(), **LINEAR)
    module = import_onnx(prepare(model, {"x": [1, 3, "4*h", "w"]}))
    partitioned = byoc.partition_for_ext(module)
    relax.analysis.well_formed(partitioned)
    assert not operators(partitioned)
    (name,) = regions(partitioned)
    sizes, image = partitioned[name].params
    assert [symbol.name for symbol in sizes.ty.values] == ["h"]
    assert isinstance(image.ty, relax.TensorType)


def test_a_slice_whose_bounds_are_attributes() -> None:
    node = helper.make_node("Slice", ["x"], ["y"], starts=[-3], ends=[2**31 - 1], axes=[1])
    model = onnx_model([node], {"x": ["n", "m"]}, ["y"], opset=9)
    module = import_onnx(prepare(model, {"x": ["n", "m+3"]}))
    assert [int(module["main"].ret_ty.shape[1])] == [3]
