"""Networks of the zoo, small: every operator in one region, and descriptors that mean the same."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import pytest
from tvm import relax

import byoc.partition.epilogues
from byoc.canonicalise import canonicalise
from byoc.frontends.onnx import import_onnx, prepare
from byoc.frontends.onnx.measured_model import draw_inputs
from byoc.partition.annotate import annotate
from byoc.partition.merge import merge
from models.efficientnet import efficientnet_b0
from models.yolo import yolo
from models.zoo import ZOO
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import operators, regions
from .interpret import Interpreter

NETWORKS = {
    "bert_small": (ZOO["bert_small"].build, {"ext.attention": 3, "ext.matmul_bias_gelu": 3}),
    "gpt2_small": (ZOO["gpt2_small"].build, {"ext.attention": 2, "ext.matmul_bias_gelu_tanh": 2}),
    "vit_small": (ZOO["vit_small"].build, {"ext.attention": 2, "ext.matmul_bias_gelu": 2}),
    "convnext_small": (ZOO["convnext_small"].build, {"ext.matmul_bias_gelu": 5}),
    "swin_small": (ZOO["swin_small"].build, {"ext.attention": 4, "ext.matmul_bias_gelu": 4}),
    "resnext_small": (ZOO["resnext_small"].build, {"ext.conv2d_bias_relu": 7}),
    "efficientnet": (partial(efficientnet_b0, size=32), {"ext.conv2d_bias_sigmoid": 16}),
    "yolo": (partial(yolo, size=64, classes=3), {"ext.max_pool2d": 3, "ext.broadcast_to": 2}),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_network(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(byoc.partition.epilogues, "supports", lambda node: None)
    build, expected = NETWORKS[name]
    model: onnx.ModelProto = build()
    inputs = draw_inputs(model)
    want = onnxruntime_outputs(model, inputs)
    out = merge(annotate(canonicalise(import_onnx(prepare(model)))))
    relax.analysis.well_formed(out)
    assert operators(out) == []
    (names,) = regions(out).values()
    assert {kind: names.count(kind) for kind in expected} == expected
    got = Interpreter(out)(*inputs.values())
    results = got[0] if isinstance(got[0], tuple) else got
    actual = {k: np.asarray(a, "float32") for k, a in zip(want, results, strict=True)}
    assert_agrees(actual, want)
