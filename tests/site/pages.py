"""The fenced blocks of a page, run in order as a reader would.

A block with a ``title`` is a file. ``python`` runs in one interpreter for the page, ``console`` has
commands after ``$`` with what they say, and ``text`` is what the Python before it prints. Blocks
without a language are read only.

What is shown must be what is said, but for three things: ``...`` stands for anything, numbers with
a point (times, versions) are any such number, and runs of spaces are one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial"

#: A block: its language, its title, its text.
FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)

#: Runs the blocks that it reads, one in each line, and answers with what they print.
_INTERPRETER = """
import contextlib, io, json, sys, traceback
names, blocks, answers = {"__name__": "__main__"}, sys.stdin, sys.stdout
for line in blocks:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            exec(compile(json.loads(line), "page", "exec"), names)
            failed = ""
        except BaseException:
            failed = traceback.format_exc()
    answers.write(json.dumps([said.getvalue(), failed]) + chr(10))
    answers.flush()
"""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file that it is, and its text."""

    language: str
    title: str
    text: str


def pages() -> list[Path]:
    """The steps of the tutorial, in order."""
    return sorted(TUTORIAL.glob("*.md"))


def blocks_of(page: Path, until: str = "") -> list[Block]:
    """The fenced blocks of a page, or of what stands before ``until``."""
    text = page.read_text(encoding="utf-8")
    if until:
        text, found_it, _ = text.partition(until)
        assert found_it, f"{page.name}: no {until!r}"
    found = [Block(*match) for match in FENCE.findall(text)]
    known = {"", "python", "console", "text", "c"}
    assert {block.language for block in found} <= known, page.name
    assert all(block.title for block in found if block.language == "c"), page.name
    return found


def commands_of(block: Block) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with what is shown of its answer."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def agrees(shown: str, said: str) -> bool:
    """Whether what a page shows is what was said, as the top of this file tells."""
    pattern = ""
    for piece in re.split(r"(\.\.\.|\d+(?:\.\d+)+|\s+)", shown.strip()):
        if piece == "...":
            pattern += r".*"
        elif re.fullmatch(r"\d+(?:\.\d+)+", piece):
            pattern += r"\d+(?:\.\d+)+"
        else:
            pattern += r"\s+" if piece.isspace() else re.escape(piece)
    # Dots and the space around them may stand for nothing.
    pattern = re.sub(r"(?:\\s\+)?\.\*(?:\\s\+)?", ".*", pattern)
    return re.fullmatch(pattern, said.strip(), re.DOTALL) is not None


class Reader:
    """Does what a page says, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self._environment = os.environ | {"PATH": path, "COLUMNS": "160", "PYTHONPATH": str(ROOT)}
        self._python = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _INTERPRETER],
            cwd=folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._python.stdin is not None and self._python.stdout is not None
        self._python.stdin.close()
        self._python.wait()
        self._python.stdout.close()

    def read(self, blocks: list[Block]) -> None:
        """Run blocks; asserts that they say what the page shows."""
        said = ""
        for block in blocks:
            if block.title:
                (self._folder / block.title).write_text(block.text, encoding="utf-8")
            elif block.language == "python":
                said = self.python(block.text)
            elif block.language == "text":
                assert agrees(block.text, said), f"shown:\n{block.text}\nsaid:\n{said}"
            elif block.language == "console":
                for command, shown in commands_of(block):
                    self._console(command, shown)

    def python(self, text: str) -> str:
        """What a block prints."""
        assert self._python.stdin is not None and self._python.stdout is not None
        self._python.stdin.write(json.dumps(text) + "\n")
        self._python.stdin.flush()
        said, failed = json.loads(self._python.stdout.readline())
        assert not failed, failed
        return said

    def _console(self, command: str, shown: str) -> None:
        done = subprocess.run(
            command,
            shell=True,
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}:\n{done.stdout}"
        assert agrees(shown, done.stdout), f"{command}\nshown:\n{shown}\nsaid:\n{done.stdout}"
