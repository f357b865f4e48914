"""The zoo's quantised networks: its own, calibrated by ``onnxruntime.quantization``.

QuantizeLinear and DequantizeLinear around every operator, uint8 activations, int8 weights with a
scale for each channel.  Calibration takes seeded inputs; speed and rounding are those of a network
that was calibrated on pictures, answers mean nothing.  Each is made once and kept in byoc's cache.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import onnx

from byoc.errors import ModelError
from byoc.frontends.onnx.measured_model import draw_inputs
from codegen_cc.runtime_files import cache_folder

from .zoo import ZOO, ZooModel

_INPUTS = 4
_NAMES = ("resnet50", "mobilenet_v2", "bert", "bert_small", "vit_b_16", "vit_small")
#: What the quantised network is called, by the name of the one that it is made from.
INT8 = {name: f"{name}_int8" for name in _NAMES}


def quantised(name: str) -> onnx.ModelProto:
    """A network of the zoo as onnxruntime quantises it, in QDQ form.

    Raises ``ModelError`` where onnxruntime is not installed.
    """
    if find_spec("onnxruntime") is None:
        raise ModelError(f"{INT8[name]} is made by onnxruntime; pip install onnxruntime")
    model = ZOO[name].build()
    made_of = f"{metadata.version('onnxruntime')} {_INPUTS} ".encode()
    digest = hashlib.sha256(made_of + model.SerializeToString(deterministic=True)).hexdigest()
    path = cache_folder() / "zoo" / f"{INT8[name]}-{digest[:16]}.onnx"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = calibrate(model, Path(folder))
            os.replace(made, path)  # whole, whoever else makes it
    return onnx.load(path)


def calibrate(model: onnx.ModelProto, folder: Path) -> Path:
    """The file in ``folder`` with a quantised form of a model of static shapes."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Inputs(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = (draw_inputs(model, seed) for seed in range(_INPUTS))

        def get_next(self) -> dict | None:
            return next(self.left, None)

    plain, folded, made = (folder / f"{part}.onnx" for part in ("plain", "folded", "made"))
    onnx.save(model, plain)
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)  # it warns of vectors, which have no channels
    try:
        # Folds BatchNormalization, which would be quantised on its own.
        quant_pre_process(plain, folded, skip_symbolic_shape=True)
        kinds = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
        quantize_static(folded, made, Inputs(), per_channel=True, **kinds)
    finally:
        root.setLevel(level)
    return made


QUANTISED = {
    int8: ZooModel(int8, f"{ZOO[name].title}, int8", partial(quantised, name))
    for name, int8 in INT8.items()
}
