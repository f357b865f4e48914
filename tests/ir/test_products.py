"""A product and the sum that alone reads it: one kernel for both, or two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import byoc
from models.builder import GraphBuilder
from tests.ir.test_prologue import kernels, plan_of
from tests.reference import assert_agrees, onnxruntime_outputs

CHANNELS = 21
IMAGE, ROWS = (2, CHANNELS, 6, 7), (5, 40)


class Graph(GraphBuilder):
    """ONNX nodes on x and z of one shape, and the model that they make up."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__("products", seed=5)
        self.shape = shape

    def draw(self, *shape: int) -> str:
        return self.constant(self._random.uniform(0.5, 1.5, shape).astype(np.float32))

    def model(self, *results: str) -> onnx.ModelProto:
        for name in ("x", "z"):
            self.input(name, self.shape)
        for index, result in enumerate(results):
            self.output(result, f"y{index}", self.shape)
        return onnx.shape_inference.infer_shapes(self.build())


def batch_norm(graph: Graph) -> str:
    return graph.batch_norm(graph.op("Tanh", "x"), CHANNELS)


def batch_norm_relu(graph: Graph) -> str:
    return graph.op("Relu", graph.batch_norm(graph.op("Add", "x", "z"), CHANNELS))


def shift_first(graph: Graph) -> str:
    return graph.op("Add", graph.draw(40), graph.op("Mul", graph.draw(1), "x"))


def factor_is_added(graph: Graph) -> str:
    return graph.op("Add", graph.op("Mul", "x", "z"), "x")


def square(graph: Graph) -> str:
    return graph.op("Add", graph.op("Mul", "x", "x"), "z")


def lerp(graph: Graph) -> str:
    change = graph.op("Mul", graph.op("Sub", "z", "x"), graph.draw(5, 1))
    return graph.op("Sigmoid", graph.op("Add", "x", change))


def two_products(graph: Graph) -> str:
    return graph.op("Add", graph.op("Mul", "x", "z"), graph.op("Mul", "z", "z"))


def turned(graph: Graph) -> str:
    """A factor that lies otherwise in memory, and is turned as it is read."""
    rows = graph.op("Transpose", graph.op("Reshape", "x", graph.constant(np.array([40, 5]))))
    return graph.op("Add", graph.op("Mul", rows, "z"), graph.draw(40))


#: What is written, on what, and the calls of ``ext_binary`` beside one of ``ext_multiply_add``.
TAKEN: dict[str, tuple[Callable[[Graph], str], tuple[int, ...], int]] = {
    "batch norm": (batch_norm, IMAGE, 0),
    "batch norm, relu": (batch_norm_relu, IMAGE, 1),
    "shift first": (shift_first, ROWS, 0),
    "factor is added": (factor_is_added, ROWS, 0),
    "square": (square, ROWS, 0),
    "lerp": (lerp, ROWS, 1),
    "two products": (two_products, ROWS, 1),
    "turned": (turned, ROWS, 0),
}


def check(model: onnx.ModelProto, shape: tuple[int, ...], folder: Path) -> None:
    draw = np.random.default_rng(1)
    given = {name: draw.standard_normal(shape, dtype=np.float32) for name in ("x", "z")}
    compiled = byoc.compile(model, folder / "m.so")
    assert len(compiled.report.regions) == 1
    given = {info.name: given[info.name] for info in compiled.metadata.inputs}
    assert_agrees(byoc.load(folder / "m.so").run(given), onnxruntime_outputs(model, given))


@pytest.mark.parametrize("name", TAKEN)
def test_one_kernel_does_both(name: str, tmp_path: Path) -> None:
    write, shape, others = TAKEN[name]
    graph = Graph(shape)
    model = graph.model(write(graph))
    called = kernels(plan_of(model))
    assert called.count("ext_multiply_add") == 1
    assert called.count("ext_binary") == others
    check(model, shape, tmp_path)


def read_twice(graph: Graph) -> tuple[str, ...]:
    product = graph.op("Mul", "x", "z")
    return graph.op("Add", product, "x"), graph.op("Tanh", product)


def given_out(graph: Graph) -> tuple[str, ...]:
    product = graph.op("Mul", "x", "z")
    return graph.op("Add", product, "x"), product


def with_activation(graph: Graph) -> tuple[str, ...]:
    return (graph.op("Add", graph.op("Relu", graph.op("Mul", "x", "z")), "x"),)


def repeated(graph: Graph) -> tuple[str, ...]:
    """The product of two rows is computed once for all."""
    row = graph.op("Mul", graph.op("ReduceMax", "x", axes=[0]), graph.draw(1, 40))
    return (graph.op("Add", row, "z"),)


def twice_itself(graph: Graph) -> tuple[str, ...]:
    product = graph.op("Mul", "x", "z")
    return (graph.op("Add", product, product),)


@pytest.mark.parametrize(
    "write",
    [read_twice, given_out, with_activation, repeated, twice_itself],
    ids=lambda f: f.__name__,
)
def test_a_product_of_its_own(write: Callable[[Graph], tuple[str, ...]], tmp_path: Path) -> None:
    graph = Graph(ROWS)
    model = graph.model(*write(graph))
    called = kernels(plan_of(model))
    assert "ext_multiply_add" not in called and called.count("ext_binary") == 2
    check(model, ROWS, tmp_path)
