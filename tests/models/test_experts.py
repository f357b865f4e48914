"""Mixtures of experts of com.microsoft, beside ONNX Runtime and the formula."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import byoc
from byoc.errors import ImportFailure
from byoc.frontends.onnx import import_onnx, prepare
from tests.reference import assert_agrees, onnxruntime_outputs

HIDDEN, INNER = 32, 48
RNG = np.random.default_rng(3)


def _floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def _model(
    inputs: dict[str, list[int | str]],
    names: list[str],
    constants: dict[str, np.ndarray],
    **attributes: Any,
) -> onnx.ModelProto:
    operator = "QMoE" if "s1" in constants else "MoE"
    node = helper.make_node(operator, names, ["y"], "n", domain="com.microsoft", **attributes)
    infos = [helper.make_tensor_value_info(n, 1, shape) for n, shape in inputs.items()]
    result = helper.make_tensor_value_info("y", 1, inputs["x"])
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph([node], "g", infos, [result], weights)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def _of_floats(experts: int, act: str, bias: bool = True, **attributes: Any) -> onnx.ModelProto:
    columns = INNER * (2 if act == "swiglu" else 1)
    constants = {"w1": _floats(experts, columns, HIDDEN), "w2": _floats(experts, HIDDEN, INNER)}
    if bias:
        constants |= {"b1": _floats(experts, columns), "b2": _floats(experts, HIDDEN)}
    names = ["x", "r", "w1", "b1" * bias, "w2", "b2" * bias]
    inputs = {"x": ["n", HIDDEN], "r": ["n", experts]}
    return _model(inputs, names, constants, activation_type=act, **attributes)


def _of_integers(
    bits: int, block: int, zeros: bool, weights: bool = False, **attributes: Any
) -> onnx.ModelProto:
    experts, inner = 4, 64
    constants = {}
    for layer, (n, k) in {"1": (inner, HIDDEN), "2": (HIDDEN, inner)}.items():
        blocks = k // block if block else 1
        scales = (experts, n, blocks) if block else (experts, n)
        constants[f"w{layer}"] = RNG.integers(0, 256, (experts, n, k * bits // 8)).astype("uint8")
        constants[f"s{layer}"] = (RNG.random(scales) * 0.05 + 0.01).astype("float32")
        if zeros:
            packed = (experts, n, -(-blocks * bits // 8)) if block else (experts, -(-n * bits // 8))
            constants[f"z{layer}"] = RNG.integers(0, 256, packed).astype("uint8")
    names = ["x", "r", "w1", "s1", "", "w2", "s2", "", "", "", ""]
    names += ["z1" * zeros, "z2" * zeros, "", "own" * weights]
    inputs = {"x": ["n", HIDDEN], "r": ["n", experts]} | (
        {"own": ["n", experts]} if weights else {}
    )
    attributes |= {"block_size": block} if block else {}
    return _model(
        inputs, names, constants, expert_weight_bits=bits, activation_type="silu", k=2, **attributes
    )


CASES = {
    "relu": _of_floats(4, "relu", k=2, normalize_routing_weights=1),
    "gelu": _of_floats(4, "gelu", k=1),
    "silu": _of_floats(3, "silu", bias=False, k=3),
    "identity": _of_floats(1, "identity", k=1),
    "swiglu": _of_floats(
        4,
        "swiglu",
        k=2,
        swiglu_fusion=1,
        swiglu_limit=0.5,
        activation_alpha=1.702,
        activation_beta=1.0,
    ),
    "rows of 4 bits": _of_integers(4, 0, True),
    "blocks of 4 bits": _of_integers(4, 16, True),
    "rows of 8 bits": _of_integers(8, 0, False),
    "blocks of 2 bits": _of_integers(2, 16, True),
    "weights of their own": _of_integers(4, 32, False, True, normalize_routing_weights=1),
}


@pytest.mark.parametrize("name", CASES)
def test_agree_with_onnxruntime(name: str, tmp_path: Path) -> None:
    """Each row is multiplied by the matrices of its experts alone."""
    model = CASES[name]
    experts = model.graph.input[1].type.tensor_type.shape.dim[1].dim_value
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert report.left == () and len(report.regions) == 1
    kernels = {use.algorithm: use.nodes for use in report.kernels}
    assert kernels.get("grouped products", 0) == (2 if experts > 1 else 0)
    assert kernels.get("matmul", 0) == (0 if experts > 1 else 2)
    compiled = byoc.load(tmp_path / "m.so")
    for rows in (1, 5, 40):
        given = {info.name: _floats(rows, HIDDEN) for info in model.graph.input[:1]}
        given |= {info.name: _floats(rows, experts) for info in model.graph.input[1:]}
        assert_agrees(compiled.run(given), onnxruntime_outputs(model, given))
    nothing = {info.name: np.zeros((0, experts), "f4") for info in model.graph.input[1:]}
    assert compiled.run({"x": np.zeros((0, HIDDEN), "f4"), **nothing})["y"].shape == (0, HIDDEN)


def test_equal_scores_pick_as_onnxruntime_does(tmp_path: Path) -> None:
    """Experts that stand last, as for rows of padding, whose scores are all 0."""
    model = _of_floats(4, "relu", k=2)
    byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    given = {"x": _floats(3, HIDDEN), "r": np.zeros((3, 4), "f4")}
    given["r"][1, :2] = 1
    assert_agrees(byoc.load(tmp_path / "m.so").run(given), onnxruntime_outputs(model, given))


def test_sentences_and_halves_of_a_gate(tmp_path: Path) -> None:
    """[B, T, H] as one region, and both matrices side by side, which ONNX Runtime lacks."""
    turns = _of_floats(4, "swiglu", k=2, swiglu_fusion=1)
    halves = onnx.ModelProto()
    halves.CopyFrom(turns)
    for weight in halves.graph.initializer[0], halves.graph.initializer[2]:
        array = numpy_helper.to_array(weight)
        parts = np.concatenate([array[:, 0::2], array[:, 1::2]], 1)
        weight.CopyFrom(numpy_helper.from_array(parts, weight.name))
    next(a for a in halves.graph.node[0].attribute if a.name == "swiglu_fusion").i = 2
    dims = [[2, 3, HIDDEN], [6, 4], [2, 3, HIDDEN]]
    for model in (turns, halves):
        for info, shape in zip((*model.graph.input, *model.graph.output), dims, strict=True):
            info.CopyFrom(helper.make_tensor_value_info(info.name, 1, shape))
    report = byoc.compile(halves, tmp_path / "m.so", min_bytes=0).report
    assert report.left == () and len(report.regions) == 1
    given = {"x": _floats(2, 3, HIDDEN), "r": _floats(6, 4)}
    assert_agrees(byoc.load(tmp_path / "m.so").run(given), onnxruntime_outputs(turns, given))


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"k": 5}, "k=5 of 4 experts"),
        ({"use_sparse_mixer": 1, "k": 2}, "use_sparse_mixer=1"),
        ({"activation_type": "tanh"}, "activation_type tanh"),
    ],
)
def test_what_is_not_computed_is_refused(attributes: dict[str, Any], reason: str) -> None:
    model = _of_floats(4, attributes.pop("activation_type", "relu"), **attributes)
    with pytest.raises(ImportFailure, match=reason):
        import_onnx(prepare(model))
