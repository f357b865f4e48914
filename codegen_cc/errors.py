"""The root of all errors, and those of the code generator.

The root is here because imports run one way, from ``byoc`` to this package.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from codegen_cc.printable import printable

#: What TVM writes before a message: time, file and line of its own source.
_PLACE = re.compile(r"^\[\d\d:\d\d:\d\d\] \S+?:\d+: ")


class ByocError(Exception):
    """Base of all errors that this project raises on purpose.

    What a message quotes of a model is shown so that a terminal does not act on it.
    """

    def __str__(self) -> str:
        return printable(super().__str__(), keep="\n")


class CodegenError(ByocError):
    """A region cannot be turned into a runtime module; the message is one line with the remedy."""


class LibraryError(CodegenError):
    """A kernel library is missing, does not import, or does not fit."""


class ToolchainError(CodegenError):
    """The C compiler is missing or refused its input, or a file is no object of its kind."""


def one_line(error: BaseException) -> str:
    """What another package's error says, in one line that begins with its class.

    TVM's messages go on with the state of its compiler; the first line tells what is wrong.
    Characters that a terminal would act on are written as escapes.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = _PLACE.sub("", lines[0]) if lines else ""
    # A KeyError says nothing but the key; such a text is no sentence without its class.
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return printable(said)


@contextmanager
def foreign_errors_as(
    kind: type[ByocError], what: str, where: Callable[[Exception], str] | None = None
) -> Iterator[None]:
    """Raise ``kind`` where other packages' errors leave the block; they become its cause.

    ``what`` says what failed, and ``where`` tells of an error at which place.  Errors of this
    project pass, as do ``MemoryError`` and what is no ``Exception``, such as ``KeyboardInterrupt``.
    """
    try:
        yield
    except (ByocError, MemoryError):
        raise
    except Exception as error:
        place = where(error) if where is not None else ""
        raise kind(f"{what} failed{place}: {one_line(error)}") from error
