"""Attributes that have a kind and no value: lists of nothing, and a 0 that the writer left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx

_KIND = onnx.AttributeProto
_NOTHING = {
    _KIND.FLOAT: 0.0, _KIND.INT: 0, _KIND.STRING: b"", _KIND.FLOATS: (), _KIND.INTS: (),
    _KIND.STRINGS: (),
}  # fmt: skip


def bare_values(attributes: Iterable[onnx.AttributeProto]) -> dict[str, Any]:
    """What those stand for that have no value, by name."""
    return {
        attribute.name: _NOTHING[attribute.type]
        for attribute in attributes
        if attribute.type in _NOTHING
        and {field.name for field, _ in attribute.ListFields()} <= {"name", "type", "doc_string"}
    }
