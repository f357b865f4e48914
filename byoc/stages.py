"""The stages of a compilation: announced, timed, and named by whatever goes wrong in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from byoc.errors import ByocError, CompileError
from codegen_cc.errors import foreign_errors_as

Progress = Callable[[str], None]


class Stages:
    """Announces the stages of a compilation and keeps their times."""

    def __init__(self, progress: Progress | None) -> None:
        self.seconds: dict[str, float] = {}
        if progress is not None and not callable(progress):
            raise CompileError(
                f"progress is of type {type(progress).__name__}; need a function of a stage's name"
            )
        self._progress = progress

    def announce(self, text: str) -> None:
        """Show what is being done."""
        if self._progress is not None:
            self._progress(text)

    @contextmanager
    def __call__(self, name: str, kind: type[ByocError] = CompileError) -> Iterator[None]:
        """Run one stage; what other packages raise in it leaves as ``kind``, naming the stage."""
        self.announce(name)
        begin = time.perf_counter()
        with foreign_errors_as(kind, f"the stage {name!r}"):
            yield
        self.seconds[name] = time.perf_counter() - begin
