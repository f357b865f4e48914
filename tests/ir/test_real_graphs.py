"""Architectures that ``onnx`` itself carries, and trained networks of a package if installed.

The networks of ``onnx`` have constant weights, so structure is looked at here and not values.
"""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import onnx
import pytest
from tvm import relax

from byoc.compiler.partition import partition_with_report
from byoc.frontends.onnx import import_onnx, prepare

from .graphs import regions

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"

#: Some composites that each network must have, and how often.
NETWORKS = {
    "resnet50": {"ext.conv2d_bias_residual_relu": 16, "ext.conv2d_bias_relu": 33},
    "squeezenet": {"ext.conv2d_bias_relu": 26, "ext.concat": 8},
    "inception_v2": {"ext.conv2d_bias_relu": 69, "ext.concat": 10},
    "shufflenet": {"ext.conv2d_bias_residual_relu": 13, "ext.permute": 16},
    "densenet121": {"ext.add_relu": 62, "ext.concat": 58},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_one_region(name: str) -> None:
    out, report = partition_with_report(import_onnx(prepare(LIGHT / f"light_{name}.onnx")))
    relax.analysis.well_formed(out)
    assert report.left == ()
    assert len(report.regions) == 1
    assert len(out["main"].params) == 1
    (names,) = regions(out).values()
    counts = Counter(names)
    assert {composite: counts[composite] for composite in NETWORKS[name]} == NETWORKS[name]


TRAINED = {
    "PP-OCRv6_det_small": [1, 3, 96, 96],
    "PP-OCRv6_rec_small": [1, 3, 48, 96],
    "ch_ppocr_mobile_v2.0_cls_mobile": [1, 3, 48, 192],
}


@pytest.mark.slow
@pytest.mark.skipif(find_spec("rapidocr") is None, reason="the package rapidocr is not installed")
@pytest.mark.parametrize("name", TRAINED)
def test_trained_networks_are_one_region(name: str) -> None:
    folder = Path(find_spec("rapidocr").origin).parent / "models"
    if not (folder / f"{name}.onnx").exists():
        pytest.skip(f"rapidocr carries no {name}.onnx")
    mod = import_onnx(prepare(folder / f"{name}.onnx", {"x": TRAINED[name]}))
    out, report = partition_with_report(mod)
    relax.analysis.well_formed(out)
    assert report.left == ()
    assert len(report.regions) == 1
