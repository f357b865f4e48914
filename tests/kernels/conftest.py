"""``lib``: the kernel library, once per instruction set, those of other architectures by QEMU."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from codegen_cc import abi
from codegen_cc.target import Target
from tests.kernels.guest import GuestError, GuestLibrary, SharedMemory

AARCH64 = Target("aarch64")
#: Levels of this architecture, and of the one that can be emulated.
LEVELS = (*abi.LEVELS, *(AARCH64.kernel_levels if AARCH64.is_foreign else ()))


@pytest.fixture(scope="session")
def levels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ctypes.CDLL]:
    """The library at every level of this architecture; each is a copy that decided by itself."""
    folder: Path = tmp_path_factory.mktemp("levels")
    return {level: abi.load_level(level, folder) for level in abi.LEVELS}


@pytest.fixture(scope="session")
def shared_memory(tmp_path_factory: pytest.TempPathFactory) -> SharedMemory:
    """What this process shares with guests; skipped where there are none."""
    return SharedMemory(tmp_path_factory.mktemp("arena"))


@pytest.fixture(scope="session")
def guest(
    tmp_path_factory: pytest.TempPathFactory, shared_memory: SharedMemory
) -> Iterator[GuestLibrary]:
    """The AArch64 library under QEMU; skipped where cross compiler or QEMU are missing."""
    try:
        folder = tmp_path_factory.mktemp("guest")
        library = GuestLibrary(AARCH64, shared_memory, folder, AARCH64.kernel_levels[-1])
    except GuestError as error:
        pytest.skip(str(error))
    yield library
    library.close()


@pytest.fixture(scope="session", params=LEVELS)
def level_library(
    request: pytest.FixtureRequest, levels: dict[str, ctypes.CDLL]
) -> ctypes.CDLL | GuestLibrary:
    """The library at one level; skipped where this CPU lacks it."""
    native = request.param in abi.LEVELS
    library = levels[request.param] if native else request.getfixturevalue("guest")
    error = library.ext_isa_error()
    if error is not None:
        pytest.skip(error.decode())
    assert library.ext_isa_name().decode() == request.param
    return library


@pytest.fixture
def lib(level_library: ctypes.CDLL | GuestLibrary) -> Iterator[ctypes.CDLL | GuestLibrary]:
    """The library at one level, and memory for the test that it can reach."""
    if isinstance(level_library, GuestLibrary):
        with level_library.memory.in_use():
            yield level_library
    else:
        yield level_library
