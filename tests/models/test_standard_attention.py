"""ONNX's Attention with axes of any size: masks, causal, grouped heads, and a cache that grows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

import byoc
from tests.reference import assert_agrees, onnxruntime_outputs

FLOAT, BOOL = TensorProto.FLOAT, TensorProto.BOOL
WIDTH = 8

#: By name: attributes, heads of keys and values, the mask's type and axes, whether there is a past,
#: whether the heads lie in rows.
FORMS = {
    "causal": ({"is_causal": 1}, 4, None, False, True),
    "grouped, causal, past": ({"is_causal": 1, "scale": 0.3}, 2, None, True, False),
    "numbers, past": ({}, 1, (FLOAT, ["n", 4, "s", "t"]), True, True),
    "booleans, causal": ({"is_causal": 1}, 4, (BOOL, ["n", 1, "s", "s"]), False, False),
    "booleans for all, past": ({}, 2, (BOOL, ["s", "t"]), True, False),
}


def model_of(form: str) -> onnx.ModelProto:
    attributes, heads, mask, past, packed = FORMS[form]
    kinds = {}
    for name, count, length in (("q", 4, "s"), ("k", heads, "s"), ("v", heads, "s")):
        kinds[name] = (
            FLOAT,
            ["n", length, count * WIDTH] if packed else ["n", count, length, WIDTH],
        )
    if mask is not None:
        kinds["mask"] = mask
    inputs = ["q", "k", "v", "mask" if mask is not None else ""]
    outputs = {"y": kinds["q"][1]}
    if past:
        for name in ("past_key", "past_value"):
            kinds[name] = (FLOAT, ["n", heads, "p", WIDTH])
            inputs.append(name)
        outputs |= {name: ["n", heads, "t", WIDTH] for name in ("present_key", "present_value")}
    if packed:
        attributes = attributes | {"q_num_heads": 4, "kv_num_heads": heads}
    graph = helper.make_graph(
        [helper.make_node("Attention", inputs, list(outputs), **attributes)],
        "graph",
        [helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()],
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in outputs.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def drawn(model: onnx.ModelProto, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    rng, inputs = np.random.default_rng(0), {}
    for info in model.graph.input:
        kind = info.type.tensor_type
        shape = [d.dim_value or sizes[d.dim_param] for d in kind.shape.dim]
        values = rng.standard_normal(shape)
        if kind.elem_type == BOOL:
            values[..., 0] = 1.0  # each row sees a key
        inputs[info.name] = values > -0.5 if kind.elem_type == BOOL else values.astype(np.float32)
    return inputs


def check(model: onnx.ModelProto, folder: Path) -> None:
    """Everything is offloaded, as one attention, and right at several sizes."""
    report = byoc.compile(model, folder / "model.so").report
    assert "attention" in {use.algorithm for use in report.kernels}
    assert report.left == ()
    library = byoc.load(folder / "model.so")
    for n, s, past in ((2, 3, 4), (1, 1, 7), (3, 5, 0)):
        inputs = drawn(model, {"n": n, "s": s, "p": past, "t": s + past})
        assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))


@pytest.mark.parametrize("form", FORMS)
def test_axes_of_any_size(form: str, tmp_path: Path) -> None:
    check(model_of(form), tmp_path)


def test_heads_that_the_model_counts(tmp_path: Path) -> None:
    """Shapes computed from axes tell the heads, their width, and what a rotation turns."""
    text = """<ir_version: 10, opset_import: ["" : 23]>
    g (float[n, s, 32] x, float[n, s, 4] turn) => (float[n, s, 32] y)
    <int64[2] heads = {-1, 8}, int64[1] all = {-1}> {
        axes = Shape <start = 0, end = 2> (x)
        rows = Shape <start = 0, end = 1> (x)
        columns = Shape <start = 1, end = 2> (x)
        split = Concat <axis = 0> (rows, columns, heads)
        apart = Reshape <allowzero = 1> (x, split)
        v = Transpose <perm = [0, 2, 1, 3]> (apart)
        cosine = Cos (turn)
        sine = Sin (turn)
        q = RotaryEmbedding <num_heads = 4> (v, cosine, sine)
        a = Attention <is_causal = 1> (q, q, v)
        turned = Transpose <perm = [0, 2, 1, 3]> (a)
        joined = Concat <axis = 0> (axes, all)
        y = Reshape (turned, joined)
    }"""
    check(parser.parse_model(text), tmp_path)
