"""TVM's doors to external kernels: every example, each in a process of its own.

The examples check their numbers against NumPy. Those that export a library run it in yet another
process, with TVM's runtime and neither preload nor path.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOORS = ROOT / "examples" / "doors"
PAGE = (ROOT / "docs" / "doors.md").read_text(encoding="utf-8")

#: What each example must print.
SAID = {
    "01_packed_from_python.py": [
        "hidden: (4, 32)",
        "from inside compiled code",
        "after relu: (4, 32)",
        "ValueError: hidden looks wrong",
    ],
    "02_packed_from_c.py": [
        "doors.scale from Python: agrees",
        "doors.scale_cpp from Python: agrees",
        "call_dps_packed and call_packed from Relax: agree",
        "pass two of one shape",
        "Expected `float` but got",
    ],
    "03_te_extern.py": ["between two operators of TVM: agrees", "symbolic rows: agrees"],
    "04_call_extern.py": [
        "call_extern in this process: agrees",
        "RuntimeError: doors_gemm failed: rows of C overlap",
        "call_extern in a fresh process: agrees",
        "without the addon: exit status 127",
        "undefined symbol: doors_gemm",
    ],
    "05_tensorise.py": [
        "stride 1: rows of A are 16 elements apart; agrees in a fresh process",
        "stride 2: rows of A are 32 elements apart; agrees in a fresh process",
    ],
    "06_inline.py": [
        "addon, static object and C source with a constant: agree in a fresh process",
        "LLVM code:",
    ],
    "07_tvmscript_loop.py": ["a loop of TVM for the softmax: agrees"],
    "08_strides.py": [
        "doors.scale_cpp: x has strides [32, 1], y [16, 1]; need contiguous tensors",
        "Mismatched X.strides on argument #0",
        "expected to be compact array",
        "Invalid Y.byte_offset on argument #2",
        "ext_main_0: input 0 (x) is not contiguous; pass a contiguous copy",
        "3 te.extern, declared (not even built)",
    ],
    "09_torch.py": [
        "PyTorch in, PyTorch out: the kernel saw both addresses",
        "torch.from_dlpack: the same memory",
        "filled in place",
        "Tensor is not contiguous",
    ],
    "10_region.py": ["2 of 2 operators", "region in a fresh process: agrees"],
}


@cache
def run(name: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """One example as a user runs it; a second call gives the first one's result."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    return subprocess.run(
        [sys.executable, str(DOORS / name)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_example_is_tested() -> None:
    assert sorted(path.name for path in DOORS.glob("[0-9]*.py")) == sorted(SAID)


def with_torch() -> str:
    """The path with the folder that ``make test`` installs PyTorch into."""
    apart = Path(sys.prefix, "torch")
    if not apart.is_dir() and find_spec("torch") is None:
        pytest.skip("PyTorch is not installed: the extra 'torch'")
    return f"{ROOT}{os.pathsep}{apart}"


@pytest.mark.slow
@pytest.mark.parametrize("name", SAID)
def test_example(name: str) -> None:
    done = run(name, **({"PYTHONPATH": with_torch()} if name == "09_torch.py" else {}))
    assert done.returncode == 0, done.stderr
    for text in SAID[name]:
        assert text in done.stdout


@pytest.mark.slow
def test_without_torch_the_example_says_so(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('torch')\n")
    done = run("09_torch.py", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "skipped: PyTorch is not installed (pip install torch)\n"


@pytest.mark.slow
def test_a_missing_compiler_is_one_clear_error() -> None:
    done = run("02_packed_from_c.py", CC="no-such-compiler")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("RuntimeError: no compiler for .c: tried no-such-compiler; install")


def test_the_page_shows_the_table_of_strides() -> None:
    table = [line.rstrip() for line in run("08_strides.py").stdout.split("\n\n")[0].splitlines()]
    assert len(table) == 14
    assert "\n".join(table) in PAGE


def test_the_page_names_every_example() -> None:
    assert [name for name in SAID if name not in PAGE] == []


@pytest.mark.slow
def test_overhead_is_measured_through_every_door() -> None:
    command = [sys.executable, "-m", "benchmarks.doors", "--rounds", "1", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert all(found[fact] for fact in ("cpu", "run", "versions"))
    rows = {(row["where"], row["door"]) for row in found["rows"]}
    assert all(0 < row["min"] <= row["p50"] <= row["p90"] for row in found["rows"])
    doors = {door.split()[0] for _, door in rows}
    assert doors >= {"C", "1", "2", "3", "4", "5", "6", "7", "10"}
    # The page's tables have the same rows, but for what was not installed here.
    shown = set(re.findall(r"^\| ((?:C|\d+) [^|]*?) +\|", PAGE, re.MULTILINE))
    assert {door for _, door in rows} <= shown, "run it again and copy its tables to docs/doors.md"
