"""Symbolic axes: one compiled library, many sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from tvm import relax

import byoc
from byoc.loader import InputError
from byoc.prepare import import_onnx, prepare
from models.bert import bert
from models.zoo import ZOO
from tests.reference import assert_agrees, onnxruntime_outputs


def symbolic(model: onnx.ModelProto, axes: dict[int, str]) -> onnx.ModelProto:
    """The model with names in place of some extents of its first input."""
    dims = model.graph.input[0].type.tensor_type.shape.dim
    for axis, name in axes.items():
        dims[axis].dim_param = name
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    return model


def check(
    model: onnx.ModelProto,
    folder: Path,
    sizes: list[tuple[int, ...]],
    inputs: Callable[..., dict[str, np.ndarray]],
    input_shapes: dict[str, list[int | str]] | None = None,
) -> byoc.Model:
    compiled = byoc.compile(model, folder / "m.so", input_shapes=input_shapes)
    assert compiled.report.offloaded_macs == compiled.report.macs > 0
    loaded = byoc.load(folder / "m.so")
    for size in sizes:
        arrays = inputs(*size)
        assert_agrees(loaded.run(arrays), onnxruntime_outputs(model, arrays))
    return loaded


def image(n: int, height: int, width: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(n + height)
    return {"image": random.standard_normal((n, 3, height, width), dtype=np.float32)}


def test_one_resnet_serves_every_batch(tmp_path: Path) -> None:
    model = symbolic(ZOO["resnet50"].build(), {0: "n"})
    shapes: dict[str, list[int | str]] = {"image": ["n", 3, 224, 224]}
    sizes = [(1, 224, 224), (3, 224, 224), (16, 224, 224)]
    loaded = check(model, tmp_path, sizes, image, shapes)
    assert loaded.inputs[0].shape == ("n", 3, 224, 224)
    with pytest.raises(InputError, match=r"need \[n, 3, 224, 224\]"):
        loaded.run(image(0, 224, 224))
    with pytest.raises(InputError, match=r"need \[n, 3, 224, 224\]"):
        loaded.run(image(1, 224, 223))


def test_functions_share_no_symbols() -> None:
    model = symbolic(ZOO["squeezenet"].build(), {2: "h", 3: "w"})
    prepared = prepare(model, {"image": [1, 3, "h", "w"]})
    module = byoc.partition_for_ext(import_onnx(prepared))
    assert "ext_main_0" in [gvar.name_hint for gvar in module.get_global_vars()]
    relax.analysis.well_formed(module)  # raises where it is not


def test_one_network_serves_several_image_sizes(tmp_path: Path) -> None:
    model = symbolic(ZOO["squeezenet"].build(), {2: "h", 3: "w"})
    check(model, tmp_path, [(1, 224, 224), (1, 97, 160)], image, {"image": [1, 3, "h", "w"]})


def test_one_bert_serves_every_length(tmp_path: Path) -> None:
    def sentence(length: int) -> dict[str, np.ndarray]:
        random = np.random.default_rng(length)
        mask = np.ones((1, length), np.int64)
        mask[:, length - length // 3 :] = 0
        return {
            "input_ids": random.integers(0, 500, (1, length)),
            "attention_mask": mask,
            "token_type_ids": random.integers(0, 2, (1, length)),
            "position_ids": np.arange(length)[None],
        }

    model = bert(layers=2, hidden=64, heads=4, sequence="s", vocabulary=500)
    shapes: dict[str, list[int | str]] = {"input_ids": [1, "s"]}  # the others share the symbol
    loaded = check(model, tmp_path, [(5,), (128,), (200,)], sentence, shapes)
    short, long = sentence(5), sentence(128)
    with pytest.raises(InputError, match="where s is 5"):
        loaded.run({**short, "attention_mask": long["attention_mask"]})
