"""States: what a library keeps from call to call, beside ONNX Runtime that is handed them back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import byoc
from byoc.errors import CompileError, ControlError, InputError, LoadError, RunError
from models.decoder import gpt2_decoder, llama
from tests.reference import assert_agrees, onnxruntime_outputs

SMALL = {"layers": 2, "hidden": 32, "heads": 4, "groups": 2, "inner": 48, "vocabulary": 50}
DECODERS = {
    "llama": lambda: llama(**SMALL),
    "gpt2": lambda: gpt2_decoder(**SMALL | {"groups": 4, "layers": 1}),
}


class Reference:
    """A decoder in ONNX Runtime, whose states are handed back by hand."""

    def __init__(self, model: onnx.ModelProto, batch: int) -> None:
        self.session = onnxruntime.InferenceSession(model.SerializeToString())
        self.outputs = [output.name for output in self.session.get_outputs()]
        self.past = {
            info.name: np.zeros((batch, info.shape[1], 0, info.shape[3]), np.float32)
            for info in self.session.get_inputs()
            if info.name.startswith("past")
        }

    def step(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        results = dict(
            zip(self.outputs, self.session.run(None, {**inputs, **self.past}), strict=True)
        )
        self.past = {
            name: results[name.replace("past_key_values", "present")] for name in self.past
        }
        return results["logits"]


def drawn(batch: int, length: int, past: int, seed: int) -> dict[str, np.ndarray]:
    """Tokens, their places, and a mask that hides the first one of the last sequence."""
    seen = np.ones((batch, past + length), np.int64)
    seen[-1, :1] = 0
    return {
        "input_ids": np.random.default_rng(seed).integers(0, 50, (batch, length)),
        "attention_mask": seen,
        "position_ids": np.tile(np.arange(past, past + length), (batch, 1)),
    }


def with_states(model: onnx.ModelProto, folder: Path) -> tuple[onnx.ModelProto, byoc.Compiled, str]:
    """A decoder, what came of compiling it with states, and its only region's C."""
    made = byoc.compile(model, folder / "model.so", dump_code=folder, states=True)
    (code,) = folder.glob("*.c")
    return model, made, code.read_text()


@pytest.fixture(scope="module", params=DECODERS)
def decoder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[onnx.ModelProto, byoc.Compiled, str]:
    return with_states(DECODERS[request.param](), tmp_path_factory.mktemp("states"))


@pytest.fixture
def loaded(decoder: tuple[onnx.ModelProto, byoc.Compiled, str]) -> Iterator[byoc.Model]:
    with byoc.load(decoder[1].path, capacity=24) as model:
        yield model


def test_regions_write_rows_behind_those_that_are_there(
    decoder: tuple[onnx.ModelProto, byoc.Compiled, str],
) -> None:
    model, made, code = decoder
    names = [info.name for info in model.graph.input if info.name.startswith("past")]
    assert [state.input.name for state in made.metadata.states] == names
    assert {info.name for info in made.metadata.inputs}.isdisjoint(names)
    assert [info.name for info in made.metadata.outputs] == ["logits"]
    assert len(made.report.regions) == 1
    assert made.report.offloaded_macs == made.report.macs > 0
    rows = re.findall(r"/\* ext\.concat axis 0: (part \d)", code)
    assert rows == ["part 1"] * len(names)  # and no part 0: the cache is not copied,
    assert not re.findall(r"reorder \[.*past", code)  # nor repeated for the heads of a group


def test_prompts_and_steps_are_what_onnx_runtime_gives(
    decoder: tuple[onnx.ModelProto, byoc.Compiled, str], loaded: byoc.Model
) -> None:
    reference, past = Reference(decoder[0], 2), 0
    for seed, length in enumerate((5, 1, 1, 3, 1)):
        inputs = drawn(2, length, past, seed)
        assert_agrees(loaded.run(inputs), {"logits": reference.step(inputs)})
        assert_agrees(loaded.states, reference.past)
        past += length


def test_a_clone_goes_its_own_way_and_a_reset_begins_anew(
    decoder: tuple[onnx.ModelProto, byoc.Compiled, str], loaded: byoc.Model
) -> None:
    first, other = drawn(2, 4, 0, 1), drawn(2, 2, 4, 2)
    reference = Reference(decoder[0], 2)
    began = loaded.run(first)
    reference.step(first)
    clone = loaded.clone()
    clone.run(drawn(2, 1, 4, 9))
    assert_agrees(loaded.run(other), {"logits": reference.step(other)})
    assert {array.shape[2] for array in clone.states.values()} == {5}
    loaded.reset()
    assert loaded.states == {}
    assert np.array_equal(loaded.run(first)["logits"], began["logits"])


def test_a_full_state_and_another_batch_are_one_line_each(loaded: byoc.Model) -> None:
    loaded.run(drawn(2, 20, 0, 1))
    with pytest.raises(
        RunError, match=r"'past_key_values\.0\.key' is full: it has 20 of 24 rows, .* 5"
    ):
        loaded.run(drawn(2, 5, 20, 1))
    with pytest.raises(InputError, match=r"has rows of \[2, .*\]; this call needs \[3, "):
        loaded.run(drawn(3, 1, 20, 1))
    loaded.run(drawn(2, 4, 20, 1))  # what failed changed nothing


def test_a_mask_of_another_length_is_refused(loaded: byoc.Model) -> None:
    loaded.run(drawn(2, 3, 0, 1))
    with pytest.raises(InputError, match="attention_mask"):
        loaded.run(drawn(2, 1, 0, 1))


def test_an_empty_call_adds_nothing(loaded: byoc.Model) -> None:
    loaded.run(drawn(1, 3, 0, 1))
    assert loaded.run(drawn(1, 0, 3, 1))["logits"].shape[1] == 0
    assert loaded.states["past_key_values.0.key"].shape[2] == 3


def test_products_in_bfloat16_keep_states_in_their_own_dtype(tmp_path: Path) -> None:
    model = gpt2_decoder(**SMALL | {"groups": 4, "layers": 1})
    made = byoc.compile(model, tmp_path / "m.so", states=True, precision="bf16")
    assert made.report.offloaded_macs == made.report.macs > 0
    loaded, reference = byoc.load(tmp_path / "m.so"), Reference(model, 2)
    for seed, (length, past) in enumerate(((5, 0), (1, 5))):
        inputs = drawn(2, length, past, seed)
        got, want = loaded.run(inputs)["logits"], reference.step(inputs)
        assert np.abs(got - want).max() < 2e-2 * np.ptp(want)
        assert {array.dtype for array in loaded.states.values()} == {np.dtype(np.float32)}


# ---------------------------------------------------------------- states that each call replaces


def counter(batch: int | str = 2) -> onnx.ModelProto:
    """y = x + h, and h becomes 2 h + x."""
    shape = [batch, 64]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", "h")]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("hn", "y")]
    nodes = [
        helper.make_node("Add", ["x", "h"], ["y"]),
        helper.make_node("Add", ["y", "h"], ["hn"]),
    ]
    graph = helper.make_graph(nodes, "counter", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("batch", [2, "n"])
def test_replaced_states_begin_with_zeros(tmp_path: Path, batch: int | str) -> None:
    made = byoc.compile(counter(batch), tmp_path / "m.so", states={"h": "hn"}, min_bytes=0)
    assert made.report.offloaded == made.report.operators == 2
    assert made.metadata.states[0].axis is None
    model, h = byoc.load(tmp_path / "m.so"), np.zeros((2, 64), np.float32)
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((2, 64), np.float32)
        y = model(x)
        assert np.array_equal(y, x + h)
        h = x + h + h
        assert np.array_equal(model.states["h"], h)
    if batch == "n":
        with pytest.raises(InputError, match=r"has shape \[2, 64\]; this call needs \[3, 64\]"):
            model(np.zeros((3, 64), np.float32))
    model.reset()
    assert np.array_equal(model(x), x)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ({"g": "hn"}, "state 'g' is no input of the model; it has x, h"),
        ({"h": "hm"}, "state 'hm' is no output of the model; it has hn, y"),
        ({"h": "hn", "x": "hn"}, "output 'hn' is named for two states"),
        ({"h": "hn", "x": "y"}, "every output is a state"),
        (True, "no input has a state's name"),
        ({}, "need names of outputs by those of inputs"),
        ({"h": 1}, "need names of outputs by those of inputs"),
        ("h", "need names of outputs by those of inputs"),
    ],
)
def test_bad_states_are_one_line(states: object, message: str) -> None:
    with pytest.raises(ControlError, match=re.escape(message)):
        byoc.compile(counter(), states=states)


def grown(op: str, axis: int = 0) -> onnx.ModelProto:
    """past [p, 4] and x [n, 4] to present and y: joined past first, x first, or added up."""
    infos = {"past": ["p", 4], "x": ["n", 4], "present": [None, 4], "y": ["n", 4]}
    values = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in infos.items()}
    joined = {
        "behind": helper.make_node("Concat", ["x", "past"], ["present"], axis=axis),
        "twice": helper.make_node("Concat", ["past", "past"], ["present"], axis=axis),
        "sum": helper.make_node("Add", ["past", "x"], ["present"]),
    }[op]
    nodes = [joined, helper.make_node("Relu", ["x"], ["y"])]
    graph = helper.make_graph(
        nodes, "grown", [values["past"], values["x"]], [values["present"], values["y"]]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_state_must_begin_with_what_it_was() -> None:
    with pytest.raises(CompileError, match="state 'past' becomes the result of concat; need a con"):
        byoc.compile(grown("behind"), states={"past": "present"})
    with pytest.raises(CompileError, match="cannot become output 'present'"):
        byoc.compile(grown("twice"), states={"past": "present"})


def test_states_are_compared(
    decoder: tuple[onnx.ModelProto, byoc.Compiled, str], tmp_path: Path
) -> None:
    """They are inputs and outputs of the model, be they replaced or grown."""
    done = byoc.compile(counter(), tmp_path / "m.so", states={"h": "hn"}, min_bytes=0)
    assert done.report.offloaded
    found = byoc.verify(counter(), tmp_path / "m.so")
    assert found.holds and all(o.name != "h" for run in found.runs for o in run.outputs)
    assert any(output.name == "hn" for run in found.runs for output in run.outputs)
    model, compiled, _ = decoder
    (run, *_) = byoc.verify(model, compiled.path).runs
    assert run.holds and "present.0.key" in {output.name for output in run.outputs}


def test_states_that_lie_with_the_caller(loaded: byoc.Model, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="keeps states that grow; use run"):
        loaded.run_on({}, drawn(2, 4, 0, 1))
    model = counter()
    byoc.compile(model, tmp_path / "m.so", states={"h": "hn"}, min_bytes=0)
    with byoc.load(tmp_path / "m.so") as library:
        (x,), (h,) = library.inputs, library.metadata.states
        random = np.random.default_rng(0)
        x, h = (random.standard_normal(i.shape).astype(i.dtype) for i in (x, h.input))
        for name in ({"other": h}, {}):
            with pytest.raises(InputError, match="state 'h' is missing; need h"):
                library.run_on(name, {"x": x})
        before = h.copy()
        results, became = library.run_on({"h": h}, {"x": x})
        wanted = onnxruntime_outputs(model, {"x": x, "h": before})
        assert_agrees({"hn": became["h"]} | results, wanted)
        assert library.states == {}


def test_forms_without_states_say_so(tmp_path: Path) -> None:
    byoc.compile(counter(), tmp_path / "m.so", states={"h": "hn"}, min_bytes=0)
    with pytest.raises(LoadError, match="capacity is 0; need a whole number"):
        byoc.load(tmp_path / "m.so", capacity=0)


def test_rows_that_no_memory_holds(loaded: byoc.Model) -> None:
    with byoc.load(loaded.path, capacity=1 << 31) as model:
        model._kept._place.room = lambda *_: np.empty(1 << 58)  # whatever this machine has
        with pytest.raises(
            RunError, match=r"no memory for state .*; load the model with a smaller"
        ):
            model.run(drawn(1, 3, 0, 1))


# ---------------------------------------------------------------- states that are kept elsewhere


def test_states_are_restored(
    decoder: tuple[onnx.ModelProto, byoc.Compiled, str], loaded: byoc.Model
) -> None:
    reference, other = Reference(decoder[0], 2), drawn(2, 2, 4, 2)
    loaded.run(drawn(2, 4, 0, 1))
    reference.step(drawn(2, 4, 0, 1))
    kept = {name: array.copy() for name, array in loaded.states.items()}
    loaded.reset()
    loaded.restore(kept)
    kept["past_key_values.0.key"][...] = 0  # nothing but a copy counts
    assert_agrees(loaded.run(other), {"logits": reference.step(other)})
    assert_agrees(loaded.states, reference.past)


def test_what_is_no_state_is_not_restored(loaded: byoc.Model) -> None:
    loaded.run(drawn(1, 3, 0, 1))
    states = {name: array.copy() for name, array in loaded.states.items()}
    name = "past_key_values.0.value"
    for wrong, message in (
        ({k: v for k, v in states.items() if k != name}, "is missing; need past_key_values.0.key"),
        (states | {"x": states[name]}, "state 'x' is unknown"),
        (None, "states is None; need a dictionary of arrays by name: past_key_values.0.key"),
        (states | {name: states[name][:, :, :2]}, rf"'{name}' is given float32\[1, \d, 2, "),
        (states | {name: states[name].astype(np.float64)}, "is given float64"),
        (states | {name: states[name][0]}, "as the others have it"),
        (states | {name: [1.0]}, r"is given \[1\.0\]; need"),
    ):
        with pytest.raises(InputError, match=message):
            loaded.restore(wrong)
    many = {k: np.zeros((*v.shape[:2], 25, v.shape[3]), v.dtype) for k, v in states.items()}
    with pytest.raises(RunError, match="is given 25 rows; it has room for 24"):
        loaded.restore(many)
    assert all(np.array_equal(loaded.states[k], v) for k, v in states.items())
