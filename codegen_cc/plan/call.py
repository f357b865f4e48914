"""Kernel calls: what a plan is made of, and all that the C emitter writes."""

from __future__ import annotations

import re
from dataclasses import dataclass

import sympy

from codegen_cc.dim import Dim
from codegen_cc.node import Node
from codegen_cc.plan.tensors import Tensor

#: Longest list of names in a comment.
MAX_NAMES = 60


@dataclass(frozen=True)
class Struct:
    """A C parameter block, written as a compound literal with the fields in this order."""

    ctype: str
    fields: dict[str, object]


@dataclass(frozen=True)
class Element:
    """The one element of a tensor, passed by value."""

    tensor: Tensor


#: An argument of a call: a pointer (Tensor), what it points at, a parameter block, a number, a C
#: name or NULL.
Argument = Tensor | Element | Struct | int | float | str | None


@dataclass(frozen=True)
class Loop:
    """What neighbouring calls are repeated for: every value of ``place``, 0 <= place < count."""

    place: sympy.Symbol
    count: Dim


@dataclass
class Call:
    """One kernel call.

    ``comment`` tells people what it computes; ``writes`` are its results; ``library`` recorded it;
    ``checked`` says whether the function returns a status; ``node`` is what it was recorded for.
    ``over`` are the operands that the first result may overwrite. ``loop`` is the one that it is
    in, which its arguments may count by.
    """

    function: str
    arguments: list[Argument]
    writes: tuple[Tensor, ...]
    comment: str
    library: str = ""
    composite: str = ""
    checked: bool = True
    node: Node | None = None
    over: tuple[Tensor, ...] = ()
    loop: Loop | None = None

    def reads(self) -> list[Tensor]:
        """Every tensor among the arguments, the written ones included."""
        found: list[Tensor] = []
        stack: list[object] = list(self.arguments)
        while stack:
            item = stack.pop()
            if isinstance(item, Element):
                item = item.tensor
            if isinstance(item, Tensor):
                found.append(item)
            elif isinstance(item, Struct):
                stack.extend(item.fields.values())
        return found


def source_comment(names: tuple[str, ...]) -> str:
    """``; from conv1, relu1``: the model's nodes, for the end of a comment; empty without names.

    Names are arbitrary texts, so every character is replaced that could end a comment, start
    another, or continue a line.
    """
    text = ", ".join(re.sub(r"[^\w./:+-]", "_", name, flags=re.ASCII) for name in names)
    if len(text) > MAX_NAMES:
        text = text[: MAX_NAMES - 3] + "..."
    return f"; from {text}" if text else ""
