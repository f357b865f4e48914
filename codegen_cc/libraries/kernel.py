"""One row of a declarative kernel library (see ``codegen_cc.libraries.table``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from codegen_cc.dim import Dim
from codegen_cc.dtypes import DTYPES
from codegen_cc.errors import LibraryError
from codegen_cc.node import Node

#: An argument: a name (see ``docs/my_library.md``), or a literal.
Argument = str | int | float
#: What a role is where a row does not say.  This is the one default of a dtype: users have written
#: rows that rely on it, and it does no harm, as a node of another dtype is refused with a reason.
DEFAULT_DTYPE = "float32"


@dataclass(frozen=True)
class Kernel:
    """One C function, the operator that it computes, and what it takes.

    ``op``: an operator of ``codegen_cc.node``.
    ``function``: the C function.
    ``arguments``: in the function's order, names or literals.
    ``epilogue``: the steps that it can take after the operator, each optional, in this order;
    ``activation`` stands for any.
    ``attributes``: values that a node must have, and which the kernel therefore knows; ``...`` for
    one that ``supports`` looks at.
    ``supports``: a further rule, None or a reason.
    ``dtypes``: by role or name of a result, ``DEFAULT_DTYPE`` where not given.
    ``layouts``: by the same, such as ``NHWC``; row-major where not given; ``any`` (elementwise
    operators) for dense memory in any order.
    ``pack``: by role, turns a constant into what is stored, when compiling.
    ``prepare``: a C function that is called once, before the first call, with
    ``prepare_arguments``, and returns a status.
    ``state``: C type of a zeroed object of each call site.
    ``scratch``: bytes of memory for the call.
    ``returns``: ``status`` (an int, 0 is success) or ``void``.
    ``cost``: seconds on one core.
    ``algorithm``: a name for reports.
    """

    op: str
    function: str
    arguments: tuple[Argument, ...]
    epilogue: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    supports: Callable[[Node], str | None] | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict)
    layouts: Mapping[str, str] = field(default_factory=dict)
    pack: Mapping[str, Callable[[np.ndarray, Node], np.ndarray]] = field(default_factory=dict)
    prepare: str | None = None
    prepare_arguments: tuple[Argument, ...] = ("state",)
    state: str | None = None
    scratch: int | Callable[[Node], Dim] = 0
    returns: str = "status"
    cost: Callable[[Node], float | None] | None = None
    algorithm: str = ""

    def __post_init__(self) -> None:
        """Raise ``LibraryError`` for a field of another kind than it has to be."""
        for name in ("arguments", "epilogue", "prepare_arguments"):
            given = getattr(self, name)
            self._require(name, not isinstance(given, str) and isinstance(given, Iterable), "tuple")
        for name in ("attributes", "dtypes", "layouts", "pack"):
            self._require(name, isinstance(getattr(self, name), Mapping), "dictionary")
        for name in ("supports", "cost"):
            given = getattr(self, name)
            self._require(name, given is None or callable(given), "function of a node, or None")
        self._require("pack", all(map(callable, self.pack.values())), "function for each role")
        self._require("layouts", all(_texts(self.layouts)), "text for each role, such as NHWC")
        known = all(_texts(self.dtypes)) and set(self.dtypes.values()) <= set(DTYPES)
        self._require("dtypes", known, f"name for each role, one of {', '.join(DTYPES)}")
        whole = isinstance(self.scratch, int) and self.scratch >= 0
        self._require("scratch", whole or callable(self.scratch), "number of bytes, or function")
        self._require("algorithm", isinstance(self.algorithm, str), "text")

    def _require(self, name: str, holds: bool, need: str) -> None:
        if not holds:
            given = getattr(self, name)
            raise LibraryError(f"kernel for {self.op}: {name} is {given!r}; need a {need}")

    def dtype_of(self, role: str) -> str:
        """The dtype that an operand, or a result, must have."""
        return self.dtypes.get(role, DEFAULT_DTYPE)


def _texts(named: Mapping[str, object]) -> Iterable[bool]:
    return (isinstance(value, str) for value in named.values())
