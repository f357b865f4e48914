"""Group and instance norms of networks of images: one kernel each, and nothing is reordered for it.

ONNX Runtime writes GroupNormalization out by its schema, as ONNX's evaluator does.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, numpy_helper
from onnx import helper as oh

import byoc
from tests.models.halves import in_halves

CHANNELS, GROUPS = 32, 8


class Graph:
    """Nodes and weights of a model with the input ``x``."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(5)

    def weight(self, values: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(values, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def floats(self, *shape: int) -> str:
        return self.weight((self.random.standard_normal(shape) * 0.2 + 0.3).astype(np.float32))

    def call(self, op: str, *operands: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(oh.make_node(op, [*operands], [name], **attributes))
        return name

    def conv(self, x: str, inputs: int = CHANNELS) -> str:
        weight = self.floats(CHANNELS, inputs, 3, 3)
        return self.call("Conv", x, weight, self.floats(CHANNELS), pads=[1] * 4)

    def silu(self, x: str) -> str:
        return self.call("Mul", x, self.call("Sigmoid", x))

    def as_exported(self, x: str, channels: int = CHANNELS) -> str:
        """PyTorch's group norm before opset 18: an instance norm of groups, then an affine step."""
        groups = self.call("Reshape", x, self.weight(np.array([0, GROUPS, -1])))
        ones, zeros = (self.weight(np.full(GROUPS, v, np.float32)) for v in (1, 0))
        y = self.call("InstanceNormalization", groups, ones, zeros, epsilon=1e-5)
        y = self.call("Reshape", y, self.call("Shape", x))
        y = self.call("Mul", y, self.floats(channels, 1, 1))
        return self.call("Add", y, self.floats(channels, 1, 1))

    def model(self, result: str, shape: list[int | str], opset: int = 17) -> onnx.ModelProto:
        info = oh.make_tensor_value_info
        graph = oh.make_graph(
            self.nodes,
            "norms",
            [info("x", TensorProto.FLOAT, shape)],
            [info(result, TensorProto.FLOAT, None)],
            self.weights,
        )
        opsets = [oh.make_opsetid("", opset)]
        return oh.make_model(graph, opset_imports=opsets, ir_version=10)


def compiled(model: onnx.ModelProto, folder: Path, **options: object) -> byoc.Compiled:
    done = byoc.compile(model, folder / "m.so", min_bytes=0, **options)
    assert len(done.report.regions) == 1 and done.report.left == (), done.report.summary()
    return done


def norms(done: byoc.Compiled) -> int:
    """The calls of the kernel; no other one normalises."""
    taken = {use.algorithm: use.nodes for use in done.report.kernels}
    assert not {"layer_norm", "mul", "add"} & {*taken}, taken
    return taken["group_norm"]


def check(model: onnx.ModelProto, folder: Path, *shapes: tuple[int, ...], limit: float) -> None:
    session = ort.InferenceSession(model.SerializeToString())
    library = byoc.load(folder / "m.so")
    for shape in shapes:
        x = np.random.default_rng(6).standard_normal(shape).astype(np.float32)
        (want,) = session.run(None, {"x": x})
        (found,) = library.run({"x": x}).values()
        np.testing.assert_allclose(found, want, rtol=0, atol=limit * np.abs(want).max())


def unet(g: Graph, norm: str = "") -> str:
    """Two blocks with a skip connection, which is joined along the channels."""

    def normal(x: str, channels: int) -> str:
        if not norm:
            return g.as_exported(x, channels)
        operands = [g.floats(channels), g.floats(channels)]
        return g.call(norm, x, *operands, **({"num_groups": GROUPS} if norm[0] == "G" else {}))

    x = g.conv("x", 3)
    block = g.call("Add", x, g.conv(g.silu(normal(x, CHANNELS))))
    joined = g.call("Concat", block, x, axis=1)
    y = g.conv(g.call("Relu", normal(joined, 2 * CHANNELS)), 2 * CHANNELS)
    return g.conv(normal(y, CHANNELS))


@pytest.mark.parametrize(
    ("norm", "opset"),
    [("", 17), ("InstanceNormalization", 17), ("GroupNormalization", 21)],
)
def test_nothing_is_reordered(norm: str, opset: int, tmp_path: Path) -> None:
    g = Graph()
    model = g.model(unet(g, norm), [2, 3, 20, 24], opset)
    done = compiled(model, tmp_path)
    assert norms(done) == 3
    (region,) = done.report.regions
    assert region.plan.copies_inside == 0
    check(model, tmp_path, (2, 3, 20, 24), limit=2e-5)


@pytest.mark.parametrize("norm", ["", "InstanceNormalization", "GroupNormalization"])
def test_open_sizes(norm: str, tmp_path: Path) -> None:
    g = Graph()
    model = g.model(unet(g, norm), ["n", 3, "h", "w"], 21 if norm[:1] == "G" else 17)
    assert norms(compiled(model, tmp_path)) == 3
    check(model, tmp_path, (1, 3, 5, 7), (3, 3, 16, 9), limit=2e-5)


@pytest.mark.parametrize("shape", [(3, CHANNELS), (2, CHANNELS, 50), (2, CHANNELS, 3, 5, 6)])
@pytest.mark.parametrize("opset", [18, 21])
def test_other_ranks(shape: tuple[int, ...], opset: int, tmp_path: Path) -> None:
    g = Graph()
    size = GROUPS if opset == 18 else CHANNELS
    vectors = [g.floats(size), g.floats(size)]
    y = g.call("GroupNormalization", "x", *vectors, num_groups=GROUPS, epsilon=1e-3)
    model = g.model(g.call("Sigmoid", y), [*shape], opset)
    assert norms(compiled(model, tmp_path)) == 1
    check(model, tmp_path, shape, limit=5e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_computed_in_float32(dtype: str, tmp_path: Path) -> None:
    g = Graph()
    single = g.model(unet(g, "GroupNormalization"), [1, 3, 12, 12], 21)
    assert norms(compiled(in_halves(single, dtype), tmp_path)) == 3


def test_stored_in_bfloat16(tmp_path: Path) -> None:
    g = Graph()
    model = g.model(unet(g), [1, 3, 24, 24])
    assert norms(compiled(model, tmp_path, precision="bf16")) == 3
    check(model, tmp_path, (1, 3, 24, 24), limit=3e-2)


def test_scale_that_is_computed(tmp_path: Path) -> None:
    g = Graph()
    scale = g.call("ReduceMean", "x", axes=[0, 2, 3], keepdims=0)
    y = g.call("InstanceNormalization", g.conv("x"), scale, g.floats(CHANNELS))
    model = g.model(y, [2, CHANNELS, 6, 5])
    assert norms(compiled(model, tmp_path)) == 1
    check(model, tmp_path, (2, CHANNELS, 6, 5), limit=5e-6)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
def test_of_microsoft(activation: int, last: int, tmp_path: Path) -> None:
    """ONNX Runtime has it for GPUs alone: what it is by ONNX's operators is the reference."""
    g = Graph()
    vectors = [g.floats(CHANNELS), g.floats(CHANNELS)]
    attributes = {"activation": activation, "channels_last": last, "domain": "com.microsoft"}
    y = g.call("GroupNorm", "x", *vectors, groups=GROUPS, epsilon=1e-4, **attributes)
    shape = ["n", 6, "w", CHANNELS] if last else ["n", CHANNELS, 6, "w"]
    model = g.model(y, shape)
    model.opset_import.append(oh.make_opsetid("com.microsoft", 1))
    assert norms(compiled(model, tmp_path)) == 1
    (same,) = g.nodes
    g.nodes = []
    x = g.call("Transpose", "x", perm=[0, 3, 1, 2]) if last else "x"
    y = g.call("GroupNormalization", x, *same.input[1:], num_groups=GROUPS, epsilon=1e-4)
    y = g.silu(y) if activation else y
    y = g.call("Transpose", y, perm=[0, 2, 3, 1]) if last else y
    check(
        g.model(y, shape, 21),
        tmp_path,
        (2, 6, 5, CHANNELS) if last else (2, CHANNELS, 6, 5),
        limit=1e-5,
    )
