"""Kernel calls: what a plan is made of, and all that the C emitter writes."""

from __future__ import annotations

from dataclasses import dataclass

from codegen_cc.tensor import Tensor


@dataclass(frozen=True)
class Struct:
    """A C parameter block, written as a compound literal with the fields in this order."""

    ctype: str
    fields: dict[str, object]


#: An argument of a call: a pointer (Tensor), a parameter block, a number, a C name or NULL.
Argument = Tensor | Struct | int | float | str | None


@dataclass
class Call:
    """One kernel call.  ``comment`` tells people what it computes; ``writes`` is its result."""

    function: str
    arguments: list[Argument]
    writes: Tensor
    comment: str

    def reads(self) -> list[Tensor]:
        """Every tensor among the arguments, the written one included."""
        found: list[Tensor] = []
        stack: list[object] = list(self.arguments)
        while stack:
            item = stack.pop()
            if isinstance(item, Tensor):
                found.append(item)
            elif isinstance(item, Struct):
                stack.extend(item.fields.values())
        return found
