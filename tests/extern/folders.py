"""Folders that ``byoc extern`` wrote: build them, run their tests, call what is in them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import byoc
from byoc.extern.generate import Generated, generate

ROOT = Path(byoc.__file__).parents[1]
EXAMPLES = ROOT / "examples" / "extern"


def write(folder: Path, header: str, code: str = "") -> tuple[Path, Path]:
    """A header and its C code."""
    folder.mkdir(exist_ok=True)
    (folder / "k.h").write_text(header, encoding="utf-8")
    (folder / "k.c").write_text(f'#include "k.h"\n{code}', encoding="utf-8")
    return folder / "k.h", folder / "k.c"


def built(folder: Path, header: str, code: str, **variables: str) -> list[Generated]:
    """Write, generate into ``folder/out`` and build; ``variables`` are make's."""
    header_path, code_path = write(folder, header, code)
    generated = generate(header_path, folder / "out", links=[code_path])
    make(folder / "out", **variables)
    return generated


def make(folder: Path, **variables: str) -> None:
    """Build a generated folder, with warnings as errors."""
    given = [f"{name}={value}" for name, value in variables.items()]
    command = ["make", "-s", "-C", str(folder), f"PYTHON={sys.executable}", "CFLAGS=-O1 -Werror"]
    done = subprocess.run([*command, *given], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def run_generated_tests(folders: Sequence[Path]) -> str:
    """Run the tests in generated folders, in a process of their own; pytest's last line."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, folders)]
    done = python(command[1:], cwd=folders[0])
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip().splitlines()[-1]


def python(arguments: Sequence[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python with this tree on its path."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
