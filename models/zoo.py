"""The zoo's list: a name and a builder each.

``byoc.frontends.onnx.measured_model.draw_inputs`` makes inputs that a model can take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import onnx

from .bert import bert
from .convnext import convnext
from .decoder import gpt2_decoder, llama
from .efficientnet import efficientnet_b0
from .gpt2 import gpt2
from .mobilenet import mobilenet_v2
from .resnet import resnet50, resnext50
from .squeezenet import squeezenet
from .swin import swin
from .vgg import vgg19
from .vit import vit
from .yolo import yolo

#: Sizes of a decoder for examples and tests.
_SMALL_DECODER = {"layers": 4, "hidden": 256, "heads": 8, "inner": 688, "vocabulary": 2000}


@dataclass(frozen=True)
class ZooModel:
    """One model of the zoo."""

    name: str
    title: str
    build: Callable[[], onnx.ModelProto]


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
        ZooModel("swin_t", "Swin-T", swin),
        ZooModel(
            "swin_small",
            "Swin, 4 blocks, 64 pixels",
            partial(swin, depths=(2, 2), heads=(2, 4), width=32, window=4, size=64),
        ),
        ZooModel("resnext50_32x4d", "ResNeXt-50 32x4d", resnext50),
        ZooModel(
            "resnext_small",
            "ResNeXt, 3 blocks of 8 groups, 64 pixels",
            partial(resnext50, size=64, groups=8, stages=((1, 32, 1), (2, 64, 2))),
        ),
        ZooModel("efficientnet_b0", "EfficientNet-B0", efficientnet_b0),
        ZooModel("yolo", "YOLOv8-style detector, 320 pixels", yolo),
    )
}

#: Decoders with a cache, whose inputs have to fit one another: not among those drawn alike.
DECODERS = {
    model.name: model
    for model in (
        ZooModel(
            "gpt2_decoder",
            "GPT-2 with a cache, 4 layers of 256",
            partial(gpt2_decoder, **_SMALL_DECODER, groups=8),
        ),
        ZooModel(
            "llama_decoder",
            "Llama with a cache, 4 layers of 256",
            partial(llama, **_SMALL_DECODER, groups=2),
        ),
        ZooModel(
            "qwen2_decoder",
            "Qwen 2 with a cache, 4 layers of 256",
            partial(llama, **_SMALL_DECODER, groups=2, biased=True),
        ),
    )
}
