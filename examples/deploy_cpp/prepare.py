"""Make what the programs read: a compiled network, pictures of its size, labels.

``python prepare.py FOLDER`` writes model.so, upright.ppm, upside_down.ppm and labels.txt.  The
network is a trained one, PP-OCR's classifier of the package rapidocr: is a line of text upright or
upside down?  With ``--target aarch64-linux-gnu`` model.so is for 64-bit ARM.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from PIL import Image

import byoc

PICTURE = Path(__file__).parents[2] / "models" / "text_line.png"
WIDTH, HEIGHT = 192, 48


def classifier() -> Path:
    """The network's ONNX file inside the package rapidocr, which is not imported."""
    spec = find_spec("rapidocr")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("error: the network is in rapidocr; pip install --no-deps rapidocr")
    folder = Path(next(iter(spec.submodule_search_locations)), "models")
    return folder / "ch_ppocr_mobile_v2.0_cls_mobile.onnx"


def main() -> None:
    """Write the four files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", help="as for `byoc compile`")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)

    shapes = {"x": [1, 3, HEIGHT, WIDTH]}
    byoc.compile(classifier(), folder / "model.so", shapes, target=arguments.target)

    with Image.open(PICTURE) as image:
        upright = image.convert("RGB").resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR)
    upright.save(folder / "upright.ppm")
    upright.rotate(180).save(folder / "upside_down.ppm")
    (folder / "labels.txt").write_text("upright\nupside down\n", encoding="utf-8")


if __name__ == "__main__":
    main()
