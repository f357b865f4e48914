"""Values of dataclasses from JSON that may hold anything: each field is checked by its type."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints


def read_as(kind: Any, value: Any, where: str) -> Any:
    """``value`` as ``kind``: a dataclass, a union, ``tuple[X, ...]``, ``Mapping[str, X]`` or plain.

    ``where`` says what is read, for messages.  Raises ``ValueError`` with the place, what was found
    and what is needed.
    """
    origin = get_origin(kind)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, value, where)
    if origin in (Union, types.UnionType):
        for option in get_args(kind):
            if option is type(None) and value is None:
                return None
            if option is not type(None) and _is_like(option, value):
                return read_as(option, value, where)
    elif origin is tuple and isinstance(value, list):
        item = get_args(kind)[0]
        return tuple(read_as(item, part, f"{where}[{i}]") for i, part in enumerate(value))
    elif origin is Mapping and isinstance(value, dict):
        item = get_args(kind)[1]
        return {key: read_as(item, part, f"{where}.{key}") for key, part in value.items()}
    elif origin is None and type(value) is kind:
        return value
    raise ValueError(f"{where} is {_found(value)}; need {getattr(kind, '__name__', kind)}")


_types_of = cache(get_type_hints)


def _read_fields(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is {_found(value)}; need {kind.__name__}")
    hints = _types_of(kind)
    if lacking := [name for name in hints if name not in value]:
        raise ValueError(f"{where} has no {lacking[0]}")
    if strange := [name for name in value if name not in hints]:
        raise ValueError(f"{where} has {_found(strange[0])}, which nothing reads")
    return kind(
        **{name: read_as(hint, value[name], f"{where}.{name}") for name, hint in hints.items()}
    )


def _is_like(kind: Any, value: Any) -> bool:
    """Whether a value of JSON is of the sort that a type is written as."""
    if dataclasses.is_dataclass(kind) or get_origin(kind) is Mapping:
        return isinstance(value, dict)
    return isinstance(value, list) if get_origin(kind) is tuple else type(value) is kind


def _found(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"of type {type(value).__name__}"
