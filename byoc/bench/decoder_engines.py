"""The engines that write tokens: what they are called, what makes them, and what they need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from byoc.bench.engines import ENGINES, how_to_install


@dataclass(frozen=True)
class DecoderEngine:
    """An engine of ``byoc bench --generate``; ``maker`` is ``module:name`` of its class.

    ``packages`` are as those of ``byoc.bench.engines.Engine``.
    """

    title: str
    maker: str
    packages: Mapping[str, str]
    #: Whether it computes in another precision than the file's where it is told so.
    told_precision: bool = False
    #: Whether it is told the files of a model's external data.
    told_data: bool = False

    def absent(self) -> str | None:
        """None, or what would install it."""
        return how_to_install(self.packages)


def _also(name: str, maker: str, told_precision: bool = False) -> DecoderEngine:
    """An engine that is measured with other networks as well."""
    known = ENGINES[name]
    return DecoderEngine(
        known.title, f"byoc.bench.decoders:{maker}", known.packages, told_precision
    )


#: By the name on the command line.
DECODER_ENGINES = {
    "byoc": _also("byoc", "Ours"),
    "onnxruntime": _also("onnxruntime", "OnnxRuntime"),
    "openvino": _also("openvino", "OpenVino", told_precision=True),
    "onnxruntime-genai": DecoderEngine(
        "onnxruntime-genai",
        "byoc.bench.genai:OnnxRuntimeGenAI",
        {"onnxruntime_genai": "onnxruntime-genai"},
        told_data=True,
    ),
    "openvino-genai": DecoderEngine(
        "OpenVINO GenAI",
        "byoc.bench.genai:OpenVinoGenAI",
        {"openvino_genai": "openvino-genai"},
        told_precision=True,
    ),
}

#: Those that take nothing but decoders.
DECODERS_ALONE = tuple(name for name in DECODER_ENGINES if name not in ENGINES)
