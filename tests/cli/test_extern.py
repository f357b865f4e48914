"""``byoc extern`` as a command."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from byoc.cli import main
from tests.extern.folders import EXAMPLES

pytest.importorskip("pycparser", reason="the extra 'extern' is not installed")


def test_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    arguments = ["extern", EXAMPLES / "gemm.h", "-o", out, "--link", EXAMPLES / "gemm.c"]
    assert main(list(map(str, arguments))) == 0
    *answer, following = capsys.readouterr().out.splitlines()
    assert answer == [
        "c[m, n] = my_gemm(a[m, k], b[k, n])",
        "  my_gemm_packed.c, my_gemm_te.py, my_gemm_relax.py, my_gemm_library.py, test_my_gemm.py",
    ]
    # What follows is a command that works here.
    command = following.removeprefix("next: ").removesuffix(" test").split()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (out / "my_gemm_tvm.so").exists()


def test_json_and_a_function_without_its_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["extern", str(EXAMPLES / "concat.h"), "-o", str(tmp_path / "out")]
    assert main([*arguments, "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["function"] == "my_concat"
    assert answer["line"] == 13
    assert "my_concat_library.py" not in answer["files"]
    assert answer["no_library"].startswith("the library table has no words")
    assert main(arguments) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"next: make -C {tmp_path / 'out'} LINK=<its .c, .o or .a files>")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.h", "-o", "out"], "cannot read header nowhere.h: "),
        (["{gemm}"], "Missing option '-o' / '--output'. (see byoc extern --help)"),
        (["{gemm}", "-o", "{gemm}"], "is a file; give a folder"),
        (["{gemm}", "-o", "{tmp}/a/b"], "/a/b: there is no folder "),
        (["{gemm}", "-o", "{tmp}/out", "--function", "gemm"], "gemm.h declares no function gemm;"),
        (["{gemm}", "-o", "{tmp}/out", "--link", "a.so"], "cannot link a.so; need a file .c, .o"),
        (
            ["{gemm}", "-o", "{tmp}/out", "--roles", "my_gemm: a=input[m,k]"],
            "gemm.h:11: my_gemm: argument b (const float *b) has no role; add b=... to the",
        ),
    ],
)
def test_errors_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    names = {"gemm": EXAMPLES / "gemm.h", "tmp": tmp_path}
    assert main(["extern", *(text.format_map(names) for text in arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert not list(tmp_path.iterdir())
