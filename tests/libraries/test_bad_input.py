"""What is wrong with a library is one clear line that names it, the composite and the remedy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

import byoc
from byoc.cli import main
from byoc.errors import RunError
from byoc.library import Kernel, Library, LibraryError, Link
from codegen_cc.libraries import Selection, library_for, registry
from codegen_cc.libraries.builtin import BuiltinLibrary
from codegen_cc.node import Node, Operand
from tests.libraries.sample import two_products

HEADER = (
    "#include <stdint.h>\n{} own_matmul(const float* a, const float* b, float* y, int64_t n);\n"
)
TABLE = """\
from pathlib import Path
from byoc.library import Kernel, Library, Link
HERE = Path(__file__).parent
LIBRARY = Library(
    "own", version="1", abi=1, link=Link(headers=("own.h",), include_dirs=(HERE,), {link}),
    kernels=[Kernel("matmul", "own_matmul", ("lhs", "rhs", "output", {arguments}), {more})],
)
"""


@pytest.fixture(autouse=True)
def forget_libraries() -> Iterator[None]:
    """Libraries of one test are unknown to the next."""
    before, files = dict(registry._loaded), dict(registry._files)
    yield
    for known, kept in ((registry._loaded, before), (registry._files, files)):
        known.clear()
        known.update(kept)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(two_products(), path)
    return path


def own_library(
    folder: Path,
    link: str = "sources=(HERE / 'own.c',)",
    arguments: str = '"n"',
    body: str = "(void)a, (void)b, (void)y, (void)n; return 0;",
    more: str = "",
) -> Path:
    """A table of one product and its C, in a folder."""
    (folder / "own.h").write_text(HEADER.format("int"))
    declared = HEADER.format("int").splitlines()[1].rstrip(";")
    (folder / "own.c").write_text(f'#include "own.h"\n{declared} {{ {body} }}\n')
    path = folder / "own.py"
    path.write_text(TABLE.format(link=link, arguments=arguments, more=more))
    return path


def refusal_of(choice: str, model: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line with which the command refuses, without writing a library."""
    output = model.with_suffix(".so")
    assert main(["compile", str(model), "-o", str(output), "--library", choice]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and not output.exists()
    return line


# ---------------------------------------------------------------- the file


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("LIBRARY = (", "does not import: SyntaxError: '(' was never closed"),
        (
            "import no_such_module",
            "does not import: ModuleNotFoundError: No module named 'no_such_",
        ),
        ("raise ValueError('one\\ntwo')", "does not import: ValueError: one"),
        ("import sys; sys.exit(3)", "does not import: SystemExit: 3"),
        ("library = 1", "has no LIBRARY; bind your library object to that name"),
        ("LIBRARY = 1", "is no kernel library: it lacks "),
        (
            "from byoc.library import *\n"
            "LIBRARY = Library('own', version='1', abi=2, link=Link(), kernels=[])",
            "is written for version 2 of the library interface, this is version 1; install",
        ),
        (
            "from byoc.library import *\n"
            "LIBRARY = Library('my own', version='1', abi=1, link=Link(), kernels=[])",
            "is called 'my own'; need a C identifier",
        ),
        (
            "from byoc.library import *\n"
            "LIBRARY = Library('builtin', version='1', abi=1, link=Link(), kernels=[])",
            "is called builtin, as an",
        ),
        (
            "from byoc.library import *\n"
            "LIBRARY = Library('own', version='1', abi=1, link=Link(),\n"
            "                  kernels=[Kernel('matmul', 'f', ('lhs', 'rsh', 'output'))])",
            "library own, kernel for matmul: unknown argument 'rsh'; did you mean 'rhs'?",
        ),
    ],
)
def test_files(text: str, message: str, model: Path, capsys) -> None:
    path = model.parent / "own.py"
    path.write_text(text)
    line = refusal_of(f"{path},builtin", model, capsys)
    assert str(path) in line or "library own" in line
    assert message in line, line


def test_a_file_that_is_not_there(model: Path, capsys) -> None:
    line = refusal_of("no_such_library.py", model, capsys)
    assert "no_such_library.py does not exist" in line


def test_a_file_that_was_repaired_is_read_again(tmp_path: Path) -> None:
    path = own_library(tmp_path)
    text = path.read_text()
    path.write_text("oops(")
    with pytest.raises(LibraryError, match="does not import"):
        registry.library(str(path))
    path.write_text(text)
    assert registry.library(str(path)).name == "own"


def test_two_files_of_one_name(tmp_path: Path, model: Path, capsys) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    paths = [own_library(folder) for folder in folders]
    line = refusal_of(f"{paths[0]},{paths[1]}", model, capsys)
    assert f"library file {paths[1]} is called own, as another loaded library is" in line
    assert str(paths[0]) in line and "rename one of them" in line


# ---------------------------------------------------------------- what it links


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("sources=(HERE / 'none.c',)", "library own: source {}/none.c does not exist"),
        ("archives=(HERE / 'none.a',)", "library own: {}/none.a does not exist; build the library"),
        ("shared=(HERE / 'none.so',)", "library own: {}/none.so does not exist; install or build"),
        (
            "",
            "library own, ext.matmul: function own_matmul is in none of its files; add the source",
        ),
    ],
)
def test_files_that_are_missing(link: str, message: str, model: Path, capsys) -> None:
    path = own_library(model.parent, link)
    line = refusal_of(f"{path},builtin", model, capsys)
    assert message.format(model.parent) in line, line


@pytest.mark.parametrize(
    ("arguments", "body", "message"),
    [
        ('"n"', "return a ? b : y;", "own"),  # does not compile
        ('"n", "m"', "return 0;", "own_matmul"),  # not what the header declares
    ],
)
def test_c_that_does_not_compile(
    arguments: str, body: str, message: str, model: Path, capsys
) -> None:
    path = own_library(model.parent, arguments=arguments, body=body)
    (model.parent / "own.c").write_text((model.parent / "own.c").read_text() + "#error broken\n")
    line = refusal_of(f"{path},builtin", model, capsys)
    assert message in line and "error" in line.removeprefix("error: "), line


# ---------------------------------------------------------------- what its kernels say


def test_a_status_is_an_error_of_the_run(tmp_path: Path, model: Path) -> None:
    path = own_library(tmp_path, body="(void)a, (void)b, (void)y, (void)n; return 4;")
    byoc.compile(model, tmp_path / "m.so", libraries=f"{path},builtin")
    loaded = byoc.load(tmp_path / "m.so")
    for _ in range(2):  # it raises; it does not end the process
        with pytest.raises(RunError) as error:
            loaded(np.ones((5, 32), np.float32))
        assert str(error.value) == (
            "m.so: ext_main_0: library own failed on ext.matmul: status 4 (an index lies outside of"
            " the axis that it indexes); choose another library for it"
        )


def test_a_preparation_that_fails(tmp_path: Path, model: Path) -> None:
    more = 'prepare="own_prepare", prepare_arguments=("state", "n"), state="own_state"'
    path = own_library(tmp_path, arguments='"state"', more=more)
    (tmp_path / "own.h").write_text(
        "#include <stdint.h>\ntypedef struct { int ready; } own_state;\n"
        "int own_prepare(own_state* state, int64_t n);\n"
        "int own_matmul(const float* a, const float* b, float* y, own_state* state);\n"
    )
    (tmp_path / "own.c").write_text(
        '#include "own.h"\n'
        "int own_prepare(own_state* state, int64_t n) { state->ready = n > 0; return 1; }\n"
        "int own_matmul(const float* a, const float* b, float* y, own_state* state) {\n"
        "  (void)a, (void)b, (void)y; return state->ready; }\n"
    )
    byoc.compile(model, tmp_path / "m.so", libraries=f"{path},builtin")
    with pytest.raises(RunError, match=r"library own failed on ext.matmul: status 1 \(scratch mem"):
        byoc.load(tmp_path / "m.so")(np.ones((5, 32), np.float32))


def products(rows: int) -> Node:
    operands = (Operand("lhs", (rows, 4), "float32"), Operand("rhs", (4, 4), "float32", True))
    return Node("matmul", operands, (rows, 4), "float32", library="own")


def test_a_shape_that_was_refused() -> None:
    """Whoever asks all the same (a module from elsewhere, say) gets the reason."""
    kernel = Kernel(
        "matmul",
        "own_matmul",
        ("lhs", "rhs", "output"),
        supports=lambda node: None if node.shape[0] > 4 else f"{node.shape[0]} rows; need 5",
    )
    own = Library("own", version="1", abi=1, link=Link(), kernels=[kernel])
    selection = Selection.of([own, "builtin"])
    assert selection.pick(products(5)) is own
    with pytest.raises(
        Exception, match=r"library own does not compute ext.matmul: own: 3 rows; ne"
    ):
        library_for(products(3))
    with pytest.raises(
        LibraryError, match=r"^library own does not compute ext.matmul: 3 rows; need"
    ):
        own.kernel_for(products(3))


def test_a_forced_library_that_refuses(tmp_path: Path, model: Path, capsys) -> None:
    """The node stays with TVM, and the report says why."""
    path = own_library(tmp_path, more="supports=lambda node: 'too small')", link="").with_name(
        "x.py"
    )
    shutil.move(tmp_path / "own.py", path)
    path.write_text(path.read_text().replace("too small')", "too small'"))
    assert main(["partition", str(model), "--library", f"builtin,matmul={path}"]) == 0
    assert "own: too small" in capsys.readouterr().out


# ---------------------------------------------------------------- at run time


@pytest.mark.slow
def test_loading_never_needs_a_shared_library(tmp_path: Path, model: Path) -> None:
    """The process lives: the file is looked for when the region runs, and then it is an error."""
    path = own_library(tmp_path, link="shared=(HERE / 'libown.so',)")
    command = ["cc", "-shared", "-fPIC", str(tmp_path / "own.c"), "-o", str(tmp_path / "libown.so")]
    subprocess.run(command, check=True)
    byoc.compile(model, tmp_path / "m.so", libraries=f"{path},builtin")
    (tmp_path / "libown.so").unlink()
    script = (
        "import sys, byoc, numpy as np\n"
        "model = byoc.load(sys.argv[1])\n"
        "for _ in range(2):\n"
        "    try: model(np.ones((5, 32), np.float32))\n"
        "    except byoc.ByocError as error: print(error)\n"
        "print(model.inputs[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "m.so")],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(byoc.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    first, second, alive = done.stdout.splitlines()
    assert first == second and alive == "x: float32[5, 32]"
    assert "library own: cannot open libown.so; put it beside the model" in first


def test_the_builtin_library_has_no_private_door(tmp_path: Path) -> None:
    """It is one more implementation of the protocol; an equal one of another name works as well."""

    class Copy(BuiltinLibrary):
        name = "copy_of_builtin"

    compiled = byoc.compile(two_products(), tmp_path / "m.so", libraries=Copy())
    assert {node["library"] for node in compiled.report.to_json()["nodes"]} == {"copy_of_builtin"}
    x = np.ones((5, 32), np.float32)
    byoc.compile(two_products(), tmp_path / "own.so")
    found, expected = (byoc.load(tmp_path / f"{name}.so")(x) for name in ("m", "own"))
    np.testing.assert_array_equal(found, expected)
