"""LSTM, GRU and RNN from ONNX, offloaded, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

import byoc
from byoc.compiler.standalone import compile_standalone
from byoc.errors import ByocError
from tests.deploy.standalone_api import Instance
from tests.reference import onnxruntime_outputs

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
RESULTS = ("Y", "Y_h", "Y_c")


def tensor(name: str, shape: Sequence[int | str] | None, dtype: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def layer(
    operator: str,
    shape: Sequence[int | str],
    units: int,
    *,
    given: Sequence[str] = ("B",),
    computed: Sequence[str] = (),
    outputs: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    batch: int = 1,
    seed: int = 0,
    **attributes: Any,
) -> onnx.ModelProto:
    """One layer whose inputs ``given`` are constants but for those ``computed``."""
    draw = np.random.default_rng(seed)
    count = 2 if attributes.get("direction") == "bidirectional" else 1
    rows, inputs = GATES[operator] * units, shape[2]
    state = (batch, count, units) if attributes.get("layout") else (count, batch, units)
    shapes = {
        "W": (count, rows, inputs),
        "R": (count, rows, units),
        "B": (count, 2 * rows),
        "sequence_lens": (batch,),
        "initial_h": state,
        "initial_c": state,
        "P": (count, 3 * units),
    }
    names, values, free = ["X"], {}, [tensor("X", shape)]
    for name in list(shapes)[: 7 if operator == "LSTM" else 5]:
        wanted = name in ("W", "R", *given) or (name == "sequence_lens" and lengths is not None)
        names.append(name if wanted else "")
        if name in computed:
            free.append(tensor(name, shapes[name]))
        elif name == "sequence_lens" and wanted:
            values[name] = np.array(lengths, np.int32)
        elif wanted:
            values[name] = (draw.standard_normal(shapes[name]) / np.sqrt(units)).astype(np.float32)
    results = RESULTS[: 3 if operator == "LSTM" else 2] if outputs is None else outputs
    node = helper.make_node(operator, names, results, "layer", hidden_size=units, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        free,
        [tensor(name, None) for name in results if name],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def drawn(model: onnx.ModelProto, seed: int = 1, **sizes: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    found = {}
    for value in model.graph.input:
        shape = [sizes.get(d.dim_param, d.dim_value) for d in value.type.tensor_type.shape.dim]
        found[value.name] = draw.standard_normal(shape).astype(np.float32)
    return found


def compiled(model: onnx.ModelProto, folder: Path, *layers: str, **options: Any) -> byoc.Model:
    """The model, all of it in one region with these layers."""
    report = byoc.compile(model, folder / "m.so", min_bytes=0, **options).report
    assert len(report.regions) == 1 and not report.left, report.left
    found = [node.operator for node in report.graph.nodes]
    for name in layers:
        assert f"ext.{name}" in found
    return byoc.load(folder / "m.so")


def compare(got: dict[str, np.ndarray], want: dict[str, np.ndarray], limit: float = 2e-6) -> None:
    assert got.keys() == want.keys()
    for name, expected in want.items():
        assert got[name].shape == expected.shape, name
        np.testing.assert_allclose(got[name], expected, rtol=0, atol=limit, err_msg=name)


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


def network(layers: int, units: int, batch: int, steps: int | str) -> onnx.ModelProto:
    """Layers of both directions as PyTorch writes them, whose directions are joined in between."""
    draw = np.random.default_rng(4)
    nodes, values, name, inputs = [], {}, "X", 12
    for i in range(layers):
        made = {
            f"W{i}": (2, 4 * units, inputs),
            f"R{i}": (2, 4 * units, units),
            f"B{i}": (2, 8 * units),
        }
        for key, shape in made.items():
            values[key] = (draw.standard_normal(shape) / np.sqrt(units)).astype(np.float32)
        nodes += [
            helper.make_node(
                "LSTM", [name, *made], [f"y{i}"], hidden_size=units, direction="bidirectional"
            ),
            helper.make_node("Transpose", [f"y{i}"], [f"t{i}"], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", [f"t{i}", "joined"], [f"z{i}"]),
        ]
        name, inputs = f"z{i}", 2 * units
    values["joined"] = np.array([0, 0, -1])
    graph = helper.make_graph(
        nodes,
        "g",
        [tensor("X", [steps, batch, 12])],
        [tensor(name, None)],
        [numpy_helper.from_array(value, key) for key, value in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_layers_are_joined_in_place(tmp_path: Path) -> None:
    model = network(3, 20, 2, 6)
    inputs = drawn(model)
    loaded = compiled(model, tmp_path, "lstm", dump_code=tmp_path / "code")
    compare(loaded.run(inputs), onnxruntime_outputs(model, inputs))
    code = "".join(file.read_text() for file in (tmp_path / "code").glob("*.c"))
    assert code.count("ext_recurrent(") == 3 and "ext_copy(" not in code


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


# ---------------------------------------------------------------- weights of 8 bits


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("dtype", ["QInt8", "QUInt8"])
@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
def test_dynamic_quantize_lstm(
    direction: str, dtype: str, per_channel: bool, tmp_path: Path
) -> None:
    """An LSTM with the dequantised weights, and close to ONNX Runtime, which rounds states too."""
    model = layer(
        "LSTM", [9, 2, 20], 24, batch=2, direction=direction, given=("B", "initial_h", "P")
    )
    quantised = quantised_layer(model, tmp_path, dtype, per_channel)
    inputs = drawn(quantised)
    loaded = compiled(quantised, tmp_path, "lstm", dump_code=tmp_path / "code")
    got = loaded.run(inputs)
    compare(got, onnxruntime_outputs(quantised, inputs), 0.05)
    exact, integers = dequantised(model, quantised)
    code = "".join(file.read_text() for file in (tmp_path / "code").glob("*.c"))
    assert [name in code for name in ("ext_qmatmul(", "EXT_INT8")] == integers
    if dtype == "QInt8":
        assert integers == [True, True]
    given = {"X": rounded(inputs["X"])} if integers[0] else inputs
    compare(got, onnxruntime_outputs(exact, given), 1e-4 if integers[1] else 2e-6)
    byoc.compile(quantised, tmp_path / "loops.so", skip_ops=["recurrent"])
    compare(byoc.load(tmp_path / "loops.so").run(inputs), got, 1e-4)


def quantised_layer(
    model: onnx.ModelProto, folder: Path, dtype: str, per_channel: bool
) -> onnx.ModelProto:
    onnx.save(model, folder / "float.onnx")
    weight_type = QuantType[dtype]
    paths = (folder / "float.onnx", folder / "quantised.onnx")
    quantize_dynamic(*paths, per_channel=per_channel, weight_type=weight_type)
    quantised = onnx.load(paths[1])
    assert [node.op_type for node in quantised.graph.node] == ["DynamicQuantizeLSTM"]
    return quantised


def rounded(x: np.ndarray) -> np.ndarray:
    """What DynamicQuantizeLinear and DequantizeLinear leave of a tensor."""
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = np.float32((high - low) / np.float32(255))
    zero = np.rint(-low / scale)
    return (np.clip(np.rint(x / scale) + zero, 0, 255) - zero).astype(np.float32) * scale


def dequantised(
    model: onnx.ModelProto, quantised: onnx.ModelProto
) -> tuple[onnx.ModelProto, list[bool]]:
    """The float model with the quantised one's weights, and whether int8 holds W, and R."""
    arrays = {i.name: numpy_helper.to_array(i) for i in quantised.graph.initializer}
    made, integers = onnx.ModelProto(), []
    made.CopyFrom(model)
    for weight in made.graph.initializer:
        if weight.name in ("W", "R"):
            q, scale, zero = (
                arrays[f"{weight.name}_{part}"] for part in ("quantized", "scale", "zero_point")
            )
            centred = q.astype(np.float32) - zero.reshape(len(q), 1, -1)
            integers.append(bool(np.abs(centred).max() <= 127))
            values = (centred * scale.reshape(len(q), 1, -1)).swapaxes(1, 2)
            turned = np.ascontiguousarray(values.astype(np.float32))
            weight.CopyFrom(numpy_helper.from_array(turned, weight.name))
    return made, integers


def test_integers_of_states_that_have_no_bound(tmp_path: Path) -> None:
    """Weights become floats, whatever the states are."""
    names = ["Sigmoid", "Tanh", "Affine"]
    options = {"activations": names, "activation_alpha": [3.0], "activation_beta": [0.5]}
    model = layer("LSTM", [5, 1, 8], 12, **options)
    quantised = quantised_layer(model, tmp_path, "QInt8", False)
    inputs = drawn(quantised)
    got = compiled(quantised, tmp_path, "lstm").run(inputs)
    exact, _ = dequantised(model, quantised)
    compare(got, onnxruntime_outputs(exact, {"X": rounded(inputs["X"])}), 1e-5)
