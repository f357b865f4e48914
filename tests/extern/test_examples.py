"""The three examples: generated, built, and what was generated with them run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from byoc.extern.generate import Generated, generate
from tests.extern.folders import EXAMPLES, ROOT, make, run_generated_tests

pytest.importorskip("pycparser", reason="the extra 'extern' is not installed")

#: Header, function, and how many tests each of its cases has.
EXAMPLE_TESTS = {"gemm": 5, "conv2d": 5, "concat": 4}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder per example, built."""
    found = {}
    for name in EXAMPLE_TESTS:
        found[name] = tmp_path_factory.mktemp(name) / "out"
        generate(EXAMPLES / f"{name}.h", found[name], links=[EXAMPLES / f"{name}.c"])
        make(found[name])
    return found


@pytest.mark.slow
def test_generated_tests_pass(folders: dict[str, Path]) -> None:
    last = run_generated_tests(list(folders.values()))
    # Four cases each, and one test of refusals.
    count = sum(4 * tests + 1 for tests in EXAMPLE_TESTS.values())
    assert last.startswith(f"{count} passed"), last


@pytest.mark.parametrize("name", EXAMPLE_TESTS)
def test_files(folders: dict[str, Path], name: str) -> None:
    files = {path.name for path in folders[name].iterdir() if path.is_file()}
    library = {f"my_{name}_library.py"} if name != "concat" else set()
    assert files == library | {
        *("Makefile", f"my_{name}_packed.c", f"my_{name}_te.py", f"my_{name}_relax.py"),
        *(f"test_my_{name}.py", f"my_{name}_tvm.so", f"my_{name}_tvm.o"),
    }


def test_why_a_function_has_no_library(tmp_path: Path) -> None:
    (generated,) = generate(EXAMPLES / "concat.h", tmp_path / "out")
    assert isinstance(generated, Generated)
    assert generated.no_row == "the library table has no words for the sizes of concat"


@pytest.mark.parametrize("name", EXAMPLE_TESTS)
def test_generated_python_is_formatted(folders: dict[str, Path], name: str) -> None:
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.exists():
        pytest.skip("ruff is not installed")
    for command in (["format", "--diff"], ["check"]):
        config = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
        done = subprocess.run(
            [ruff, *command, *config, "."],
            cwd=folders[name],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", EXAMPLE_TESTS)
def test_generated_c_is_formatted(folders: dict[str, Path], name: str) -> None:
    clang_format = Path(sys.executable).with_name("clang-format")
    if not clang_format.exists():
        pytest.skip("clang-format is not installed")
    source = folders[name] / f"my_{name}_packed.c"
    style = f"--style=file:{ROOT / '.clang-format'}"
    done = subprocess.run([clang_format, style, source], capture_output=True, text=True, check=True)
    assert done.stdout == source.read_text()


def test_only_the_packed_function_is_visible(folders: dict[str, Path]) -> None:
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    command = ["nm", "--defined-only", "--extern-only", str(folders["gemm"] / "my_gemm_tvm.o")]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in listed.splitlines()] == ["__tvm_ffi_my_gemm"]


@pytest.mark.parametrize("name", EXAMPLE_TESTS)
def test_documentation_shows_the_examples(name: str) -> None:
    text = (ROOT / "docs" / "extern.md").read_text()
    header = (EXAMPLES / f"{name}.h").read_text()
    begin = header.index("byoc:")
    shown = header[begin : header.index(");", begin)].replace("\n */\n", " */\n")
    assert " ".join(shown.split()) in " ".join(text.split())
