"""What else computes a model, to compare a library with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

Arrays = dict[str, np.ndarray]

#: Gives a model's outputs, by name, for inputs by name.
Answer = Callable[[Arrays], Arrays]


@dataclass(frozen=True)
class Reference:
    """Something that can compute a model: what it is called, the model's inputs, and how.

    ``rounding`` is its own absolute error, by output, where it may pass a share of the range.
    ``halves`` are the 16-bit dtypes that it rounds values inside of the model to.
    ``examples`` are inputs that the model comes with. ``places`` names outputs that say where the
    values of another output stood, as those of TopK, with that output and the axis. ``traced``
    computes the program that a library is made of, where that was traced from the model.
    """

    name: str
    inputs: Sequence[str]
    answer: Answer
    rounding: Mapping[str, float] = field(default_factory=dict)
    halves: Collection[str] = ()
    examples: Arrays = field(default_factory=dict)
    places: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    traced: Answer | None = None


class Judge(Protocol):
    """What computes a model and tells each of its values, by the front end's names of these."""

    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]

    def has(self, value: str) -> bool:
        """Whether the model has a value of this name that a node gives."""
        ...

    def values(self, names: Collection[str], inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Values by name, for inputs by name. Raises ``VerifyError``."""
        ...

    def told(self, value: str, array: np.ndarray) -> np.ndarray:
        """What a library's array of a value is compared as."""
        ...

    def given(self, value: str, array: np.ndarray, dtype: str) -> np.ndarray:
        """What a library is given that is to compute on an array of the judge's."""
        ...
