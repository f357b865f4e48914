"""Operators of com.microsoft that decoders of onnxruntime-genai have, beside ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import byoc
from tests.reference import assert_agrees, onnxruntime_outputs

RNG = np.random.default_rng(11)
TOKENS = (1, 3, 6)

#: Inputs by name for a number of tokens; constants; attributes; outputs.
Made = tuple[
    Callable[[int], Mapping[str, np.ndarray]], Mapping[str, np.ndarray], Mapping[str, Any], int
]


def _floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def _rotary(heads_first: bool, width: int, **attributes: Any) -> Made:
    """Heads of 16, of which ``width`` turn, by places that differ in the three streams."""

    def inputs(n: int) -> dict[str, np.ndarray]:
        x = _floats(2, 3, n, 16) if heads_first else _floats(2, n, 48)
        return {"x": x, "ids": RNG.integers(0, 30, (3, 2, n))}

    angles = RNG.random((32, width // 2)) * 6
    tables = {"cos": np.cos(angles).astype("f4"), "sin": np.sin(angles).astype("f4")}
    partly = {"rotary_embedding_dim": width} if width < 16 else {}
    return inputs, tables, {"num_heads": 3, **attributes, **partly}, 1


def _linear_attention(rule: str) -> Made:
    """Four heads of queries and two of keys and values, keys of length 1."""

    def inputs(n: int) -> dict[str, np.ndarray]:
        keys = _floats(2, n, 2, 8)
        keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
        given = {"q": _floats(2, n, 32), "k": keys.reshape(2, n, 16), "v": _floats(2, n, 32)}
        given["past"] = _floats(2, 2, 8, 16)
        if rule == "gated_delta":
            given |= {"decay": -np.abs(_floats(2, n, 2)), "beta": np.abs(_floats(2, n, 2)) / 4}
        return given

    return inputs, {}, {"update_rule": rule, "q_num_heads": 4, "kv_num_heads": 2}, 2


CASES: dict[str, tuple[str, Made]] = {
    f"gated_norm_{kind}": (
        "GatedRMSNorm",
        (
            lambda n: {"x": _floats(2, n, 48), "s": _floats(16), "g": _floats(2, n, 48)},
            {},
            {"activation": kind, "epsilon": 1e-3},
            1,
        ),
    )
    for kind in ("silu", "swish", "sigmoid")
}
CASES |= {
    "gated_norm_whole": (
        "GatedRMSNorm",
        (lambda n: {"x": _floats(n, 16), "g": _floats(n, 16)}, {"s": _floats(16)}, {}, 1),
    ),
    "branches": (
        "BranchwiseRMSNorm",
        (lambda n: {"x": _floats(2, n, 4, 8)}, {"s": _floats(4, 8)}, {}, 1),
    ),
    "branches_flat": (
        "BranchwiseRMSNorm",
        (lambda n: {"x": _floats(n, 32)}, {"s": _floats(32)}, {"num_branches": 4}, 1),
    ),
    "branches_alike": (
        "BranchwiseRMSNorm",
        (lambda n: {"x": _floats(n, 32)}, {"s": _floats(8)}, {"num_branches": 4}, 1),
    ),
    "branches_bare": ("BranchwiseRMSNorm", (lambda n: {"x": _floats(n, 4, 8)}, {}, {}, 1)),
    "gated_add": (
        "GatedAdd",
        (
            lambda n: {"x": _floats(2, n, 8), "y": _floats(2, n, 8), "g": _floats(2, n, 1)},
            {},
            {},
            1,
        ),
    ),
    "scaled_silu": ("ScaledSiLU", (lambda n: {"x": _floats(n, 8)}, {}, {"alpha": 1.5}, 1)),
    "scaled_silu_told": (
        "ScaledSiLU",
        (lambda n: {"x": _floats(n, 8)}, {"s": np.array(0.75, "f4")}, {}, 1),
    ),
    "gate": (
        "LinearAttentionGate",
        (
            lambda n: {"a": _floats(2, n, 4)},
            {"d": _floats(4), "s": -np.abs(_floats(4))},
            {},
            1,
        ),
    ),
    "gate_both": (
        "LinearAttentionGate",
        (
            lambda n: {
                "a": _floats(2, n, 4), "d": _floats(4), "s": _floats(4), "b": _floats(2, n, 4),
            },
            {}, {}, 2,
        ),
    ),
    "engram": (
        "EngramGate",
        (
            lambda n: {"q": _floats(2, n, 4, 8), "k": _floats(2, n, 4, 8), "v": _floats(2, n, 8)},
            {name: _floats(4, 8) for name in "dsg"},
            {},
            2,
        ),
    ),
    **{
        f"pre_mix_{kind}": (
            "HyperConnectionPreMix",
            (
                lambda n, dims=dims: {"x": _floats(2, n, 4, 8), "g": _floats(2, n, *dims)},
                {},
                {"reduction_scale": 0.5},
                1,
            ),
        )
        for kind, dims in {"branches": (4,), "columns": (4, 1), "all": (4, 8)}.items()
    },
    "pre_mix_flat": (
        "HyperConnectionPreMix",
        (
            lambda n: {"x": _floats(2, n, 32), "g": _floats(2, n, 32)},
            {},
            {"num_branches": 4},
            1,
        ),
    ),
    "post_mix": (
        "HyperConnectionPostMix",
        (
            lambda n: {"x": _floats(2, n, 4, 8), "y": _floats(2, n, 8), "g": _floats(2, n, 4)},
            {},
            {},
            1,
        ),
    ),
    "post_mix_flat": (
        "HyperConnectionPostMix",
        (
            lambda n: {
                "x": _floats(2, n, 32), "y": _floats(2, n, 8), "g": _floats(2, n, 4, 1),
                "b": _floats(2, n, 4, 4),
            },
            {}, {"num_branches": 4}, 1,
        ),
    ),
    "expand": (
        "ExpandDims",
        (lambda n: {"x": _floats(n, 4)}, {"axis": np.array(1, np.int32)}, {}, 1),
    ),
    "transposed_product": (
        "TransposeMatMul",
        (
            lambda n: {"a": _floats(2, n, 4)},
            {"b": _floats(5, 4)},
            {"transB": 1, "alpha": 0.5},
            1,
        ),
    ),
    "causal_conv": (
        "CausalConvWithState",
        (
            lambda n: {"x": _floats(2, 6, n), "past": _floats(2, 6, 3)},
            {"w": _floats(6, 1, 4), "bias": _floats(6)},
            {"activation": "silu", "ndim": 1, "dilation": 1},
            2,
        ),
    ),
    "linear_attention": ("LinearAttention", _linear_attention("linear")),
    "gated_delta": ("LinearAttention", _linear_attention("gated_delta")),
    "rotary": ("MRotaryEmbedding", _rotary(False, 16, mrope_section=[2, 3, 3])),
    "rotary_heads_first": ("MRotaryEmbedding", _rotary(True, 16, mrope_section=[4, 2, 2])),
    "rotary_in_turns": (
        "MRotaryEmbedding",
        _rotary(False, 16, mrope_section=[4, 2, 2], mrope_layout=1),
    ),
    "rotary_pairs": (
        "MRotaryEmbedding",
        _rotary(False, 16, mrope_section=[2, 3, 3], interleaved=1),
    ),
    "rotary_part": ("MRotaryEmbedding", _rotary(False, 8, mrope_section=[2, 1, 1])),
}  # fmt: skip


def _model(operator: str, made: Made) -> onnx.ModelProto:
    inputs, constants, attributes, outputs = made
    small, large = inputs(3), inputs(5)
    given = []
    for name, array in small.items():
        dims = [a if a == b else "n" for a, b in zip(array.shape, large[name].shape, strict=True)]
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        given.append(helper.make_tensor_value_info(name, kind, dims))
    order = [
        *("x", "w", "bias", "q", "k", "v", "past", "decay", "beta"),
        *("a", "y", "ids", "cos", "sin", "d", "s", "g", "b", "axis"),
    ]
    names = sorted([*small, *constants], key=order.index)
    results = [f"r{number}" for number in range(outputs)]
    node = helper.make_node(operator, names, results, "node", domain="com.microsoft", **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        given,
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in results],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("case", CASES)
def test_as_onnxruntime_with_any_number_of_tokens(case: str, tmp_path: Path) -> None:
    operator, made = CASES[case]
    model = _model(operator, made)
    compiled = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    if operator != "ExpandDims":  # which moves nothing
        assert compiled.report.regions and compiled.report.left == ()
    library = byoc.load(tmp_path / "m.so")
    for n in TOKENS:
        inputs = dict(made[0](n))
        assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs), rounding=1e-6)


@pytest.mark.parametrize(
    ("operator", "made"),
    [
        (
            "GatedRMSNorm",
            (
                lambda n: {"x": _floats(n, 8), "s": _floats(8), "g": _floats(n, 8)},
                {},
                {"activation": "tanh"},
                1,
            ),
        ),
        ("MRotaryEmbedding", _rotary(False, 16, mrope_section=[4, 2, 2], scale=2.0)),
        ("ExpandDims", (lambda n: {"x": _floats(n, 4), "axis": np.array(1, np.int32)}, {}, {}, 1)),
        (
            "CausalConvWithState",
            (
                lambda n: {"x": _floats(2, 6, n), "past": _floats(2, 6, 6)},
                {"w": _floats(6, 1, 4), "bias": _floats(6)},
                {"dilation": 2},
                2,
            ),
        ),
    ],
    ids=["activation", "scale", "axis", "dilation"],
)
def test_what_is_refused_by_name(operator: str, made: Made) -> None:
    with pytest.raises(byoc.ByocError, match=f"operator {operator} of domain 'com.microsoft'"):
        byoc.compile(_model(operator, made))
