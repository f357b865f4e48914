"""The zoo's list: a name, a builder, and inputs that make sense for the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx

from models.bert import bert
from models.convnext import convnext
from models.efficientnet import efficientnet_b0
from models.gpt2 import gpt2
from models.mobilenet import mobilenet_v2
from models.resnet import resnet50
from models.squeezenet import squeezenet
from models.vgg import vgg19
from models.vit import vit
from models.yolo import yolo


@dataclass(frozen=True)
class ZooModel:
    """One model of the zoo."""

    name: str
    title: str
    build: Callable[[], onnx.ModelProto]


def draw_inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs of the model's static shapes: normal fp32 numbers; token ids; a mask of 1 then 0."""
    draw = np.random.default_rng(seed)
    inputs = {}
    stored = {tensor.name for tensor in model.graph.initializer}
    for info in model.graph.input:
        if info.name in stored:  # old files list the weights among the inputs
            continue
        shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        if info.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            inputs[info.name] = draw.standard_normal(shape, dtype=np.float32)
        elif info.name == "attention_mask":
            mask = np.ones(shape, np.int64)
            mask[:, -(shape[1] // 4) :] = 0
            inputs[info.name] = mask
        else:
            inputs[info.name] = draw.integers(0, 1000, shape, dtype=np.int64)
    return inputs


ZOO = {
    model.name: model
    for model in (
        ZooModel("resnet50", "ResNet-50 v1.5", resnet50),
        ZooModel("mobilenet_v2", "MobileNetV2 1.0", mobilenet_v2),
        ZooModel("vgg19", "VGG-19", vgg19),
        ZooModel("squeezenet", "SqueezeNet 1.1", squeezenet),
        ZooModel("bert", "BERT-base, 128 tokens", bert),
        ZooModel(
            "bert_small",
            "BERT encoder, 3 layers of 256, 64 tokens",
            partial(bert, layers=3, hidden=256, heads=4, sequence=64, vocabulary=2000),
        ),
        ZooModel("gpt2", "GPT-2, 128 tokens", gpt2),
        ZooModel(
            "gpt2_small",
            "GPT-2, 2 layers of 128, 32 tokens",
            partial(gpt2, layers=2, hidden=128, heads=4, sequence=32, vocabulary=1000),
        ),
        ZooModel("vit_b_16", "ViT-B/16", vit),
        ZooModel(
            "vit_small",
            "ViT, 2 layers of 128, 64 pixels",
            partial(vit, layers=2, hidden=128, heads=4, size=64),
        ),
        ZooModel("convnext_t", "ConvNeXt-T", convnext),
        ZooModel(
            "convnext_small",
            "ConvNeXt, 5 blocks, 64 pixels",
            partial(convnext, depths=(1, 1, 2, 1), widths=(16, 32, 48, 64), size=64),
        ),
        ZooModel("efficientnet_b0", "EfficientNet-B0", efficientnet_b0),
        ZooModel("yolo", "YOLOv8-style detector, 320 pixels", yolo),
    )
}
