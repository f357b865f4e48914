"""The table of instruction sets: what Python reads, what is built, what the CPU is said to have."""

from __future__ import annotations

import ctypes
import platform
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks import abi
from codegen_cc.instruction_sets import levels_of, names_in, table, with_fallbacks
from codegen_cc.runtime_files import runtime_file
from codegen_cc.target import HOST, cpu_flags
from tests.kernels.conftest import AARCH64
from tests.kernels.guest import GuestError, GuestLibrary, SharedMemory, emulator

RUNTIME = Path(__file__).resolve().parents[2] / "runtime"
ROWS = {row.name: row for row in table()}
#: Rows by the flags that Linux has for them in /proc/cpuinfo, beyond those of the fallback.
FLAGS = {
    "baseline": set(),
    "avx2": {"avx2", "fma"},
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
    "avx_vnni": {"avx_vnni"},
    "avx512_vnni": {"avx512_vnni"},
    "avx512_bf16": {"avx512_bf16"},
    "avx512_fp16": {"avx512_fp16"},
    "amx_bf16": {"amx_tile", "amx_bf16"},
    "amx_int8": {"amx_tile", "amx_int8"},
    "neon": set(),
    "dotprod": {"asimddp"},
    "i8mm": {"i8mm"},
    "neon_bf16": {"bf16"},
}


def test_levels_of_each_architecture() -> None:
    assert levels_of("x86_64") == ("baseline", "avx2", "avx512")
    assert levels_of("aarch64") == ("neon",)
    assert levels_of("riscv64") == ("baseline",)
    assert with_fallbacks("amx_bf16") == ("amx_bf16", "avx512_bf16", "avx512", "avx2", "baseline")


def test_the_page_of_the_command_line_names_the_levels() -> None:
    text = (RUNTIME.parent / "docs" / "command_line.md").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("| `BYOC_ISA`"))
    named = set(re.findall(r"`(\w+)`", line)) - {"BYOC_ISA"}
    assert named == {row.name for row in table() if row.is_level}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_stands_above_its_fallback(name: str) -> None:
    names, row = list(ROWS), ROWS[name]
    assert row.fallback == name or names.index(name) < names.index(row.fallback)
    assert ROWS[row.fallback].machine in (row.machine, "any")
    assert row.is_level or row.fallback != name
    assert len(ROWS) == len(table()) <= 32  # a set of them is 32 bits


def test_every_level_is_built_and_no_other_row() -> None:
    archive = runtime_file("lib/libext_kernels.a")
    run = [HOST.tool("nm"), "--defined-only", str(archive)]
    text = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    found = set(re.findall(r" [Tt] ext_copy_(\w+)$", text, re.MULTILINE))
    assert found == set(levels_of(platform.machine()))


@pytest.mark.skipif(not cpu_flags(), reason="the system does not tell the CPU's flags")
def test_offered_is_what_the_system_says(levels: dict[str, ctypes.CDLL]) -> None:
    flags = cpu_flags()
    wanted = {
        name
        for name, row in ROWS.items()
        if set(levels_of(platform.machine())) & set(with_fallbacks(name))
        and row.machine in (platform.machine(), "any")
        and all(FLAGS[part] <= flags for part in with_fallbacks(name))
    }
    for lib in levels.values():
        assert set(names_in(lib.ext_isas_offered())) == wanted


def test_a_level_brings_what_it_falls_back_on(levels: dict[str, ctypes.CDLL]) -> None:
    for level, lib in levels.items():
        if lib.ext_isa_error() is None:
            assert set(names_in(lib.ext_isas())) == set(with_fallbacks(level))
            assert ROWS[lib.ext_isa_name().decode()] is table()[lib.ext_isa_level()]
            assert lib.ext_isa_name().decode() == level
        else:
            assert names_in(lib.ext_isas()) == levels_of(platform.machine())[:1]


@pytest.mark.parametrize("name", [n for n, row in ROWS.items() if not row.is_level])
def test_a_row_that_is_no_level_is_taken_or_refused(name: str, tmp_path: Path) -> None:
    lib = abi.load_level(name, tmp_path)
    if name in names_in(lib.ext_isas_offered()):
        assert lib.ext_isa_error() is None
        assert set(names_in(lib.ext_isas())) == set(with_fallbacks(name))
        return
    here = ROWS[name].machine == platform.machine()
    why = "this CPU lacks it" if here else "no kernels of this architecture"
    assert lib.ext_isa_error().decode().startswith(f"BYOC_ISA={name}: {why}; this CPU runs ")


@pytest.mark.parametrize(
    ("cpu", "wanted"),
    [
        ("cortex-a72", {"neon"}),
        ("cortex-a76", {"neon", "dotprod"}),
        ("max", {"neon", "dotprod", "i8mm", "neon_bf16"}),
    ],
)
def test_cores_of_aarch64(
    shared_memory: SharedMemory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cpu: str,
    wanted: set[str],
) -> None:
    if not AARCH64.is_foreign:
        pytest.skip("this machine is AArch64 itself")
    try:
        emulate = emulator(AARCH64)[0]
        known = subprocess.run([emulate, "-cpu", "help"], capture_output=True, text=True).stdout
        if cpu not in known.split():
            pytest.skip(f"{emulate} has no {cpu}")
        monkeypatch.setenv("QEMU_CPU", cpu)
        guest = GuestLibrary(AARCH64, shared_memory, tmp_path)
    except GuestError as error:
        pytest.skip(str(error))
    assert set(names_in(guest.ext_isas_offered())) == wanted
    assert guest.ext_isas() == guest.ext_isas_offered()
    assert guest.ext_isa_name() == b"neon"
    guest.close()


def test_choices_by_level_stand_in_one_file() -> None:
    """What depends on the registers is a name of ``tile_config.h`` everywhere else."""
    asks = {
        str(path.relative_to(RUNTIME))
        for path in RUNTIME.rglob("*.[ch]")
        if re.search(r"^#.*\bEXT_SIMD_(?!H_|MATH_H_)", path.read_text(), re.MULTILINE)
    }
    assert asks == {"simd/simd.h", "simd/tile_config.h"}


@pytest.mark.slow
def test_a_family_in_a_further_row(tmp_path: Path) -> None:
    """The build compiles it for the row, and its public function then has the row to choose."""
    if HOST.machine != "x86_64":
        pytest.skip("the rows are those of x86-64")
    objects = {row: tmp_path / row / "arange.o" for row in ("baseline", "avx_vnni", "avx512_bf16")}
    command = [
        "make",
        "-s",
        "-C",
        str(RUNTIME),
        f"BUILD={tmp_path}",
        f"CC={' '.join(HOST.compiler())}",
    ]
    command += ["SOME=avx_vnni/arange avx512_bf16/arange", "FLAGS_avx_vnni=-DEXT_SIMD_AVX2 -mavx2"]
    command += ["FLAGS_avx512_bf16=-DEXT_SIMD_AVX512 -mavx512f -mavx512dq"]
    subprocess.run([*command, *map(str, objects.values())], check=True)
    symbols = {
        row: subprocess.run([HOST.tool("nm"), str(file)], capture_output=True, text=True).stdout
        for row, file in objects.items()
    }
    called = re.findall(r" U ext_arange_(\w+)$", symbols["baseline"], re.MULTILINE)
    assert set(called) == {"avx2", "avx512", "avx_vnni", "avx512_bf16"}
    for row in ("avx_vnni", "avx512_bf16"):
        assert re.findall(r" T (ext_arange\w*)$", symbols[row], re.MULTILINE) == [
            f"ext_arange_{row}"
        ]


@pytest.mark.slow
def test_a_warning_of_the_compiler_is_kept_for_lint(tmp_path: Path) -> None:
    """``make`` builds in spite of it; ``make warnings`` refuses it, also when nothing is built."""
    folder, forced = tmp_path / "build", tmp_path / "forced.h"
    command = [
        "make",
        "-s",
        "-C",
        str(RUNTIME),
        f"BUILD={folder}",
        f"CC={' '.join(HOST.compiler())}",
    ]
    command += ["LEVELS=", "SOME=", "ROWS_BF16=", "FAMILIES=arange", "COMMON=status", "STANDALONE="]
    command.append(f"CFLAGS=-O0 -include {forced}")
    forced.write_text("#warning of a test\n")
    subprocess.run(command, check=True, capture_output=True)
    refused = subprocess.run([*command, "warnings"], capture_output=True, text=True)
    assert refused.returncode != 0
    assert "warning: #warning of a test" in refused.stderr
    forced.write_text("")
    subprocess.run([*command, "warnings"], check=True)
