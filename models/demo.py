"""The demo (``make demo``): a trained network reads a picture; then ResNet-50 is timed.

1. The text recogniser PP-OCRv6 (small), a trained network from the package rapidocr, is compiled.
2. A second process with TVM's runtime alone reads ``text_line.png`` with it.
3. ResNet-50 is compiled and timed beside plain TVM and ONNX Runtime, taking turns in one run.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx
from rich.console import Console

import byoc
from byoc.bench.networks import bench

from .draw_text_line import PICTURE, TEXT
from .text_line import HEIGHT, width_for

_RECOGNISER = "PP-OCRv6_rec_small.onnx"
_ENGINES = ("byoc", "onnxruntime", "tvm")
_ROUNDS = 6


def main() -> int:
    """Run the demo; returns 1 when the text or the numbers are wrong."""
    console = Console(highlight=False)
    right_text = read_picture(console)
    console.print("\n[bold]ResNet-50[/bold] (seeded weights), each engine in its own process")
    outcome = bench(["resnet50"], engines=_ENGINES, rounds=_ROUNDS, progress=console.print)
    for line in outcome.machine.lines():
        console.print(line, soft_wrap=True)
    for sheet in outcome.sheets():
        console.print(sheet.rich())
    for line in (*outcome.lines(), *outcome.checks()):
        console.print(line, soft_wrap=True)
    return 0 if right_text and outcome.holds else 1


def read_picture(console: Console) -> bool:
    """Compile the recogniser, read the picture in a second process; says whether it is right."""
    console.print(f"[bold]Text recogniser[/bold] {_RECOGNISER} reads {PICTURE.name}")
    model = recogniser()
    shape = [1, 3, HEIGHT, width_for(PICTURE)]
    with tempfile.TemporaryDirectory(prefix="byoc-demo-") as temporary:
        library, characters = Path(temporary, "recogniser.so"), Path(temporary, "characters.json")
        name = onnx.load(model, load_external_data=False).graph.input[0].name
        compiled = byoc.compile(
            model, library, {name: shape}, progress=lambda stage: console.print(f"  {stage}")
        )
        console.print(f"  {compiled.report.summary()}")
        characters.write_text(json.dumps(character_list(model)), encoding="utf-8")
        console.print(f"  {library.stat().st_size / 1e6:.1f} MB; reading in a second process")
        text = subprocess.run(
            [sys.executable, "-m", "models.text_line", library, characters, PICTURE],
            env=os.environ | {"TVM_USE_RUNTIME_LIB": "1"},
            stdout=subprocess.PIPE,
            encoding="utf-8",
            check=True,
        ).stdout.rstrip("\n")
    console.print(f"  the picture says: [bold]{text}[/bold]", "" if text == TEXT else "(wrong!)")
    return text == TEXT


def recogniser() -> Path:
    """The recogniser's ONNX file inside the package rapidocr, which is not imported."""
    spec = importlib.util.find_spec("rapidocr")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("error: the demo needs the model in rapidocr; pip install --no-deps rapidocr")
    return Path(next(iter(spec.submodule_search_locations)), "models", _RECOGNISER)


def character_list(model: Path) -> list[str]:
    """The recogniser's characters, in the order of its classes, from the file's metadata."""
    properties = onnx.load(model, load_external_data=False).metadata_props
    listed = next(entry.value for entry in properties if entry.key == "character")
    return listed.splitlines()


if __name__ == "__main__":
    sys.exit(main())
