"""Every operator of the pattern table over symbolic axes, at sizes of 0, 1 and more.

All operators are in one library, which is compiled once; ONNX Runtime runs each of them alone, as
it refuses some sizes for some of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import byoc
from tests.reference import onnxruntime_outputs

OPSET = 18
CHANNELS, FEATURES = 4, 8

#: Inputs with symbolic axes: batch n, image h x w, s tokens, p past ones.
INPUTS: dict[str, list[int | str]] = {
    "image": ["n", CHANNELS, "h", "w"],
    "other": ["n", CHANNELS, "h", "w"],
    "line": ["n", CHANNELS, "w"],
    "rows": ["n", "s", FEATURES],
    "past": ["n", "p", FEATURES],
}

SIZES: list[dict[str, int]] = [
    {"n": 2, "h": 6, "w": 5, "s": 3, "p": 2},
    {"n": 1, "h": 1, "w": 1, "s": 1, "p": 1},
    {"n": 0, "h": 4, "w": 3, "s": 3, "p": 2},
    {"n": 3, "h": 4, "w": 3, "s": 1, "p": 0},
    {"n": 2, "h": 3, "w": 4, "s": 0, "p": 1},
    {"n": 1, "h": 0, "w": 5, "s": 0, "p": 0},
    {"n": 2, "h": 4, "w": 0, "s": 7, "p": 3},
]


class Graph:
    """Nodes and constants of one operator; ``call`` returns the name of the result."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng()
        self.prefix = ""

    def call(self, op: str, *operands: str | np.ndarray, **attributes: object) -> str:
        (name,) = self.several(op, 1, *operands, **attributes)
        return name

    def several(self, op: str, count: int, *operands: object, **attributes: object) -> list[str]:
        names = [o if isinstance(o, str) else self.weight(np.asarray(o)) for o in operands]
        results = [f"{self.prefix}v{len(self.nodes)}_{i}" for i in range(count)]
        self.nodes.append(helper.make_node(op, names, results, **attributes))
        return results

    def weight(self, array: np.ndarray) -> str:
        name = f"{self.prefix}c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def floats(self, *shape: int) -> np.ndarray:
        return self.random.uniform(-1, 1, shape).astype("float32")


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, "int64")


Build = Callable[[Graph], str]


def unary(op: str, **attributes: object) -> Build:
    return lambda g: g.call(op, "image", **attributes)


def binary(op: str) -> Build:
    return lambda g: g.call(op, "image", "other")


def compared(op: str) -> Build:
    return lambda g: g.call("Cast", g.call(op, "image", "other"), to=TensorProto.FLOAT)


def reduced(op: str, axes: tuple[int, ...], keepdims: int = 1) -> Build:
    return lambda g: g.call(op, "image", ints(*axes), keepdims=keepdims)


def conv(g: Graph, *kernel: int, group: int = 1, **attributes: object) -> str:
    weight = g.floats(CHANNELS, CHANNELS // group, *kernel)
    return g.call("Conv", "image", weight, g.floats(CHANNELS), group=group, **attributes)


def layer_norm_in_pieces(g: Graph, source: str, axes: tuple[int, ...], affine: bool) -> str:
    mean = g.call("ReduceMean", source, ints(*axes))
    centred = g.call("Sub", source, mean)
    square = g.call("Mul", centred, centred)
    variance = g.call("ReduceMean", square, ints(*axes))
    shifted = g.call("Add", variance, np.float32(1e-5))
    result = g.call("Div", centred, g.call("Sqrt", shifted))
    if affine:
        scaled = g.call("Mul", result, g.floats(FEATURES))
        result = g.call("Add", scaled, g.floats(FEATURES))
    return result


def attention(g: Graph) -> str:
    """As PyTorch's exporter writes it, with shapes computed from the inputs' and a mask expanded.

    Keys are the past ones, which may be none, and those of the rows.
    """
    keys = g.call("Concat", "past", "rows", axis=1)
    shape = g.call("Shape", "rows")
    batch, length = (g.call("Gather", shape, ints(i)) for i in (0, 1))
    total = g.call("Gather", g.call("Shape", keys), ints(1))

    def heads(source: str, count: str) -> str:
        product = g.call("MatMul", source, g.floats(FEATURES, FEATURES))
        split = g.call("Concat", batch, count, ints(2), ints(FEATURES // 2), axis=0)
        return g.call("Transpose", g.call("Reshape", product, split), perm=[0, 2, 1, 3])

    query, key, value = heads("rows", length), heads(keys, total), heads(keys, total)
    scores = g.call("MatMul", query, g.call("Transpose", key, perm=[0, 1, 3, 2]))
    wide = g.call("Concat", batch, ints(1), length, total, axis=0)
    mask = g.call("Expand", g.call("Reshape", g.floats(1), ints(1, 1, 1, 1)), wide)
    weights = g.call("Softmax", g.call("Add", g.call("Div", scores, np.float32(2)), mask))
    mixed = g.call("Transpose", g.call("MatMul", weights, value), perm=[0, 2, 1, 3])
    joined = g.call("Concat", batch, length, ints(FEATURES), axis=0)
    return g.call("Reshape", mixed, joined)


def instance_norm(g: Graph) -> str:
    return g.call("InstanceNormalization", "image", g.floats(CHANNELS), g.floats(CHANNELS))


def batch_norm(g: Graph) -> str:
    moments = [g.floats(CHANNELS) for _ in range(3)]
    return g.call("BatchNormalization", "image", *moments, np.abs(g.floats(CHANNELS)) + 0.5)


def resized(g: Graph, mode: str, **attributes: object) -> str:
    return g.call("Resize", "image", "", np.float32([1, 1, 2, 2]), mode=mode, **attributes)


#: By what is tested. All of it goes to kernels of ours.
CASES: dict[str, Build] = {
    **{
        op: unary(op)
        for op in (
            *("Abs", "Neg", "Exp", "Erf", "Sin", "Cos", "Tanh", "Sigmoid", "Relu", "LeakyRelu"),
            *("Elu", "Selu", "HardSigmoid", "HardSwish", "Softplus", "Floor", "Ceil", "Round"),
            *("Mish", "Sign", "Identity", "GlobalAveragePool", "GlobalMaxPool"),
        )
    },
    **{op: binary(op) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean")},
    **{op: compared(op) for op in ("Less", "Greater", "Equal", "GreaterOrEqual")},
    **{
        f"{op} over {axes}": reduced(op, axes)
        for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
        for axes in ((0,), (1,), (2, 3), (0, 2, 3))
    },
    **{
        f"{op} without": reduced(op, (3,), keepdims=0)
        for op in ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum")
    },
    "Sum of three": lambda g: g.call("Sum", "image", "other", g.floats(CHANNELS, 1, 1)),
    "Mean of three": lambda g: g.call("Mean", "image", "other", "image"),
    "Where": lambda g: g.call("Where", g.call("Less", "image", "other"), "image", "other"),
    "Clip": lambda g: g.call("Clip", "image", np.float32(-0.5), np.float32(0.5)),
    "Clip from below": lambda g: g.call("Clip", "image", np.float32(0.1)),
    "Clip of a sum": lambda g: g.call(
        "Clip", g.call("Add", "image", "other"), "", np.float32(np.nan)
    ),
    "Pad of edges": lambda g: g.call("Pad", "rows", ints(2, 1), "", ints(-1), mode="edge"),
    "PRelu": lambda g: g.call("PRelu", "image", g.floats(CHANNELS, 1, 1)),
    "Pow": lambda g: g.call("Pow", "image", np.float32(2)),
    "Cast": lambda g: g.call("Cast", "image", to=TensorProto.INT32),
    "broadcast Add": lambda g: g.call("Add", "image", g.floats(1, CHANNELS, 1, 1)),
    "Softmax": lambda g: g.call("Softmax", "rows", axis=-1),
    "Softmax over tokens": lambda g: g.call("Softmax", "rows", axis=1),
    "LogSoftmax": lambda g: g.call("LogSoftmax", "rows", axis=-1),
    "LayerNormalization": lambda g: g.call(
        "LayerNormalization", "rows", g.floats(FEATURES), g.floats(FEATURES)
    ),
    "layer norm in pieces": lambda g: layer_norm_in_pieces(g, "rows", (-1,), True),
    "layer norm over tokens": lambda g: layer_norm_in_pieces(g, "rows", (1, 2), False),
    "layer norm over pixels": lambda g: layer_norm_in_pieces(g, "image", (2, 3), False),
    "InstanceNormalization": instance_norm,
    "BatchNormalization": batch_norm,
    "attention": attention,
    "MatMul": lambda g: g.call("MatMul", "rows", g.floats(FEATURES, 5)),
    "MatMul of tokens": lambda g: g.call(
        "MatMul", g.call("Transpose", "rows", perm=[0, 2, 1]), "rows"
    ),
    "Gemm": lambda g: g.call(
        "Gemm",
        g.call("Reshape", "rows", ints(-1, FEATURES)),
        g.floats(3, FEATURES),
        g.floats(3),
        transB=1,
    ),
    "Conv 1x1": lambda g: conv(g, 1, 1),
    "Conv 3x3": lambda g: conv(g, 3, 3, pads=[1] * 4),
    "Conv strides": lambda g: conv(g, 3, 3, pads=[1] * 4, strides=[2, 2]),
    "Conv depthwise": lambda g: conv(g, 3, 3, pads=[1] * 4, group=CHANNELS),
    "Conv of groups": lambda g: conv(g, 3, 3, pads=[1] * 4, group=CHANNELS // 2),
    "Conv of lines": lambda g: g.call(
        "Conv", "line", g.floats(3, CHANNELS, 3), pads=[1, 1], strides=[2]
    ),
    "ConvTranspose": lambda g: g.call(
        "ConvTranspose", "image", g.floats(CHANNELS, 3, 2, 2), strides=[2, 2]
    ),
    "ConvTranspose SAME_UPPER": lambda g: g.call(
        "ConvTranspose",
        "image",
        g.floats(CHANNELS, 3, 3, 3),
        strides=[2, 2],
        auto_pad="SAME_UPPER",
    ),
    "Conv SAME_LOWER": lambda g: conv(g, 2, 2, auto_pad="SAME_LOWER"),
    "MaxPool": lambda g: g.call("MaxPool", "image", kernel_shape=[3, 3], pads=[1] * 4),
    "MaxPool strides": lambda g: g.call(
        "MaxPool", "image", kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2]
    ),
    "AveragePool": lambda g: g.call("AveragePool", "image", kernel_shape=[3, 3], pads=[1] * 4),
    "LpPool SAME_UPPER": lambda g: g.call(
        "LpPool", "image", kernel_shape=[2, 2], auto_pad="SAME_UPPER", p=2
    ),
    "Resize nearest": lambda g: resized(g, "nearest"),
    "Resize linear": lambda g: resized(g, "linear"),
    "Pad": lambda g: g.call("Pad", "image", ints(0, 0, 1, 2, 0, 0, 3, 1)),
    "Reshape": lambda g: g.call("Reshape", "rows", ints(0, -1, 2, FEATURES // 2)),
    "Flatten": lambda g: g.call("Flatten", "rows", axis=2),
    "Transpose": lambda g: g.call("Transpose", "image", perm=[3, 0, 2, 1]),
    "Concat": lambda g: g.call("Concat", "past", "rows", axis=1),
    "Concat of channels": lambda g: g.call("Concat", "image", "other", axis=1),
    "Slice": lambda g: g.call("Slice", "rows", ints(1), ints(-1), ints(1)),
    "Slice behind the end": lambda g: g.call("Slice", "rows", ints(3), ints(-1), ints(1)),
    "Slice of the last": lambda g: g.call("Slice", "rows", ints(-2), ints(2**62), ints(1)),
    "Slice to the length of another": lambda g: g.call(
        "Slice", "rows", ints(0), g.call("Gather", g.call("Shape", "past"), ints(1)), ints(1)
    ),
    "Slice from the length of another": lambda g: g.call(
        "Slice", "rows", g.call("Gather", g.call("Shape", "past"), ints(1)), ints(2**62), ints(1)
    ),
    "Slice in steps": lambda g: g.call("Slice", "image", ints(1), ints(99), ints(3), ints(2)),
    "Split": lambda g: g.call("Mul", *g.several("Split", 2, "image", axis=1, num_outputs=2)),
    "Expand": lambda g: g.call(
        "Expand",
        g.call("ReduceSum", "rows", ints(1)),
        g.call("Shape", g.call("Identity", "rows")),
    ),
    "Expand by numbers": lambda g: g.call("Expand", "rows", ints(3, 1, 1, 1)),
    "Unsqueeze": lambda g: g.call("Unsqueeze", "rows", ints(1)),
    "Gather": lambda g: g.call("Gather", "rows", ints(3, 0, 5), axis=2),
    "DepthToSpace": lambda g: g.call("DepthToSpace", "image", blocksize=2),
    "CumSum": lambda g: g.call("CumSum", "rows", ints(1)[0]),
    "Tile": lambda g: g.call("Tile", "rows", ints(1, 2, 3)),
    "Tile of nothing new": lambda g: g.call("Tile", "rows", ints(1, 1, 1)),
    "Trilu": lambda g: g.call("Trilu", g.floats(4, 4), upper=1),
    "Trilu of open rows": lambda g: g.call("Trilu", "rows", ints(-1)[0], upper=0),
}


def model_of(names: list[str]) -> onnx.ModelProto:
    """A model with one output for each of these cases, ``y0``, ``y1``, ..."""
    graph = Graph()
    outputs = []
    for place, name in enumerate(names):
        graph.prefix = f"g{place}_"
        graph.random = np.random.default_rng(zlib.crc32(name.encode()))  # alone it is the same
        result = CASES[name](graph)
        graph.nodes.append(helper.make_node("Identity", [result], [f"y{place}"]))
        kind = TensorProto.INT32 if name == "Cast" else TensorProto.FLOAT
        outputs.append(helper.make_tensor_value_info(f"y{place}", kind, None))
    read = {name for node in graph.nodes for name in node.input}
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in INPUTS.items()
        if name in read
    ]
    made = helper.make_graph(graph.nodes, "operators", inputs, outputs, graph.weights)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def arrays_of(sizes: dict[str, int]) -> dict[str, np.ndarray]:
    random = np.random.default_rng(sum(sizes.values()))
    shapes = {name: [sizes.get(e, e) for e in shape] for name, shape in INPUTS.items()}
    return {name: random.uniform(-1, 1, shape).astype("float32") for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> byoc.Model:
    path = tmp_path_factory.mktemp("operators") / "m.so"
    report = byoc.compile(model_of(list(CASES)), path, INPUTS).report
    assert not report.left, report.left
    return byoc.load(path)


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: "-".join(map(str, sizes.values())))
def test_every_operator_at_every_size(library: byoc.Model, sizes: dict[str, int]) -> None:
    arrays = arrays_of(sizes)
    results = library.run({info.name: arrays[info.name] for info in library.inputs})
    compared = 0
    for place, name in enumerate(CASES):
        alone = model_of([name])
        given = {value.name: arrays[value.name] for value in alone.graph.input}
        try:
            (expected,) = onnxruntime_outputs(alone, given).values()
        except Exception:  # it has no class of its own for sizes that it refuses
            assert 0 in sizes.values(), name
            continue
        if name == "MatMul of tokens" and sizes["s"] == 0:
            expected[:] = 0  # a sum over nothing, which ONNX Runtime does not write
        found = results[f"y{place}"]
        assert found.shape == expected.shape, name
        np.testing.assert_allclose(found, expected, 1e-4, 1e-5, err_msg=name)
        compared += 1
    assert compared > (len(CASES) // 2 if 0 in sizes.values() else len(CASES) - 1)
