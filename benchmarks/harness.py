"""What all benchmarks share: their options, turns, the programs that they start, what they print.

A benchmark is a function ``main`` under ``@one_line_errors``, with a parser of ``parser``.  Exit
codes are 0, 1 where a target is missed or an answer is wrong, and 2 for errors.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich.console import Console, RenderableType
from rich.table import Table

from byoc.bench.interleave import thread_environment
from byoc.bench.tables import Sheet
from byoc.errors import BenchmarkError, ByocError, ToolchainError
from codegen_cc.link.toolchain import compiler

ROOT = Path(__file__).resolve().parents[1]
#: Ends what ``write_between`` writes.
_END_OF_WRITTEN = "<!-- The end of what is written. -->"

T = TypeVar("T")
Main = Callable[[Sequence[str] | None], int]

# ---------------------------------------------------------------------- command line


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}; need 1 or more")
    return number


#: Options that several benchmarks have: type, what stands for the value, and what it is.
_OPTIONS: dict[str, tuple[Callable[[str], Any], str, str]] = {
    "threads": (_positive, "N", "threads of a run, on as many cores"),
    "rounds": (_positive, "N", "turns of each"),
    "repeats": (_positive, "N", "processes of each"),
    "only": (str, "TEXT", "rows that have TEXT in them"),
}


def parser(
    name: str, description: str, markdown: bool = False, **defaults: object
) -> argparse.ArgumentParser:
    """A command line with ``--json``, with ``--markdown`` if asked for, and the common options.

    These are the keys of ``defaults``, with their defaults; one that is a list takes several.
    """
    made = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for option, default in defaults.items():
        type_, metavar, meaning = _OPTIONS[option]
        shown = " ".join(map(str, default)) if isinstance(default, list) else default
        made.add_argument(
            f"--{option}",
            type=type_,
            nargs="+" if isinstance(default, list) else None,
            default=default,
            metavar=metavar,
            help=f"{meaning} (default {shown or 'all'})",
        )
    forms = made.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print JSON instead of tables")
    if markdown:
        forms.add_argument("--markdown", action="store_true", help="print Markdown tables")
    return made


def one_line_errors(status: int = 2) -> Callable[[Main], Main]:
    """Make an error of a benchmark's ``main`` one line on stderr, and this exit code."""

    def guard(main: Main) -> Main:
        @wraps(main)
        def guarded(arguments: Sequence[str] | None = None) -> int:
            try:
                return main(arguments)
            except (ByocError, OSError) as error:
                print(f"error: {error}", file=sys.stderr)
                return status

        return guarded

    return guard


# ---------------------------------------------------------------------- turns and times


def in_turns(contestants: Sequence[T], rounds: int) -> Iterator[T]:
    """Every contestant once in each round, which begin with another one each."""
    for number in range(rounds):
        for step in range(len(contestants)):
            yield contestants[(step + number) % len(contestants)]


def spread(times: Sequence[float]) -> tuple[float, float, float]:
    """The least, the median, and what nine tenths of some times do not exceed."""
    low, middle, high = (float(np.percentile(times, percent)) for percent in (0, 50, 90))
    return low, middle, high


# ---------------------------------------------------------------------- programs


def environment(threads: int | None = None, **more: str) -> dict[str, str]:
    """That of a program: it finds ``benchmarks``, and uses so many threads if that is said."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    base = os.environ if threads is None else thread_environment(threads)
    return {**base, "PYTHONPATH": os.pathsep.join(paths), **more}


def on_cores(cores: Iterable[int]) -> list[str]:
    """What stands before a command that may use these cores alone."""
    return ["taskset", "-c", ",".join(map(str, cores))]


def run(
    command: Sequence[object], who: str = "", more: Mapping[str, str] | None = None, line: int = -1
) -> str:
    """What a program printed; ``more`` are variables of its environment.

    Raises ``BenchmarkError`` where it fails: ``who``, and one line of what it wrote to stderr.
    """
    done = subprocess.run(
        [str(word) for word in command],
        env=environment(**(more or {})),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BenchmarkError(f"{who}{': ' if who else ''}{said(done.stderr, line)}")
    return done.stdout


def said(messages: str, line: int = -1) -> str:
    """One line of what a program wrote to stderr: compilers begin with the reason, others end."""
    lines = [text.strip() for text in messages.splitlines() if text.strip()] or ["no message"]
    return lines[line].removeprefix("error: ")


def byoc(*arguments: object) -> str:
    """What ``byoc`` prints, in a process of its own. Raises ``BenchmarkError``."""
    return run([sys.executable, "-m", "byoc", *arguments], f"byoc {arguments[0]}")


def call_apart(module: str, *arguments: object, more: Mapping[str, str] | None = None) -> Any:
    """What ``child`` of a module returns for plain values, computed in a process of its own.

    For what is chosen once for each process, such as pools of threads. Raises ``BenchmarkError``.
    """
    script = f"from {module} import child; from benchmarks.harness import answer; answer(child)"
    command = [sys.executable, "-c", script, json.dumps(arguments)]
    return json.loads(run(command, more=more).splitlines()[-1])


class Apart:
    """A call of ``child`` of a module in a process of its own, in two steps.

    The child gets ready, calls ``wait_to_go``, and goes on when it is told. ``more`` are variables
    of its environment. As a context it ends the process. Raises ``BenchmarkError``.
    """

    def __init__(
        self, module: str, *arguments: object, more: Mapping[str, str] | None = None
    ) -> None:
        script = f"from {module} import child; from benchmarks.harness import answer; answer(child)"
        self._messages = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115, for __exit__
        self._process = subprocess.Popen(
            [sys.executable, "-c", script, json.dumps(arguments)],
            env=environment(**(more or {})),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
        )
        self._is_ready = False

    def __enter__(self) -> Apart:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process as process, self._messages:
            process.kill()

    def wait(self) -> None:
        """Wait until it is ready."""
        while not self._is_ready:
            self._is_ready = self._line() == _READY

    def go(self) -> Any:
        """Tell it to go on; returns what it returns, and ends it, so that it is in nobody's way."""
        assert self._process.stdin is not None
        self.wait()
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found = json.loads(self._line())
        self._process.kill()
        self._process.wait()
        return found

    def _line(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            self._messages.seek(0)
            raise BenchmarkError(said(self._messages.read()))
        return line.rstrip("\n")


_BEGIN = time.monotonic()
#: What a process prints that is ready.
_READY = "ready to go"


def wait_to_go() -> None:
    """Say that this process is ready, and wait until it is told to go on (``Apart``)."""
    print(_READY, flush=True)
    sys.stdin.readline()


def answer(child: Callable[..., object]) -> None:
    """The other end of ``call_apart``."""
    try:
        print(json.dumps(child(*json.loads(sys.argv[1]))))
    except (ByocError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def build_c(source: Path, output: Path, *flags: str, link: Sequence[str] = ()) -> Path:
    """Compile a C file or link an object; ``link`` comes last. Raises ``ToolchainError``."""
    command = [*compiler(), "-std=gnu11", "-O2", "-fPIC", *flags, str(source), *link]
    try:
        run([*command, "-o", output], line=0)
    except BenchmarkError as error:
        raise ToolchainError(f"{command[0]} failed on {source.name}: {error}") from None
    return output


def ffi_includes() -> list[str]:
    """Options of a compiler for the headers of TVM's FFI."""
    import tvm_ffi.libinfo as ffi

    return [f"-I{path}" for path in (ffi.find_include_path(), ffi.find_dlpack_include_path())]


# ---------------------------------------------------------------------- what is printed


def versions(*known: str) -> str:
    """Versions of what was measured, and of Python."""
    return ", ".join([*known, f"Python {platform.python_version()}"])


def tell(text: str) -> None:
    """What is being done, and how long all has taken, for whoever waits at a terminal."""
    if sys.stderr.isatty():
        print(f"{time.monotonic() - _BEGIN:7.1f} s  {text}", file=sys.stderr)


def table(
    title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1, **style: Any
) -> Table:
    """A table of texts; the first ``left`` columns are words, the others numbers."""
    made = Table(title=title, title_justify="left", **style)
    for index, heading in enumerate(headings):
        made.add_column(heading, justify="left" if index < left else "right", no_wrap=True)
    for row in rows:
        made.add_row(*row)
    return made


def show(parts: Iterable[RenderableType]) -> None:
    """Print tables and lines; a table that is wider than the terminal is not squeezed into it."""
    parts = list(parts)
    unlimited = Console(width=10_000)
    widths = [unlimited.measure(part).maximum for part in parts if not isinstance(part, str)]
    console = Console(highlight=False, width=max([Console().width, *widths]))
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str))


def show_sheets(
    parts: Iterable[Sequence[str] | Sheet], lines: Sequence[str], markdown: bool
) -> None:
    """Print paragraphs and tables as they come, and lines below them, in Markdown as a list."""
    if markdown:
        for p in parts:
            text = p.markdown() if isinstance(p, Sheet) else "  \n".join(p)
            print(text, end="\n\n", flush=True)
        for line in lines:
            print(f"- {line}")
        return
    for part in parts:
        show([part.rich()] if isinstance(part, Sheet) else part)
    show(lines)


def write_between(
    document: Path, begin: str, sheets: Sequence[Sheet], lines: Sequence[str]
) -> None:
    """Put tables and lines in a document, between the line ``begin`` and the end that follows it.

    Raises ``BenchmarkError`` where the document has not both.
    """
    before, _, rest = document.read_text(encoding="utf-8").partition(begin)
    _, mark, after = rest.partition(_END_OF_WRITTEN)
    if not mark:
        raise BenchmarkError(f"{document.name} has not the lines {begin} and {_END_OF_WRITTEN}")
    parts = [*(sheet.markdown() for sheet in sheets), "\n".join(f"- {line}" for line in lines)]
    text = "\n\n".join([before + begin, *parts, _END_OF_WRITTEN + after])
    document.write_text(text, encoding="utf-8")


def show_json(value: object) -> None:
    """Print plain values."""
    print(json.dumps(value, indent=1))


def misses(checks: Iterable[str]) -> bool:
    """Whether one of the lines about targets says that one is missed."""
    return any("MISSES" in line for line in checks)
