"""The zoo's quantised networks: its own, calibrated by ``onnxruntime.quantization``.

QuantizeLinear and DequantizeLinear around every operator, uint8 activations, int8 weights with a
scale for each channel.  Calibration takes seeded inputs; speed and rounding are those of a network
that was calibrated on pictures, answers mean nothing.  Each is made once and kept in byoc's cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import onnx
from onnx import version_converter

from byoc.errors import ModelError
from byoc.frontends.onnx.measured_model import draw_inputs
from codegen_cc.cache import cache_folder, make_room, used

from .builder import IR_VERSION, OPSET
from .carried import CARRIED
from .zoo import ZOO, ZooModel

_INPUTS = 4
_MADE_OF = ZOO | CARRIED
#: The first opset whose DequantizeLinear has an axis.
_WITH_AXIS = 13
#: What the quantised network is called, by the name of the one that it is made from.
INT8 = {name: f"{name}_int8" for name in _MADE_OF}


def quantised(name: str) -> onnx.ModelProto:
    """A network of the zoo as onnxruntime quantises it, in QDQ form.

    Raises ``ModelError`` where onnxruntime is not installed.
    """
    if find_spec("onnxruntime") is None:
        raise ModelError(f"{INT8[name]} is made by onnxruntime; pip install onnxruntime")
    model = _MADE_OF[name].build()
    made_of = metadata.version("onnxruntime").encode() + Path(__file__).read_bytes()
    digest = hashlib.sha256(made_of + model.SerializeToString(deterministic=True)).hexdigest()
    path = cache_folder() / "zoo" / f"{INT8[name]}-{digest[:16]}.onnx"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = calibrate(model, Path(folder))
            os.replace(made, path)  # whole, whoever else makes it
        make_room()
    used(path)
    return onnx.load(path)


def calibrate(model: onnx.ModelProto, folder: Path, form: str = "QDQ") -> Path:
    """The file in ``folder`` with a form, QDQ or QOperator, of a model of static shapes."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Inputs(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = (draw_inputs(model, seed) for seed in range(_INPUTS))

        def get_next(self) -> dict | None:
            return next(self.left, None)

    made = folder / "made.onnx"
    with _quiet():
        folded = _folded(model, folder)
        given = {"quant_format": QuantFormat.from_string(form), "per_channel": True}
        quantize_static(folded, made, Inputs(), **given, **_dtypes())
    return made


def dynamic(model: onnx.ModelProto, folder: Path) -> Path:
    """The file in ``folder`` with the dynamically quantised form of a model."""
    from onnxruntime.quantization import quantize_dynamic

    made = folder / "made.onnx"
    with _quiet():
        quantize_dynamic(_folded(model, folder), made)
    return made


def _dtypes() -> dict[str, object]:
    from onnxruntime.quantization import QuantType

    return {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}


def raised(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in an opset that has what quantised networks are written in."""
    if model.opset_import[0].version >= _WITH_AXIS:
        return model
    raised = onnx.ModelProto()
    raised.CopyFrom(model)
    raised.ir_version = max(raised.ir_version, IR_VERSION)  # as weights are no inputs
    return version_converter.convert_version(raised, OPSET)


def _folded(model: onnx.ModelProto, folder: Path) -> Path:
    """The model without BatchNormalization, which would be quantised on its own."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    plain, folded = folder / "plain.onnx", folder / "folded.onnx"
    onnx.save(raised(model), plain)
    quant_pre_process(plain, folded, skip_symbolic_shape=True)
    return folded


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without warnings of vectors, which have no channels, and what is printed of shapes."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(None):
            yield
    finally:
        root.setLevel(level)


QUANTISED = {
    int8: ZooModel(int8, f"{_MADE_OF[name].title}, int8", partial(quantised, name))
    for name, int8 in INT8.items()
}
