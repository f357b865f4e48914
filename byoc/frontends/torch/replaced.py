"""Functions of PyTorch, of its classes and of users' code, that are others for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

#: What stands for a name that a place does not have itself: a class may inherit it.
_NONE = object()


@contextmanager
def replaced(others: Mapping[tuple[Any, str], Any]) -> Iterator[None]:
    """Modules, classes and objects have these attributes within this context, and afterwards their
    own."""
    usual = {key: vars(key[0]).get(key[1], _NONE) for key in others}
    for (place, name), other in others.items():
        setattr(place, name, other)
    try:
        yield
    finally:
        for (place, name), own in usual.items():
            if own is _NONE:
                delattr(place, name)
            else:
                setattr(place, name, own)


@contextmanager
def replaced_names(names: dict[str, Any], others: Mapping[str, Any]) -> Iterator[None]:
    """The same of the global names of code."""
    usual = {name: names.get(name, _NONE) for name in others}
    names.update(others)
    try:
        yield
    finally:
        for name, own in usual.items():
            if own is _NONE:
                names.pop(name, None)
            else:
                names[name] = own
