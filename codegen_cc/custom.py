"""Operators that neither ONNX nor PyTorch has: what models call them, and what they give.

    Custom(("com.acme::Histogram", "acme::histogram"), results=..., attributes={"bins": int})

stands in the record of an operator (``Operator.custom``).  Front ends ask for the name that they
find (``operator.custom_operator``), and read a node's attributes by ``read_attributes``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from operator import index
from typing import Any, get_args, get_origin

import sympy

from codegen_cc.dim import Dim, normal
from codegen_cc.dtypes import DTYPES
from codegen_cc.errors import LibraryError, one_line

#: A domain, or a namespace, and a name.
_FULL_NAME = re.compile(r"[A-Za-z_][\w.-]*::[A-Za-z_]\w*", re.ASCII)

#: What attributes may be: numbers, texts, lists of them.
_KINDS = (int, float, str, list[int], list[float], list[str])

#: Domains of ONNX's and namespaces of PyTorch's own, of which nobody brings others.
_TAKEN = re.compile(r"(ai\.onnx(\..*)?|aten|prim|prims)::")


@dataclass(frozen=True)
class Custom:
    """What models call an operator, and what it gives.

    ``names`` are ``domain::Name`` of nodes of ONNX files, ``namespace::name`` of operators of
    PyTorch.  Tensors of a node are the operator's roles in their order; those that may be left out
    are ``Operator.optional``.

    ``attributes`` has for each attribute its type (``int``, ``float``, ``str``, or ``list`` of one)
    where a node must have it, or the value that it has where a node says nothing.

    ``results(operands, attributes)`` gives shape and dtype of each result, in order: operands by
    role, with ``shape`` and ``dtype``.  Extents are integers, or expressions of symbols, with which
    ``+ - * //`` do what they do with integers.  It raises ``ValueError`` for what cannot be.

    ``reference(*arrays, **attributes)`` computes the same in NumPy, for who compares: an array, or
    a tuple of the results.  What was left out is None.
    """

    names: Sequence[str]
    results: Callable[[Mapping[str, Any], Mapping[str, Any]], Iterable[tuple[Sequence[Dim], str]]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    reference: Callable[..., Any] | None = None

    def check(self, who: str) -> None:
        """Raise ``LibraryError``, which begins with ``who``, for what no operator is called or
        has."""
        if isinstance(self.names, str) or not self.names:
            raise LibraryError(f"{who}: names of custom is {self.names!r}; need a list of names")
        for name in self.names:
            if not isinstance(name, str) or not _FULL_NAME.fullmatch(name):
                raise LibraryError(f"{who}: {name!r} is no name; need domain::Name")
            if _TAKEN.match(name):
                raise LibraryError(f"{who}: {name!r} is not yours; need a domain of your own")
        if not callable(self.results):
            raise LibraryError(
                f"{who}: results of custom is {self.results!r}; need a function of operands and"
                " attributes"
            )
        if self.reference is not None and not callable(self.reference):
            raise LibraryError(
                f"{who}: reference of custom is {self.reference!r}; need a function of arrays"
            )
        for name, given in self.attributes.items():
            if kind_of(given) not in _KINDS:
                raise LibraryError(
                    f"{who}: attribute {name!r} is {given!r}; need a type or a value: "
                    + ", ".join(map(_kind_text, _KINDS))
                )

    def is_required(self, name: str) -> bool:
        """Whether every node must have an attribute."""
        return _is_kind(self.attributes[name])

    def read_attributes(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """A node's attributes with the defaults. Raises ``ValueError`` for wrong ones."""
        for name in given:
            if name not in self.attributes:
                known = ", ".join(self.attributes) or "none"
                raise ValueError(f"attribute {name!r} is unknown; its record has {known}")
        read = {}
        for name, expected in self.attributes.items():
            if name not in given and self.is_required(name):
                raise ValueError(f"attribute {name!r} is missing")
            read[name] = _read(name, given.get(name, expected), kind_of(expected))
        return read

    def typed_results(
        self, operands: Mapping[str, Any], attributes: Mapping[str, Any], count: int
    ) -> list[tuple[tuple[Dim, ...], str]]:
        """What ``results`` says of ``count`` results. Raises ``ValueError``."""
        try:
            said = list(self.results(operands, attributes))
            made = [(tuple(map(_extent, shape)), str(dtype)) for shape, dtype in said]
        except ValueError:
            raise
        except Exception as error:  # whatever a user's function runs into
            raise ValueError(f"results of its record failed: {one_line(error)}") from error
        if len(made) != count:
            raise ValueError(f"results of its record gave {len(made)}; need {count}")
        for shape, dtype in made:
            if dtype not in DTYPES:
                raise ValueError(f"results of its record gave the dtype {dtype!r}")
            if any(isinstance(extent, int) and extent < 0 for extent in shape):
                raise ValueError(f"results of its record gave the shape {list(shape)}")
        return made


def _extent(value: Any) -> Dim:
    """An extent as shapes have it. Raises ``TypeError`` for what is none."""
    return normal(value) if isinstance(value, sympy.Expr) else index(value)


def kind_of(given: Any) -> Any:
    """The type of an attribute, of itself or of a value; None for what no attribute is."""
    if _is_kind(given):
        return given
    if isinstance(given, bool | int):
        return int
    if isinstance(given, float | str):
        return type(given)
    if isinstance(given, list | tuple) and given:
        kinds = {kind_of(item) for item in given}
        return list[kinds.pop()] if len(kinds) == 1 and kinds <= {int, float, str} else None
    return None


def _is_kind(given: Any) -> bool:
    return given in (int, float, str) or get_origin(given) is list


def _kind_text(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)


def _read(name: str, value: Any, kind: Any) -> Any:
    """A value as one of the type. Raises ``ValueError``."""
    if get_origin(kind) is list and isinstance(value, list | tuple):
        return [_read(name, item, get_args(kind)[0]) for item in value]
    if kind is str and isinstance(value, bytes):
        return value.decode()
    # ONNX's evaluator gives a float as NumPy's.
    if kind is int and isinstance(value, Integral):
        return int(value)
    if kind is float and isinstance(value, Real):
        return float(value)
    if kind is str and isinstance(value, str):
        return value
    raise ValueError(f"attribute {name!r} is {value!r}; need {_kind_text(kind)}")
