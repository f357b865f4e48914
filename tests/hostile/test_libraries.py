"""A part of what ``make hostile`` tries with libraries."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import byoc
from byoc.cli import main
from byoc.deploy.compiled_file import read_compiled
from codegen_cc.link.checksum import seal
from codegen_cc.link.elf_sections import read_sections
from codegen_cc.link.embedded_text import WEIGHTS_SECTION
from tests.hostile import libraries
from tests.hostile.libraries import RIGHT
from tests.hostile.networks import write_small_library


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A library, and its inputs and right answers."""
    return write_small_library(tmp_path_factory.mktemp("hostile"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "cases"),
    [
        (libraries.bits, 60),
        (libraries.cuts, 20),
        (libraries.section_headers, 60),
        (libraries.metadata, 80),
    ],
    ids=["bits", "cuts", "section headers", "metadata"],
)
def test_every_case_ends_in_one_line_or_a_right_answer(
    small: tuple[Path, Path], tmp_path: Path, kind: Callable[..., list], cases: int
) -> None:
    library, data = small
    made = kind(library, cases, seed=11)
    counts, bad = libraries.count(libraries.try_all(library, made, data, tmp_path))
    assert bad == []
    assert sum(counts.values()) == len(made)
    assert counts[RIGHT] < len(made) / 2  # the damage is real


@pytest.mark.slow
def test_the_untouched_library_is_right(small: tuple[Path, Path], tmp_path: Path) -> None:
    library, data = small
    case = libraries.Case("nothing", lambda content: content)
    assert [said for _, said in libraries.try_all(library, [case], data, tmp_path)] == [RIGHT]


def test_a_bit_in_the_weights_is_found_by_inspect_check(
    small: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library, _ = small
    with library.open("rb") as file:
        section = read_sections(file).named(WEIGHTS_SECTION)
    assert section is not None and section.size > 64
    assert main(["inspect", "--check", str(library)]) == 0
    assert "every byte is as it was compiled" in capsys.readouterr().out
    path = tmp_path / "m.so"
    path.write_bytes(libraries.one_bit(library.read_bytes(), 8 * section.offset + 100))
    assert read_compiled(path).metadata().inputs  # loading does not look at weights
    assert main(["inspect", "--check", str(path)]) == 1
    said = capsys.readouterr()
    assert not said.out and "check failed" in said.err and "its checksum is another" in said.err


def test_a_library_without_checksum_is_loaded_and_fails_the_check(
    small: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """TVM's exporter leaves the place for it empty."""
    from tests.deploy.networks import two_by_two

    compiled = byoc.compile(two_by_two())
    compiled.executable.export_library(str(tmp_path / "m.so"))
    assert byoc.load(tmp_path / "m.so").inputs == compiled.metadata.inputs
    assert main(["inspect", "--check", str(tmp_path / "m.so")]) == 1
    assert "has no checksum" in capsys.readouterr().err
    seal(tmp_path / "m.so")
    assert main(["inspect", "--check", str(tmp_path / "m.so")]) == 0


def test_the_standalone_form_has_checksums(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from byoc.compiler.standalone import compile_standalone
    from tests.deploy.networks import two_by_two

    compile_standalone(two_by_two(), tmp_path / "out", name="net")
    library = tmp_path / "out/lib/libnet.so"
    assert main(["inspect", "--check", str(library)]) == 0
    content = library.read_bytes()
    library.write_bytes(libraries.one_bit(content, 8 * 0x1000 + 3))
    assert main(["inspect", str(library)]) == 2
    assert "it is damaged: its checksum is another" in capsys.readouterr().err


@pytest.mark.slow
def test_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files ends the link as a full disk does."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/m.so").write_bytes(b"before")
    program = """
import resource, signal, sys
import byoc
from byoc.cli import main
from tests.deploy.networks import two_by_two
import onnx
onnx.save(two_by_two(), sys.argv[1] + "/m.onnx")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
sys.exit(main(["compile", sys.argv[1] + "/m.onnx", "-o", sys.argv[1] + "/out/m.so"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=Path(byoc.__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stderr.startswith("error: ")
    assert os.listdir(tmp_path / "out") == ["m.so"]
    assert (tmp_path / "out/m.so").read_bytes() == b"before"
