"""Memory that a network's results are written into: the caller's, or new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from byoc.deploy.exchange import numpy_dtype
from byoc.deploy.metadata import TensorInfo, extent_of
from byoc.deploy.result_memory import ResultMemory, wanted
from byoc.errors import InputError, RunError


def rooms_for(
    infos: Sequence[TensorInfo],
    given: Mapping[str, np.ndarray],
    symbols: Mapping[str, int],
    memory: ResultMemory,
) -> list[np.ndarray] | None:
    """An array for each result, one that is given by name or one of ``memory`` that is not filled.

    None where a symbol of their shapes is not known, or a symbolic shape has no elements. Raises
    ``InputError`` for a given array of another shape, ``RunError`` where memory is short.
    """
    shapes = []
    for info in infos:
        if info.is_fixed:
            shapes.append(info.shape)
            continue
        if info.symbols - symbols.keys():
            return None
        shape = tuple(e if isinstance(e, int) else extent_of(e).within(symbols) for e in info.shape)
        if 0 in shape:
            return None
        shapes.append(shape)
    for info, shape in zip(infos, shapes, strict=True):
        if info.name in given:
            require_shape(info.name, given[info.name], shape)
    results = [
        wanted(shape, numpy_dtype(info.dtype))
        for info, shape in zip(infos, shapes, strict=True)
        if info.name not in given
    ]
    try:
        made = iter(memory.rooms(results))
    except (MemoryError, ValueError) as error:
        names = ", ".join(str(info) for info in infos if info.name not in given)
        raise RunError(f"no memory for output {names}: {error}") from error
    return [given[info.name] if info.name in given else next(made) for info in infos]


def require_shape(name: str, room: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raise ``InputError`` where the room for an output has not the shape of the result."""
    if room.shape != shape:
        raise InputError(
            f"room for output {name!r} is {room.dtype}{list(room.shape)}; "
            f"need {list(shape)} with these inputs"
        )
