"""Operators of com.microsoft in files with dynamic axes: one library serves every size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

import byoc
from tests.reference import assert_agrees, onnxruntime_outputs

MICROSOFT = "com.microsoft"
FLOAT, INT32 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32

DRAW = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return (DRAW.standard_normal(shape) / 2).astype(np.float32)


def node(kind: str, inputs: list[str], outputs: list[str], **attributes: object) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, outputs, domain=MICROSOFT, **attributes)


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[int | str]]],
    outputs: dict[str, list[int | str]],
    weights: dict[str, np.ndarray],
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def check(model: onnx.ModelProto, folder: Path, runs: list[dict[str, np.ndarray]]) -> None:
    report = byoc.compile(model, folder / "model.so").report
    assert "attention" in {use.algorithm for use in report.kernels}
    library = byoc.load(folder / "model.so")
    for inputs in runs:
        assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))


def test_encoder(tmp_path: Path) -> None:
    weights = {
        "words": floats(20, 8), "places": floats(32, 8), "g": 1 + floats(8), "b": floats(8),
        "w": floats(8, 24), "bias": floats(24), "wq": floats(8, 8), "wk": floats(8, 8),
    }  # fmt: skip
    embedded = ["ids", "", "words", "places", "", "g", "b", ""]
    nodes = [
        node("EmbedLayerNormalization", embedded, ["e", "counts"], epsilon=1e-5),
        node("Attention", ["e", "w", "bias", "mask"], ["a"], num_heads=2),
        node("SkipLayerNormalization", ["a", "e", "g", "b"], ["s"], epsilon=1e-5),
        helper.make_node("MatMul", ["s", "wq"], ["q"]),
        helper.make_node("MatMul", ["s", "wk"], ["k"]),
        node("MultiHeadAttention", ["q", "k", "s", "bias", "mask"], ["m"], num_heads=2),
        node("BiasGelu", ["m", "b"], ["y"]),
    ]
    axes = ["batch", "sequence"]
    inputs = {"ids": (INT32, axes), "mask": (INT32, axes)}
    model = model_of(nodes, inputs, {"y": [*axes, 8]}, weights)
    runs = []
    for batch, length in ((1, 5), (3, 7)):
        mask = (np.arange(length) < DRAW.integers(2, length, (batch, 1))).astype(np.int32)
        ids = DRAW.integers(0, 20, (batch, length)).astype(np.int32)
        runs.append({"ids": ids, "mask": mask})
    check(model, tmp_path, runs)


def test_encoder_that_counts_its_keys(tmp_path: Path) -> None:
    """ONNX Runtime's optimiser of BERT hands the number of words on, which the mask tells."""
    weights = {
        "words": floats(20, 8), "places": floats(32, 8), "kinds": floats(2, 8),
        "g": 1 + floats(8), "b": floats(8), "w": floats(8, 24), "bias": floats(24),
    }  # fmt: skip
    embedded = ["ids", "segments", "words", "places", "kinds", "g", "b", "mask"]
    nodes = [
        node("EmbedLayerNormalization", embedded, ["e", "counts"], epsilon=1e-5),
        node("Attention", ["e", "w", "bias", "counts"], ["a"], num_heads=2),
        node("SkipLayerNormalization", ["a", "e", "g", "b"], ["y"], epsilon=1e-5),
    ]
    axes = ["batch", "sequence"]
    inputs = dict.fromkeys(("ids", "segments", "mask"), (INT32, axes))
    model = model_of(nodes, inputs, {"y": [*axes, 8]}, weights)
    runs = []
    for batch, length in ((1, 5), (3, 7), (2, 1)):
        counts = np.arange(length, length - batch, -1)[:, None]
        mask = (np.arange(length) < np.maximum(counts, 1)).astype(np.int32)
        ids = DRAW.integers(0, 20, (batch, length)).astype(np.int32)
        runs.append({"ids": ids, "segments": ids % 2, "mask": mask})
    check(model, tmp_path, runs)


def test_decoder(tmp_path: Path) -> None:
    """Steps behind a past of any length."""
    angles = floats(40, 8)
    names = ["q", "k", "v", "past_k", "past_v", "last", "total", "cos", "sin"]
    sizes = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
    nodes = [node("GroupQueryAttention", names, ["y", "new_k", "new_v"], **sizes)]
    rows, past = ["batch", "sequence"], ["batch", 2, "past", 16]
    inputs = {
        "q": (FLOAT, [*rows, 64]), "k": (FLOAT, [*rows, 32]), "v": (FLOAT, [*rows, 32]),
        "past_k": (FLOAT, past), "past_v": (FLOAT, past), "last": (INT32, ["batch"]),
        "total": (INT32, []),
    }  # fmt: skip
    whole: list[int | str] = ["batch", 2, "whole", 16]
    outputs = {"y": [*rows, 64], "new_k": whole, "new_v": whole}
    tables = {"cos": np.cos(angles), "sin": np.sin(angles)}
    model = model_of(nodes, inputs, outputs, tables)
    runs = [
        {
            "q": floats(batch, length, 64),
            "k": floats(batch, length, 32),
            "v": floats(batch, length, 32),
            "past_k": floats(batch, 2, before, 16),
            "past_v": floats(batch, 2, before, 16),
            "last": np.full(batch, before + length - 1, np.int32),
            "total": np.array(before + length, np.int32),
        }
        for batch, length, before in ((2, 1, 4), (1, 3, 2))
    ]
    check(model, tmp_path, runs)


def test_a_decoder_before_and_behind_a_past(tmp_path: Path) -> None:
    """Causal masks of as many rows and keys as there are at the call."""
    weights = {"w": floats(8, 24), "bias": floats(24)}
    nodes = [
        node("Attention", ["x", "w", "bias"], ["a"], num_heads=2, unidirectional=1),
        node(
            "Attention", ["a", "w", "bias", "", "past"], ["y", "new"], num_heads=2, unidirectional=1
        ),
    ]
    axes, cache = ["batch", "sequence", 8], [2, "batch", 2, "past", 4]
    inputs = {"x": (FLOAT, axes), "past": (FLOAT, cache)}
    outputs = {"y": axes, "new": [*cache[:3], "whole", 4]}
    model = model_of(nodes, inputs, outputs, weights)
    runs = [
        {"x": floats(batch, length, 8), "past": floats(2, batch, 2, before, 4)}
        for batch, length, before in ((2, 3, 4), (1, 1, 6))
    ]
    check(model, tmp_path, runs)
