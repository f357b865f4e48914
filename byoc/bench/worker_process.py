"""A process that is asked and answers by lines, and whose messages go to a file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path


class WorkerProcess:
    """Python's ``-m module arguments...``; what it writes to its standard error is ``messages``."""

    def __init__(
        self, module: str, arguments: Sequence[str], messages: Path, environment: Mapping[str, str]
    ) -> None:
        with messages.open("w", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                text=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._asked, self._answers = self._process.stdin, self._process.stdout

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def tell(self, line: str) -> None:
        """Ask something; one that ended already gives no line."""
        with suppress(BrokenPipeError):
            self._asked.write(f"{line}\n")
            self._asked.flush()

    def line(self) -> str:
        """Its next line, empty where it ended."""
        return self._answers.readline().strip()

    def end(self) -> int:
        """Let it end by the end of its input; its exit status."""
        with suppress(BrokenPipeError):
            self._asked.close()
        return self._process.wait()
