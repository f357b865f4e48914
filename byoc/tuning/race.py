"""One race: candidates that compute one layer are checked, then take turns, here or elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from byoc.accuracy import TOLERANCES, relative_error
from codegen_cc.dtypes import SINGLE

if TYPE_CHECKING:
    import numpy as np

#: Greatest error, as a share of the result's range.
TOLERANCE = TOLERANCES[SINGLE]
#: Bytes that are read before each run, as a network reads the weights of its other layers between
#: two runs of one: they push the layer's own out of the caches, and only its inputs are there.
#: Warm, F(6, 3) with its 64 weights for 9 looked 6 % faster than F(4, 3) on two layers of
#: ResNet-50 in which it was slower inside the network.
OTHER_BYTES = 64_000_000
#: Milliseconds of a run after which a turn ends.
GIVEN_UP_MS = 1000.0

#: Runs in a turn.
_RUNS = 4
#: A candidate this many times slower than the fastest stops at once, or after half of the rounds.
_HOPELESS, _SLOW = 10.0, 1.5


class Race(ABC):
    """One layer: who answers right, and how long each of those takes.

    Candidates are packed functions, by their symbols. ``answers`` are right ones to begin with.
    """

    #: Errors that end the race; any other one is the candidate's own.
    fatal: tuple[type[Exception], ...] = ()

    def __init__(self, answers: Sequence[np.ndarray]) -> None:
        self.answers = list(answers)
        self.right: list[str] = []
        self.wrong: dict[str, str] = {}

    @abstractmethod
    def first(self, symbol: str, shape: Sequence[int], dtype: str) -> np.ndarray:
        """The result of one run that found NaN where it was to write."""

    @abstractmethod
    def turn(self, symbol: str, runs: int) -> list[float]:
        """Milliseconds of each of some runs, with ``OTHER_BYTES`` before each.

        It may end after a run of more than ``GIVEN_UP_MS``.
        """

    def check(
        self,
        symbols: Sequence[str],
        shape: Sequence[int],
        dtype: str,
        announce: Callable[[str], None],
    ) -> None:
        """Run each candidate once; ``announce`` is told who is next.

        ``shape`` and ``dtype``, one of floating-point numbers, are the result's.

        The first is the reference of the others, beside the answers that were given.
        """
        for symbol in symbols:
            announce(symbol)
            try:
                output = self.first(symbol, shape, dtype)
            except self.fatal:
                raise
            except Exception as error:
                self.wrong[symbol] = (str(error).strip() or type(error).__name__).splitlines()[0]
                continue
            if reason := self._differs(output):
                self.wrong[symbol] = reason
                continue
            if not self.right:
                self.answers.append(output)
            self.right.append(symbol)

    def run(self, rounds: int) -> dict[str, list[float]]:
        """Milliseconds of the runs of each candidate that was right, in turns."""
        times: dict[str, list[float]] = {symbol: [] for symbol in self.right}
        for number in range(rounds):
            best = min((min(own) for own in times.values() if own), default=0.0)
            for symbol, own in times.items():
                limit = best * (_SLOW if 2 * number >= rounds > 1 else _HOPELESS)
                if own and min(own) > limit:
                    continue
                own += self.turn(symbol, 1 if own and own[-1] > GIVEN_UP_MS else _RUNS)
        return times

    def _differs(self, output: np.ndarray) -> str:
        """Why an answer is wrong, or nothing."""
        error = max((relative_error([output], [right]) for right in self.answers), default=0.0)
        return f"wrong by {error:.1e} of the range (limit {TOLERANCE:g})" * (error > TOLERANCE)


def read_arrays(path: Path) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The inputs in a file of ``byoc.tuning.build``, and the answers that it expects."""
    import numpy as np

    with np.load(path) as file:
        names = sorted((n for n in file.files if n != "expected"), key=lambda n: int(n[5:]))
        answers = [file["expected"]] if "expected" in file.files else []
        return [file[name] for name in names], answers
