"""Networks of timm and transformers with random weights, as users compile them.

Neither package is a dependency: ``make pytorch-zoo`` installs them beside the tests' PyTorch.
Attention, tokens and images have the sizes that the architectures are known by; transformers have
fewer layers, as all of theirs are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

_TOKENS = 128
_WORDS = 1000


@dataclass(frozen=True)
class Architecture:
    """A network; ``build`` makes it in ``eval`` mode, with positional inputs for a batch of 1."""

    name: str
    build: Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]


class FirstResult(nn.Module):
    """A network of transformers from tokens, images or sounds to the first of its results."""

    def __init__(self, network: nn.Module, *names: str) -> None:
        super().__init__()
        self.network, self.names = network, names

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """The result."""
        given = dict(zip(self.names, inputs, strict=True))
        return self.network(**given, return_dict=False)[0]


def _timm(name: str, size: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    _declare_torchvision()
    import timm

    torch.manual_seed(0)
    return timm.create_model(name).eval(), (torch.randn(1, 3, size, size),)


@cache
def _declare_torchvision() -> None:
    """Let timm and transformers import torchvision where its operators cannot be loaded.

    The wheel of the package index has them built for CUDA. No network here calls them, but
    torchvision does not let itself be imported without.
    """
    found = find_spec("torchvision")
    for file in Path(found.origin).parent.glob("_C*.so") if found and found.origin else ():
        try:
            torch.ops.load_library(file)
        except OSError:
            library = torch.library.Library("torchvision", "DEF")
            for name in ("nms", "qnms"):
                library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _DECLARED.append(library)


#: What is declared is so for as long as its library is there.
_DECLARED: list[torch.library.Library] = []


def _transformers(
    network: str, config: str, names: tuple[str, ...], *shape: int, **numbers: Any
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    _declare_torchvision()
    import transformers

    torch.manual_seed(0)
    made = getattr(transformers, network)(getattr(transformers, config)(**numbers))
    inputs = [torch.randn(shape) if shape else torch.randint(3, _WORDS, (1, _TOKENS))]
    if "attention_mask" in names:
        inputs.append((torch.arange(_TOKENS) < _TOKENS - 9).long()[None])
    return FirstResult(made, *names).eval(), tuple(inputs)


_IMAGES = {
    224: (
        *("resnet18", "resnet50", "resnext50_32x4d", "seresnet50", "regnety_008", "densenet121"),
        *("vgg11", "mobilenetv2_100", "mobilenetv3_large_100", "mnasnet_100", "efficientnet_b0"),
        *("ghostnet_100", "convnext_tiny", "repvgg_a0", "dpn68", "vit_tiny_patch16_224"),
        *("deit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "levit_128s", "poolformer_s12"),
        *("mixer_s32_224", "edgenext_xx_small", "maxvit_tiny_tf_224", "coatnet_0_rw_224"),
    ),
    256: ("mobilevit_s",),
    299: ("inception_v3",),
}

_TEXT = ("input_ids", "attention_mask")
_SIZES = {
    "hidden_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "vocab_size": _WORDS,
}
_DECODER = {**_SIZES, "num_key_value_heads": 4, "use_cache": False}
_PIXELS = {**{k: v for k, v in _SIZES.items() if k != "vocab_size"}, "image_size": 224}

_OTHERS: dict[str, Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]] = {
    "bert": partial(_transformers, "BertModel", "BertConfig", _TEXT, **_SIZES),
    "roberta": partial(_transformers, "RobertaModel", "RobertaConfig", _TEXT, **_SIZES),
    "albert": partial(_transformers, "AlbertModel", "AlbertConfig", _TEXT, **_SIZES),
    "electra": partial(_transformers, "ElectraModel", "ElectraConfig", _TEXT, **_SIZES),
    "mpnet": partial(_transformers, "MPNetModel", "MPNetConfig", _TEXT, **_SIZES),
    "distilbert": partial(
        *(_transformers, "DistilBertModel", "DistilBertConfig", _TEXT),
        n_layers=4,
        vocab_size=_WORDS,
    ),
    "gpt2": partial(
        *(_transformers, "GPT2Model", "GPT2Config", _TEXT),
        n_layer=4,
        vocab_size=_WORDS,
        use_cache=False,
    ),
    "llama": partial(_transformers, "LlamaForCausalLM", "LlamaConfig", _TEXT, **_DECODER),
    "qwen2": partial(_transformers, "Qwen2ForCausalLM", "Qwen2Config", _TEXT, **_DECODER),
    "mistral": partial(_transformers, "MistralForCausalLM", "MistralConfig", _TEXT, **_DECODER),
    "vit": partial(
        _transformers, "ViTModel", "ViTConfig", ("pixel_values",), 1, 3, 224, 224, **_PIXELS
    ),
    "dinov2": partial(
        *(_transformers, "Dinov2Model", "Dinov2Config", ("pixel_values",), 1, 3, 224, 224),
        **_PIXELS,
    ),
    "clip": partial(
        *(_transformers, "CLIPVisionModel", "CLIPVisionConfig", ("pixel_values",)),
        *(1, 3, 224, 224),
        **_PIXELS,
    ),
    "segformer": partial(
        *(_transformers, "SegformerModel", "SegformerConfig", ("pixel_values",), 1, 3, 256, 256),
    ),
}


def _all() -> Iterator[Architecture]:
    for size, names in _IMAGES.items():
        for name in names:
            yield Architecture(name, partial(_timm, name, size))
    for name, build in _OTHERS.items():
        yield Architecture(name, build)


#: By name.
ARCHITECTURES = {architecture.name: architecture for architecture in _all()}

#: Those that are timed.
TIMED = (
    *("resnet50", "densenet121", "mobilenetv3_large_100", "efficientnet_b0", "regnety_008"),
    *("convnext_tiny", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "levit_128s"),
    *("mobilevit_s", "bert", "distilbert", "gpt2", "llama", "segformer"),
)
