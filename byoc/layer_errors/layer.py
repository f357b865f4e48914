"""One node of a compiled network beside the value that a judge has for its result."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from byoc.accuracy import Errors
from byoc.report import Kernel
from byoc.report.left import NAMES


@dataclass(frozen=True)
class Layer:
    """A result of a node of the compiled network beside the value that the judge has for it.

    ``names`` are the model's nodes that it stands for, ``value`` the judged tensor. ``own`` are the
    errors of this node alone, which then computed on the judge's values; ``total`` those of its
    result as the network computes it, with the errors of all that came before. ``histogram`` counts
    elements by their own error (see ``byoc.accuracy.histogram_of``).
    """

    names: tuple[str, ...]
    value: str
    operator: str
    kernel: Kernel
    #: The dtype that is multiplied in, such as bfloat16, and the one of the result.
    computes: str
    dtype: str
    shape: tuple[int, ...]
    own: Errors
    total: Errors
    histogram: tuple[int, ...]
    #: Whether the node has other results as well.
    is_one_of_several: bool = False
    #: Whether a precision was asked for, in which it multiplies instead of in its operands' dtype.
    narrowed: bool = False

    @property
    def name(self) -> str:
        """The names of the model's nodes, as in the partition report."""
        return NAMES.join(self.names)

    @property
    def title(self) -> str:
        """The node's name, and which of its results it is where it has several."""
        return f"{self.name} ({self.value})" if self.is_one_of_several else self.name

    def to_json(self) -> dict[str, Any]:
        """Plain values for ``json.dumps``."""
        found = asdict(self) | {"own": self.own.to_json(), "total": self.total.to_json()}
        return {"name": self.name, **found}
