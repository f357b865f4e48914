"""Forms of operators that TVM's importer gets wrong, against ONNX Runtime.

All nodes of one test are one model, which is compiled once.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper, parser

import byoc.frontends.onnx.backend as backend
from byoc.errors import ImportFailure
from byoc.frontends.onnx import import_onnx, prepare
from tests.reference import onnxruntime_outputs


@dataclass
class One:
    """A node with the values of its inputs; ``inputs`` are given at run time, in order, first."""

    operator: str
    inputs: Mapping[str, np.ndarray]
    constants: Mapping[str, np.ndarray | None] = field(default_factory=dict)
    outputs: int = 1
    attributes: Mapping[str, Any] = field(default_factory=dict)


def model_of(ones: Iterable[One], opset: int) -> onnx.ModelProto:
    nodes, inputs, constants, outputs = [], [], [], []
    for number, one in enumerate(ones):
        names = [
            f"{number}_{name}" if value is not None else ""
            for name, value in (*one.inputs.items(), *one.constants.items())
        ]
        results = [f"{number}_out{i}" for i in range(one.outputs)]
        nodes.append(helper.make_node(one.operator, names, results, **one.attributes))
        inputs += [
            helper.make_tensor_value_info(
                f"{number}_{name}", helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
            )
            for name, value in one.inputs.items()
        ]
        constants += [
            numpy_helper.from_array(value, f"{number}_{name}")
            for name, value in one.constants.items()
            if value is not None
        ]
        outputs += map(helper.make_empty_tensor_value_info, results)
    graph = helper.make_graph(nodes, "forms", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    return model


def onnxruntime_of(model: onnx.ModelProto, ones: Iterable[One]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    values = [value for one in ones for value in one.inputs.values()]
    named = {info.name: value for info, value in zip(session.get_inputs(), values, strict=True)}
    return session.run(None, named)


def check(ones: list[One], opset: int = 19) -> None:
    """All in one model: equal dtypes, shapes and values."""
    model = model_of(ones, opset)
    expected = onnxruntime_of(model, ones)
    values = [value for one in ones for value in one.inputs.values()]
    actual = backend.prepare(model, min_bytes=0).run(values)
    of = [one for one in ones for _ in range(one.outputs)]
    for one, got, want in zip(of, actual, expected, strict=True):
        text = f"{one.operator} {dict(one.attributes)} of {[v.shape for v in one.inputs.values()]}"
        assert (got.dtype, got.shape) == (want.dtype, want.shape), text
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=text)


def normal(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 3).astype(dtype)


# ---------------------------------------------------------------------- windows


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
def test_pools(operator: str) -> None:
    """Kernels, strides, dilations, padding by number and by name, rounding up: drawn at random."""
    draw = random.Random(operator)
    ones = []
    for number in range(16):
        rank = draw.choice([1, 2, 2, 3])
        kernel = [draw.randint(1, 3) for _ in range(rank)]
        attributes: dict[str, Any] = {
            "kernel_shape": kernel,
            "strides": [draw.randint(1, 3) for _ in kernel],
            "ceil_mode": int(number % 4 != 0),
        }
        named = number % 5 == 4
        if named:
            attributes["auto_pad"] = draw.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
        else:
            attributes["pads"] = [draw.randint(0, k - 1) for k in kernel * 2]
        if not named and number % 2:
            attributes["dilations"] = [draw.randint(1, 2) for _ in kernel]
        if operator == "AveragePool" and number % 3:
            attributes["count_include_pad"] = 1
        if operator == "LpPool":
            attributes["p"] = draw.choice([1, 2, 3])
        image = normal(1, 2, *(draw.randint(6, 9) for _ in kernel), seed=number)
        ones.append(One(operator, {"x": image}, attributes=attributes))
    check(ones)


@pytest.mark.parametrize("name", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
def test_pools_whose_padding_would_be_negative_are_refused(operator: str, name: str) -> None:
    """ONNX Runtime has an error in two of them, and crops the image in the third."""
    attributes = {"kernel_shape": [2, 1], "strides": [1, 3], "auto_pad": name}
    image = normal(1, 1, 4, 3)
    model = model_of([One(operator, {"x": image}, attributes=attributes)], 18)
    with pytest.raises(ImportFailure, match=f"{operator}.*negative padding"):
        backend.prepare(model)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    with pytest.raises(ImportFailure, match=f"{operator}.*negative padding"):
        import_onnx(prepare(model, {model.graph.input[0].name: ["n", 1, 4, 3]}))
    check([One(operator, {"x": normal(1, 1, 4, 4)}, attributes=attributes)])


@pytest.mark.parametrize(("shape", "wanted"), [([0], [2, 0]), ([3, 1, 0], [2, 3, 4, 0])])
def test_expansion_of_nothing(shape: list[int], wanted: list[int]) -> None:
    """TVM takes the extent 0 of a reshape to more axes for "as before"."""
    x, extents = np.zeros(shape, "float32"), np.array(wanted, "int64")
    check([One("Expand", {"x": x}, {"shape": extents})])


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64", "float32", "float64"])
def test_position_of_the_lowest_number(dtype: str) -> None:
    """TVM's loops find none of a row that has nothing else; nor of the greatest in ArgMin."""
    ends = np.iinfo(dtype) if np.dtype(dtype).kind != "f" else None
    lowest, greatest = (ends.min, ends.max) if ends else (-np.inf, np.inf)
    rows = [[lowest] * 3, [greatest] * 3, [lowest, greatest, greatest], [greatest, lowest, lowest]]
    x = np.array(rows, dtype)
    check(
        [
            One(kind, {"x": x}, attributes={"axis": 1, "select_last_index": last})
            for kind in ("ArgMax", "ArgMin")
            for last in (0, 1)
        ]
    )


def test_values_behind_a_pool_whose_size_onnx_infers_wrongly() -> None:
    """onnx.shape_inference counts a window that begins in the padding; its size is not believed."""
    pool = helper.make_node(
        "MaxPool", ["x"], ["h"], kernel_shape=[1, 3], strides=[3, 2], ceil_mode=1
    )
    nodes = [pool, helper.make_node("Flatten", ["h"], ["y"])]
    x = normal(1, 2, 8, 5)
    model = model_of([One("Relu", {"x": x})], 17)
    del model.graph.node[:]
    pool.input[0] = model.graph.input[0].name
    nodes[1].output[0] = model.graph.output[0].name
    model.graph.node.extend(nodes)
    (want,) = onnxruntime_of(model, [One("Relu", {"x": x})])
    (got,) = backend.prepare(model, min_bytes=0).run([x])
    np.testing.assert_array_equal(got, want)


def test_output_shape_of_transposed_convolutions() -> None:
    draw = random.Random(1)
    ones = []
    for number in range(16):
        rank = draw.choice([1, 2, 2, 3])
        kernel = [draw.randint(1, 4) for _ in range(rank)]
        strides = [draw.randint(1, 3) for _ in kernel]
        extents = [draw.randint(3, 5) for _ in kernel]
        wanted = [
            (extent - 1) * stride + taps - draw.randint(0, min(2, taps - 1))
            for extent, stride, taps in zip(extents, strides, kernel, strict=True)
        ]
        attributes: dict[str, Any] = {"strides": strides, "output_shape": wanted}
        if number % 3:
            attributes["auto_pad"] = draw.choice(["SAME_UPPER", "SAME_LOWER"])
        weight = {"w": normal(2, 3, *kernel, seed=number)}
        image = {"x": normal(1, 2, *extents, seed=number)}
        ones.append(One("ConvTranspose", image, weight, attributes=attributes))
    check(ones)


# ---------------------------------------------------------------------- resize


def resizes(modes: Iterable[str]) -> list[One]:
    transformations = (
        "half_pixel",
        "align_corners",
        "asymmetric",
        "pytorch_half_pixel",
        "half_pixel_symmetric",
    )
    roundings = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    image = {"x": normal(1, 2, 5, 6)}
    empty = {"roi": None, "scales": None}
    ones = []
    for mode, to in itertools.product(modes, transformations):
        attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": to}
        for rounding in roundings if mode == "nearest" else [None]:
            named = {**attributes, **({"nearest_mode": rounding} if rounding else {})}
            sizes = {**empty, "sizes": np.array([1, 2, 7, 4])}
            ones.append(One("Resize", image, sizes, attributes=named))
        scales = {"roi": None, "scales": np.array([1, 1, 0.5, 2.3], "float32")}
        ones.append(One("Resize", image, scales, attributes=attributes))
        if mode != "nearest":
            sizes = {**empty, "sizes": np.array([3, 9])}
            smooth = {**attributes, "antialias": 1, "axes": [2, 3]}
            ones.append(One("Resize", image, sizes, attributes=smooth))
    for policy in ("not_larger", "not_smaller"):
        sizes = {**empty, "sizes": np.array([8, 3])}
        kept = {"mode": "nearest", "keep_aspect_ratio_policy": policy, "axes": [3, 2]}
        ones.append(One("Resize", image, sizes, attributes=kept))
    return ones


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize(mode: str) -> None:
    check(resizes([mode]))


def test_resize_of_other_ranks_crops_and_coefficients() -> None:
    roi = np.array([0, 0, 0.1, 0, 1, 1, 0.8, 1.3], "float32")
    ones = [
        One(
            "Resize",
            {"x": normal(1, 2, 5, 6)},
            {"roi": roi, "scales": None, "sizes": np.array([1, 2, 4, 8])},
            attributes={
                "mode": mode,
                "coordinate_transformation_mode": "tf_crop_and_resize",
                "extrapolation_value": 2.5,
            },
        )
        for mode in ("nearest", "linear")
    ]
    for shape, sizes in (((5, 6), [8, 4]), ((1, 2, 7), [1, 2, 10]), ((1, 2, 3, 4, 5), [3, 4, 2])):
        attributes: dict[str, Any] = {"mode": "linear"}
        if len(sizes) < len(shape):
            attributes["axes"] = [2, 3, 4]
        constants = {"roi": None, "scales": None, "sizes": np.array(sizes)}
        ones.append(One("Resize", {"x": normal(*shape)}, constants, attributes=attributes))
    for coefficient, exclude in itertools.product((-0.5, -0.75), (0, 1)):
        attributes = {"mode": "cubic", "cubic_coeff_a": coefficient, "exclude_outside": exclude}
        constants = {"roi": None, "scales": np.array([1, 1, 0.5, 1.7], "float32")}
        ones.append(One("Resize", {"x": normal(1, 2, 6, 5)}, constants, attributes=attributes))
    check(ones)


@pytest.mark.parametrize("opset", [7, 9, 10])
def test_resizes_of_old_opsets(opset: int) -> None:
    image, scales = {"x": normal(1, 2, 5, 4)}, [1.0, 1.0, 0.6 if opset == 10 else 1.5, 2.0]
    constants = {} if opset == 7 else {"scales": np.array(scales, "float32")}
    attributes = {"scales": scales} if opset == 7 else {}
    operator = "Resize" if opset == 10 else "Upsample"
    modes = ("nearest", "linear")
    check([One(operator, image, constants, 1, {**attributes, "mode": m}) for m in modes], opset)


@pytest.mark.parametrize(
    ("attributes", "constants", "reason"),
    [
        (
            {"coordinate_transformation_mode": "align_corners", "antialias": 1},
            {"roi": None, "scales": np.array([1, 1, 0.5, 1], "float32")},
            "align_corners, antialias and a scale that gives no whole number",
        ),
        (
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
            {
                "roi": np.array([0, 0, 0.5, 0, 1, 1, 1, 1], "float32"),
                "scales": np.array([1, 1, 1, 2], "float32"),
            },
            "a crop of an axis that keeps its size",
        ),
    ],
)
def test_resizes_of_which_engines_differ_are_refused(
    attributes: dict[str, Any], constants: dict[str, np.ndarray | None], reason: str
) -> None:
    one = One("Resize", {"x": normal(1, 2, 5, 6)}, constants, 1, {"mode": "linear", **attributes})
    with pytest.raises(ImportFailure, match=reason):
        import_onnx(prepare(model_of([one], 19)))


# ---------------------------------------------------------------------- the rest


def test_operators_on_elements() -> None:
    specials = np.array([1, np.inf, -np.inf, np.nan], "float32")
    ones = [
        One("IsInf", {"x": specials}, attributes={"detect_positive": p, "detect_negative": n})
        for p, n in itertools.product((0, 1), (0, 1))
    ]
    base = np.array([0, 2, 7, 9])
    for dtype, other in itertools.product(("int32", "int64", "float32", "float64"), repeat=2):
        powers = {"x": base.astype(dtype), "y": np.array([0, 1, 2, 3]).astype(other)}
        ones.append(One("Pow", powers))
    ones.append(One("Sign", {"x": np.array([0, 1, 200], "uint8")}))
    shifts = {"x": np.array([16, 4, 255], "uint8"), "y": np.array([1, 2, 7], "uint8")}
    ones += [One("BitShift", shifts, attributes={"direction": d}) for d in ("LEFT", "RIGHT")]
    ones.append(One("Dropout", {"x": normal(3, 4)}, outputs=2))
    check(ones, 17)


def test_slopes_of_channels_in_old_opsets() -> None:
    """Before opset 7, which ONNX Runtime no longer runs: the same with slopes that broadcast."""
    x, slopes = normal(2, 3, 4, 5), np.array([0.5, -1, 2], "float32")
    (got,) = backend.prepare(model_of([One("PRelu", {"x": x}, {"s": slopes})], 6)).run([x])
    np.testing.assert_allclose(got, np.where(x < 0, x * slopes[:, None, None], x), rtol=1e-6)


def test_reductions_and_norms() -> None:
    ones = [
        One(operator, {"x": normal(2, 3)}, attributes={"noop_with_empty_axes": 1})
        for operator in ("ReduceL1", "ReduceL2", "ReduceSumSquare")
    ]
    ones.append(
        One(
            "ReduceLogSum",
            {"x": np.abs(normal(2, 3))},
            {"a": np.array([], "int64")},
            1,
            {"noop_with_empty_axes": 1},
        )
    )
    for axis in (0, 1, -1):
        shape = (2, 3, 4)
        inside = shape[axis:]
        parameters = {"s": normal(*inside, seed=1), "b": normal(*inside, seed=2)}
        attributes = {"axis": axis, "epsilon": 0.1}
        ones.append(One("LayerNormalization", {"x": normal(*shape)}, parameters, 3, attributes))
    narrow = One("LayerNormalization", {"x": normal(2, 3, 4)}, {"s": normal(4)}, 1, {"axis": 1})
    check([*ones, narrow], 18)


def test_means_of_integers() -> None:
    """Cut off toward zero, of each operand's dtype."""
    draw = np.random.default_rng(0)
    ones = [
        One("ReduceMean", {"x": draw.integers(-50, 50, (4, 5, 3)).astype(dtype)}, {}, 1, attributes)
        for dtype in ("int32", "int64")
        for attributes in ({"axes": [1], "keepdims": 0}, {"axes": [0, 2]}, {})
    ]
    check(ones, 17)
    unsigned = draw.integers(0, 2**32, (2, 5)).astype("uint32")
    model = model_of([One("ReduceMean", {"x": unsigned}, {}, 1, {"axes": [1]})], 17)
    (got,) = backend.prepare(model).run([unsigned])
    assert got.dtype == "uint32"  # ONNX Runtime has none, and ONNX's evaluator wraps around
    np.testing.assert_array_equal(got, unsigned.sum(1, "int64", keepdims=True) // 5)


def test_operators_that_give_shapes() -> None:
    floats, integers = np.array([-1, 2], "float32"), np.array([0, 1], "int64")
    indices = np.array([[0, -1, 3], [-4, 5, 2]])
    ones = [
        One("OneHot", {"i": indices}, {"d": np.array(4), "v": v}, 1, {"axis": axis})
        for v, axis in itertools.product((floats, integers), (0, 1, -1))
    ]
    ones.append(One("Split", {"x": normal(7, 3)}, {"s": np.array([2, 0, 5])}, 3))
    ones.append(One("TopK", {"x": normal(3, 7)}, {"k": np.array([2])}, 2, {"axis": 1}))
    check(ones, 17)
    check([One("TopK", {"x": normal(3, 7)}, {"k": np.array([2])}, 2)], 10)
    computed = {"x": normal(3, 1), "s": np.array([2, 1, 6])}
    check([One("Expand", computed), One("ConstantOfShape", {"s": np.array([2, 0, 3])})], 17)


@pytest.mark.parametrize("sizes", [np.array(4), np.array([3, 0, 7])])
def test_sequences_of_parts(sizes: np.ndarray) -> None:
    """The last part is the shorter one: 10 in parts of 4 is 4, 4, 2."""
    x = normal(10, 2)
    one = One("SplitToSequence", {"x": x}, {"s": sizes})
    model = model_of([one], 17)
    element = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
    model.graph.output[0].type.CopyFrom(helper.make_sequence_type_proto(element))
    (want,) = onnxruntime_of(model, [one])
    (got,) = backend.prepare(model).run([x])
    assert [part.shape for part in got] == [part.shape for part in want]
    for part, right in zip(got, want, strict=True):
        np.testing.assert_array_equal(part, right)


def test_detections() -> None:
    generator = np.random.default_rng(0)
    corners = np.sort(generator.random((1, 8, 2, 2), "float32"), axis=2).reshape(1, 8, 4)
    inputs = {"b": corners, "s": generator.random((1, 2, 8), "float32") - 0.5}
    most = {"m": np.array([3])}
    ones = [
        One("NonMaxSuppression", inputs, most),
        One("NonMaxSuppression", inputs, {**most, "i": np.array([0.3], "float32")}),
    ]
    image, regions = normal(1, 2, 8, 8), np.array([[1, 1, 6, 5], [0, 0, 7, 7]], "float32")
    size = {"output_height": 3, "output_width": 2, "sampling_ratio": 2}
    for scale, mode in itertools.product((0.5, 1.0), ("half_pixel", "output_half_pixel")):
        attributes = {**size, "spatial_scale": scale, "coordinate_transformation_mode": mode}
        aligned = {"x": image, "r": regions}
        ones.append(One("RoiAlign", aligned, {"b": np.array([0, 0])}, 1, attributes))
    check(ones, 17)


@pytest.mark.parametrize("scale", [1.0, 0.3, 0.0])
def test_detections_are_read_on(scale: float) -> None:
    """As many rows go on as were found, of many or of none, not as many as there could be."""
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 17]>
        g (float[1, 8, 4] boxes, float[1, 2, 8] scores) => (int64[n, 1, 3] rows, float[1, n, 4] two)
        <int64[1] most = {3}, float[1] overlap = {0.3}, float[1] least = {0.25},
         int64 box = {2}, int64[1] one = {1}> {
            chosen = NonMaxSuppression(boxes, scores, most, overlap, least)
            rows = Unsqueeze(chosen, one)
            at = Gather<axis = 1>(chosen, box)
            taken = Gather<axis = 1>(boxes, at)
            two = Add(taken, taken)
        }"""
    )
    boxes, scores = (np.random.default_rng(0).random(n, "float32") for n in ((1, 8, 4), (1, 2, 8)))
    given = {"boxes": np.sort(boxes, axis=-1), "scores": scale * scores}
    wanted = onnxruntime_outputs(model, given).values()
    assert (len(next(iter(wanted))) == 0) == (scale < 0.25)
    for got, want in zip(backend.prepare(model).run(list(given.values())), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_places_and_bounds_before_opset_10() -> None:
    x = np.arange(120, dtype="float32").reshape(4, 5, 6)
    bounds = [{"starts": [1], "ends": [3]}, {"starts": [9, 3, 2], "ends": [12, -9, 1]}]
    bounds += [{"starts": [-2, 0], "ends": [2**31 - 1, -1], "axes": [2, 1]}]
    bounds += [{"starts": [-9, 1], "ends": [9, 40]}]
    forms = [("Slice", given) for given in bounds]
    forms += [(kind, {"axis": -2}) for kind in ("ArgMax", "ArgMin")]
    check([One(kind, {"x": x}, attributes=given) for kind, given in forms], opset=9)
