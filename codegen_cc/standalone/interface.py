"""What a model's C functions take and give."""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from codegen_cc import dtypes
from codegen_cc.dim import Dim, is_static, product, symbols
from codegen_cc.emit.entry import c_identifier

#: What the functions of every model do, and those of one that keeps states besides, of one that has
#: axes of sizes that are chosen at run time, of one that has both, and of one whose states grow.
_FUNCTIONS = ("inputs", "outputs", "create", "run", "error", "status_text", "destroy")
_OF_STATES = ("states", "reset", "clone", "save", "restore")
_OF_AXES = ("axes", "resize", "inputs_of", "outputs_of")
_OF_BOTH = ("states_of",)
_OF_ROWS = ("rows",)
#: No axis may be longer.
MOST = 2**31 - 1


@dataclass(frozen=True)
class TensorSpec:
    """An input, an output or a state: its name in the model, dtype and shape."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]

    @property
    def is_fixed(self) -> bool:
        """Whether its size is known."""
        return is_static(self.shape)

    @property
    def elements(self) -> int:
        """Number of elements; 0 where it is not known."""
        return int(product(self.shape)) if self.is_fixed else 0

    @property
    def alignment(self) -> int:
        """Bytes that a buffer's address must be a multiple of: the size of an element."""
        return dtypes.of(self.dtype).bytes

    @property
    def nbytes(self) -> int:
        """Size of a buffer."""
        return self.elements * self.alignment

    def __str__(self) -> str:
        """For comments in C, hence without the name's odd characters."""
        return f"{c_identifier(self.name)}: {self.dtype} [{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Axis:
    """A symbol of shapes whose value is chosen at run time, from ``least`` to ``most``."""

    symbol: sympy.Symbol
    least: int = 0
    most: int = MOST


@dataclass(frozen=True)
class Rows:
    """How states grow: ``axis`` is how many rows they have, to which a run adds ``step``.

    ``states`` are the numbers of those that grow; their first axis is ``axis``.
    """

    axis: Axis
    step: Dim
    states: frozenset[int]


@dataclass(frozen=True)
class Interface:
    """A model's C interface, and how its one region is called for it.

    ``name`` begins the names of all functions.  ``region_inputs[i]`` is the number of the model's
    input that is the region's input ``i``; ``region_outputs[j]`` the number of the region's output
    that is the model's output ``j``.  ``states`` count as inputs behind the others, and what those
    become that do not grow as outputs behind the others.  ``threads`` is the number that an
    instance has by default, 0 for all cores.  ``axes`` are all symbols of shapes but the rows of
    states.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    region_inputs: tuple[int, ...]
    region_outputs: tuple[int, ...]
    threads: int = 0
    states: tuple[TensorSpec, ...] = ()
    axes: tuple[Axis, ...] = ()
    rows: Rows | None = None

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """Inputs, outputs and states."""
        return (*self.inputs, *self.outputs, *self.states)

    @property
    def is_fixed(self) -> bool:
        """Whether no size is chosen at run time."""
        return not self.axes and self.rows is None

    @property
    def growing(self) -> frozenset[int]:
        """The numbers of the states that grow."""
        return frozenset() if self.rows is None else self.rows.states

    @property
    def sizes(self) -> tuple[sympy.Symbol, ...]:
        """The symbols of shapes, in the order in which a run knows their values."""
        rows = () if self.rows is None else (self.rows.axis.symbol,)
        return (*(axis.symbol for axis in self.axes), *rows)

    @property
    def unknown(self) -> list[sympy.Symbol]:
        """The symbols of shapes that nobody tells."""
        dims = [dim for spec in self.tensors for dim in spec.shape]
        return [found for found in symbols(dims) if found not in self.sizes]

    def function(self, what: str) -> str:
        """The C name of a function, or of another global thing of this model."""
        return f"{self.name}_{what}"

    @property
    def functions(self) -> tuple[str, ...]:
        """The names that the libraries export."""
        found = _FUNCTIONS
        found += _OF_STATES if self.states else ()
        found += () if self.is_fixed else _OF_AXES
        found += _OF_BOTH if self.states and not self.is_fixed else ()
        found += () if self.rows is None else _OF_ROWS
        return tuple(map(self.function, found))


def function_names(name: str) -> tuple[str, ...]:
    """The names that C functions of a model of this name can have."""
    every = _FUNCTIONS + _OF_STATES + _OF_AXES + _OF_BOTH + _OF_ROWS
    return tuple(f"{name}_{what}" for what in every)
