"""The attributes of an operator that a C function takes: numbers that the caller chooses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from byoc.errors import ExternError
from byoc.extern.header import Parameter, Prototype
from byoc.extern.operators import Operator
from byoc.extern.roles import AttributeRole, AxisRole, Role
from byoc.extern.signature import Attribute


class Fail(Protocol):
    """Makes the error about an argument, at its entry, or about the function."""

    def __call__(self, message: str, name: str | None = None) -> ExternError: ...


def attributes_of(
    prototype: Prototype, roles: Mapping[str, Role], op: Operator | None, fail: Fail
) -> tuple[Attribute, ...]:
    """The attributes that the annotation gives a function, in the order of its arguments.

    ``op`` is the operator that it computes, None for none that is known.  Raises what ``fail``
    gives where one has a value, a name or an index that the operator or the C type does not take,
    and where one is missing.
    """
    parameters = {parameter.name: parameter for parameter in prototype.parameters}
    found: list[Attribute] = []
    for name, role in roles.items():
        if isinstance(role, AttributeRole | AxisRole):
            found.append(_attribute(name, role, parameters.get(name), op, fail))
    found.sort(key=lambda a: [*parameters, *roles].index(a.name))
    if sum(attribute.axis for attribute in found) > 1:
        raise fail("two arguments have the role axis; need one")
    by_keyword: dict[str, list[int | None]] = {}
    for attribute in found:
        by_keyword.setdefault(attribute.keyword, []).append(attribute.index)
    for keyword, indices in by_keyword.items():
        _complete(keyword, indices, op, fail)
    for known in op.attributes if op is not None else ():
        if known.neutral is None and known.name not in by_keyword:
            raise fail(f"op {op.name} has the attribute {known.name}; no argument takes it")
    return tuple(found)


def _attribute(
    name: str,
    role: AttributeRole | AxisRole,
    parameter: Parameter | None,
    op: Operator | None,
    fail: Fail,
) -> Attribute:
    axis = isinstance(role, AxisRole)
    keyword = "axis" if axis else role.name or name
    index = None if axis else role.index
    kind = parameter.scalar.kind if parameter is not None else "int"
    low = parameter.scalar.low if parameter is not None else "INT64_MIN"
    high = parameter.scalar.high if parameter is not None else "INT64_MAX"
    values = () if axis else role.values
    least, choices = None, values
    default = values[0] if values else None
    if op is not None:
        known = op.attribute(keyword)
        if known is None:
            names = ", ".join(item.name for item in op.attributes) or "no attributes"
            raise fail(f"op {op.name} has no attribute {keyword}; it has {names}", name)
        if index is not None and (known.count is None or index >= known.count):
            raise fail(f"op {op.name} has no {keyword}[{index}]", name)
        least, choices = known.least, values or known.choices
        default = known.neutral if default is None else default
    for value in values:
        if not isinstance(value, {"int": int, "float": int | float, "bool": bool}[kind]):
            raise fail(f"value {value!r} of {name}; need {kind}", name)
    return Attribute(name, keyword, index, kind, low, high, least, default, choices, axis)


def _complete(keyword: str, indices: list[int | None], op: Operator | None, fail: Fail) -> None:
    """A list has all of its entries; a number is not a list as well."""
    if None in indices:
        if any(index is not None for index in indices):
            raise fail(f"attribute {keyword} is used with an index and without")
        return
    known = op.attribute(keyword) if op is not None else None
    count = known.count if known is not None else max(indices) + 1
    missing = [f"attr.{keyword}[{i}]" for i in range(count) if i not in indices]
    if missing:
        raise fail(
            f"attribute {keyword} lacks {', '.join(missing)}; name each entry"
            " (what C does not take may have a name of its own)"
        )
