"""Plain numbers that code makes of open sizes: ``float(n)``, ``int(0.5 * n)``, ``math.sqrt(n)``.

Python wants a plain number of these, so that PyTorch's tracer takes the size for what it is in
the example: ``h // 16 == 16`` leaves an axis one size, although it was declared open. Code that
was seen to ask so gets functions of these names that leave sizes open, and is traced once more.
"""

from __future__ import annotations

import builtins
import math
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import reduce
from types import SimpleNamespace
from typing import Any, TypeVar

import torch

from byoc.frontends.torch.derivatives import VIOLATED
from byoc.frontends.torch.failures import is_users
from byoc.frontends.torch.replaced import replaced, replaced_names
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
        was_known = known = self._known()
        while True:
            try:
                with self._noted(), self._replaced():
                    made = trace()
            except Exception as error:
                # What open sizes must meet is worth more than that they were fixed.
                failure = error if failure is None or VIOLATED in str(error) else failure
            if self._known() == known:
                break
            known = self._known()
        if made is not None:
            return made
        if was_known:
            return trace()
        raise failure

    def _known(self) -> int:
        """How many functions were called."""
        return sum(len(called) for _, called in self._askers.values())

    def _noted(self) -> AbstractContextManager[None]:
        """Within this context it is noted which code asks."""
        asked = ((place, getattr(*place), asking) for place, asking in _ASKED.items())
        return replaced({place: self._noting(ask, asking) for place, ask, asking in asked})

    def _noting(self, ask: Callable[[Any], Any], asking: frozenset[str]) -> Callable[[Any], Any]:
        def asked(size: Any) -> Any:
            frame = sys._getframe(1)
            names, code = frame.f_globals, frame.f_code
            called = _called(names, code.co_names)
            if called.keys() & asking and is_users(code.co_filename):
                # What is left open may be rounded next.
                rounding = called.keys() & _ROUNDING
                found = {called[name] for name in called.keys() & asking | rounding}
                self._askers.setdefault(id(names), (names, set()))[1].update(found)
            return ask(size)

        return asked

    @contextmanager
    def _replaced(self) -> Iterator[None]:
        """Within this context that code has functions which leave sizes open."""
        with ExitStack() as stack:
            stack.enter_context(replaced(_OF_NUMPY | _MISSING))
            for names, called in self._askers.values():
                stack.enter_context(replaced_names(names, {name: _OPEN[name] for name in called}))
            yield


def _called(names: dict[str, Any], known: Sequence[str]) -> dict[str, str]:
    """The functions with open forms that code may call, and by which of its global names:
    ``known`` are all names in it."""
    of_math = names.get("math") is math and "math" in known
    found = {}
    for name in set(known) & (_BUILTINS.keys() | _MATH.keys()):
        is_builtin = name in _BUILTINS
        if name not in names if is_builtin else names.get(name) is getattr(math, name):
            found[name] = name
        elif of_math and not is_builtin:
            found[name] = "math"
    return found


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


def _rounded(usual: Callable[..., Any]) -> Callable[..., Any]:
    """The same of a size where shapes can have it, and else of the example's size."""

    def made(given: Any, *more: Any) -> Any:
        found = usual(given, *more)
        is_open = isinstance(found, torch.SymInt) and not _is_dimension(found)
        return builtins.int(found) if is_open else found

    return made


def _floating(usual: Callable[..., Any], of_size: Callable[..., Any]) -> Callable[..., Any]:
    """What ``of_size`` gives of open sizes, and else what Python's function gives."""

    def made(*given: Any) -> Any:
        is_open = any(isinstance(number, torch.SymInt | torch.SymFloat) for number in given)
        return (of_size if is_open else usual)(*given)

    return made


def _as_tensor(number: Any) -> torch.Tensor:
    """A tensor without axes: PyTorch's programs have few functions of sizes as numbers."""
    return torch.full((), number, dtype=torch.float32)


def _logarithm(number: Any, base: Any = math.e) -> Any:
    above, below = (
        torch.log(_as_tensor(given))
        if isinstance(given, torch.SymInt | torch.SymFloat)
        else math.log(given)
        for given in (number, base)
    )
    return above / below


def _of_tensor(name: str) -> Callable[..., Any]:
    """A function of Python's, by the one of tensors that has its name."""
    return _floating(getattr(math, name), lambda number: getattr(torch, name)(_as_tensor(number)))


def _greatest_divisor(*numbers: Any) -> Any:
    """By Euclid's algorithm: how many steps it takes is a condition, and what it ends with a size
    that shapes can have."""
    found: Any = 0
    for number in numbers:
        while number != 0:
            found, number = number, found % number
    return found


def _least_multiple(*numbers: Any) -> Any:
    def common(a: Any, b: Any) -> Any:
        return a // _greatest_divisor(a, b) * b

    return reduce(common, numbers)


def _rest(above: Any, below: Any) -> Any:
    """Of whole numbers, neither of which is below 0 where it is a size, a whole number."""
    are_whole = all(isinstance(number, int | torch.SymInt) for number in (above, below))
    if are_whole and (isinstance(above, torch.SymInt) or above >= 0):
        return torch.sym_float(above % abs(below))
    return torch.fmod(*map(_as_tensor, (above, below)))


def _choices(number: Any, chosen: Any) -> Any:
    """In how many ways as many are chosen; a plain number of these."""
    chosen = builtins.int(chosen)
    return reduce(operator.mul, (number - n for n in range(chosen)), 1) // math.factorial(chosen)


#: Functions that round, of which Python has some ask for no plain number.
_ROUNDING = frozenset(("int", "round", "floor", "ceil", "trunc"))

_BUILTINS = {"float": _Float, "int": _Int, "round": _rounded(round)}

#: Functions that tensors have by the same names.
_OF_TENSORS = (
    *("sin", "cos", "tan", "sinh", "cosh", "tanh", "asinh", "acosh", "atan"),
    *("log1p", "expm1", "erf", "lgamma"),
)

#: By their names in ``math``, functions that leave sizes open.
_MATH = {
    **{name: _rounded(getattr(math, name)) for name in ("floor", "ceil", "trunc")},
    "sqrt": _floating(math.sqrt, torch.sym_sqrt),
    "log": _floating(math.log, _logarithm),
    "log2": _floating(math.log2, lambda number: _logarithm(number, 2.0)),
    "log10": _floating(math.log10, lambda number: _logarithm(number, 10.0)),
    "exp": _floating(math.exp, lambda number: math.e ** torch.sym_float(number)),
    "pow": _floating(math.pow, lambda a, b: torch.sym_float(a) ** torch.sym_float(b)),
    "hypot": _floating(math.hypot, lambda *sides: torch.sym_sqrt(sum(n * n for n in sides))),
    "isqrt": _floating(math.isqrt, lambda number: builtins.int(torch.sym_sqrt(number))),
    "gcd": _floating(math.gcd, _greatest_divisor),
    "lcm": _floating(math.lcm, _least_multiple),
    "comb": _floating(math.comb, _choices),
    "fmod": _floating(math.fmod, _rest),
    "atan2": _floating(math.atan2, lambda y, x: torch.atan2(_as_tensor(y), _as_tensor(x))),
    "degrees": _floating(math.degrees, lambda angle: torch.sym_float(angle) * (180 / math.pi)),
    "radians": _floating(math.radians, lambda angle: torch.sym_float(angle) * (math.pi / 180)),
    **{name: _of_tensor(name) for name in _OF_TENSORS},
}

#: Those that NumPy has no method for.
_OF_MATH_ALONE = frozenset(
    ("pow", "hypot", "isqrt", "erf", "lgamma", "gcd", "lcm", "comb", "fmod", "atan2")
)

_FLOATING = frozenset(_MATH.keys() - _ROUNDING)


def _method(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda number: function(number)


#: Methods that NumPy's functions (``np.sqrt(n)``) call of numbers that it does not know.
_OF_NUMPY = {
    (kind, {"atan": "arctan"}.get(name, name)): _method(_MATH[name])
    for kind in (torch.SymInt, torch.SymFloat)
    for name in _FLOATING - _OF_MATH_ALONE
}

#: Methods that sizes do not have.
_MISSING = {
    (torch.SymInt, "__divmod__"): lambda above, below: (above // below, above % below),
    (torch.SymInt, "__rdivmod__"): lambda below, above: (above // below, above % below),
}

#: By what PyTorch's sizes are asked for plain numbers, and what code calls then.
_ASKED = {
    (torch.SymInt, "__index__"): _FLOATING | {"float"},
    (torch.SymInt, "__int__"): frozenset(("int",)),
    (torch.SymFloat, "__int__"): frozenset(("int",)),
    (torch.SymFloat, "__float__"): _FLOATING,
}

#: By the global name that stands for it, what code gets.
_OPEN = {**_MATH, **_BUILTINS, "math": SimpleNamespace(**(vars(math) | _MATH))}


def _is_dimension(size: Any) -> bool:
    try:
        Symbols({}).dim(size)
    except ValueError:
        return False
    return True
