"""Symbolic axes: one compiled library, many sizes."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from tvm import relax

import byoc
from byoc.errors import ImportFailure, InputError
from byoc.frontends.onnx import import_onnx, prepare
from models.bert import bert
from models.yolo import yolo
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


@pytest.mark.slow
def test_one_resnet_serves_every_batch(tmp_path: Path) -> None:
    model = symbolic(ZOO["resnet50"].build(), {0: "n"})
    shapes: dict[str, list[int | str]] = {"image": ["n", 3, 224, 224]}
    sizes = [(1, 224, 224), (3, 224, 224), (16, 224, 224), (0, 224, 224)]
    loaded = check(model, tmp_path, sizes, image, shapes)
    assert loaded.inputs[0].shape == ("n", 3, 224, 224)
    with pytest.raises(InputError, match=r"need \[n, 3, 224, 224\]"):
        loaded.run(image(1, 224, 223))


def test_functions_share_no_symbols() -> None:
    model = symbolic(ZOO["squeezenet"].build(), {2: "h", 3: "w"})
    prepared = prepare(model, {"image": [1, 3, "h", "w"]})
    module = byoc.partition_for_ext(import_onnx(prepared))
    assert "ext_main_0" in [gvar.name_hint for gvar in module.get_global_vars()]
    relax.analysis.well_formed(module)  # raises where it is not


@pytest.mark.slow
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


@pytest.mark.slow
def test_regions_between_operators_of_tvm_know_the_size(tmp_path: Path) -> None:
    model = symbolic(ZOO["squeezenet"].build(), {2: "h", 3: "w"})
    shapes: dict[str, list[int | str]] = {"image": [1, 3, "h", "w"]}
    compiled = byoc.compile(model, tmp_path / "m.so", shapes, skip_ops=["max_pool2d", "concat"])
    assert len(compiled.report.regions) > 4
    loaded = byoc.load(tmp_path / "m.so")
    for size in ((64, 96), (47, 80)):
        arrays = image(1, *size)
        assert_agrees(loaded.run(arrays), onnxruntime_outputs(model, arrays))


# ---------------------------------------------------------------------- detectors

DETECTOR: dict[str, list[int | str]] = {"image": [1, 3, "32*h", "32*w"]}


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> byoc.Model:
    """One library of the zoo's detector for every size that it can take."""
    path = tmp_path_factory.mktemp("detector") / "m.so"
    report = byoc.compile(yolo(None), path, DETECTOR).report
    assert len(report.regions) == 1 and not report.left
    assert report.offloaded_macs == report.macs > 0
    return byoc.load(path)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(320, 320), (256, 416), (32, 96), (672, 736)])
def test_one_detector_serves_every_size(detector: byoc.Model, size: tuple[int, int]) -> None:
    arrays = image(1, *size)
    assert_agrees(detector.run(arrays), onnxruntime_outputs(yolo(None), arrays))
    assert str(detector.inputs[0]) == "image: float32[1, 3, 32*h, 32*w]"
    assert str(detector.outputs[0]) == "detections: float32[1, 84, 21*h*w]"


def test_the_detector_of_any_size_is_the_zoos() -> None:
    arrays = image(1, 320, 320)
    expected = onnxruntime_outputs(yolo(320), arrays)
    assert_agrees(onnxruntime_outputs(yolo(None), arrays), expected)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ((100, 64), "axis 2 is 100 and must be 32*h, such as 96 or 128"),
        ((64, 100), "axis 3 is 100 and must be 32*w, such as 96 or 128"),
        ((16, 64), "axis 2 is 16 and must be 32*h, such as 32"),
    ],
)
def test_other_sizes_are_one_clear_error(
    detector: byoc.Model, size: tuple[int, int], message: str
) -> None:
    with pytest.raises(InputError) as error:
        detector.run(image(1, *size))
    shape = [1, 3, *size]
    assert str(error.value) == (
        f"input 'image' has shape {shape}; need [1, 3, 32*h, 32*w]; {message}"
    )


@pytest.mark.slow
def test_plain_symbols_of_a_detector_are_refused() -> None:
    with pytest.raises(ImportFailure, match=r"give multiples: .*\"image:\[1,3,32\*h,32\*w\]\""):
        byoc.compile(yolo(None), None, {"image": [1, 3, "h", "w"]})


@pytest.mark.slow
def test_a_detector_in_pieces(tmp_path: Path) -> None:
    """What TVM computes between the regions knows the symbols as well."""
    model, path = yolo(None), tmp_path / "m.so"
    report = byoc.compile(model, path, DETECTOR, skip_ops=["broadcast_to", "softmax"]).report
    assert len(report.regions) > 1 and len(report.left) > 3
    loaded = byoc.load(path)
    for size in ((96, 64), (32, 128)):
        arrays = image(1, *size)
        assert_agrees(loaded.run(arrays), onnxruntime_outputs(model, arrays))


def page(height: int, width: int) -> np.ndarray:
    """[1, 3, height, width]: white paper with lines of strokes; noise alone has no text to find."""
    random = np.random.default_rng(height + width)
    paper = np.ones((1, 3, height, width), np.float32)
    for top in range(8, height - 16, 32):
        strokes = (random.random((4, width // 4)) < 0.5).repeat(4, 0).repeat(4, 1)
        paper[:, :, top : top + 16, : strokes.shape[1]] -= 2 * strokes
    return paper


@pytest.mark.slow
@pytest.mark.skipif(find_spec("rapidocr") is None, reason="the package rapidocr is not installed")
def test_one_text_detector_serves_every_size(tmp_path: Path) -> None:
    folder = Path(find_spec("rapidocr").origin).parent / "models"
    model = onnx.load(folder / "PP-OCRv6_det_small.onnx")
    path = tmp_path / "m.so"
    report = byoc.compile(model, path, {"x": [1, 3, "32*h", "32*w"]}).report
    assert len(report.regions) == 1 and not report.left
    loaded = byoc.load(path)
    for size in ((320, 320), (256, 416), (736, 96)):
        arrays = {"x": page(*size)}
        assert_agrees(loaded.run(arrays), onnxruntime_outputs(model, arrays))
