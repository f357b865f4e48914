"""Compiling where no compiler and no binutils are installed, with the one of the extra."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import byoc
from byoc import diagnosis
from byoc.errors import CompileError
from codegen_cc import c_compiler
from codegen_cc.errors import ToolchainError
from codegen_cc.link.object_file import ObjectFile
from codegen_cc.link.objects import defined_functions, keep_global, undefined
from codegen_cc.link.toolchain import telling_line
from codegen_cc.target import Target
from tests.deploy.networks import inputs_of_two_by_two, two_by_two
from tests.libraries.sample import SampleLibrary, two_products
from tests.reference import assert_agrees, onnxruntime_outputs

ROOT = Path(__file__).resolve().parents[2]
needs_zig = pytest.mark.skipif(find_spec("ziglang") is None, reason="needs the package ziglang")


@pytest.fixture
def no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No program is found, and no variable names one."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    for name in ("CC", "CXX", "CROSS_CC"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.slow
@needs_zig
def test_the_whole_way(no_path: None, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.deploy.without_compiler", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


@needs_zig
@pytest.mark.parametrize("target", ["aarch64-linux-gnu", "aarch64-linux-musl", "x86-64"])
def test_it_serves_other_machines(target: str, no_path: None) -> None:
    command = Target.parse(target).compiler()
    assert c_compiler.is_zig(command)
    done = subprocess.run(
        [*command, "-dM", "-E", "-xc", "/dev/null"], capture_output=True, text=True, check=True
    )
    machine = "__x86_64__" if target == "x86-64" else "__aarch64__"
    assert f"#define {machine} 1" in done.stdout
    assert "__AVX__" not in done.stdout  # any CPU of the architecture


@needs_zig
def test_a_variable_may_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "zig")
    assert c_compiler.is_zig(Target.parse().compiler())


@pytest.mark.parametrize("variable", ["CC", "CXX"])
def test_a_variable_may_have_several_words(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of those who compile by way of a cache; TVM's exporter takes one word."""
    launcher = tmp_path / "my launcher"
    launcher.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/asked\nexec "$@"\n')
    launcher.chmod(0o755)
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, f"'{launcher}' gcc")
    compiled = byoc.compile(two_by_two(), tmp_path / "m.so")
    assert len(compiled.report.regions) == 1
    asked = (tmp_path / "asked").read_text().split()
    assert set(asked) == {"gcc"} and (len(asked) > 1) == (variable == "CC")
    given = inputs_of_two_by_two(0)
    found = byoc.load(tmp_path / "m.so").run(given)
    assert_agrees(found, onnxruntime_outputs(two_by_two(), given))


@pytest.mark.parametrize(
    ("command", "said"),
    [("'gcc", "cannot read CC='gcc: No closing quotation"), ("true", "true failed on code.o: no")],
)
def test_a_variable_that_names_none(
    command: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", command)
    with pytest.raises(ToolchainError, match=re.escape(said)):
        byoc.compile(two_by_two(), tmp_path / "m.so")


@pytest.fixture
def no_linker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A compiler that makes no object of several, as TinyCC."""
    program = tmp_path / "small-cc"
    program.write_text(
        "#!/bin/sh\nfor word; do [ $word = -r ] && echo 'small-cc: error: no such option' >&2"
        ' && exit 1; done\nexec gcc "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("CC", str(program))
    return "small-cc failed on region.o: small-cc: error: no such option; gcc, clang and zig"


def test_a_compiler_that_joins_no_objects(no_linker: str, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=re.escape(no_linker)):
        byoc.compile(two_by_two(), tmp_path / "m.so")
    finding = diagnosis._compiler()
    assert not finding.found and finding.missing.startswith(no_linker)


def test_a_failing_compiler_does_not_refuse_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked for a header of that name, and its failure taken for one."""
    monkeypatch.setenv("CC", "gcc -no-such-option")
    with pytest.raises(ToolchainError, match=r"gcc failed: .*no-such-option"):
        byoc.compile_standalone(two_by_two(), tmp_path / "library", name="plain")


def test_lines_that_tell_a_reason() -> None:
    reason = "/usr/bin/ld: m.so: no symbol version section for versioned symbol"
    said = f"Compilation error:\n{reason}\ncollect2: error: ld returned 1 exit status\n"
    assert telling_line(said) == reason
    assert telling_line("Compilation error:\n") == "Compilation error:"


def test_no_room_for_what_is_temporary(tmp_path: Path) -> None:
    weights = ObjectFile(tmp_path / "weights.o")
    (tmp_path / "weights.o").symlink_to("/dev/full")
    with pytest.raises(ToolchainError, match=rf"into {tmp_path}: No space .* TMPDIR"):
        weights.write(0, memoryview(bytes(9)))


def test_without_it_the_extra_is_named(no_path: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_compiler, "_zig_program", lambda: None)
    for target, wanted in (("x86-64", "'apt install gcc' or pip"), ("x86_64-linux-musl", "pip")):
        with pytest.raises(ToolchainError, match=rf"example {wanted} install .*\[compiler\]"):
            Target.parse(target).compiler()


def test_musl_takes_the_standalone_form(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="x86_64-linux-musl; use the standalone form"):
        byoc.compile(two_by_two(), tmp_path / "m.so", target="x86_64-linux-musl")


@needs_zig
def test_standalone_for_musl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels and threads call nothing that the other C library lacks: ``-z defs`` says."""
    monkeypatch.delenv("CROSS_CC", raising=False)
    byoc.compile_standalone(two_by_two(), tmp_path, name="plain", target="x86_64-linux-musl")
    assert "plain_create" in defined_functions(tmp_path / "lib/libplain.so", dynamic=True)


#: The sample library's product, with what C++ brings along: memory, exceptions, its own library.
_CXX = """\
#include <numeric>
#include <stdexcept>
#include <vector>
extern "C" {
#include "sample.h"
}
static void add(std::vector<float>& sums, const float* row, float factor) {
  if (sums.empty()) throw std::runtime_error("no columns");
  for (size_t j = 0; j < sums.size(); ++j) sums[j] += factor * row[j];
}
extern "C" int sample_matmul(sample_state*, const float* a, const float* b, float* y, int64_t m,
                             int64_t n, int64_t k) {
  try {
    std::vector<float> none;
    add(none, b, 1.0f);
  } catch (const std::exception& error) {
    for (int64_t i = 0; i < m; ++i) {
      std::vector<float> sums(n);
      for (int64_t p = 0; p < k; ++p) add(sums, b + p * n, a[i * k + p]);
      std::copy(sums.begin(), sums.end(), y + i * n);
    }
    return 0;
  }
  return 7;
}
extern "C" const char* sample_text(int) { return "nothing was thrown"; }
extern "C" void sample_set_threads(int) {}
extern "C" int sample_get_threads(void) { return EXTRA_THREADS; }
"""


@pytest.mark.slow
@needs_zig
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to make the archive")
def test_an_archive_of_cpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another machine's C++ compiler made finds its library, which TVM's runtime brings."""
    sample = SampleLibrary(tmp_path, "archive", name="cpp", extra_threads=1)
    (tmp_path / "sample.cc").write_text(_CXX)
    command = ["g++", "-O1", "-fPIC", "-DEXTRA_THREADS=1", "-c", "sample.cc", "-o", "sample.o"]
    subprocess.run(command, cwd=tmp_path, check=True)
    monkeypatch.setenv("CC", "zig")
    model = two_products()
    compiled = byoc.compile(model, tmp_path / "m.so", libraries=[sample, "builtin"])
    assert "cpp" in {use.library for use in compiled.report.kernels}
    rows = {"x": np.random.default_rng(5).standard_normal((5, 32), dtype=np.float32)}
    program = (
        "import sys, numpy as np, byoc\n"
        "print(byoc.load(sys.argv[1]).run({'x': np.load(sys.argv[2])})['y'].tolist())"
    )
    np.save(tmp_path / "x.npy", rows["x"])
    command = [sys.executable, "-W", "ignore", "-c", program, str(tmp_path / "m.so")]
    done = subprocess.run(
        [*command, str(tmp_path / "x.npy")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = {"y": np.array(json.loads(done.stdout), np.float32)}
    assert_agrees(found, onnxruntime_outputs(model, rows))


def test_names_that_become_local(tmp_path: Path) -> None:
    """Calls go where they went, and two objects with the same names meet in one library."""
    for number in (1, 2):
        source = f"""
        extern int elsewhere(void); __attribute__((weak)) int shared(void) {{ return {number}; }}
        int data[2] = {{ {number}, 5 }}; static int own(int x) {{ return x * data[0]; }}
        int helper(int x) {{ return own(x) + shared() + (elsewhere() ? 1 : 0); }}
        int kept_{number}(int x) {{ return helper(x) * 100 + data[1]; }}
        """
        (tmp_path / f"{number}.c").write_text(source)
        flags = ["-O0", "-fPIC", "-ffunction-sections", "-g", "-c", f"{number}.c"]
        command = [*Target.parse().compiler(), *flags, "-o", f"{number}.o"]
        subprocess.run(command, cwd=tmp_path, check=True)
        keep_global(tmp_path / f"{number}.o", ["kept_*"])
        assert defined_functions(tmp_path / f"{number}.o") == {f"kept_{number}"}
        assert "elsewhere" in undefined(tmp_path / f"{number}.o")
    main = """int elsewhere(void) { return 0; }
    int kept_1(int), kept_2(int);
    int main(void) { return kept_1(3) != 405 || kept_2(3) != 805; }
    """
    (tmp_path / "main.c").write_text(main)
    command = [*Target.parse().compiler(), "main.c", "1.o", "2.o", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "main"], check=True)


def test_files_that_are_no_objects(tmp_path: Path) -> None:
    for content in (b"", b"text", b"\x7fELF\x02\x01" + b"\xff" * 90, b"!<arch>\n" + b"x" * 60):
        (tmp_path / "file.o").write_bytes(content)
        with pytest.raises(ToolchainError, match=r"no 64-bit ELF file|cut off"):
            undefined(tmp_path / "file.o")
