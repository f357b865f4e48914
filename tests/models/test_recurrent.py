"""LSTM, GRU and RNN from ONNX, offloaded, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import byoc
from byoc.compiler.standalone import compile_standalone
from byoc.errors import ByocError
from tests.deploy.standalone_api import Instance
from tests.models.recurrent_layers import GATES, compare, compiled, drawn, layer, network
from tests.reference import onnxruntime_outputs


def check(model: onnx.ModelProto, folder: Path, limit: float = 2e-6, **options: Any) -> None:
    inputs = drawn(model)
    kind = next(node.op_type.lower() for node in model.graph.node)
    want = onnxruntime_outputs(model, inputs)
    compare(compiled(model, folder, kind, **options).run(inputs), want, limit)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("operator", GATES)
def test_directions(operator: str, direction: str, tmp_path: Path) -> None:
    given = ["B", "initial_h", *(["initial_c", "P"] if operator == "LSTM" else [])]
    model = layer(operator, [5, 3, 7], 18, given=given, batch=3, direction=direction)
    check(model, tmp_path)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("operator", GATES)
def test_lengths(operator: str, direction: str, tmp_path: Path) -> None:
    lengths = [5, 1, 3]
    check(layer(operator, [5, 3, 4], 6, lengths=lengths, batch=3, direction=direction), tmp_path)


@pytest.mark.parametrize("operator", GATES)
def test_computed_states(operator: str, tmp_path: Path) -> None:
    states = ["initial_h", *(["initial_c"] if operator == "LSTM" else [])]
    check(layer(operator, [4, 2, 3], 5, given=states, computed=states, batch=2), tmp_path)


FORMS = {
    "reset last": ("GRU", {"linear_before_reset": 1}),
    "reset last, no bias": ("GRU", {"linear_before_reset": 1, "given": ()}),
    "coupled": ("LSTM", {"input_forget": 1}),
    "clip": ("LSTM", {"clip": 0.2, "given": ("B", "P")}),
    "clip of a GRU": ("GRU", {"clip": 0.2}),
    "clip of an RNN": ("RNN", {"clip": 0.2}),
    "output alone": ("LSTM", {"outputs": ["Y"]}),
    "last state alone": ("GRU", {"outputs": ["", "Y_h"]}),
    "last cell alone": ("LSTM", {"outputs": ["", "", "Y_c"]}),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str, tmp_path: Path) -> None:
    operator, options = FORMS[form]
    check(layer(operator, [6, 2, 5], 17, batch=2, **options), tmp_path)


FUNCTIONS = {
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "Affine": (0.5, 0.25),
    "LeakyRelu": (0.1,),
    "ThresholdedRelu": (0.3,),
    "ScaledTanh": (0.5, 0.75),
    "HardSigmoid": (0.3, 0.4),
    "Elu": (0.5,),
    "Softsign": (),
    "Softplus": (),
}


@pytest.mark.slow
def test_functions(tmp_path: Path) -> None:
    """Parameters go to the functions that have them, in their order."""
    names = list(FUNCTIONS)
    for operator, count in (("RNN", 1), ("GRU", 2), ("LSTM", 3)):
        nodes = {}
        for shift in range(0, len(names), 1 if operator == "RNN" else 4):
            chosen = [names[(shift + 3 * i) % len(names)] for i in range(2 * count)]
            alphas, betas = (
                [FUNCTIONS[n][i] for n in chosen if len(FUNCTIONS[n]) > i] for i in (0, 1)
            )
            given = {"activations": chosen, "activation_alpha": alphas, "activation_beta": betas}
            nodes[shift] = {name: value for name, value in given.items() if value}
        for options in nodes.values():
            model = layer(operator, [3, 2, 4], 5, batch=2, direction="bidirectional", **options)
            check(model, tmp_path, limit=2e-5)


@pytest.mark.parametrize("operator", GATES)
def test_batch_first(operator: str, tmp_path: Path) -> None:
    """ONNX Runtime has no layout 1: the same layer with its axes in the other order."""
    states = ["B", "initial_h", *(["initial_c"] if operator == "LSTM" else [])]
    options = {"given": states, "batch": 3, "direction": "bidirectional"}
    model = layer(operator, [3, 5, 4], 6, layout=1, **options)
    other = layer(operator, [5, 3, 4], 6, **options)
    for mine, theirs in zip(model.graph.initializer, other.graph.initializer, strict=True):
        array = numpy_helper.to_array(mine)
        turned = array.transpose(1, 0, 2) if mine.name.startswith("initial") else array
        theirs.CopyFrom(numpy_helper.from_array(turned, mine.name))
    inputs = drawn(model)
    want = onnxruntime_outputs(other, {"X": inputs["X"].transpose(1, 0, 2)})
    axes = {"Y": (2, 0, 1, 3), "Y_h": (1, 0, 2), "Y_c": (1, 0, 2)}
    want = {name: value.transpose(axes[name]) for name, value in want.items()}
    compare(compiled(model, tmp_path, operator.lower()).run(inputs), want)


@pytest.mark.parametrize("operator", GATES)
def test_symbolic_sizes(operator: str, tmp_path: Path) -> None:
    model = layer(operator, ["steps", "batch", 5], 19, direction="bidirectional")
    shapes = {"X": ["steps", "batch", 5]}
    loaded = compiled(model, tmp_path, operator.lower(), input_shapes=shapes)
    for steps, batch in ((1, 1), (7, 1), (3, 4), (2, 9)):
        inputs = drawn(model, steps=steps, batch=batch)
        compare(loaded.run(inputs), onnxruntime_outputs(model, inputs))
    none = loaded.run(drawn(model, steps=0, batch=2))
    assert none["Y"].shape == (0, 2, 2, 19) and not none["Y_h"].any()


def test_layers_are_joined_in_place(tmp_path: Path) -> None:
    model = network(3, 20, 2, 6)
    inputs = drawn(model)
    loaded = compiled(model, tmp_path, "lstm", dump_code=tmp_path / "code")
    compare(loaded.run(inputs), onnxruntime_outputs(model, inputs))
    code = "".join(file.read_text() for file in (tmp_path / "code").glob("*.c"))
    assert code.count("ext_recurrent(") == 3 and "ext_copy(" not in code


def in_dtype(model: onnx.ModelProto, dtype: str) -> onnx.ModelProto:
    """The model with another dtype of its floats."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for weight in made.graph.initializer:
        array = numpy_helper.to_array(weight)
        if array.dtype == np.float32:
            weight.CopyFrom(numpy_helper.from_array(array.astype(dtype), weight.name))
    for value in (*made.graph.input, *made.graph.output):
        value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return made


def test_float16(tmp_path: Path) -> None:
    """Computed in float32, and rounded at the end."""
    model = network(2, 20, 2, 6)
    inputs = {"X": drawn(model)["X"].astype(np.float16)}
    got = compiled(in_dtype(model, "float16"), tmp_path, "lstm").run(inputs)
    assert got["z1"].dtype == np.float16
    wide = {"X": inputs["X"].astype(np.float32)}
    np.testing.assert_allclose(got["z1"], onnxruntime_outputs(model, wide)["z1"], atol=1e-3)


@pytest.mark.parametrize("operator", GATES)
def test_bfloat16(operator: str, tmp_path: Path) -> None:
    """Weights of states are rounded, and nothing else."""
    model = layer(operator, [7, 3, 10], 20, direction="bidirectional")
    inputs = drawn(model)
    options = {"precision": "bf16", "dump_code": tmp_path / "code"}
    got = compiled(model, tmp_path, operator.lower(), **options).run(inputs)
    code = "".join(file.read_text() for file in (tmp_path / "code").glob("*.c"))
    assert code.count("EXT_BFLOAT16") == 1
    for weight in model.graph.initializer:
        if weight.name == "R":
            rounded = numpy_helper.to_array(weight).astype(ml_dtypes.bfloat16).astype(np.float32)
            weight.CopyFrom(numpy_helper.from_array(rounded, "R"))
    compare(got, onnxruntime_outputs(model, inputs))


def test_float64_stays_with_tvm(tmp_path: Path) -> None:
    model = layer("GRU", [4, 2, 3], 5, batch=2)
    inputs = drawn(model)
    report = byoc.compile(in_dtype(model, "float64"), tmp_path / "m.so", min_bytes=0).report
    assert [left.reason for left in report.left] == ["input has dtype float64; need float32"]
    got = byoc.load(tmp_path / "m.so").run({"X": inputs["X"].astype(np.float64)})
    compare(got, onnxruntime_outputs(model, inputs))


@pytest.mark.parametrize(("operator", "batch"), [("LSTM", 1), ("GRU", 3), ("RNN", 40)])
def test_threads(operator: str, batch: int, tmp_path: Path) -> None:
    """Units are shared by threads, or rows of a large batch."""
    model = layer(operator, [20, batch, 8], 210)
    inputs = drawn(model)
    want = onnxruntime_outputs(model, inputs)
    byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    for threads in (1, 2):
        loaded = byoc.load(tmp_path / "m.so", threads=threads)
        for _ in range(3):
            compare(loaded.run(inputs), want, 5e-6)


def test_more_threads_than_cores(tmp_path: Path) -> None:
    """Those that come late find their part done, or what is left of it."""
    model = layer("LSTM", [20, 1, 8], 210, direction="bidirectional")
    inputs = drawn(model)
    want = onnxruntime_outputs(model, inputs)
    done = compile_standalone(model, tmp_path / "alone", name="layer", min_bytes=0)
    with Instance(done.folder / "lib" / "liblayer.so", threads=5) as instance:
        for _ in range(5):
            compare(instance.answers(inputs), want, 5e-6)


# ---------------------------------------------------------------- TVM's own loops


@pytest.mark.parametrize("operator", GATES)
def test_computed_weights(operator: str, tmp_path: Path) -> None:
    """No kernel packs them at run time; TVM computes the layer."""
    model = layer(
        operator, [3, 2, 4], 5, computed=("W", "R", "B"), batch=2, direction="bidirectional"
    )
    inputs = drawn(model)
    report = byoc.compile(model, tmp_path / "m.so").report
    assert [left.op for left in report.left] == ["relax.ext.recurrent"]
    compare(byoc.load(tmp_path / "m.so").run(inputs), onnxruntime_outputs(model, inputs))


SKIPPED = {
    "lstm": ("LSTM", {"given": ("B", "initial_h", "initial_c", "P"), "clip": 0.3}),
    "coupled": ("LSTM", {"input_forget": 1, "direction": "reverse"}),
    "gru": ("GRU", {"direction": "bidirectional"}),
    "reset last": ("GRU", {"linear_before_reset": 1, "lengths": [2, 4]}),
    "rnn": ("RNN", {"direction": "bidirectional", "lengths": [3, 1]}),
}


@pytest.mark.parametrize("form", SKIPPED)
def test_skipped(form: str, tmp_path: Path) -> None:
    operator, options = SKIPPED[form]
    model = layer(operator, ["n", 2, 3], 5, batch=2, **options)
    inputs = drawn(model, n=4)
    report = byoc.compile(
        model, tmp_path / "m.so", input_shapes={"X": ["n", 2, 3]}, skip_ops=["recurrent"]
    ).report
    assert report.regions == ()
    compare(byoc.load(tmp_path / "m.so").run(inputs), onnxruntime_outputs(model, inputs))


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("operator", "attributes", "reason"),
    [
        ("LSTM", {"clip": -1.0}, "clip=-1; need a number above 0"),
        ("GRU", {"activations": ["Tanh", "Swish"]}, "activation Swish; need one of"),
        ("RNN", {"activations": ["Tanh", "Tanh"]}, "2 activations; need 1"),
        ("RNN", {"activations": ["Affine"]}, "activation Affine without its alpha or beta"),
        (
            "RNN",
            {"activations": ["ScaledTanh"], "activation_alpha": [0.5]},
            "activation ScaledTanh without its alpha or beta",
        ),
        ("RNN", {"direction": "both"}, "direction 'both'; need one of forward, reverse"),
    ],
)
def test_what_is_refused(
    operator: str, attributes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ByocError, match=reason):
        byoc.compile(layer(operator, [3, 1, 4], 5, **attributes), tmp_path / "m.so")


def test_shapes_that_contradict(tmp_path: Path) -> None:
    model = layer("LSTM", [3, 2, 4], 5, given=("B", "initial_h"), batch=1)
    with pytest.raises(ByocError, match=r"initial_h has shape \[1, 1, 5\]; need shape \[1, 2, 5\]"):
        byoc.compile(model, tmp_path / "m.so")
