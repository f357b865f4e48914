"""The node descriptor: what one composite computes, in the words of the kernel libraries.

The pattern table in ``byoc`` fills it, predicates and planner read it, and it travels inside the
module as the composite function's ``ext.node`` attribute, so that all of them mean the same thing.

Operators and their roles, attributes and results are records (``codegen_cc.operator``), and
``docs/libraries.md`` lists them.

A dimension is an integer, or an expression of symbols (``codegen_cc.dim``).  Images are logically
NCHW with OIHW weights; which layout they have in memory is the planner's choice.  Axes are never
negative.  Of every dtype there are nodes; libraries say what they compute.

An epilogue is the ordered steps ``[bias] [activation] [residual] [activation]``, each at most once,
in this order, as far as the operator's record has them; products of matrices may have a ``factor``
in place of the residual, and those of integers may be requantised after either activation.
``STEP_OPERANDS`` have operands of their names, and ``codegen_cc.activations`` lists the others.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from codegen_cc import dtypes
from codegen_cc.dim import Dim, dim_json, parse_dim, product
from codegen_cc.operator import is_operator, operator_of

#: Steps that join the result with a tensor of its shape: a sum and a product.
JOINED = ("residual", "factor")
#: Steps with an operand of their name.
STEP_OPERANDS = ("bias", *JOINED)

#: Name of the attribute of a composite function that holds ``Node.to_json()``.
NODE_ATTRIBUTE = "ext.node"

#: Name of the attribute of a region function that holds its constants, an array of tensors, and of
#: the function that a region calls with an index (as a shape of one axis) to name one of them.
CONSTANTS_ATTRIBUTE = "ext.constants"
CONSTANT_FUNCTION = "ext.constant"

#: Name of the attribute of a region function that holds the numbers of the inputs, among those that
#: are tensors, which are states: memory of the caller that the region writes new rows into.
STATES_ATTRIBUTE = "ext.states"
#: On a region: numbers of an input and of the output that it is at the next call, pair by pair.
REPLACED_ATTRIBUTE = "ext.replaced"


@dataclass(frozen=True)
class Operand:
    """One input of a node: its role, logical shape and dtype, and whether it is a constant."""

    role: str
    shape: tuple[Dim, ...]
    dtype: str
    constant: bool = False


@dataclass(frozen=True)
class Result:
    """One result of a node: its logical shape and dtype."""

    shape: tuple[Dim, ...]
    dtype: str


@dataclass(frozen=True)
class Step:
    """One step of an epilogue: ``bias``, ``residual`` or an activation with its parameters."""

    kind: str
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True)
class Elsewhere:
    """What computes a node on another machine, by its name in a tuning database: "CPU, level"."""

    machine: str
    library: str
    algorithm: str


@dataclass(frozen=True)
class Node:
    """What one composite computes.

    ``operands`` are in the order of the composite function's parameters.  ``source`` names the
    nodes of the original model, for reports and comments only.  ``library`` is the kernel library
    that was chosen for it, empty before that; ``algorithm`` the way in which that is to compute it,
    empty for the library's own choice; ``chosen`` tells people why, empty for no special reason.
    ``exact`` asks for an algorithm through which NaN, infinities and huge numbers reach the same
    elements as through the formula.
    ``dtype`` and those of the operands say what is stored; ``compute`` names the dtype that is
    multiplied in, empty for the stored one (see ``codegen_cc.dtypes``), and ``kept`` tells people
    why it is the stored one where they asked for another.  Inside of a region values may be stored
    as ``storage``, if it is not empty and all who touch them agree (``plan/narrow_storage.py``).
    ``shape`` and ``dtype`` are those of the first result, ``further`` the results after it.
    Where times of several machines decide, ``library`` and ``algorithm`` are those of the first,
    and ``elsewhere`` those of the others, all of them.
    """

    op: str
    operands: tuple[Operand, ...]
    shape: tuple[Dim, ...]
    dtype: str
    attrs: dict[str, Any] = field(default_factory=dict)
    epilogue: tuple[Step, ...] = ()
    source: tuple[str, ...] = ()
    library: str = ""
    algorithm: str = ""
    chosen: str = ""
    exact: bool = False
    compute: str = ""
    storage: str = ""
    kept: str = ""
    further: tuple[Result, ...] = ()
    elsewhere: tuple[Elsewhere, ...] = ()

    @property
    def results(self) -> tuple[Result, ...]:
        """All results, in order."""
        return (Result(self.shape, self.dtype), *self.further)

    @property
    def named_results(self) -> dict[str, Result]:
        """The results by the names that the operator's record has for them, as far as there are."""
        return dict(zip(operator_of(self.op).results, self.results, strict=False))

    @property
    def composite(self) -> str:
        """The composite's name, such as ``ext.conv2d_bias_relu``; for people, never parsed."""
        parts = operator_of(self.op).named_by if is_operator(self.op) else ("op",)
        names = [self.op if part == "op" else str(self.attrs.get(part)) for part in parts]
        return "ext." + "_".join([*names, *(step.kind for step in self.epilogue)])

    def operand(self, role: str) -> Operand | None:
        """The operand of that role, or None."""
        return next((operand for operand in self.operands if operand.role == role), None)

    @property
    def macs(self) -> Dim:
        """Multiply-accumulates of the contraction; 0 for everything else."""
        return operator_of(self.op).macs(self)

    @property
    def multiplied_in(self) -> str:
        """The dtype that a contraction multiplies in; empty for everything else."""
        return (self.compute or self.operands[0].dtype) if self.macs != 0 else ""

    @property
    def bytes_moved(self) -> Dim:
        """Bytes read and written if every operand and result passes through memory once."""
        return sum(_bytes(part.shape, part.dtype) for part in (*self.results, *self.operands))

    def to_json(self) -> str:
        """One line of JSON; ``Node.from_json`` gives an equal node back."""
        return json.dumps(self, sort_keys=True, default=_plain)

    @classmethod
    def from_json(cls, text: str) -> Node:
        """Read what ``to_json`` wrote. Raises ``KeyError`` or ``JSONDecodeError`` on other text."""
        raw = json.loads(text)
        return cls(
            op=raw["op"],
            operands=tuple(
                Operand(o["role"], _dims(o["shape"]), o["dtype"], o["constant"])
                for o in raw["operands"]
            ),
            shape=_dims(raw["shape"]),
            dtype=raw["dtype"],
            attrs=raw["attrs"],
            epilogue=tuple(Step(**step) for step in raw["epilogue"]),
            source=tuple(raw["source"]),
            library=raw.get("library", ""),
            algorithm=raw.get("algorithm", ""),
            chosen=raw.get("chosen", ""),
            exact=raw.get("exact", False),
            compute=raw.get("compute", ""),
            storage=raw.get("storage", ""),
            kept=raw.get("kept", ""),
            further=tuple(Result(_dims(r["shape"]), r["dtype"]) for r in raw.get("further", ())),
            elsewhere=tuple(Elsewhere(**other) for other in raw.get("elsewhere", ())),
        )


def _plain(value: object) -> object:
    """A part of a node as JSON has it. ``asdict`` copies expressions, which takes SymPy seconds."""
    if is_dataclass(value):
        return {part.name: getattr(value, part.name) for part in fields(value)}
    return dim_json(value)


def _bytes(shape: tuple[Dim, ...], dtype: str) -> Dim:
    """Bytes of a tensor; constants of fewer than 8 bits share bytes, as kernels store them."""
    elements, kind = product(shape), dtypes.of(dtype)
    if kind.bits < 8 and isinstance(elements, int):
        return -(-elements * kind.bits // 8)
    return elements * kind.bytes


def _dims(values: list[int | str]) -> tuple[Dim, ...]:
    return tuple(parse_dim(value) for value in values)
