"""Small networks with layers that have a choice, and databases that decide on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from byoc.compiler.partition import partition_for_ext
from byoc.frontends.onnx import import_onnx, prepare
from byoc.tuning.database import machine_key, merge
from byoc.tuning.layers import TunableLayer, tunable_layers
from codegen_cc.libraries import Selection, library
from codegen_cc.libraries.measured_choice import Race, Time, stamp


def model_of(
    nodes: list[onnx.NodeProto], inputs: dict[str, list], weights: dict[str, tuple[int, ...]]
) -> onnx.ModelProto:
    """A model with output ``y``, weights drawn."""
    draw = np.random.default_rng(7)
    tensors = [
        numpy_helper.from_array(draw.standard_normal(shape, np.float32) * np.float32(0.2), name)
        for name, shape in weights.items()
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def convolutions(batch: int | str = 1) -> onnx.ModelProto:
    """Equal 3x3 convolutions ``first`` and ``second``, with bias and ReLU; ``last``, of one pixel.

    Untuned, the first two are computed by Winograd's F(4, 3); there is one way for ``last``.
    """
    same = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["a"], "first", **same),
        helper.make_node("Relu", ["a"], ["b"], "relu0"),
        helper.make_node("Conv", ["b", "w1", "b1"], ["c"], "second", **same),
        helper.make_node("Relu", ["c"], ["d"], "relu1"),
        helper.make_node("Conv", ["d", "w2"], ["y"], "last", strides=[2, 2]),
    ]
    kernel = (32, 32, 3, 3)
    weights = {"w0": kernel, "b0": (32,), "w1": kernel, "b1": (32,), "w2": (32, 32, 1, 1)}
    return model_of(nodes, {"x": [batch, 32, 20, 20]}, weights)


def layers_of(model: onnx.ModelProto, libraries: object = "builtin") -> list[TunableLayer]:
    selection = Selection.of(libraries)
    module = partition_for_ext(import_onnx(prepare(model)), libraries=selection)
    return tunable_layers(module, selection)


def write_database(
    path: Path,
    model: onnx.ModelProto,
    milliseconds: dict[str, float | None],
    threads: int = 1,
    change: Callable[[Race], Race] = lambda race: race,
) -> None:
    """Store such times of built-in algorithms for every layer that has a choice."""
    times = {name: None if ms is None else Time(ms, ms) for name, ms in milliseconds.items()}
    race = change(Race({"builtin": stamp(library("builtin"))}, {"builtin": times}))
    races = {layer.signature: race for layer in layers_of(model) if not layer.skipped}
    merge(path, machine_key(threads), races)


def of_version(text: str) -> Callable[[Race], Race]:
    """A race as another version of the built-in kernels would have written it."""
    return lambda race: replace(race, stamps={"builtin": text})
