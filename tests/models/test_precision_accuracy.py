"""What a user notices of fewer bits: the class that is named, the text that is read, the error."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

import byoc
from byoc.accuracy import relative_error
from byoc.frontends.onnx.measured_model import draw_inputs
from models.carried import trained
from models.demo import character_list, recogniser
from models.draw_text_line import PICTURE, TEXT
from models.quantised import raised
from models.text_line import decode, pixels, width_for
from models.zoo import ZOO
from tests.models.in_process import cpu_has

CLASSIFIERS = ("squeezenet", "resnext_small", "vit_small", "swin_small", "convnext_small")
SEEDS = range(3)
#: How far bfloat16 may be off, in errors of OpenVINO's.
MOST = 1.2

needs_rapidocr = pytest.mark.skipif(
    find_spec("rapidocr") is None, reason="the package rapidocr is not installed"
)


@cache
def exact(name: str) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(ZOO[name].build().SerializeToString())
    return [session.run(None, draw_inputs(ZOO[name].build(), seed))[0] for seed in SEEDS]


def openvino_in_bfloat16(
    model: onnx.ModelProto, inputs: Iterable[dict[str, np.ndarray]], folder: Path
) -> list[np.ndarray]:
    import openvino

    onnx.save(model, folder / "model.onnx")
    options = {"INFERENCE_PRECISION_HINT": "bf16"}
    compiled = openvino.Core().compile_model(folder / "model.onnx", "CPU", options)
    return [compiled(one)[0] for one in inputs]


def mean_error(answers: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    pairs = zip(answers, wanted, strict=True)
    return float(np.mean([relative_error([a], [b]) for a, b in pairs]))


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_bfloat16_names_the_same_class_and_is_no_further_off_than_openvino(
    name: str, tmp_path: Path
) -> None:
    model = ZOO[name].build()
    report = byoc.compile(model, tmp_path / "m.so", precision="bf16").report
    library = byoc.load(tmp_path / "m.so")
    answers = [next(iter(library.run(draw_inputs(model, s)).values())) for s in SEEDS]
    for found, wanted in zip(answers, exact(name), strict=True):
        assert found.argmax() == wanted.argmax()
    if find_spec("openvino") is None or not cpu_has("avx512_bf16"):
        return  # OpenVINO computes in float32 there
    assert report.multiplied_in["bfloat16"] > 0
    theirs = openvino_in_bfloat16(model, (draw_inputs(model, seed) for seed in SEEDS), tmp_path)
    most = mean_error(theirs, exact(name))
    assert most > 1e-4  # or it computed in float32
    assert mean_error(answers, exact(name)) <= MOST * most


# ---------------------------------------------------------------------- a text that is read


class Pictures(CalibrationDataReader):
    """The picture of another text: this one's parts, moved and in other light."""

    def __init__(self, name: str, width: int) -> None:
        line = pixels(PICTURE, width)
        parts = [np.roll(line, shift, axis=3) for shift in (-width // 3, -48, 24)]
        light = [0.6 * line + 0.3, -line]
        self.left = iter([{name: picture.astype(np.float32)} for picture in (*parts, *light)])

    def get_next(self) -> dict | None:
        return next(self.left, None)


def recogniser_model() -> onnx.ModelProto:
    return trained("PP-OCRv6_rec_small", [1, 3, 48, width_for(PICTURE)])


def text_of(library: Path) -> str:
    with byoc.load(library) as model:
        found = model(pixels(PICTURE, width_for(PICTURE)))
    return decode(found, character_list(recogniser()))


@pytest.mark.slow
@needs_rapidocr
def test_bfloat16_reads_the_same_text(tmp_path: Path) -> None:
    report = byoc.compile(recogniser_model(), tmp_path / "m.so", precision="bf16").report
    assert len(report.regions) == 1
    if cpu_has("avx512_bf16"):
        assert report.multiplied_in["bfloat16"] > 0
    assert text_of(tmp_path / "m.so") == TEXT
    if find_spec("openvino") is None or not cpu_has("avx512_bf16"):
        return
    # Of a network that names one of 18,000 characters, noise says little: pictures of text.
    model = recogniser_model()
    name = model.graph.input[0].name
    width = width_for(PICTURE)
    moved = Pictures(name, width).left
    pictures = [{name: pixels(PICTURE, width).astype(np.float32)}, *moved]
    session = onnxruntime.InferenceSession(model.SerializeToString())
    wanted = [session.run(None, one)[0] for one in pictures]
    with byoc.load(tmp_path / "m.so") as library:
        answers = [next(iter(library.run(one).values())) for one in pictures]
    most = mean_error(openvino_in_bfloat16(model, pictures, tmp_path), wanted)
    assert most > 1e-4
    assert mean_error(answers, wanted) <= MOST * most


@pytest.mark.slow
@needs_rapidocr
def test_int8_reads_the_same_text(tmp_path: Path) -> None:
    """Calibrated on pictures."""
    model = raised(recogniser_model())
    onnx.save(model, tmp_path / "plain.onnx")
    given = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    quantised = tmp_path / "quantised.onnx"
    reader = Pictures(model.graph.input[0].name, width_for(PICTURE))
    quantize_static(tmp_path / "plain.onnx", quantised, reader, per_channel=True, **given)
    report = byoc.compile(quantised, tmp_path / "m.so").report
    assert len(report.regions) == 1
    assert report.multiplied_in["uint8"] >= 0.98 * report.macs
    assert text_of(tmp_path / "m.so") == TEXT
