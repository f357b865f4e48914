"""DynamicQuantizeLSTM from ONNX, offloaded, against ONNX Runtime's LSTM with the same weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

import byoc
from tests.models.recurrent_layers import compare, compiled, drawn, layer
from tests.reference import onnxruntime_outputs


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
