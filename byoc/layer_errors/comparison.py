"""What ``byoc.compare`` found: the errors of nodes and outputs, as values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from byoc.accuracy import BOUNDS, Errors
from byoc.report import Kernel, Report
from byoc.report.left import NAMES


@dataclass(frozen=True)
class Layer:
    """A node of the compiled network beside the value that the judge has for its result.

    ``names`` are the model's nodes that it stands for, ``value`` the judged tensor. ``own`` are the
    errors of this node alone, which then computed on the judge's values; ``total`` those of its
    result as the network computes it, with the errors of all that came before. ``histogram`` counts
    elements by their own error (see ``byoc.accuracy.histogram_of``).
    """

    names: tuple[str, ...]
    value: str
    operator: str
    kernel: Kernel
    #: The dtype that is computed in, such as float32, and the stored one.
    computes: str
    dtype: str
    shape: tuple[int, ...]
    own: Errors
    total: Errors
    histogram: tuple[int, ...]

    @property
    def name(self) -> str:
        """The names of the model's nodes, as in the partition report."""
        return NAMES.join(self.names)

    def to_json(self) -> dict[str, Any]:
        """Plain values for ``json.dumps``."""
        found = asdict(self) | {"own": self.own.to_json(), "total": self.total.to_json()}
        return {"name": self.name, **found}


@dataclass(frozen=True)
class Comparison:
    """The nodes of a network and its outputs beside a judge's, and what was not judged.

    ``layers`` are in the order in which they run. ``unknown`` nodes give what no node of the model
    gives: theirs are among the errors of the next node that is judged. ``report`` is that of the
    partition.
    """

    judge: str
    layers: tuple[Layer, ...]
    outputs: dict[str, Errors]
    unknown: int
    report: Report = field(repr=False, compare=False)

    @property
    def worst(self) -> list[Layer]:
        """The layers, those first that lose most by themselves, as a share of their range."""
        return sorted(self.layers, key=lambda layer: (-layer.own.share, -layer.total.share))

    @property
    def error(self) -> float:
        """The greatest error of an output, as a share of its range."""
        return max((errors.share for errors in self.outputs.values()), default=0.0)

    def to_json(self) -> dict[str, Any]:
        """Plain values for ``json.dumps``; what is infinite is null."""
        return {
            "judge": self.judge,
            "outputs": {name: errors.to_json() for name, errors in self.outputs.items()},
            "layers": [layer.to_json() for layer in self.worst],
            "histogram_bounds": list(BOUNDS),
            "unknown": self.unknown,
        }
