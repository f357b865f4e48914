"""The errors of nodes: who is wrong is named, and nobody else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm

import byoc
from byoc.layer_errors import network as module
from models.builder import GraphBuilder
from tests.layer_errors.networks import WRONG, perceptron, quantised
from tests.models.halves import in_halves
from tests.quantised.float_networks import bert_like, resnet_like


@pytest.mark.slow
def test_a_sound_network_is_sound_everywhere() -> None:
    model = resnet_like()
    found = byoc.compare(model, min_bytes=0)
    assert found.report.left == () and len(found.layers) >= 15
    assert found.outputs.keys() == {model.graph.output[0].name}
    assert found.error < 1e-5
    assert all(layer.own.share < 1e-5 and layer.total.share < 1e-5 for layer in found.layers)
    assert all(layer.kernel.library == "builtin" for layer in found.layers)
    assert {name for layer in found.layers for name in layer.names} >= {
        node.name for node in model.graph.node if node.op_type in ("Conv", "Gemm", "MaxPool")
    }


@pytest.mark.slow
def test_a_float16_network_is_judged_by_its_float16_values() -> None:
    """ONNX Runtime rounds every value, which is the error of each node."""
    found = byoc.compare(in_halves(resnet_like(), "float16"), min_bytes=0)
    assert found.report.left == () and len(found.layers) >= 15
    assert found.error < 5e-3 and all(layer.own.share < 1e-3 for layer in found.layers)
    assert {layer.computes for layer in found.layers} <= {"float32", "float16"}


@pytest.mark.slow
def test_a_wrong_kernel_is_the_worst_by_name_though_all_after_it_are_off() -> None:
    found = byoc.compare(perceptron(), libraries=["builtin", f"fc1={WRONG}"])
    worst, *others = found.worst
    assert worst.names[0] == "fc1" and worst.kernel.library == "wrong"
    assert worst.own.share > 1e-3 and all(layer.own.share < 1e-5 for layer in others)
    later = [layer for layer in others if layer.names[0] in ("fc2", "fc3")]
    assert len(later) == 2 and all(layer.total.share > 1e-3 for layer in later)
    (first,) = (layer for layer in others if layer.names[0] == "fc0")
    assert first.total.share < 1e-5 < 1e-3 < found.error
    assert sum(worst.histogram) == np.prod(worst.shape)
    assert worst.total.share == pytest.approx(worst.own.share, rel=1e-4)


@pytest.mark.slow
def test_numbers_are_those_of_the_arrays() -> None:
    """Against ONNX Runtime's value of the node, and the wrong product by NumPy."""
    model = perceptron()
    (weight,) = (t for t in model.graph.initializer if t.name == model.graph.node[0].input[1])
    weight = onnx.numpy_helper.to_array(weight)
    x = np.random.default_rng(7).normal(size=(5, 32)).astype(np.float32)
    found = byoc.compare(model, {"x": x}, libraries=["builtin", f"fc0={WRONG}"])
    (layer,) = (layer for layer in found.layers if layer.names == ("fc0",))
    assert layer.value == model.graph.node[0].output[0]
    right, given = x @ weight, x[:, :16] @ weight[:16]
    apart = np.abs(given - right)
    assert layer.own.greatest == pytest.approx(apart.max(), rel=1e-4)
    assert layer.own.mean == pytest.approx(apart.mean(), rel=1e-4)
    assert layer.own.share == pytest.approx(apart.max() / np.ptp(right), rel=1e-4)
    ratio = 10 * np.log10(np.square(right).sum() / np.square(apart).sum())
    assert layer.own.snr_db == pytest.approx(ratio, rel=1e-4)


@pytest.mark.slow
def test_operators_that_stay_with_tvm_are_judged() -> None:
    found = byoc.compare(perceptron(), skip_nodes=["fc2"])
    (layer,) = (layer for layer in found.layers if "fc2" in layer.names)
    assert (layer.kernel.library, layer.operator) == ("TVM", "relax.matmul")
    assert len(found.report.regions) == 2 and found.error < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("network", [resnet_like, bert_like])
def test_quantised_networks_beside_themselves(network, tmp_path: Path) -> None:
    model = quantised(network(), tmp_path)
    found = byoc.compare(model, min_bytes=0)
    whole = [layer for layer in found.layers if layer.dtype in ("uint8", "int8")]
    assert len(whole) >= 8 and {layer.computes for layer in whole} >= {"uint8"}
    assert all(layer.own.greatest <= 1 for layer in whole)  # one step
    assert found.judge == f"ONNX Runtime {onnxruntime.__version__} without fusions"


def test_networks_of_16_bits_are_judged_too() -> None:
    """ONNX Runtime rounds every value to float16, and the library the outputs alone."""
    model = perceptron()
    for tensor in model.graph.initializer:
        half = onnx.numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(onnx.numpy_helper.from_array(half, tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    found = byoc.compare(model)
    assert sum("fc" in layer.name for layer in found.layers) == 4
    assert all(layer.own.share < 2e-3 for layer in found.layers)
    assert any(layer.own.share > 1e-5 for layer in found.layers)


@pytest.mark.slow
def test_groups_give_what_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = byoc.compare(resnet_like(), min_bytes=0)
    monkeypatch.setattr(module, "GROUP_BYTES", 40_000)
    parts = byoc.compare(resnet_like(), min_bytes=0)
    assert [layer.names for layer in parts.layers] == [layer.names for layer in whole.layers]
    assert all(layer.own.share < 1e-5 and layer.total.share < 1e-5 for layer in parts.layers)
    assert parts.outputs.keys() == whole.outputs.keys()


def test_several_outputs_and_one_that_is_a_judged_value() -> None:
    model = perceptron()
    relu = next(node.output[0] for node in model.graph.node if node.op_type == "Relu")
    model.graph.output.append(
        onnx.helper.make_tensor_value_info(relu, onnx.TensorProto.FLOAT, (5, 32))
    )
    found = byoc.compare(model)
    assert list(found.outputs) == ["y", relu] and found.error < 1e-5


def test_external_weights(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "model.onnx"
    path.parent.mkdir()
    onnx.save(perceptron(), path, save_as_external_data=True, size_threshold=0, location="w.bin")
    assert byoc.compare(path).error < 1e-5


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(byoc.VerifyError, match=r"Relax module.*give the ONNX model"):
        byoc.compare(tvm.IRModule())
    with pytest.raises(byoc.InputError, match="unknown input 'z'; the model has x"):
        byoc.compare(perceptron(), {"z": np.zeros(3)}, {"x": [5, 32]})
    with pytest.raises(byoc.VerifyError, match=r"aarch64-linux-gnu.*another machine"):
        byoc.compare(perceptron(), target="aarch64-linux-gnu")
    dynamic = perceptron()
    dynamic.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    dynamic.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "n"
    with pytest.raises(byoc.VerifyError, match="axes without a size; give --input-shapes"):
        byoc.compare(dynamic, input_shapes={"x": ["n", 32]})
    assert byoc.compare(dynamic, {"x": np.ones((3, 32), np.float32)}).layers[0].shape == (3, 32)
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(byoc.VerifyError, match="pip install onnxruntime"):
        byoc.compare(perceptron())


@pytest.mark.parametrize("channels", [3, 4, 5])
def test_products_in_bfloat16_lose_what_eight_bits_lose(channels: int) -> None:
    graph = GraphBuilder("image", seed=1)
    x = graph.input("x", (1, channels, 20, 20))
    x = graph.op("Relu", graph.conv(x, (channels, 64), 3, stride=2))
    graph.output(graph.conv(x, (64, 64), 3, stride=2), "y", (1, 64, 5, 5))
    found = byoc.compare(graph.build(), precision="bf16", max_error=1e-5)
    assert [layer.computes for layer in found.layers] == ["bfloat16", "bfloat16"]
    assert all(1e-4 < layer.own.share < 5e-3 and layer.narrowed for layer in found.layers)
    assert found.kept.holds and found.kept.error < 1e-5 < 1e-4 < found.error
    names = [layer.names[0] for layer in found.worst]
    assert [remedy.value for remedy in found.kept.remedies] == [f"{name}=fp32" for name in names]
    assert all(remedy.option.startswith("--precision '") for remedy in found.kept.remedies)
