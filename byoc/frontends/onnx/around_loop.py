"""What a rewriting of loops is told of the values around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from byoc.frontends.onnx.inferred_shapes import extents_of

#: The value of a constant; None for others.
Constant = Callable[[str], np.ndarray | None]


@dataclass(frozen=True)
class Around:
    """What is known of values, by name."""

    types: Mapping[str, onnx.TypeProto]
    constant: Constant
    makers: Mapping[str, onnx.NodeProto]
    #: Whether a number is the extent of a tensor along an axis.
    is_extent: Callable[[str, str, int], bool]
    #: Whether a number is how many elements a tensor has.
    is_count: Callable[[str, str], bool]

    def shape(self, name: str) -> list[int | None] | None:
        """The extents of a tensor of known rank, None for each that is not known."""
        return extents_of(self.types.get(name))
