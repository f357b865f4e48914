"""The programs of examples/deploy_cpp: build them, and give networks to them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from byoc.deploy.compiled_file import read_compiled
from byoc.deploy.metadata import Metadata

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "deploy_cpp"
PICTURES = ("upright.ppm", "upside_down.ppm", "between.ppm")


def run(*command: object) -> subprocess.CompletedProcess[str]:
    """A command with its output."""
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


def said(*command: object) -> str:
    """What a command prints; it must succeed."""
    done = run(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def make(build: Path, *targets: str, **variables: object) -> None:
    """Build the programs with the example's Makefile, warnings as errors."""
    flags = {"CXXFLAGS": "-O2 -Wall -Wextra -Werror", "PYTHON": sys.executable, "BUILD": build}
    given = [f"{name}={value}" for name, value in (flags | variables).items()]
    goals = [f"{build}/{target}" for target in targets]
    said("make", "-s", "-C", EXAMPLE, f"-j{os.cpu_count()}", *given, *goals)


def prepare(folder: Path, *arguments: str) -> None:
    """The example's network and pictures; and a picture that is hard to tell, for exact answers."""
    said(sys.executable, "-W", "error", EXAMPLE / "prepare.py", folder, *arguments)
    first, second = (Image.open(folder / name) for name in PICTURES[:2])
    blend = Image.blend(first, second, 0.58)
    red, green, blue = blend.split()
    # Colours differ, so that their order matters.
    Image.merge("RGB", (red.transpose(Image.Transpose.FLIP_LEFT_RIGHT), green, blue)).save(
        folder / PICTURES[2]
    )


def pixels(picture: Path) -> np.ndarray:
    """A picture as PP-OCR takes it: fp32 [1, 3, height, width] in BGR, from -1 to 1."""
    with Image.open(picture) as image:
        colours = np.asarray(image, np.float32)[:, :, ::-1].transpose(2, 0, 1)
    return np.ascontiguousarray((colours / 255 - 0.5) / 0.5)[None]


def scores(printed: str) -> dict[str, float]:
    """What ``classify`` prints: probabilities by label, the greatest first."""
    lines = [re.fullmatch(r"(\d\.\d{4})  (.+)", line) for line in printed.splitlines()]
    return {line[2]: float(line[1]) for line in lines if line is not None}


def metadata_of(library: Path) -> Metadata:
    """What a library says of itself, whatever machine it is for."""
    return read_compiled(library).metadata()


def run_network(
    program: Sequence[object], library: Path, inputs: dict[str, np.ndarray], folder: Path
) -> dict[str, np.ndarray]:
    """Outputs of a compiled network, run by the program ``run`` (with what starts it)."""
    metadata = metadata_of(library)
    folder.mkdir(exist_ok=True)
    files = []
    for info in metadata.inputs:
        assert (inputs[info.name].shape, str(inputs[info.name].dtype)) == (info.shape, info.dtype)
        files.append(folder / f"input{len(files)}.raw")
        inputs[info.name].tofile(files[-1])
    results = [folder / f"output{index}.raw" for index in range(len(metadata.outputs))]
    said(*program, library, *files, *results)
    return {
        info.name: np.fromfile(path, info.dtype).reshape(info.shape)
        for info, path in zip(metadata.outputs, results, strict=True)
    }
