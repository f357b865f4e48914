"""``make hostile``: damaged libraries, databases and models in full; 1 where any ended badly."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from tests.hostile import databases, libraries, models
from tests.hostile.libraries import REFUSED, RIGHT, WEIGHTS
from tests.hostile.networks import write_small_library


def main() -> int:
    """Try everything in full."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="byoc_") as name:
        folder = Path(name)
        library, data = write_small_library(folder)
        kinds = {
            "library: one bit": libraries.bits(library, 1000, 0),
            "library: cut off": libraries.cuts(library, 200, 1),
            "library: section headers": libraries.section_headers(library, 500, 2),
            "library: metadata": libraries.metadata(library, 500, 3),
        }
        print("| damage | cases | as if undamaged | refused | other weights | else | s |")
        print("|---|---|---|---|---|---|---|")
        for kind, cases in kinds.items():
            begin = time.monotonic()
            counts, bad = libraries.count(libraries.try_all(library, cases, data, folder))
            _row(kind, len(cases), (counts[k] for k in (RIGHT, REFUSED, WEIGHTS)), bad, begin)
            failed += len(bad)
        begin, path = time.monotonic(), folder / "times.json"
        databases.write_database(path, [f"layer {number}" for number in range(8)])
        contents = databases.damaged(path.read_bytes(), 1000, 4)
        read, bad = databases.read_all(folder, contents)
        ignored = read["ignored with a warning"] + read["one line"]
        _row("tuning database", len(contents), (read["read"], ignored, 0), bad, begin)
        failed += len(bad)
        begin = time.monotonic()
        cases = [case for path in models.write_models(folder) for case in models.bits(path, 500, 0)]
        met, bad = models.try_all(cases)
        _row("model: one bit", len(cases), (met[models.RIGHT], met[models.REFUSED], 0), bad, begin)
        print(f"{models.LENIENT}, of these: {met[models.LENIENT]}")
        failed += len(bad)
    return 1 if failed else 0


def _row(kind: str, cases: int, counts: Iterable[int], bad: list[str], begin: float) -> None:
    cells = [cases, *counts, len(bad), round(time.monotonic() - begin)]
    print(f"| {kind} | {' | '.join(map(str, cells))} |", flush=True)
    for line in bad:
        print(f"  {line}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
