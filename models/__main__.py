"""Write a model of the zoo: ``python -m models resnet50 -o resnet50.onnx``."""

from __future__ import annotations

import argparse
from pathlib import Path

import onnx

from models.zoo import ZOO


def main() -> None:
    """Parse the command line and write the file."""
    parser = argparse.ArgumentParser(prog="python -m models", description=__doc__)
    parser.add_argument("name", choices=ZOO, help="which model")
    parser.add_argument("-o", "--output", type=Path, help="default: NAME.onnx")
    arguments = parser.parse_args()
    output = arguments.output or Path(f"{arguments.name}.onnx")
    onnx.save(ZOO[arguments.name].build(), output)
    print(f"{output}: {ZOO[arguments.name].title}, {output.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
