"""DynamicQuantizeLSTM from ONNX, offloaded, against ONNX Runtime's LSTM with the same weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

import byoc
from byoc.frontends.onnx.exact_reference import exact_session
from tests.models.recurrent_layers import compare, compiled, drawn, layer
from tests.reference import onnxruntime_outputs

#: What sums of float32 in another order change results by, where no state is rounded elsewhere.
SAME = 1e-5


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
def test_dynamic_quantize_lstm(direction: str, per_channel: bool, tmp_path: Path) -> None:
    """As ONNX Runtime, which takes one range for the rows of a thread: here of one row."""
    options = {"direction": direction, "given": ("B", "initial_h", "P")}
    model = layer("LSTM", [9, 2, 20], 24, batch=2, **options)
    quantised = quantised_layer(model, tmp_path, "QInt8", per_channel)
    assert dequantised(model, quantised)[1] == [True, True]
    inputs = drawn(quantised)
    loaded = compiled(quantised, tmp_path, "lstm", dump_code=tmp_path / "code")
    code = "".join(file.read_text() for file in (tmp_path / "code").glob("*.c"))
    assert "ext_qmatmul(" in code and "EXT_INT8" in code
    got = loaded.run(inputs)
    compare(got, by_rows(quantised, inputs, rows=2), SAME)
    byoc.compile(quantised, tmp_path / "loops.so", skip_ops=["recurrent"])
    compare(byoc.load(tmp_path / "loops.so").run(inputs), got, SAME)


def by_rows(
    model: onnx.ModelProto, inputs: dict[str, np.ndarray], rows: int
) -> dict[str, np.ndarray]:
    """ONNX Runtime's answers with a thread for each row of the batch."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = rows
    session = exact_session(model, options)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


@pytest.mark.parametrize("per_channel", [False, True])
def test_weights_that_int8_does_not_hold(per_channel: bool, tmp_path: Path) -> None:
    """They become floats, and what they multiply stays as it is."""
    model = layer("LSTM", [9, 2, 20], 24, batch=2, given=("B", "initial_h", "P"))
    quantised = quantised_layer(model, tmp_path, "QInt8", per_channel)
    for tensor in quantised.graph.initializer:  # less 90, at most 164
        array = numpy_helper.to_array(tensor).astype(np.int16)
        if tensor.name in ("W_quantized", "R_quantized"):
            tensor.CopyFrom(numpy_helper.from_array((array + 127).astype(np.uint8), tensor.name))
        elif tensor.name in ("W_zero_point", "R_zero_point"):
            tensor.CopyFrom(numpy_helper.from_array((array + 90).astype(np.uint8), tensor.name))
    exact, integers = dequantised(model, quantised)
    assert not any(integers)
    inputs = drawn(quantised)
    got = compiled(quantised, tmp_path, "lstm").run(inputs)
    compare(got, onnxruntime_outputs(quantised, inputs), 0.05)
    compare(got, onnxruntime_outputs(exact, inputs))


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
    """Functions that give what is above 1."""
    names = ["Sigmoid", "Tanh", "Affine"]
    options = {"activations": names, "activation_alpha": [3.0], "activation_beta": [0.5]}
    model = layer("LSTM", [5, 1, 8], 12, **options)
    quantised = quantised_layer(model, tmp_path, "QInt8", False)
    inputs = drawn(quantised)
    got = compiled(quantised, tmp_path, "lstm").run(inputs)
    compare(got, by_rows(quantised, inputs, rows=1), 10 * SAME)


@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
def test_what_follows_knows_the_types_of_results(direction: str, tmp_path: Path) -> None:
    """FusedMatMul and STFT are written out as others, for which types have to be known."""
    model = layer("LSTM", ["steps", 1, 8], 4, direction=direction)
    quantised = quantised_layer(model, tmp_path, "QInt8", False)
    graph = quantised.graph
    floats = {
        "window": np.hanning(8).astype(np.float32),
        "columns": np.random.default_rng(3).standard_normal((4, 3)).astype(np.float32),
    }
    whole = {"hop": np.array(2), "length": np.array(8), "flat": np.array([1, -1])}
    for name, array in (floats | whole).items():
        graph.initializer.append(numpy_helper.from_array(array, name))
    graph.node.extend(
        [
            onnx.helper.make_node("Reshape", ["Y", "flat"], ["signal"]),
            onnx.helper.make_node("STFT", ["signal", "hop", "window", "length"], ["spectrum"]),
            onnx.helper.make_node(
                "FusedMatMul", ["Y_h", "columns"], ["z"], domain="com.microsoft", alpha=0.5
            ),
        ]
    )
    outputs = [output for output in graph.output if output.name == "Y_c"]
    del graph.output[:]
    graph.output.extend(
        [*map(onnx.helper.make_empty_tensor_value_info, ("spectrum", "z")), *outputs]
    )
    made = compiled(quantised, tmp_path, "lstm")
    assert made.inputs[0].shape == ("steps", 1, 8)
    for steps in (5, 12):
        inputs = drawn(quantised, steps=steps)
        compare(made.run(inputs), by_rows(quantised, inputs, rows=1), 10 * SAME)
