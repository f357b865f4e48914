"""Arguments of the public functions: of the right kind, or one line that names the argument.

Neither TVM nor NumPy is imported here, as ``byoc.load`` needs these checks as well.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from byoc.errors import ByocError

#: More than any machine has cores; a number above it is a slip, and TVM would start them all.
MAX_THREADS = 1024


def as_path(value: Any, name: str, kind: type[ByocError]) -> Path:
    """A path, given as text or as an object for a path. Raises ``kind``."""
    if isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        if isinstance(path, str) and "\0" not in path:
            return Path(path)
    raise kind(f"{name} is {_found(value)}; need a path, as text or pathlib.Path")


def as_whole(value: Any, name: str, kind: type[ByocError], least: int, most: int) -> int:
    """A whole number within limits; truth values are none. Raises ``kind``."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or not least <= number <= most:
        raise kind(f"{name} is {_found(value)}; need a whole number from {least} to {most}")
    return number


def as_error(value: Any, name: str, kind: type[ByocError]) -> float:
    """The greatest error that is allowed: a number of 0 or more. Raises ``kind``."""
    if isinstance(value, bool) or not isinstance(value, Real) or not value >= 0:
        raise kind(f"{name} is {_found(value)}; need a number of 0 or more, such as 1e-4")
    return float(value)


def as_share(value: Any, name: str, kind: type[ByocError]) -> float:
    """A number from 0 to 1. Raises ``kind``."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value <= 1:
        raise kind(f"{name} is {_found(value)}; need a number from 0 to 1")
    return float(value)


def as_threads(value: Any, kind: type[ByocError]) -> int | None:
    """A number of threads, or None where none is given. Raises ``kind``."""
    return None if value is None else as_whole(value, "threads", kind, 1, MAX_THREADS)


def as_flag(value: Any, name: str, kind: type[ByocError]) -> bool:
    """True or False, of Python or NumPy; no other value counts as either. Raises ``kind``."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise kind(f"{name} is {_found(value)}; need True or False")
    return bool(value)


def as_seconds(value: Any, name: str, kind: type[ByocError]) -> float | None:
    """A time of more than 0 seconds, or None for one without a limit. Raises ``kind``."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real) or not value > 0:
        raise kind(f"{name} is {_found(value)}; need seconds, more than 0, or None for no limit")
    return float(value)


def as_text(value: Any, name: str, kind: type[ByocError]) -> str:
    """A text. Raises ``kind``."""
    if not isinstance(value, str):
        raise kind(f"{name} is {_found(value)}; need a text")
    return value


def as_texts(value: Any, name: str, kind: type[ByocError]) -> tuple[str, ...]:
    """Several texts, or one. Raises ``kind``."""
    if isinstance(value, str):
        return (value,)
    try:
        if isinstance(value, bytes | Mapping):
            raise TypeError
        texts = tuple(value)
    except TypeError:  # an array without axes says that it can be iterated over
        raise kind(f"{name} is {_found(value)}; need a list of texts") from None
    if strange := [item for item in texts if not isinstance(item, str)]:
        raise kind(f"{name} has the item {_found(strange[0])}; need texts")
    return texts


def as_mapping(value: Any, name: str, kind: type[ByocError], need: str) -> Mapping[str, Any]:
    """A mapping whose keys are texts; ``need`` says what of. Raises ``kind``."""
    if not isinstance(value, Mapping):
        raise kind(f"{name} is {_found(value)}; need {need}")
    if strange := [key for key in value if not isinstance(key, str)]:
        raise kind(f"{name} has the key {_found(strange[0])}; need {need}")
    return value


def _found(value: Any) -> str:
    """A value as a message shows it: itself where it is short, else its type."""
    if isinstance(value, str | bytes | int | float | None) and len(repr(value)) <= 60:
        return repr(value)
    return f"of type {type(value).__name__}"
