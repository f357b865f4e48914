"""``lib``: the kernel library, once per instruction set, those of other architectures by QEMU."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from benchmarks import abi
from codegen_cc.instruction_sets import table
from codegen_cc.target import HOST, Target, cpu_flags
from tests.kernels.guest import GuestError, GuestLibrary, SharedMemory

AARCH64 = Target("aarch64")
#: Levels of this architecture, and of the one that can be emulated.
LEVELS = (*abi.LEVELS, *(AARCH64.kernel_levels if AARCH64.is_foreign else ()))
#: Further rows in which products of 8-bit integers come, and those of bf16.
QUANTISED_ROWS = ("avx_vnni", "avx512_vnni", "dotprod")
BF16_ROWS = ("avx512_bf16", "amx_bf16", "neon_bf16")
#: The row amx_bf16 with its tiles written out: the vectors that go with them, and the CPU's flags.
WITHOUT_TILES = {
    "amx_bf16_without_unit": ("-DEXT_SIMD_BASELINE", set()),
    "amx_bf16_without_unit_avx512": (
        "-DEXT_SIMD_AVX512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma",
        {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
    ),
}
#: The row amx_int8 in the same way.
BYTES_WITHOUT_TILES = {
    "amx_int8_without_unit": (
        "-DEXT_SIMD_AVX2 -mavx2 -mfma -DEXT_DOT_WITHOUT_UNIT",
        {"avx2", "fma"},
    ),
    "amx_int8_without_unit_avx512": (
        f"{WITHOUT_TILES['amx_bf16_without_unit_avx512'][0]} -mavx512vnni",
        {*WITHOUT_TILES["amx_bf16_without_unit_avx512"][1], "avx512_vnni"},
    ),
}
#: The row amx_bf16 in the same way, for products of fp32 in parts.
PARTS_WITHOUT_TILES = {f"{name}_parts": build for name, build in WITHOUT_TILES.items()}
#: The families of products of fp32.
PRODUCTS = "gemm gemm_packed_tile gemm_unpacked_tile gemm_parts matmul gemv gemv_dots gemv_walk"
#: The row avx_vnni with its one instruction written out, for all CPUs with AVX2.
WITHOUT_UNIT = "avx_vnni_without_unit"


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
    with _in_reach(level_library) as library:
        yield library


def _built_with(
    name: str,
    flags: str,
    families: str,
    functions: tuple[str, ...],
    factory: pytest.TempPathFactory,
) -> ctypes.CDLL:
    """Some kernels alone, compiled with flags instead of a row's; once for all workers.

    What stands in for an instruction is compiled quickly rather than well: it takes ten seconds as
    it is.
    """
    base = factory.getbasetemp()
    build = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    build.mkdir(exist_ok=True)
    runtime = Path(__file__).resolve().parents[2] / "runtime"
    command = [
        "make",
        "-s",
        "-j2",
        "-C",
        str(runtime),
        f"BUILD={build}",
        f"CC={' '.join(HOST.compiler())}",
    ]
    command += ["LEVELS=", "SOME=", f"FAMILIES={families}", f"FLAGS_{abi.LEVELS[0]}={flags} -Og"]
    with open(build / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run([*command, f"{build}/libext_kernels.so"], check=True)
    library = ctypes.CDLL(str(build / "libext_kernels.so"))
    for name in functions:
        function = getattr(library, name)
        function.argtypes, function.restype = abi.signatures()[name]
    return library


@pytest.fixture(scope="session")
def without_unit(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Quantised products as a row with an instruction for four products has them."""
    if not {"avx2", "fma"} <= cpu_flags():
        pytest.skip("this CPU lacks AVX2")
    return _built_with(
        "without_unit",
        "-DEXT_SIMD_AVX2 -mavx2 -mfma -DEXT_DOT -DEXT_DOT_WITHOUT_UNIT",
        "activation requantise qgemm qmatmul qconv2d qdepthwise qgrouped depthwise recurrent"
        f" matmul_block matmul_block_few {PRODUCTS}",
        (
            "ext_qmatmul",
            "ext_recurrent",
            "ext_qconv2d",
            "ext_qdepthwise_conv2d",
            "ext_qgrouped_conv2d",
            "ext_matmul_block",
        ),
        tmp_path_factory,
    )


@pytest.fixture(scope="session")
def without_tiles(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ctypes.CDLL]:
    """Builds what one of the tables ``.._WITHOUT_TILES`` names, once."""
    return cache(lambda name: _without_tiles(name, tmp_path_factory))


def _without_tiles(name: str, factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Products as a row with tiles has them, in vectors of a level."""
    vectors, needed = (WITHOUT_TILES | BYTES_WITHOUT_TILES | PARTS_WITHOUT_TILES)[name]
    if not needed <= cpu_flags():
        pytest.skip(f"this CPU lacks {', '.join(sorted(needed - cpu_flags()))}")
    tiles = f"{vectors} -DEXT_TILES -DEXT_TILES_WITHOUT_UNIT"
    if name in BYTES_WITHOUT_TILES:
        return _built_with(
            name,
            f"{tiles} -DEXT_DOT",
            f"activation requantise qgemm qmatmul qconv2d matmul_block matmul_block_few {PRODUCTS}",
            ("ext_qmatmul", "ext_qconv2d", "ext_matmul_block"),
            factory,
        )
    if name in PARTS_WITHOUT_TILES:
        return _built_with(
            name,
            tiles,
            f"activation {PRODUCTS} conv2d conv2d_direct conv2d_shallow",
            ("ext_matmul", "ext_matmul_packed", "ext_conv2d", "ext_conv2d_prologue"),
            factory,
        )
    return _built_with(
        name,
        tiles,
        "activation bgemm matmul_bf16 conv2d_bf16 depthwise_bf16 grouped_bf16 binary_bf16"
        " attention_bf16 attention_few matmul_grouped_bf16 bgemm_x3 matmul_bf16x3 conv2d_bf16x3",
        (
            "ext_matmul_bf16",
            "ext_matmul_grouped_bf16",
            "ext_conv2d_bf16",
            "ext_conv2d_bf16_prologue",
            "ext_depthwise_conv2d_bf16",
            "ext_grouped_conv2d_bf16",
            "ext_binary_bf16",
            "ext_attention_bf16",
            "ext_matmul_bf16x3",
            "ext_conv2d_bf16x3",
        ),
        factory,
    )


def _row(
    name: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ctypes.CDLL | GuestLibrary:
    """The library in one row of the table; skipped where this CPU lacks it."""
    machine = next(row.machine for row in table() if row.name == name)
    if machine in (HOST.machine, "any"):
        library = abi.load_level(name, tmp_path_factory.mktemp("row"))
    elif name in LEVELS:
        library = request.getfixturevalue("guest")
    elif machine == AARCH64.machine and AARCH64.is_foreign:
        memory = request.getfixturevalue("shared_memory")
        try:
            library = GuestLibrary(AARCH64, memory, tmp_path_factory.mktemp("guest"), name)
        except GuestError as error:
            pytest.skip(str(error))
        request.addfinalizer(library.close)
    else:
        pytest.skip("a row of another architecture")
    error = library.ext_isa_error()
    if error is not None:
        pytest.skip(error.decode())
    return library


def _tiles(
    request: pytest.FixtureRequest, factory: pytest.TempPathFactory
) -> ctypes.CDLL | GuestLibrary:
    """The library in a row with tiles, or with these written out; skipped as above."""
    if request.param in WITHOUT_TILES | BYTES_WITHOUT_TILES | PARTS_WITHOUT_TILES:
        return request.getfixturevalue("without_tiles")(request.param)
    return _row(request.param, request, factory)


@contextlib.contextmanager
def _in_reach(library: ctypes.CDLL | GuestLibrary) -> Iterator[ctypes.CDLL | GuestLibrary]:
    """The library, and memory that it can reach."""
    if isinstance(library, GuestLibrary):
        with library.memory.in_use():
            yield library
    else:
        yield library


@pytest.fixture(scope="session", params=(*LEVELS, *QUANTISED_ROWS, WITHOUT_UNIT))
def quantised_library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ctypes.CDLL | GuestLibrary:
    """The library in one row that has quantised products; skipped where this CPU lacks it."""
    if request.param == WITHOUT_UNIT:
        return request.getfixturevalue("without_unit")
    return _row(request.param, request, tmp_path_factory)


@pytest.fixture
def quantised_lib(
    quantised_library: ctypes.CDLL | GuestLibrary,
) -> Iterator[ctypes.CDLL | GuestLibrary]:
    """The same, and memory for the test that it can reach."""
    with _in_reach(quantised_library) as library:
        yield library


@pytest.fixture(scope="session", params=(*LEVELS, *BF16_ROWS, *WITHOUT_TILES))
def bf16_library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ctypes.CDLL | GuestLibrary:
    """The library in one row that has products of bf16; skipped where this CPU lacks it."""
    return _tiles(request, tmp_path_factory)


@pytest.fixture
def bf16_lib(
    bf16_library: ctypes.CDLL | GuestLibrary,
) -> Iterator[ctypes.CDLL | GuestLibrary]:
    """The same, and memory for the test that it can reach."""
    with _in_reach(bf16_library) as library:
        yield library


@pytest.fixture(scope="session", params=(*LEVELS, *BF16_ROWS))
def winograd_library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ctypes.CDLL | GuestLibrary:
    """The library in one row that stores bf16; skipped where this CPU lacks it."""
    return _row(request.param, request, tmp_path_factory)


@pytest.fixture
def winograd_lib(
    winograd_library: ctypes.CDLL | GuestLibrary,
) -> Iterator[ctypes.CDLL | GuestLibrary]:
    """The same, and memory for the test that it can reach."""
    with _in_reach(winograd_library) as library:
        yield library


@pytest.fixture(scope="session", params=(*LEVELS, "amx_bf16", *WITHOUT_TILES))
def bf16x3_library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ctypes.CDLL | GuestLibrary:
    """The library in one row that has products of bf16 in two parts."""
    return _tiles(request, tmp_path_factory)


@pytest.fixture
def bf16x3_lib(
    bf16x3_library: ctypes.CDLL | GuestLibrary,
) -> Iterator[ctypes.CDLL | GuestLibrary]:
    """The same, and memory for the test that it can reach."""
    with _in_reach(bf16x3_library) as library:
        yield library


@pytest.fixture(scope="session", params=("amx_bf16", *PARTS_WITHOUT_TILES))
def parts_lib(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ctypes.CDLL:
    """Products of fp32 in three parts."""
    return _tiles(request, tmp_path_factory)


@pytest.fixture(scope="session", params=("amx_bf16", "amx_int8_without_unit"))
def parts_of_blocks_lib(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ctypes.CDLL:
    """The same, of weights in blocks."""
    return _tiles(request, tmp_path_factory)


@pytest.fixture(scope="session", params=("amx_int8", "i8mm", *BYTES_WITHOUT_TILES))
def byte_tiles_library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ctypes.CDLL | GuestLibrary:
    """Rows whose products of 8-bit integers have a tile of their own; skipped as above."""
    return _tiles(request, tmp_path_factory)


@pytest.fixture
def byte_tiles(
    byte_tiles_library: ctypes.CDLL | GuestLibrary,
) -> Iterator[ctypes.CDLL | GuestLibrary]:
    """The same, and memory for the test that it can reach."""
    with _in_reach(byte_tiles_library) as library:
        yield library
