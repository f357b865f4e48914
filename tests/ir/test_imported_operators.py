"""Each operator as TVM's ONNX importer yields it: the nodes that it becomes, and their values.

Every kernel counts as there. Node descriptors are interpreted in numpy and compared with ONNX
Runtime; what stays with TVM fails the test.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tvm import relax

from byoc.canonicalise import canonicalise
from byoc.frontends.onnx import import_onnx, prepare
from byoc.partition.annotate import annotate
from byoc.partition.merge import merge
from tests.reference import onnxruntime_outputs

from .graphs import operators, random, regions
from .interpret import Interpreter, run_with_tvm, without_regions

SPECIAL = np.array(
    [[np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-38, -3.0, 7.0, 0.5, 1.5, -2.5, 100.0]], "float32"
)


pytestmark = pytest.mark.usefixtures("everything_is_supported")


def model_of(
    op: str,
    inputs: list[np.ndarray],
    weights: list[np.ndarray | None],
    outputs: int = 1,
    opset: int = 18,
    **attributes: object,
) -> onnx.ModelProto:
    """A model of one operator; ``None`` among the weights is an operand that is left out."""
    names = [f"x{i}" for i in range(len(inputs))]
    kept = {f"w{i}": w for i, w in enumerate(weights) if w is not None}
    operands = names + [f"w{i}" if w is not None else "" for i, w in enumerate(weights)]
    results = [f"y{i}" for i in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, operands, results, **attributes)],
        "graph",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip(names, inputs, strict=True)
        ],
        [helper.make_tensor_value_info(name, 0, None) for name in results],
        [numpy_helper.from_array(value, name) for name, value in kept.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    inferred = onnx.shape_inference.infer_shapes(model)
    for value in inferred.graph.output:
        if value.type.tensor_type.elem_type == onnx.TensorProto.UNDEFINED:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return inferred


def check(model: onnx.ModelProto, expected: list[str], *inputs: np.ndarray) -> None:
    """Compare composites of the one region, and the values of descriptors and of bodies."""
    mod = import_onnx(prepare(model))
    out = merge(annotate(canonicalise(mod)))
    relax.analysis.well_formed(out)
    assert operators(out) == []
    assert regions(out) == {"ext_main_0": expected}
    names = [value.name for value in model.graph.input]
    wants = onnxruntime_outputs(model, dict(zip(names, inputs, strict=True))).values()
    descriptors = Interpreter(out)(*inputs)
    bodies = run_with_tvm(without_regions(out), *inputs)
    for want, described, body in zip(wants, descriptors, bodies, strict=True):
        np.testing.assert_allclose(described, want, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(body, want, rtol=1e-4, atol=1e-5)


FINITE = random(2, 3, 4)

UNARY = {
    "Elu": ("ext.elu", {"alpha": 0.7}),
    "Selu": ("ext.selu", {}),
    "Softplus": ("ext.softplus", {}),
    "Mish": ("ext.mish", {}),
    "Floor": ("ext.floor", {}),
    "Ceil": ("ext.ceil", {}),
    "Round": ("ext.round", {}),
    "Sin": ("ext.sin", {}),
    "Cos": ("ext.cos", {}),
    "Sign": ("ext.sign", {}),
    "LeakyRelu": ("ext.leaky_relu", {"alpha": 0.2}),
    "HardSigmoid": ("ext.hard_sigmoid", {}),
    "HardSwish": ("ext.hard_swish", {}),
}


@pytest.mark.parametrize("op", UNARY)
def test_unary(op: str) -> None:
    composite, attributes = UNARY[op]
    x = np.concatenate([FINITE.ravel(), SPECIAL[0, 8:]])
    check(model_of(op, [x], [], **attributes), [composite], x)


@pytest.mark.parametrize("op", ["Softplus", "Elu", "Floor", "Round", "Sign"])
def test_unary_of_special_values(op: str) -> None:
    """What the descriptor says of infinities and NaN is what ONNX says."""
    model = model_of(op, [SPECIAL], [])
    out = merge(annotate(canonicalise(import_onnx(prepare(model)))))
    (want,) = onnxruntime_outputs(model, {"x0": SPECIAL}).values()
    (got,) = Interpreter(out)(SPECIAL)
    keep = ~np.isnan(SPECIAL) if op == "Sign" else np.ones(SPECIAL.shape, bool)
    np.testing.assert_allclose(got[keep], want[keep], rtol=1e-5)


def test_prelu_per_channel() -> None:
    x = random(2, 3, 4, 5)
    slope = np.array([0.1, -0.5, 2.0], "float32").reshape(3, 1, 1)
    check(model_of("PRelu", [x], [slope]), ["ext.prelu"], x)


def test_prelu_of_one_slope_is_leaky_relu() -> None:
    x = random(2, 3)
    check(model_of("PRelu", [x], [np.array([0.25], "float32")]), ["ext.leaky_relu"], x)


def test_prelu_of_one_negative_slope_is_not() -> None:
    x = random(2, 3)
    check(model_of("PRelu", [x], [np.array([-0.25], "float32")]), ["ext.prelu"], x)


COMPARISONS = {
    "Equal": "equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
}


@pytest.mark.parametrize("op", COMPARISONS)
@pytest.mark.parametrize("dtype", ["float32", "int64", "int32"])
def test_compare(op: str, dtype: str) -> None:
    a, b = np.array([[1, 2, 3]], dtype), np.array([[3], [2]], dtype)
    check(model_of(op, [a, b], []), [f"ext.compare_{COMPARISONS[op]}"], a, b)


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logical(op: str) -> None:
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    check(model_of(op, [a, b], []), [f"ext.logical_{op.lower()}"], a, b)


def test_not() -> None:
    a = np.array([True, False])
    check(model_of("Not", [a], []), ["ext.not"], a)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_where(dtype: str) -> None:
    condition = np.array([[True], [False]])
    a, b = np.array([1, 2, 3], dtype), np.array([[4], [5]], dtype)
    check(model_of("Where", [condition, a, b], []), ["ext.where"], condition, a, b)


@pytest.mark.parametrize("to", ["float32", "int32", "int64", "bool"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_cast(dtype: str, to: str) -> None:
    if dtype == to:
        pytest.skip("a cast to its own dtype vanishes")
    x = np.array([0, 1, 1, 0]).astype(dtype)
    target = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    check(model_of("Cast", [x], [], to=target), ["ext.cast"], x)


def test_cast_to_int32_wraps() -> None:
    x = np.array([2.0**31, -(2.0**31) - 256, 2.0**32 + 512, -7.9], "float32")
    model = model_of("Cast", [x], [], to=onnx.TensorProto.INT32)
    out = merge(annotate(canonicalise(import_onnx(prepare(model)))))
    want = x.astype("int64").astype("int32")
    np.testing.assert_array_equal(Interpreter(out)(x)[0], want)
    np.testing.assert_array_equal(run_with_tvm(without_regions(out), x)[0], want)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
def test_integer_arithmetic(op: str) -> None:
    a, b = np.array([1, -2, 2**40]), np.array([[7], [-9]])
    check(model_of(op, [a, b], []), [f"ext.{op.lower()}"], a, b)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_with_negative_indices(axis: int) -> None:
    x, indices = random(4, 4, 4), np.array([[0, -1], [3, -4]])
    check(model_of("Gather", [x, indices], [], axis=axis), ["ext.take"], x, indices)


def test_gather_of_constant_indices() -> None:
    check(model_of("Gather", [random(3, 4)], [np.array([2, -1, 0])]), ["ext.take"], random(3, 4))


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_argreduce(op: str, keepdims: int) -> None:
    x = np.array([[1, 3, 3], [2, 2, 1]], "float32")
    check(model_of(op, [x], [], axis=-1, keepdims=keepdims), [f"ext.{op.lower()}"], x)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(("op", "extreme"), [("ArgMax", "max"), ("ArgMin", "min")])
def test_argreduce_of_integers(op: str, extreme: str, dtype: str) -> None:
    x = np.array([[2**30, 2**30 + 1, 2**30 + 1], [-(2**30), -(2**30) - 1, 4], [7, 7, 7]], dtype)
    found = [f"ext.reduce_{extreme}", "ext.compare_equal", "ext.cast", "ext.argmax"]
    check(model_of(op, [x], [], axis=-1), found, x)


def test_last_argmax_is_arithmetic_on_a_reversed_one() -> None:
    x = np.array([[1, 3, 3], [2, 2, 1]], "float32")
    model = model_of("ArgMax", [x], [], axis=1, select_last_index=1)
    check(model, ["ext.take", "ext.argmax", "ext.sub"], x)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumsum(exclusive: int, reverse: int) -> None:
    x = random(3, 4)
    attributes = {"exclusive": exclusive, "reverse": reverse}
    check(model_of("CumSum", [x], [np.array(1)], **attributes), ["ext.cumsum"], x)
    x = np.array([[2**31 - 1, 5, -7], [1, 0, 9]], "int64")
    check(model_of("CumSum", [x], [np.array(0)], **attributes), ["ext.cumsum"], x)


def test_gathers() -> None:
    x, elements = random(3, 4), np.array([[0, 2, 1, 0], [2, 2, 0, 1]])
    check(model_of("GatherElements", [x], [elements], axis=0), ["ext.gather_elements"], x)
    x, runs = random(2, 3, 4), np.array([[[1], [0]], [[2], [2]]])
    check(model_of("GatherND", [x], [runs], batch_dims=1), ["ext.gather_nd"], x)


@pytest.mark.parametrize("reduction", ["none", "add", "mul"])
def test_scatters(reduction: str) -> None:
    x, updates, attributes = random(3, 4), random(2, 4), {"reduction": reduction}
    elements = np.array([[0, 2, 1, 0], [2, 1, 0, 1]])
    model = model_of("ScatterElements", [x, updates], [], axis=0, **attributes)
    weight = numpy_helper.from_array(elements, "indices")
    model.graph.initializer.append(weight)
    model.graph.node[0].input[:] = ["x0", "indices", "x1"]
    check(model, ["ext.scatter_elements"], x, updates)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([[2], [0]]), "indices"))
    model.graph.node[0].CopyFrom(
        helper.make_node("ScatterND", ["x0", "indices", "x1"], ["y0"], reduction=reduction)
    )
    check(model, ["ext.scatter_nd"], x, updates)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("shape", [(1, 3, 5, 4), (3, 4, 5, 6)])
def test_pad(mode: str, shape: tuple[int, ...]) -> None:
    x = random(*shape)
    pads, value = np.array([0, 0, 1, 3, 0, 2, 0, 1]), np.array(0.5, "float32")
    weights = [pads, value] if mode == "constant" else [pads]
    if mode != "constant":
        pads[5] = 0
    check(model_of("Pad", [x], weights, opset=19, mode=mode), ["ext.pad"], x)


def test_tile() -> None:
    x = random(2, 3, 1)
    expected = ["ext.reshape", "ext.broadcast_to", "ext.reshape"]
    check(model_of("Tile", [x], [np.array([2, 1, 4])]), expected, x)


def test_slice_backwards_takes() -> None:
    x = random(4, 5)
    far = np.iinfo(np.int64).min
    weights = [np.array([-1, 3]), np.array([far, 0]), np.array([0, 1]), np.array([-1, -2])]
    check(model_of("Slice", [x], weights), ["ext.take", "ext.take"], x)


def test_split() -> None:
    x = random(2, 6)
    model = model_of("Split", [x], [np.array([1, 5])], outputs=2, axis=1)
    check(model, ["ext.slice", "ext.slice"], x)


@pytest.mark.parametrize("op", ["SpaceToDepth", "DepthToSpace"])
def test_depth_and_space(op: str) -> None:
    x = random(1, 4, 2, 4)
    check(model_of(op, [x], [], blocksize=2), ["ext.reshape", "ext.permute", "ext.reshape"], x)


COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize("size", [(7, 3), (2, 9), (1, 5)])
def test_resize(mode: str, coordinate: str, size: tuple[int, int]) -> None:
    if coordinate == "align_corners" and 1 in size:
        pytest.skip("TVM itself divides by zero")
    x = random(1, 2, 4, 5)
    model = model_of(
        "Resize",
        [x],
        [None, None, np.array([1, 2, *size])],
        mode=mode,
        coordinate_transformation_mode=coordinate,
        nearest_mode="floor",
    )
    # PyTorch's one row of several is the first one, in every mode.
    first = coordinate == "pytorch_half_pixel" and size[0] == 1
    check(model, ["ext.slice" if first else "ext.resize2d"], x)


@pytest.mark.slow
def test_resize_of_another_cubic() -> None:
    x = random(1, 1, 5, 5)
    attributes = {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1}
    model = model_of("Resize", [x], [None, None, np.array([1, 1, 8, 7])], **attributes)
    check(model, ["ext.resize2d"], x)


@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_rounding_of_resize(rounding: str) -> None:
    x = random(1, 1, 4, 4)
    attributes = {"mode": "nearest", "nearest_mode": rounding}
    model = model_of("Resize", [x], [None, None, np.array([1, 1, 6, 7])], **attributes)
    check(model, ["ext.resize2d"], x)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("more", [{}, {"strides": [2, 3], "output_padding": [1, 2]}])
def test_transposed_convolution(groups: int, more: dict[str, list[int]]) -> None:
    x, weight, bias = random(1, 4, 5, 3), random(4, 6 // groups, 3, 2), random(6)
    attributes = {"group": groups, "pads": [1, 0, 1, 1], "dilations": [1, 2], **more}
    model = model_of("ConvTranspose", [x], [weight, bias], **attributes)
    check(model, ["ext.conv2d_transpose_bias" if more else "ext.conv2d_bias"], x)


@pytest.mark.parametrize("groups", [1, 2])
def test_convolution_of_volumes(groups: int) -> None:
    x, weight, bias = random(1, 4, 5, 4, 6), random(6, 4 // groups, 2, 3, 1), random(6)
    attributes = {"group": groups, "pads": [1, 0, 0, 0, 1, 0], "strides": [2, 1, 1]}
    model = model_of("Conv", [x], [weight, bias], dilations=[1, 1, 2], **attributes)
    check(model, ["ext.conv3d_bias"], x)


def test_convolution_of_lines() -> None:
    x, weight, bias = random(2, 4, 9), random(6, 2, 3), random(6)
    model = model_of("Conv", [x], [weight, bias], group=2, pads=[1, 2], strides=[2])
    check(model, ["ext.reshape", "ext.conv2d_bias", "ext.reshape"], x)


def test_transposed_convolution_of_lines() -> None:
    x, weight = random(1, 4, 5), random(4, 3, 3)
    model = model_of("ConvTranspose", [x], [weight], strides=[2], pads=[1, 0], output_padding=[1])
    check(model, ["ext.reshape", "ext.conv2d_transpose", "ext.reshape"], x)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pool_of_lines(op: str) -> None:
    x = random(1, 2, 9)
    name = {"MaxPool": "ext.max_pool2d", "AveragePool": "ext.avg_pool2d"}[op]
    model = model_of(op, [x], [], kernel_shape=[3], strides=[2], pads=[1, 1], ceil_mode=1)
    check(model, ["ext.reshape", name, "ext.reshape"], x)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pool_of_volumes(op: str) -> None:
    x = random(1, 2, 5, 6, 7)
    name = {"MaxPool": "ext.max_pool2d", "AveragePool": "ext.avg_pool2d"}[op]
    more = {"pads": [1] * 6, "count_include_pad": 1} if op == "AveragePool" else {"pads": [1] * 6}
    model = model_of(op, [x], [], kernel_shape=[2, 3, 3], strides=[2, 1, 2], **more)
    check(model, ["ext.reshape", name, "ext.reshape", name, "ext.reshape"], x)


def test_instance_norm() -> None:
    x = random(2, 3, 4, 5)
    model = model_of("InstanceNormalization", [x], [random(3), random(3, seed=1)])
    check(model, ["ext.group_norm"], x)


@pytest.mark.parametrize(("opset", "vectors"), [(18, 3), (21, 6)])
def test_group_norm(opset: int, vectors: int) -> None:
    x = random(2, 6, 4, 5)
    weights = [random(vectors), random(vectors, seed=1)]
    model = model_of("GroupNormalization", [x], weights, opset=opset, num_groups=3)
    check(model, ["ext.group_norm"], x)


def test_layer_norm_of_variable_scale() -> None:
    x, gamma, beta = random(2, 3, 4), random(4), random(4, seed=1)
    model = model_of("LayerNormalization", [x, gamma, beta], [], axis=-1)
    check(model, ["ext.layer_norm", "ext.mul", "ext.add"], x, gamma, beta)


def test_rms_norm_of_variable_scale() -> None:
    x, gamma = random(2, 3, 4), random(4)
    model = model_of("RMSNormalization", [x, gamma], [], opset=23, axis=-1)
    check(model, ["ext.rms_norm", "ext.mul"], x, gamma)


def test_one_hot_compares() -> None:
    x = np.array([[0, 2], [1, 0]])
    model = model_of("OneHot", [x], [np.array(3), np.array([-1, 2])], axis=1)
    expected = ["ext.compare_less", "ext.add", "ext.where", "ext.reshape"]
    expected += ["ext.compare_equal", "ext.where"]
    check(model, expected, x)


@pytest.mark.parametrize("upper", [0, 1])
def test_triangle_chooses(upper: int) -> None:
    x = random(2, 4, 3)
    check(model_of("Trilu", [x], [], upper=upper), ["ext.where"], x)


def test_isnan_compares() -> None:
    check(model_of("IsNaN", [SPECIAL], []), ["ext.compare_not_equal"], SPECIAL)


def test_isinf_compares() -> None:
    check(model_of("IsInf", [SPECIAL], []), ["ext.abs", "ext.compare_equal"], SPECIAL)


def test_reduce_prod() -> None:
    x = random(2, 3, 4)
    check(model_of("ReduceProd", [x], [np.array([1])]), ["ext.reduce_prod"], x)


@pytest.mark.parametrize("shapes", [((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (4,))])
def test_matmul_of_vectors(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = random(*shapes[0]), random(*shapes[1], seed=1)
    check(model_of("MatMul", [a, b], []), ["ext.reshape", "ext.matmul", "ext.reshape"], a, b)
