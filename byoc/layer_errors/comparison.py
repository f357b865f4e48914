"""What ``byoc.compare`` found: the errors of nodes and outputs, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from byoc.accuracy import BOUNDS, Errors
from byoc.layer_errors.keep import Kept
from byoc.layer_errors.layer import Layer
from byoc.layer_errors.page import comparison_page
from byoc.report import Report


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
    #: What to keep in fp32, where that was asked for.
    kept: Kept | None = None

    @property
    def worst(self) -> list[Layer]:
        """The layers, those first that lose most by themselves, as a share of their range."""
        return sorted(self.layers, key=lambda layer: (-layer.own.share, -layer.total.share))

    @property
    def error(self) -> float:
        """The greatest error of an output, as a share of its range."""
        return greatest(self.outputs)

    def summary(self) -> str:
        """One line: what the outputs are off by, and the node that loses most."""
        worst = self.worst[:1]
        most = f", most by {worst[0].name}: {worst[0].own.share:.1e}" if worst else ""
        return f"outputs are off by {self.error:.1e} of their range{most}"

    def to_html(self, title: str = "comparison") -> str:
        """The page of the partition report, with nodes in the colours of their own errors."""
        return comparison_page(self.report, self.worst, self.summary(), title)

    def to_json(self) -> dict[str, Any]:
        """Plain values for ``json.dumps``; what is infinite is null."""
        return {
            "judge": self.judge,
            "outputs": {name: errors.to_json() for name, errors in self.outputs.items()},
            "layers": [layer.to_json() for layer in self.worst],
            "histogram_bounds": list(BOUNDS),
            "unknown": self.unknown,
            "keep": None if self.kept is None else self.kept.to_json(),
        }


def greatest(outputs: Mapping[str, Errors]) -> float:
    """The greatest error of an output, as a share of its range."""
    return max((errors.share for errors in outputs.values()), default=0.0)
