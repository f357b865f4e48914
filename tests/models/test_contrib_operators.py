"""Operators of com.microsoft on floats, as ONNX Runtime's optimisers and exporters write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnxruntime.transformers.float16 import convert_float_to_float16

import byoc.frontends.onnx.backend as backend
from byoc import zoo
from byoc.errors import ImportFailure
from byoc.frontends.onnx import import_onnx, prepare
from byoc.frontends.onnx.measured_model import draw_inputs
from tests.ir.graphs import onnx_model
from tests.reference import assert_agrees, onnxruntime_outputs

MICROSOFT = "com.microsoft"

#: Activations that ONNX Runtime puts into a Gemm, with what it writes beside them.
FUSED_ACTIVATIONS: dict[str, dict[str, float]] = {
    "Elu": {"activation_alpha": 0.5},
    "HardSigmoid": {"activation_alpha": 0.3, "activation_beta": 0.4},
    "LeakyRelu": {"activation_alpha": 0.2},
    "Selu": {"activation_alpha": 0.5, "activation_gamma": 2.0},
    "Sigmoid": {},
    "Softplus": {},
    "Softsign": {},
    "Tanh": {},
    "ThresholdedRelu": {"activation_alpha": 0.5},
}

#: Inputs by name, the node's inputs in order ("" left out), outputs, attributes.
Made = tuple[dict[str, np.ndarray], list[str], int, dict[str, Any]]

DRAW = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return DRAW.standard_normal(shape).astype(np.float32)


def simple(shapes: dict[str, list[int]], outputs: int = 1, **attributes: Any) -> Made:
    return {n: floats(*s) for n, s in shapes.items()}, list(shapes), outputs, attributes


def image(**attributes: Any) -> Made:
    shapes = {"x": [1, 4, 9, 8], "w": [6, 4, 3, 3], "b": [6]}
    return simple(shapes, pads=[1, 1, 1, 1], kernel_shape=[3, 3], **attributes)


def fused_conv_with_sum() -> Made:
    shapes = {"x": [1, 4, 9, 8], "w": [6, 4, 3, 3], "b": [6], "z": [1, 6, 9, 8]}
    return simple(shapes, pads=[1, 1, 1, 1], activation="Relu")


def embedding(mask: bool, segments: bool) -> Made:
    inputs = {
        "ids": DRAW.integers(0, 20, (2, 5)).astype(np.int32),
        "segments": DRAW.integers(0, 2, (2, 5)).astype(np.int32),
        "words": floats(20, 8),
        "places": floats(12, 8),
        "kinds": floats(2, 8),
        "gamma": floats(8),
        "beta": floats(8),
        "mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32),
    }
    names = list(inputs)
    if not segments:
        names[1] = names[4] = ""
    if not mask:
        names[7] = ""
    return {n: inputs[n] for n in names if n}, names, 2, {"epsilon": 1e-5}


def packed_attention(mask: str = "", past: int = 0, **attributes: Any) -> Made:
    """Two heads of 4, of three tokens."""
    inputs = {"x": floats(2, 3, 8), "w": floats(8, 24), "b": floats(24)}
    names = [*inputs, "", "", ""]
    total = 3 + past
    masks = {
        "keys": np.array([[1] * (total - 1) + [0], [1] * total], np.int32),
        "counts": np.array([total - 1, total], np.int32),
        "begins": np.array([total, total - 1, 1, 0], np.int32),
        "rows": (DRAW.random((2, 3, total)) < 0.7).astype(np.int32)
        | np.eye(3, total, dtype=np.int32),
    }
    if mask:
        inputs["mask"] = masks[mask]
        names[3] = "mask"
    if past:
        inputs["past"] = floats(2, 2, 2, past, 4)
        names[4] = "past"
    return inputs, names, 2 if past else 1, {"num_heads": 2, **attributes}


def attention_with_bias() -> Made:
    inputs = {"x": floats(2, 3, 8), "w": floats(8, 24), "b": floats(24), "add": floats(1, 2, 3, 3)}
    return inputs, ["x", "w", "b", "", "", "add"], 1, {"num_heads": 2, "unidirectional": 1}


def multi_head(
    keys: int = 5, bias: bool = False, mask: str = "", past: int = 0, heads_first: bool = False
) -> Made:
    inputs = {"q": floats(2, 3, 8), "k": floats(2, keys, 8), "v": floats(2, keys, 8)}
    if heads_first:
        inputs |= {"k": floats(2, 2, keys, 4), "v": floats(2, 2, keys, 4)}
    names = [*inputs, *[""] * 5]
    if bias:
        inputs["bias"] = floats(24)
        names[3] = "bias"
    if mask == "keys":
        inputs["mask"] = np.array([[1] * (keys + past - 1) + [0], [1] * (keys + past)], np.int32)
        names[4] = "mask"
    if mask == "added":
        inputs["add"] = floats(2, 2, 3, keys + past)
        names[5] = "add"
    if past:
        inputs |= {"pk": floats(2, 2, past, 4), "pv": floats(2, 2, past, 4)}
        names[6:8] = ["pk", "pv"]
    return inputs, names, 3 if past else 1, {"num_heads": 2}


def quantised_conv() -> Made:
    """An image with the channels last, as ONNX Runtime writes it for its kernels."""
    inputs = {
        "x": DRAW.integers(0, 255, (1, 6, 5, 4)).astype(np.uint8),
        "xs": np.array(0.02, np.float32),
        "xz": np.array(120, np.uint8),
        "w": DRAW.integers(-90, 90, (3, 4, 3, 3)).astype(np.int8),
        "ws": np.array(0.01, np.float32),
        "wz": np.array(0, np.int8),
        "ys": np.array(0.1, np.float32),
        "yz": np.array(128, np.uint8),
    }
    return inputs, list(inputs), 1, {"channels_last": 1, "pads": [1, 1, 1, 1]}


def quantised_pool(**attributes: Any) -> Made:
    inputs = {
        "x": DRAW.integers(0, 255, (1, 6, 6, 3)).astype(np.uint8),
        "xs": np.array(0.02, np.float32),
        "xz": np.array(120, np.uint8),
        "ys": np.array(0.02, np.float32),
        "yz": np.array(120, np.uint8),
    }
    return inputs, list(inputs), 1, {"channels_last": 1, **attributes}


def one_scale(x: np.ndarray) -> Made:
    inputs = {"x": x, "s": np.array(0.25, np.float32), "z": np.array(7, np.uint8)}
    return inputs, list(inputs), 1, {}


def along_an_axis(x: np.ndarray) -> Made:
    """ONNX's own operators of these names have an axis from opset 13 on."""
    inputs = {
        "x": x,
        "s": np.array([0.25, 0.5, 0.125, 1], np.float32),
        "z": np.array([7, 0, 130, 255], np.uint8),
    }
    return inputs, list(inputs), 1, {"axis": 1}


def group_query(
    past: int,
    lengths: list[int],
    rows: int = 1,
    packed: bool = False,
    sink: bool = False,
    **attributes: Any,
) -> Made:
    """Four heads of 16 that share two; the past has room for what ``lengths`` and new rows need.

    A bias of the scores and a ``sink`` for each head come together.
    """
    batch = len(lengths)
    inputs = {
        "q": floats(batch, rows, 64 + 64 * packed),
        "k": floats(batch, rows, 32),
        "v": floats(batch, rows, 32),
        "pk": floats(batch, 2, past, 16),
        "pv": floats(batch, 2, past, 16),
        "last": np.array(lengths, np.int32) - 1,
        "total": np.array(past + rows, np.int32),
    }
    names = list(inputs)
    if packed:
        names[1] = names[2] = ""
    if attributes.get("do_rotary"):
        angles = DRAW.random((past + rows, 8)).astype(np.float32)
        inputs |= {"cos": np.cos(angles), "sin": np.sin(angles)}
        names += ["cos", "sin"]
    if sink:
        inputs |= {"bias": floats(1, 1, rows, past + rows), "sink": floats(4)}
        names += [""] * (10 - len(names)) + ["bias", "sink"]
    kept = {name: inputs[name] for name in names if name}
    return kept, names, 3, {"num_heads": 4, "kv_num_heads": 2, **attributes}


def rotary(shape: list[int], places: list[int], **attributes: Any) -> Made:
    angles = DRAW.random((9, attributes.get("rotary_embedding_dim", 4) // 2)).astype(np.float32)
    inputs = {
        "x": floats(*shape),
        "ids": np.array(2) if not places else DRAW.integers(0, 5, places),
        "cos": np.cos(angles),
        "sin": np.sin(angles),
    }
    return inputs, list(inputs), 1, attributes


CASES: dict[str, tuple[str, Callable[[], Made]]] = {
    "gelu": ("Gelu", lambda: simple({"x": [3, 5]})),
    "quick_gelu": ("QuickGelu", lambda: simple({"x": [3, 5]}, alpha=1.5)),
    "fast_gelu": ("FastGelu", lambda: simple({"x": [3, 5]})),
    "fast_gelu_bias": ("FastGelu", lambda: simple({"x": [3, 5], "b": [5]})),
    "bias_gelu": ("BiasGelu", lambda: simple({"x": [3, 5], "b": [5]})),
    "fused_mat_mul": ("FusedMatMul", lambda: simple({"a": [2, 3, 5], "b": [2, 5, 4]}, alpha=0.5)),
    "fused_mat_mul_trans": (
        "FusedMatMul",
        lambda: simple({"a": [2, 5, 3], "b": [2, 4, 5]}, transA=1, transB=1),
    ),
    "fused_mat_mul_batches": (
        "FusedMatMul",
        lambda: simple({"a": [3, 2, 5], "b": [5, 2, 4]}, transBatchA=1, transBatchB=1),
    ),
    "cdist": ("CDist", lambda: simple({"a": [6, 5], "b": [4, 5]}, metric="euclidean")),
    "cdist_squares": ("CDist", lambda: simple({"a": [6, 5], "b": [4, 5]}, metric="sqeuclidean")),
    "fused_conv": ("FusedConv", lambda: image(activation="Relu")),
    "fused_conv_clip": (
        "FusedConv",
        lambda: image(activation="Clip", activation_params=[-0.5, 0.5]),
    ),
    "fused_conv_leaky": (
        "FusedConv",
        lambda: image(activation="LeakyRelu", activation_params=[0.2]),
    ),
    "fused_conv_sum": ("FusedConv", fused_conv_with_sum),
    "fused_gemm": (
        "FusedGemm",
        lambda: simple({"a": [3, 4], "b": [5, 4], "c": [5]}, transB=1, activation="Relu"),
    ),
    **{
        f"fused_gemm_{name}": (
            "FusedGemm",
            lambda name=name, given=given: simple(
                {"a": [3, 4], "b": [4, 5], "c": [5]}, activation=name, **given
            ),
        )
        for name, given in FUSED_ACTIVATIONS.items()
    },
    "skip_layer_norm": (
        "SkipLayerNormalization",
        lambda: simple(
            {"x": [2, 3, 8], "s": [2, 3, 8], "g": [8], "b": [8], "c": [8]}, epsilon=1e-5
        ),
    ),
    "skip_layer_norm_plain": (
        "SkipLayerNormalization",
        lambda: simple({"x": [2, 3, 8], "s": [3, 8], "g": [8]}, epsilon=1e-5),
    ),
    "skip_rms_norm": (
        "SkipSimplifiedLayerNormalization",
        lambda: simple({"x": [2, 3, 8], "s": [2, 3, 8], "g": [8]}, epsilon=1e-5),
    ),
    "embed": ("EmbedLayerNormalization", lambda: embedding(True, True)),
    "embed_words": ("EmbedLayerNormalization", lambda: embedding(False, False)),
    "attention": ("Attention", packed_attention),
    "attention_causal": ("Attention", lambda: packed_attention(unidirectional=1)),
    "attention_keys": ("Attention", lambda: packed_attention("keys", scale=0.3)),
    "attention_counts": ("Attention", lambda: packed_attention("counts")),
    "attention_begins": ("Attention", lambda: packed_attention("begins", scale=0.3)),
    "attention_rows": ("Attention", lambda: packed_attention("rows")),
    "attention_past": ("Attention", lambda: packed_attention("", 2, unidirectional=1)),
    "attention_bias": ("Attention", attention_with_bias),
    "multi_head": ("MultiHeadAttention", multi_head),
    "multi_head_bias": ("MultiHeadAttention", lambda: multi_head(bias=True)),
    "multi_head_keys": ("MultiHeadAttention", lambda: multi_head(mask="keys")),
    "multi_head_added": ("MultiHeadAttention", lambda: multi_head(mask="added")),
    "multi_head_past": ("MultiHeadAttention", lambda: multi_head(3, past=2)),
    "multi_head_cross": ("MultiHeadAttention", lambda: multi_head(heads_first=True)),
    "dequantize": (
        "DequantizeLinear",
        lambda: one_scale(DRAW.integers(0, 255, (3, 4)).astype(np.uint8)),
    ),
    "dequantize_channels": (
        "DequantizeLinear",
        lambda: along_an_axis(DRAW.integers(0, 255, (3, 4, 5)).astype(np.uint8)),
    ),
    "quantize": ("QuantizeLinear", lambda: one_scale(floats(3, 4))),
    "quantize_channels": ("QuantizeLinear", lambda: along_an_axis(floats(3, 4, 5))),
    "quantised_conv": ("QLinearConv", quantised_conv),
    "quantised_max_pool": (
        "NhwcMaxPool",
        lambda: (
            {"x": DRAW.integers(0, 255, (1, 6, 6, 3)).astype(np.uint8)},
            ["x"],
            1,
            {"kernel_shape": [2, 2], "strides": [2, 2]},
        ),
    ),
    "quantised_mean": ("QLinearGlobalAveragePool", quantised_pool),
    "group_query": ("GroupQueryAttention", lambda: group_query(4, [5])),
    "group_query_prompt": (
        "GroupQueryAttention",
        lambda: group_query(0, [5], 5, local_window_size=3, do_rotary=1),
    ),
    "group_query_ragged": (
        "GroupQueryAttention",
        lambda: group_query(4, [3, 5], packed=True, do_rotary=1, rotary_interleaved=1),
    ),
    "group_query_softcap": ("GroupQueryAttention", lambda: group_query(0, [5], 5, softcap=0.25)),
    "group_query_smooth": (
        "GroupQueryAttention",
        lambda: group_query(4, [5], smooth_softmax=1, local_window_size=3),
    ),
    "group_query_sink": (
        "GroupQueryAttention",
        lambda: group_query(4, [5], sink=True, softcap=0.5, do_rotary=1),
    ),
    "rotary": ("RotaryEmbedding", lambda: rotary([2, 3, 8], [2, 3])),
    "rotary_heads": ("RotaryEmbedding", lambda: rotary([2, 2, 3, 4], [1], interleaved=1)),
    "rotary_part": (
        "RotaryEmbedding",
        lambda: rotary([2, 3, 16], [1], num_heads=2, rotary_embedding_dim=4),
    ),
}


#: Results that ONNX Runtime leaves open in part: keys behind those that count.
OPEN = ("group_query_ragged_y1", "group_query_ragged_y2")

#: Cases whose first input alone is none of the model's constants, as in networks.
CONSTANT_WEIGHTS = ("FusedConv", "FusedGemm", "EmbedLayerNormalization", "QLinearConv")


def model_of_all(opset: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """All cases in one model, which is compiled once, and its inputs."""
    nodes, given, weights, outputs = [], {}, [], []
    for case, (operator, make) in CASES.items():
        inputs, names, count, attributes = make()
        results = [f"{case}_y{place}" for place in range(count)]
        read = [f"{case}_{name}" if name else "" for name in names]
        nodes.append(
            helper.make_node(operator, read, results, case, domain=MICROSOFT, **attributes)
        )
        outputs += map(helper.make_empty_tensor_value_info, results)
        for place, (name, value) in enumerate(inputs.items()):
            if place and operator in CONSTANT_WEIGHTS:
                weights.append(numpy_helper.from_array(value, f"{case}_{name}"))
            else:
                given[f"{case}_{name}"] = value
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in given.items()
    ]
    graph = helper.make_graph(nodes, "graph", infos, outputs, weights)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8), given


@pytest.mark.slow
@pytest.mark.parametrize("opset", [12, 17])
def test_agree_with_onnxruntime(opset: int) -> None:
    """Before opset 13 axes are attributes, before 17 there is no LayerNormalization."""
    model, inputs = model_of_all(opset)
    rep = backend.prepare(model, min_bytes=0)
    results = rep.run(inputs)
    assert rep.report.offloaded > 0.9 * rep.report.operators
    expected = onnxruntime_outputs(model, inputs)
    found = dict(zip(results._fields, results, strict=True))
    for name in OPEN:
        assert found.pop(name).shape == expected.pop(name).shape
    assert_agrees(found, expected)


@pytest.mark.parametrize("opset", [11, 14])
def test_layer_norm_before_its_opset(opset: int) -> None:
    """As ONNX Runtime writes it into networks that it optimises, beside operators of its own."""
    nodes = [
        helper.make_node("LayerNormalization", ["x", "s", "b"], ["l"], axis=-1, stash_type=1),
        helper.make_node("FusedMatMul", ["l", "w"], ["y"], domain=MICROSOFT, alpha=0.5),
    ]
    weights = {"s": floats(16), "b": floats(16), "w": floats(16, 8)}
    model = onnx_model(nodes, {"x": [2, 5, 16]}, ["y"], weights, opset)
    model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    given = {"x": floats(2, 5, 16)}
    rep = backend.prepare(model, min_bytes=0)
    found = rep.run(given)
    assert rep.report.left == () and len(rep.report.regions) == 1
    assert_agrees({"y": found[0]}, onnxruntime_outputs(model, given))


@pytest.mark.parametrize("half", [False, True])
def test_network_that_onnxruntime_has_optimised(half: bool, tmp_path: Path) -> None:
    """Fused operators become the kernels of the network before, also from float16."""
    model = zoo.build("gpt2_small")
    session = onnxruntime.SessionOptions()
    session.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    session.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    providers = ["CPUExecutionProvider"]
    onnxruntime.InferenceSession(model.SerializeToString(), session, providers=providers)
    optimised = onnx.load(tmp_path / "optimised.onnx")
    fused = {node.op_type for node in optimised.graph.node if node.domain == MICROSOFT}
    assert {"FusedMatMul", "FastGelu", "SkipLayerNormalization"} <= fused
    if half:
        optimised = convert_float_to_float16(optimised)
    inputs = draw_inputs(optimised)
    rep = backend.prepare(optimised)
    results = rep.run(inputs)
    assert rep.report.left == () and len(rep.report.regions) == 1
    kernels = {use.algorithm: use.nodes for use in rep.report.kernels}
    assert (kernels["attention"], kernels["layer_norm"], kernels["matmul"]) == (2, 5, 9)
    want = onnxruntime_outputs(model, inputs)
    for (name, expected), got in zip(want.items(), results, strict=True):
        limit = (5e-3 if half else 1e-5) * np.ptp(expected)
        np.testing.assert_allclose(got.astype("f4"), expected, rtol=0, atol=limit, err_msg=name)


def test_forms_without_a_converter_are_refused_by_name() -> None:
    packed = helper.make_node("MultiHeadAttention", ["q"], ["y"], "mha", MICROSOFT, num_heads=2)
    packed.domain = MICROSOFT
    model = onnx_model([packed], {"q": [1, 3, 2, 3, 4]}, ["y"])
    model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    with pytest.raises(ImportFailure, match=r"MultiHeadAttention .*\(node 'mha'\)"):
        import_onnx(prepare(model))
