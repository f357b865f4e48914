"""Read a picture of one text line with a compiled text recogniser.

``python -m models.text_line MODEL.so CHARACTERS.json PICTURE`` needs TVM's runtime, Pillow and
numpy, and neither ONNX nor TVM's compiler: it is what a deployed program looks like.

The network is PP-OCR's recogniser: a BGR picture 48 pixels high in, one row of probabilities per
slice of the width out.  Class 0 means "no character here", and a character that repeats in
neighbouring slices counts once (Graves et al., "Connectionist Temporal Classification", 2006).
"""

from __future__ import annotations

import argparse
import json
import sys
from math import ceil
from pathlib import Path

import numpy as np
from PIL import Image

HEIGHT = 48
#: Widths are rounded up, so that one compiled model would serve lines of nearly equal length.
WIDTH_STEP = 32


def width_for(picture: Path) -> int:
    """The model's input width for this picture: at least 320, a multiple of ``WIDTH_STEP``."""
    with Image.open(picture) as image:
        scaled = ceil(HEIGHT * image.width / image.height)
    return max(320, ceil(scaled / WIDTH_STEP) * WIDTH_STEP)


def pixels(picture: Path, width: int) -> np.ndarray:
    """The picture as fp32 [1, 3, 48, width] in BGR, from -1 (black) to 1, padded with 0."""
    with Image.open(picture) as image:
        scaled = min(width, ceil(HEIGHT * image.width / image.height))
        small = image.convert("RGB").resize((scaled, HEIGHT), Image.Resampling.BILINEAR)
    colours = np.asarray(small, np.float32)[:, :, ::-1].transpose(2, 0, 1)
    padded = np.zeros((1, 3, HEIGHT, width), np.float32)
    padded[0, :, :, :scaled] = (colours / 255 - 0.5) / 0.5
    return padded


def decode(probabilities: np.ndarray, characters: list[str]) -> str:
    """The text of [1, slices, classes]; class 0 is blank, the one past the list is a space."""
    classes = ["", *characters, " "]
    best = probabilities[0].argmax(axis=1)
    fresh = np.concatenate(([True], best[1:] != best[:-1]))
    return "".join(classes[index] for index in best[fresh])


def main() -> int:
    """Print the text."""
    import byoc

    parser = argparse.ArgumentParser(prog="python -m models.text_line")
    parser.add_argument("model", type=Path, help="the compiled recogniser")
    parser.add_argument("characters", type=Path, help="JSON list of its characters")
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    model = byoc.load(arguments.model)
    width = model.inputs[0].shape[3]
    text = decode(
        model(pixels(arguments.picture, width)),
        json.loads(arguments.characters.read_text(encoding="utf-8")),
    )
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
