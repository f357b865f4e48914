"""Decoders as optimum merges them: a prompt's network and a step's are branches of one ``If``.

Both share weights and the names of their values, results are called as the ``If``'s, the prompt's
branch gets caches without rows, and the step's gives keys of the encoder that have no batch.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

import byoc
from byoc.errors import ModelError
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import onnx_model, random
from .test_unroll import BOOL, INT64, Nodes, node, value

WIDTH, WORDS, SOUNDS = 16, 50, 7
RESULTS = ("logits", "present.key", "present.value", "present.encoder")
PASTS = ("past.key", "past.value", "past.encoder")


def of_prompt() -> Nodes:
    """Up to the shares of the words so far: each word sees itself and those before."""
    low = numpy_helper.from_array(np.array([-1e9], np.float32))
    return [
        node("MatMul", "x wk", "present.key"),
        node("MatMul", "x wv", "present.value"),
        node("MatMul", "encoded we", "present.encoder"),
        node("Identity", "present.encoder", "sound"),
        node("Transpose", "present.key", "turned", perm=[0, 2, 1]),
        node("MatMul", "query turned", "scores"),
        node("Shape", "words", "shape"),
        node("Gather", "shape last", "length"),
        node("Concat", "length length", "square", axis=0),
        node("ConstantOfShape", "square", "hidden", value=low),
        node("Trilu", "hidden one", "mask", upper=1),
        node("Add", "scores mask", "masked"),
        node("Softmax", "masked", "shares", axis=-1),
    ]


def of_step() -> Nodes:
    """The same for one word, which sees all."""
    nothing = numpy_helper.from_array(np.zeros((0, 1, WIDTH), np.float32))
    return [
        node("MatMul", "x wk", "key"),
        node("MatMul", "x wv", "value"),
        node("Concat", "past.key key", "present.key", axis=1),
        node("Concat", "past.value value", "present.value", axis=1),
        node("Constant", "", "present.encoder", value=nothing),
        node("Identity", "past.encoder", "sound"),
        node("Transpose", "present.key", "turned", perm=[0, 2, 1]),
        node("MatMul", "query turned", "scores"),
        node("Softmax", "scores", "shares", axis=-1),
    ]


def branch(name: str, shares: Nodes) -> onnx.GraphProto:
    nodes = [
        node("Gather", "table words", "x"),
        node("MatMul", "x wq", "query"),
        *shares,
        node("MatMul", "shares present.value", "mixed"),
        node("MatMul", "mixed wo", "out"),
        node("Transpose", "sound", "sounds", perm=[0, 2, 1]),
        node("MatMul", "out sounds", "heard"),
        node("Softmax", "heard", "weights", axis=-1),
        node("MatMul", "weights sound", "all"),
        node("MatMul", "all head", "logits"),
    ]
    return helper.make_graph(nodes, name, [], [value(each) for each in RESULTS])


def merged() -> onnx.ModelProto:
    branches = {
        "then_branch": branch("with_past", of_step()),
        "else_branch": branch("no_past", of_prompt()),
    }
    weights = {name: random(WIDTH, WIDTH, scale=0.5, seed=at) for at, name in enumerate(PRODUCTS)}
    weights |= {"table": random(WORDS, WIDTH, seed=8), "head": random(WIDTH, WORDS, seed=9)}
    weights |= {"last": np.array([1]), "one": np.array(1)}
    inputs = {"encoded": ["batch", "heard", WIDTH]}
    inputs |= {name: ["batch", f"rows_of_{name[-3:]}", WIDTH] for name in PASTS}
    inputs |= {"past.key": ["batch", "past", WIDTH], "past.value": ["batch", "past", WIDTH]}
    choose = helper.make_node("If", ["use_cache"], RESULTS, "choose", **branches)
    model = onnx_model([choose], inputs, list(RESULTS), weights)
    words = helper.make_tensor_value_info("words", INT64, ["batch", "length"])
    flag = helper.make_tensor_value_info("use_cache", BOOL, [1])
    model.graph.input.extend([words, flag])
    return model


PRODUCTS = ("wq", "wk", "wv", "wo", "we")


def quantised(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    onnx.save(model, folder / "float.onnx")
    # Products of two computed tensors stay as they are.
    quantize_dynamic(
        folder / "float.onnx",
        folder / "int8.onnx",
        op_types_to_quantize=["MatMul"],
        weight_type=QuantType.QUInt8,
        extra_options={"EnableSubgraph": True, "MatMulConstBOnly": True},
    )
    return onnx.load(folder / "int8.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("bits", [32, 8])
def test_prompts_and_steps(bits: int, tmp_path: Path) -> None:
    """Each branch is one region, also where its products are of integers."""
    model = merged() if bits == 32 else quantised(merged(), tmp_path)
    inner = [a.g for n in model.graph.node for a in n.attribute if a.HasField("g")]
    assert all(any(n.op_type == "MatMulInteger" for n in g.node) for g in inner) == (bits == 8)
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert not report.left
    assert sum(region.macs > 0 for region in report.regions) == 2
    loaded = byoc.load(tmp_path / "m.so")
    assert loaded.outputs[1].shape[::2] == ("batch", WIDTH)
    rng = np.random.default_rng(0)
    for batch in (1, 2):
        past = {name: np.zeros((batch, 0, WIDTH), np.float32) for name in PASTS}
        encoded = random(batch, SOUNDS, WIDTH, seed=3)
        for length in (4, 1, 1, 1):
            words = rng.integers(0, WORDS, (batch, length))
            feed = {
                "encoded": encoded,
                "words": words,
                "use_cache": np.array([length == 1]),
                **past,
            }
            expected = onnxruntime_outputs(model, feed)
            assert_agrees(loaded.run(feed), expected, rounding=1e-5)
            past |= {name: expected[name.replace("past", "present")] for name in PASTS[:2]}
            if length > 1:
                past["past.encoder"] = expected["present.encoder"]


def test_a_name_that_the_graph_gives_before_is_still_refused() -> None:
    model = merged()
    model.graph.node.insert(0, node("Relu", "encoded", "scores"))
    with pytest.raises(
        ModelError, match="'scores' of a result of node with output 'scores' is giv"
    ):
        byoc.compile(model)


def test_a_name_that_the_graph_gives_later(tmp_path: Path) -> None:
    """ONNX Runtime takes such names too."""
    model = merged()
    model.graph.node.append(node("Relu", "logits", "scores"))
    model.graph.output.append(value("scores"))
    byoc.compile(model, tmp_path / "m.so")
    past = {name: random(1, 3, WIDTH) for name in PASTS}
    feed = {"encoded": random(1, 5, WIDTH), "words": np.array([[2]]), **past}
    feed |= {"use_cache": np.array([True])}
    assert_agrees(byoc.load(tmp_path / "m.so").run(feed), onnxruntime_outputs(model, feed))


@pytest.mark.slow
def test_states_behind_a_branch_are_refused_with_what_would_help() -> None:
    states = {name: name.replace("past", "present") for name in PASTS[:2]}
    with pytest.raises(byoc.CompileError, match=r"'past.key' .* decoder_with_past_model\.onnx"):
        byoc.compile(merged(), states=states)


def test_a_fixed_branch_keeps_its_states(tmp_path: Path) -> None:
    """The step's branch alone is one region, which adds its keys to those that it keeps."""
    model = merged()
    keywords = {"states": True, "fixed_inputs": {"use_cache": True}, "min_bytes": 0}
    report = byoc.compile(model, tmp_path / "m.so", **keywords).report
    assert not report.left
    assert len(report.regions) == 1
    loaded = byoc.load(tmp_path / "m.so")
    assert [state.input.name for state in loaded.metadata.states] == [*PASTS[:2]]
    past = {name: np.zeros((1, 0, WIDTH), np.float32) for name in PASTS[:2]}
    past["past.encoder"] = random(1, SOUNDS, WIDTH, seed=5)
    encoded = random(1, SOUNDS, WIDTH, seed=3)
    for word in (4, 7, 1):
        feed = {"encoded": encoded, "words": np.array([[word]])}
        given = feed | past | {"use_cache": np.array([True])}
        expected = onnxruntime_outputs(model, given)
        got = loaded.run(feed | {"past.encoder": past["past.encoder"]})
        assert_agrees(got, {name: expected[name] for name in got}, rounding=1e-5)
        past |= {name: expected[name.replace("past", "present")] for name in PASTS[:2]}


def with_mask() -> onnx.ModelProto:
    """A decoder without encoder, with exporters' names; its mask is called as long as the words."""

    def nodes(cached: bool) -> Nodes:
        keys = [node("MatMul", f"x w{at}", f"{part}_new") for at, part in KEPT]
        for _, part in KEPT:
            past = f"past_key_values.0.{part} {part}_new"
            joined = node("Concat", past, f"present.0.{part}", axis=1)
            keys += [joined if cached else node("Identity", f"{part}_new", f"present.0.{part}")]
        return [
            node("Gather", "table input_ids", "x"),
            *keys,
            node("MatMul", "x wq", "query"),
            node("Transpose", "present.0.key", "turned", perm=[0, 2, 1]),
            node("MatMul", "query turned", "scores"),
            node("Cast", "attention_mask", "seen", to=1),
            node("Unsqueeze", "seen middle", "seen_by_all"),
            node("Add", "scores seen_by_all", "masked"),
            node("Softmax", "masked", "shares", axis=-1),
            node("MatMul", "shares present.0.value", "mixed"),
            node("MatMul", "mixed head", "logits"),
        ]

    results = ("logits", "present.0.key", "present.0.value")
    then, other = (
        helper.make_graph(nodes(cached), name, [], [value(each) for each in results])
        for cached, name in ((True, "with_past"), (False, "no_past"))
    )
    choose = helper.make_node(
        "If", ["use_cache_branch"], results, "choose", then_branch=then, else_branch=other
    )
    weights = {f"w{at}": random(WIDTH, WIDTH, scale=0.5, seed=ord(at)) for at in "qkv"}
    weights |= {"table": random(WORDS, WIDTH, seed=8), "head": random(WIDTH, WORDS, seed=9)}
    weights["middle"] = np.array([1])
    past = {f"past_key_values.0.{part}": ["batch", "past_length", WIDTH] for _, part in KEPT}
    model = onnx_model([choose], past, list(results), weights)
    lengths = [helper.make_tensor_value_info(n, INT64, ["batch", "length"]) for n in TOKENS]
    model.graph.input.extend([*lengths, helper.make_tensor_value_info(FLAG, BOOL, [1])])
    return model


KEPT, TOKENS, FLAG = (
    (("k", "key"), ("v", "value")),
    ("input_ids", "attention_mask"),
    "use_cache_branch",
)


def test_one_library_for_prompt_and_steps(tmp_path: Path) -> None:
    """The mask is as long as what is kept and the words, whatever the prompt's names say."""
    model = with_mask()
    keywords = {"states": True, "fixed_inputs": {FLAG: True}, "min_bytes": 0}
    report = byoc.compile(model, tmp_path / "m.so", **keywords).report
    assert not report.left
    assert len(report.regions) == 1
    loaded = byoc.load(tmp_path / "m.so")
    assert loaded.inputs[1].shape == ("batch", "past_length+length")
    past = {f"past_key_values.0.{part}": np.zeros((1, 0, WIDTH), np.float32) for _, part in KEPT}
    at = 0
    for length in (5, 1, 2):
        feed = {
            "input_ids": np.arange(at, at + length)[None] % WORDS,
            "attention_mask": np.arange(at + length)[None] % 2,
        }
        at += length
        given = feed | past | {FLAG: np.array([at > length])}
        expected = onnxruntime_outputs(model, given)
        assert_agrees(loaded.run(feed), {"logits": expected["logits"]}, rounding=1e-5)
        past = {name: expected[name.replace("past_key_values", "present")] for name in past}
