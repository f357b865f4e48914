"""The model zoo: ``python -m byoc.zoo resnet50 -o resnet50.onnx`` writes one of its networks.

Its builders are the folder ``models`` of the source tree, which an installed package has as
``byoc._models``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from byoc.destination import write_whole
from byoc.errors import ByocError, ModelError

if TYPE_CHECKING:
    import onnx

_PACKAGE = "byoc._models"
_SOURCE = Path(__file__).resolve().parents[1] / "models"


def networks() -> dict[str, Any]:
    """The networks by name, each with its ``title`` and a function ``build``.

    Raises ``ModelError`` where the package was installed without them.
    """
    own, carried, quantised = map(_module, ("zoo", "carried", "quantised"))
    return own.ZOO | own.DECODERS | carried.CARRIED | quantised.QUANTISED


def quantised_from(name: str) -> str:
    """The network that was quantised from one; its own name where there is none."""
    return _module("quantised").INT8.get(name, name)


def build(name: str, **options: Any) -> onnx.ModelProto:
    """A network of the zoo as an ONNX model; ``options`` are those of its builder.

    Raises ``ModelError`` for a name or an option that it does not have, and where a network is in a
    package that is not installed.
    """
    known = networks()
    if name not in known:
        raise ModelError(f"no network {name!r} in the zoo; it has {', '.join(known)}")
    try:
        return known[name].build(**options)
    except TypeError as error:
        raise ModelError(f"network {name!r}: {error}") from error


def _module(name: str) -> ModuleType:
    _find()
    return importlib.import_module(f"{_PACKAGE}.{name}")


def _find() -> None:
    """Make ``byoc._models`` importable from a source tree, which has it under another name."""
    if _PACKAGE in sys.modules or importlib.util.find_spec(_PACKAGE) is not None:
        return
    spec = importlib.util.spec_from_file_location(
        _PACKAGE, _SOURCE / "__init__.py", submodule_search_locations=[str(_SOURCE)]
    )
    if spec is None or spec.loader is None or not _SOURCE.is_dir():
        raise ModelError(f"the zoo is missing; install byoc again, or look for {_SOURCE}")
    package: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    sys.modules[_PACKAGE] = package


def _extent(text: str) -> int | str:
    """An extent of 1 or more, or a name. Raises ``ValueError``, which argparse reports."""
    if text.isidentifier():
        return text
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


_extent.__name__ = "extent"  # in argparse's message


def _with_batch(name: str, batch: int | str) -> onnx.ModelProto:
    """A network with so many rows. Raises ``ModelError`` for one that is not made for others."""
    try:
        return build(name, batch=batch)
    except (ModelError, ValueError) as error:
        raise ModelError(f"network {name!r} cannot be built with --batch {batch}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a network into a file; 2 where that cannot be done."""
    parser = argparse.ArgumentParser(
        prog="python -m byoc.zoo", description="Write a network of the zoo as an ONNX file."
    )
    parser.add_argument("name", choices=networks(), help="which network")
    parser.add_argument("-o", "--output", type=Path, help="default: NAME.onnx")
    parser.add_argument(
        "--batch",
        type=_extent,
        help="rows of inputs: a number, or a name for any number, as in --batch batch (default: 1)",
    )
    given = parser.parse_args(arguments)
    output = given.output or Path(f"{given.name}.onnx")
    try:
        model = _with_batch(given.name, given.batch) if given.batch else build(given.name)
        write_whole(output, model.SerializeToString(), ModelError)
    except (ByocError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    title = networks()[given.name].title
    print(f"{output}: {title}, {output.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
