"""``lib``: the kernel library, once per instruction set."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from codegen_cc import abi


@pytest.fixture(scope="session")
def levels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ctypes.CDLL]:
    """Every level's library; each is a copy that decided on its level by itself."""
    folder: Path = tmp_path_factory.mktemp("levels")
    return {level: abi.load_level(level, folder) for level in abi.LEVELS}


@pytest.fixture(scope="session", params=abi.LEVELS)
def lib(request: pytest.FixtureRequest, levels: dict[str, ctypes.CDLL]) -> ctypes.CDLL:
    """The library at one level; skipped where this CPU lacks it."""
    library = levels[request.param]
    error = library.ext_isa_error()
    if error is not None:
        pytest.skip(error.decode())
    assert library.ext_isa_name().decode() == request.param
    return library
