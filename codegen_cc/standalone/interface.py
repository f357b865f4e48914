"""What a model's C functions take and give."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from codegen_cc import dtypes
from codegen_cc.emit.entry import c_identifier

#: What the functions of every model do, and those of one that keeps states besides.
_FUNCTIONS = ("inputs", "outputs", "create", "run", "error", "status_text", "destroy")
_OF_STATES = ("states", "reset", "clone", "save", "restore")


@dataclass(frozen=True)
class TensorSpec:
    """An input, an output or a state: its name in the model, dtype and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

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
        return f"{c_identifier(self.name)}: {self.dtype} {list(self.shape)}"


@dataclass(frozen=True)
class Interface:
    """A model's C interface, and how its one region is called for it.

    ``name`` begins the names of all functions.  ``region_inputs[i]`` is the number of the model's
    input that is the region's input ``i``; ``region_outputs[j]`` the number of the region's output
    that is the model's output ``j``.  ``states`` count as inputs behind the others, and what they
    become as outputs behind the others.  ``threads`` is the number that an instance has by default,
    0 for all cores.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    region_inputs: tuple[int, ...]
    region_outputs: tuple[int, ...]
    threads: int = 0
    states: tuple[TensorSpec, ...] = ()

    def function(self, what: str) -> str:
        """The C name of a function, or of another global thing of this model."""
        return f"{self.name}_{what}"

    @property
    def functions(self) -> tuple[str, ...]:
        """The names that the libraries export."""
        return function_names(self.name, bool(self.states))


def function_names(name: str, keeps_states: bool) -> tuple[str, ...]:
    """The names of the C functions of a model of this name."""
    return tuple(f"{name}_{what}" for what in _FUNCTIONS + (_OF_STATES if keeps_states else ()))
