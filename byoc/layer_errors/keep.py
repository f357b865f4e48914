"""Which nodes to keep in fp32, or in the built-in library, to get under an error: by trying.

Nodes that lose most by themselves are kept first. How many of them are enough is searched for by
doubling and halving, and every number of them is compiled and run: nothing is predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from byoc.compiler.keywords import DEFAULTS, CompileKeywords
from byoc.errors import VerifyError
from byoc.layer_errors.layer import Layer
from codegen_cc.libraries import Selection
from codegen_cc.operator import is_operator

#: Keywords of ``compile`` that name what computes a node, their options, and what is exact.
_KEYWORDS = {"precision": ("--precision", "fp32"), "libraries": ("--library", "builtin")}

#: What a quantiser takes: names of nodes to leave as they are.
EXCLUDED = "nodes_to_exclude"


@dataclass(frozen=True)
class Remedy:
    """How to keep a node exact: a keyword of ``compile`` and its value, such as ``fc1=builtin``.

    ``EXCLUDED`` is one of the quantiser's, whose values are names.
    """

    name: str
    keyword: str

    @property
    def is_excluded(self) -> bool:
        """Whether a quantiser is to leave the node as it is."""
        return self.keyword == EXCLUDED

    @property
    def value(self) -> str:
        """What is added to the keyword."""
        if self.is_excluded:
            return self.name
        return f"{self.name}={_KEYWORDS[self.keyword][1]}"

    @property
    def option(self) -> str:
        """The command line's option, for a shell; the name, of what a quantiser is to exclude."""
        if self.is_excluded:
            return repr(self.name)
        quoted = self.value.replace("'", "'\\''")
        return f"{_KEYWORDS[self.keyword][0]} '{quoted}'"


@dataclass(frozen=True)
class Trial:
    """So many nodes kept, and the greatest error of an output, as a share of its range."""

    kept: int
    error: float


@dataclass(frozen=True)
class Kept:
    """What to keep for errors of at most ``limit``; ``error`` is what was measured with it.

    ``holds`` is false where nothing is enough: then ``remedies`` are all that there are.
    """

    limit: float
    error: float
    remedies: tuple[Remedy, ...]
    trials: tuple[Trial, ...]

    @property
    def holds(self) -> bool:
        """Whether the error is within the limit."""
        return self.error <= self.limit

    def to_json(self) -> dict[str, Any]:
        """Plain values for ``json.dumps``."""
        return {
            "max_error": self.limit,
            "error": self.error,
            "holds": self.holds,
            "nodes": [remedy.name for remedy in self.remedies],
            "options": [remedy.option for remedy in self.remedies],
            "trials": [asdict(trial) for trial in self.trials],
        }


def remedies_of(layers: Iterable[Layer], excludable: Collection[str] = ()) -> list[Remedy]:
    """How to keep layers exact, in their order; those that are so already have none.

    ``excludable`` are nodes that were quantised and need not be.
    """
    found: dict[str, Remedy] = {}
    for layer in layers:
        for name in layer.names:
            if name in excludable:
                found.setdefault(name, Remedy(name, EXCLUDED))
        # Lists of names end at commas, and an operator's name means all nodes of its kind.
        names = (name for name in layer.names if "," not in name and not is_operator(name))
        name, keyword = next(names, None), _keyword_of(layer)
        if name is not None and keyword is not None:
            found.setdefault(name, Remedy(name, keyword))
    return list(found.values())


def _keyword_of(layer: Layer) -> str | None:
    if layer.narrowed and "precision" in DEFAULTS:
        return "precision"
    return "libraries" if layer.kernel.library not in ("builtin", "TVM") else None


def with_remedies(keywords: CompileKeywords, remedies: Sequence[Remedy]) -> CompileKeywords:
    """The keywords with what keeps nodes exact, before what the user gave: the first one counts.

    Raises ``VerifyError`` for libraries that are not given by name.
    """
    edited = dict(keywords)
    for keyword in {remedy.keyword for remedy in remedies} - {EXCLUDED}:
        given = keywords[keyword]
        if isinstance(given, Selection):
            raise VerifyError(
                "max_error needs libraries by name; it cannot add to a choice of times that "
                "another machine measured (--tuning-machine)"
            )
        single = given is None or isinstance(given, str) or not isinstance(given, Iterable)
        before = [given] if single and given is not None else list(given or ())
        edited[keyword] = [r.value for r in remedies if r.keyword == keyword] + before
    return edited


def fewest(
    remedies: Sequence[Remedy],
    error: float,
    limit: float,
    measure: Callable[[Sequence[Remedy]], float],
) -> Kept:
    """Keep as few of the first remedies as are enough; ``error`` is the one with none."""
    trials = {0: error}
    low, high = 0, min(1, len(remedies))
    while error > limit and high > low:
        trials[high] = measure(remedies[:high])
        if trials[high] <= limit:
            break
        low, high = high, min(2 * high, len(remedies))
    while error > limit and trials.get(high, error) <= limit and high - low > 1:
        middle = (low + high) // 2
        trials[middle] = measure(remedies[:middle])
        low, high = (low, middle) if trials[middle] <= limit else (middle, high)
    count = 0 if error <= limit else high
    listed = tuple(Trial(kept, found) for kept, found in trials.items())
    return Kept(limit, trials[count], tuple(remedies[:count]), listed)
