"""Calls of a library that writes tensors which it is given, as a decoder does with a static cache.

They are states of the library's which lie with the caller: rows of a cache are stored where it
lies, and what the library computes anew is copied there.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import torch

from byoc.deploy.exchange import address_of, meets, numpy_dtype
from byoc.deploy.loader import Model
from byoc.errors import InputError
from byoc.torch_compile.capture import Captured
from byoc.torch_compile.written import bounds


class Writing:
    """A library whose states are the tensors that a graph writes."""

    def __init__(self, captured: Captured, library: Model) -> None:
        self._library = library
        self._names = [info.name for info in library.inputs]
        self._states = [state.input.name for state in library.metadata.states]
        self._written = [captured.given.index(place) for place in captured.written]
        self._frozen = [bounds(captured.inputs[place]) for place in captured.frozen]
        self._apart: list[tuple[int, int]] = []  # where written tensors lay that shared no memory
        self._lock = threading.Lock()  # a model has one set of states

    def run(self, tensors: Sequence[torch.Tensor]) -> dict[str, np.ndarray]:
        """The library's outputs; ``tensors`` are all that the graph is given, and are written.

        Raises ``InputError`` where one that is written shares memory with another.
        """
        written = [tensors[number] for number in self._written]
        others = [t for number, t in enumerate(tensors) if number not in self._written]
        self._require_apart(written, others)
        states = dict(zip(self._states, written, strict=True))
        inputs = dict(zip(self._names, others, strict=True))
        with self._lock, torch.no_grad():
            results, became = self._library.run_on(states, inputs)
            for name, tensor in states.items():
                if address_of(became[name]) == tensor.data_ptr():
                    torch.autograd.graph.increment_version(tensor)  # for whoever counts writes
                else:
                    tensor.copy_(tensor_of(became[name]))
        return results

    def _require_apart(
        self, written: Sequence[torch.Tensor], others: Sequence[torch.Tensor]
    ) -> None:
        places = [*map(bounds, written)]
        fixed = self._frozen if places != self._apart else []
        apart = not any(meets(place, places) for place in (*map(bounds, others), *fixed))
        if apart and places != self._apart:
            apart = not any(meets(place, places[:k]) for k, place in enumerate(places))
            self._apart = places
        if not apart:
            self._apart = []
            raise InputError("a tensor that it writes shares memory with another input")


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """A tensor in the memory of an array."""
    if array.dtype == numpy_dtype("bfloat16"):
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
