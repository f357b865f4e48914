"""Damaged tuning databases: a compilation with one says so in a warning, and goes on without it.

What a database can do at most is to name another algorithm, each of which is right.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from pathlib import Path

import byoc
from byoc.errors import TuningError
from byoc.tuning import database
from codegen_cc.libraries.measured_choice import Race, Time, TuningWarning
from tests.hostile.libraries import one_bit

HERE = "This CPU, avx2, 1 thread"


def write_database(path: Path, signatures: list[str]) -> None:
    """A database of several algorithms' times for these layers."""
    times = {
        "builtin": {"implicit GEMM": Time(0.25, 0.5), "Winograd F(4, 3)": Time(0.2, 0.3), "x": None}
    }
    race = Race({"builtin": "1 aa"}, times)
    database.merge(path, HERE, dict.fromkeys(signatures, race))


def damaged(content: bytes, count: int, seed: int) -> list[bytes]:
    """Five of eight with one bit turned over; else cut off, doubled in part, or with odd bytes."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        at = draw.randrange(len(content))
        changed = one_bit(content, 8 * at + draw.randrange(8))
        if number % 8 == 1:
            changed = content[:at]
        elif number % 8 == 2:
            changed = content[:at] + content
        elif number % 8 == 3:
            changed = content[:at] + draw.randbytes(20) + content[at:]
        made.append(changed)
    return made


def read_all(folder: Path, contents: list[bytes]) -> tuple[Counter[str], list[str]]:
    """What reading and then writing each one does: ``read``, ``ignored`` or an error by type."""
    counts: Counter[str] = Counter()
    bad = []
    for number, content in enumerate(contents):
        path = folder / f"db{number}.json"
        path.write_bytes(content)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                found = database.read(path, HERE)
                database.merge(path, HERE, {"new": Race({}, {})})
                kept = "new" in database.races_of(path, HERE)
            except TuningError:
                counts["one line"] += 1
                continue
            except Exception as error:
                bad.append(f"{content[:200]!r}: {type(error).__name__}: {error}")
                continue
        texts = [str(w.message) for w in told]
        if not kept or any("\n" in text for text in texts):
            bad.append(f"{content[:200]!r}: {texts}")
        elif not all(issubclass(w.category, TuningWarning) for w in told):
            bad.append(f"{content[:200]!r}: {[w.category for w in told]}")
        counts["read" if found.races else "ignored with a warning"] += 1
        if not found.races and not told:
            bad.append(f"{content[:200]!r}: nothing known and nothing said")
        for left in folder.glob(f"db{number}.json*"):
            left.unlink()
    return counts, bad


def compile_all(folder: Path, contents: list[bytes], model: object, right: object) -> list[str]:
    """Compile with each database; ``right`` says of a library whether it answers right."""
    bad = []
    for number, content in enumerate(contents):
        path, library = folder / f"db{number}.json", folder / f"m{number}.so"
        path.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TuningWarning)
            try:
                byoc.compile(model, library, tuning_db=path)
            except byoc.ByocError as error:
                if len(str(error).splitlines()) != 1:
                    bad.append(f"{content[:200]!r}: {error}")
                continue
            except Exception as error:
                bad.append(f"{content[:200]!r}: {type(error).__name__}: {error}")
                continue
        if not right(library):
            bad.append(f"{content[:200]!r}: wrong answer")
        library.unlink()
        path.unlink()
    return bad
