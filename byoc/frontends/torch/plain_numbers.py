"""Plain numbers that code makes of open sizes, ``float(n)`` and ``int(0.5 * n)``.

Python wants a plain number of these two, so that PyTorch's tracer takes the size for what it is in
the example: ``h // 16 == 16`` leaves an axis one size, although it was declared open. Code that
was seen to ask so gets functions of these names that leave sizes open, and is traced once more.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from byoc.frontends.torch.derivatives import VIOLATED
from byoc.frontends.torch.failures import is_users
from byoc.frontends.torch.symbols import Symbols

T = TypeVar("T")


class PlainNumbers:
    """Which code asked for plain numbers in the attempts to trace a module so far."""

    def __init__(self) -> None:
        #: The names of a file's code, and which of Python's functions it called.
        self._askers: dict[int, tuple[dict[str, Any], set[str]]] = {}

    def left_open(self, trace: Callable[[], T]) -> T:
        """What ``trace`` gives where such numbers stay open; where it fails then, with numbers as
        PyTorch has them."""
        made = failure = None
        if not self._askers:
            try:
                with self._noted():
                    made = trace()
            except Exception as error:
                failure = error
        if self._askers:
            try:
                with self._replaced():
                    return trace()
            except Exception as error:
                # What open sizes must meet is worth more than that they were fixed.
                failure = error if failure and VIOLATED in str(error) else failure
        if failure is not None:
            raise failure
        return trace() if made is None else made

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Within this context it is noted which code asks."""
        usual = [(kind, method, getattr(kind, method)) for kind, method in _ASKED]
        for kind, method, ask in usual:
            setattr(kind, method, self._noting(ask, _ASKED[kind, method]))
        try:
            yield
        finally:
            for kind, method, ask in usual:
                setattr(kind, method, ask)

    def _noting(self, ask: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
        def asked(size: Any) -> Any:
            frame = sys._getframe(1)
            names, code = frame.f_globals, frame.f_code
            if name in code.co_names and name not in names and is_users(code.co_filename):
                self._askers.setdefault(id(names), (names, set()))[1].add(name)
            return ask(size)

        return asked

    @contextmanager
    def _replaced(self) -> Iterator[None]:
        """Within this context that code has functions which leave sizes open."""
        for names, called in self._askers.values():
            names.update({name: _OPEN[name] for name in called})
        try:
            yield
        finally:
            for names, called in self._askers.values():
                for name in called:
                    names.pop(name, None)


#: By what PyTorch's sizes are asked for plain numbers, and what code calls then.
_ASKED = {
    (torch.SymInt, "__index__"): "float",
    (torch.SymInt, "__int__"): "int",
    (torch.SymFloat, "__int__"): "int",
}


class _LikeUsual(type):
    """Of classes that stand for Python's own where code asks what a value is: a size is a number
    to it, as it is without a tracer."""

    usual: tuple[type, ...]

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.usual)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, cls.usual)


class _Float(metaclass=_LikeUsual):
    usual = (builtins.float, torch.SymFloat)

    def __new__(cls, *given: Any) -> Any:
        """An open size as PyTorch's float, and else what Python's function gives."""
        is_open = len(given) == 1 and isinstance(given[0], torch.SymInt)
        return torch.sym_float(given[0]) if is_open else builtins.float(*given)


class _Int(metaclass=_LikeUsual):
    usual = (builtins.int, torch.SymInt)

    def __new__(cls, *given: Any, **named: Any) -> Any:
        """A size that shapes can have, and else what Python's function gives."""
        is_open = len(given) == 1 and isinstance(given[0], torch.SymInt | torch.SymFloat)
        if is_open and _is_dimension(made := torch.sym_int(given[0])):
            return made
        return builtins.int(*given, **named)


_OPEN = {"float": _Float, "int": _Int}


def _is_dimension(size: Any) -> bool:
    try:
        Symbols({}).dim(size)
    except ValueError:
        return False
    return True
