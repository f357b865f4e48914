"""Forms of ONNX operators whose compiled result is known to be wrong.

They stand in ``wrong_forms.json``, one object each. All conditions that an entry states must hold:

    operator    the operator, of ONNX's domain; "*" is every one
    opsets      [first, last] opset of the model; last may be null
    attributes  {name: [values]}: the attribute, default included, has one of the values
    dtypes      {place: [dtypes]}: the input of that place has one of the dtypes
    any_dtype   [dtypes]: some input or result has one of these
    ranks       {place: [ranks]}: likewise its rank
    inputs      {place: "given" | "absent" | "constant" | "computed"}
    outputs     the node has at least so many outputs
    reason      what goes wrong, and where, in a few words
    evidence    of ONNX's backend tests, how many it refuses, and what becomes of these without it:
                wrong, or failed in TVM; the others are right. `make conformance` writes it
    shown_by    the test of this repository that shows it wrong, where none of ONNX's does
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class Operand:
    """What is known of an input of a node; ``dtype`` None stands for an input left out."""

    dtype: str | None
    rank: int | None = None
    constant: bool = False

    def is_a(self, kind: str) -> bool:
        """Whether it is given, absent, constant or computed."""
        given = self.dtype is not None
        return {
            "given": given,
            "absent": not given,
            "constant": given and self.constant,
            "computed": given and not self.constant,
        }[kind]


@dataclass(frozen=True)
class Form:
    """One node: what the entries of the table are compared with.

    ``attributes`` has the schema's default values as well.
    """

    operator: str
    opset: int
    attributes: Mapping[str, Any]
    operands: Sequence[Operand]
    outputs: int
    results: Sequence[str] = ()  # dtypes, as far as ONNX infers them

    @property
    def dtypes(self) -> list[str | None]:
        """Dtypes of all inputs and results."""
        return [*(operand.dtype for operand in self.operands), *self.results]

    def operand(self, place: int) -> Operand:
        """The input of a place, which may be left out."""
        return self.operands[place] if place < len(self.operands) else Operand(None)


@dataclass(frozen=True)
class WrongForm:
    """An entry of the table; see the module."""

    operator: str
    reason: str
    opsets: tuple[int, int | None] = (1, None)
    attributes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    dtypes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    any_dtype: Sequence[str] = ()
    ranks: Mapping[str, Sequence[int]] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: int = 0
    evidence: Mapping[str, int] = field(default_factory=dict)
    shown_by: str = ""

    def matches(self, form: Form) -> bool:
        """Whether every condition holds for a node."""
        first, last = self.opsets
        return (
            self.operator in ("*", form.operator)
            and first <= form.opset
            and (last is None or form.opset <= last)
            and form.outputs >= self.outputs
            and all(_plain(form.attributes.get(n)) in v for n, v in self.attributes.items())
            and all(form.operand(int(p)).dtype in v for p, v in self.dtypes.items())
            and (not self.any_dtype or any(d in self.any_dtype for d in form.dtypes))
            and all(form.operand(int(p)).rank in v for p, v in self.ranks.items())
            and all(form.operand(int(p)).is_a(kind) for p, kind in self.inputs.items())
        )


def _plain(value: Any) -> Any:
    """An attribute's value as JSON has it."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return list(value) if isinstance(value, tuple) else value


@cache
def wrong_forms() -> Mapping[str, Sequence[WrongForm]]:
    """The table, by operator."""
    found: dict[str, list[WrongForm]] = {}
    for entry in json.loads(FILE.read_text()):
        form = WrongForm(**{**entry, "opsets": tuple(entry.get("opsets", (1, None)))})
        found.setdefault(form.operator, []).append(form)
    return found
