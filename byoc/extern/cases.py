"""Shapes and attributes for the generated tests: small, drawn at random, the same every time."""

from __future__ import annotations

import random
from dataclasses import dataclass

from byoc.extern.signature import Attribute, Signature, Values, plain

_TRIES = 4000
#: Cases of one function.
_MOST = 4
#: Values of attributes that neither the operator nor the annotation gives any for.
_VALUES = {"int": (1, 2), "float": (0.5, -1.25), "bool": (False, True)}


@dataclass(frozen=True)
class Case:
    """Shapes by tensor, attributes by keyword."""

    shapes: dict[str, list[int]]
    attributes: dict[str, int | float | bool | list[int | float | bool]]


def draw_cases(signature: Signature) -> list[Case]:
    """Some different cases in which every tensor has an element; at least one.

    Raises ``ValueError`` where none is found.
    """
    source = random.Random(0)
    found: list[Case] = []
    for _ in range(_TRIES):
        case = _draw(signature, source)
        if case is not None and case not in found:
            found.append(case)
            if len(found) == _MOST:
                break
    if not found:
        raise ValueError(
            "no small sizes fit all shapes of the annotation; check its expressions, or give"
            " attributes values, as in attr(1,2)"
        )
    return found


def _draw(signature: Signature, source: random.Random) -> Case | None:
    # Mostly different sizes, so that swapped axes show.
    sizes = random.Random(source.random()).sample(range(1, 10), 9)
    values: Values = {}
    for index, binding in enumerate(signature.bindings):
        size = sizes[index % len(sizes)]
        run = [source.randint(1, 4) for _ in range(source.randint(0, 2))]
        values[binding.name] = run if binding.run else size
    for attribute in signature.attributes:
        values[attribute.name] = _attribute(signature, attribute, values, source)
    try:
        values = signature.evaluate(values)
        shapes = {t.name: signature.shape(t, values) for t in signature.tensors}
    except ZeroDivisionError:
        return None
    # An extent that is read from one place must be the same in every other one.
    for tensor in signature.inputs:
        for axis in tensor.shape:
            if not axis.run and axis.expression.evaluate(plain(values)) < 1:
                return None
    if any(extent < 1 for shape in shapes.values() for extent in shape):
        return None
    attributes = {
        keyword: values[entries[0].name]
        if entries[0].index is None
        else [values[entry.name] for entry in entries]
        for keyword, entries in signature.keywords().items()
    }
    case = Case(shapes, attributes)  # type: ignore[arg-type]
    return case if _makes_sense(signature, case) else None


def _attribute(
    signature: Signature, attribute: Attribute, values: Values, source: random.Random
) -> int | float | bool:
    if attribute.axis:
        split = next(tensor for tensor in signature.inputs if len(tensor.runs) == 2)
        return len(values[split.runs[0]])  # type: ignore[arg-type]
    return source.choice(attribute.values or _VALUES[attribute.kind])


def _makes_sense(signature: Signature, case: Case) -> bool:
    """What the operator demands beyond the shapes: groups divide the channels."""
    if signature.op is None or signature.op.name != "conv2d":
        return True
    by_role = {}
    for tensor in signature.tensors:
        letters = zip(tensor.layout or "", case.shapes[tensor.name], strict=True)
        by_role[tensor.role] = dict(letters)
    groups = case.attributes.get("groups", 1)
    weight = by_role["weight"]
    return weight["I"] * groups == by_role["input"]["C"] and weight["O"] % groups == 0
