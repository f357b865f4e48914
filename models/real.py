"""Trained networks that public packages carry as ONNX files, each with a realistic input.

`make corpus` compiles them, compares them with ONNX Runtime and writes docs/corpus.md.
"""

from __future__ import annotations

from .corpus import decoders, pictures, sounds, texts
from .corpus.file import RealNetwork

#: By the name in docs/corpus.md.
NETWORKS = {
    name: RealNetwork(name, package, file)
    for module in (pictures, sounds, texts, decoders)
    for package in module.PACKAGES
    for name, file in package.files.items()
}
