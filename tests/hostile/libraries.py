"""Damaged libraries: one bit, a piece cut off, other metadata, other section headers.

Each is loaded and run in a child process with a time limit.  One child takes many, as long as none
ends it; it says what it will try before it tries, so that the parent knows which one did.
"""

from __future__ import annotations

import json
import random
import select
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from codegen_cc.link.checksum import seal
from codegen_cc.link.elf_sections import ElfError, Section, read_sections
from codegen_cc.link.embedded_text import METADATA_SECTION, WEIGHTS_SECTION

#: Seconds that one case may take.
_LIMIT = 20.0

RIGHT, REFUSED = "right answer", "refused in one line"
WEIGHTS = "other weights, found by byoc inspect --check"


@dataclass(frozen=True)
class Case:
    """One way to damage a library; ``make`` turns its bytes into the damaged ones.

    ``reseal`` writes the sums that fit, as one who means harm would.
    """

    name: str
    make: Callable[[bytes], bytes]
    reseal: bool = False


def one_bit(content: bytes, bit: int) -> bytes:
    """The bytes with one bit turned over."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def bits(library: Path, count: int, seed: int) -> list[Case]:
    """Single bits anywhere in the file."""
    draw, size = random.Random(seed), library.stat().st_size
    return [
        Case(f"bit {bit}", lambda content, bit=bit: one_bit(content, bit))
        for bit in draw.sample(range(8 * size), count)
    ]


def cuts(library: Path, count: int, seed: int) -> list[Case]:
    """Files that end early."""
    draw, size = random.Random(seed), library.stat().st_size
    ends = [0, 1, 63, 64, size - 1, *(draw.randrange(size) for _ in range(count - 5))]
    return [Case(f"first {end} bytes", lambda content, end=end: content[:end]) for end in ends]


def section_headers(library: Path, count: int, seed: int) -> list[Case]:
    """Offsets, sizes, names and counts of sections that are absurd."""
    draw = random.Random(seed)
    content = library.read_bytes()
    (table,) = struct.unpack_from("<Q", content, 40)
    (sections,) = struct.unpack_from("<H", content, 60)
    places = [(40, 8), (58, 2), (60, 2), (62, 2)]
    for index in range(sections):
        places += [
            (table + 64 * index + at, size) for at, size in ((0, 4), (4, 4), (24, 8), (32, 8))
        ]
    absurd = (0, 1, 7, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 40)
    cases = []
    for _ in range(count):
        (at, size), value = draw.choice(places), draw.choice(absurd)
        data = (value % (1 << 8 * size)).to_bytes(size, "little")
        cases.append(
            Case(
                f"{data.hex()} at {at}",
                lambda content, at=at, data=data: content[:at] + data + content[at + len(data) :],
                reseal=draw.random() < 0.5,
            )
        )
    return cases


def metadata(library: Path, count: int, seed: int) -> list[Case]:
    """Metadata of the same length with one value of another type, size or text, sums that fit."""
    draw = random.Random(seed)
    with library.open("rb") as file:
        elf = read_sections(file)
        section = elf.named(METADATA_SECTION)
        assert section is not None
        text = elf.content(section).rstrip(b"\0").decode()
    cases = []
    while len(cases) < count:
        changed = json.dumps(_change(json.loads(text), draw), separators=(",", ":"))
        if changed != text and len(changed) <= len(text):
            data = changed.ljust(len(text)).encode()
            cases.append(Case(f"metadata {len(cases)}", _replace(section, data), reseal=True))
    for data in (b"", b"[" * 900, b"{", b"null", b'"x"', b"\xff" * 80, b'{"version":1e999}'):
        cases.append(
            Case(f"metadata {data[:8]!r}", _replace(section, data.ljust(len(text))), reseal=True)
        )
    return cases


def _replace(section: Section, data: bytes) -> Callable[[bytes], bytes]:
    begin = section.offset
    return lambda content: content[:begin] + data + content[begin + len(data) :]


_STRANGE = (None, True, -1, 0, 7, 10**18, 1.5, "", "\x1b[2J", "n*0", [], {}, [[]], {"a": 1}, [-1])


def _change(value: object, draw: random.Random) -> object:
    """A value of JSON in which one part is replaced, removed or doubled."""
    path: list[tuple[object, object]] = []
    at = value
    while isinstance(at, dict | list) and at and (not path or draw.random() < 0.85):
        key = draw.choice(list(at)) if isinstance(at, dict) else draw.randrange(len(at))
        if isinstance(at, dict) and not path and key == "report" and draw.random() < 0.7:
            continue  # most of the text, and the least of the matter
        path.append((at, key))
        at = at[key]
    holder, key = path[-1]
    how = draw.choice(("replace", "replace", "replace", "remove", "double"))
    if how == "remove":
        del holder[key]
    elif how == "double" and isinstance(holder, list):
        holder.append(holder[key])
    else:
        holder[key] = draw.choice(_STRANGE)
    return value


# ---------------------------------------------------------------- trying them

_CHILD = """
import sys
import numpy as np
import byoc
from byoc.cli import main

good = np.load(sys.argv[1])
inputs = {name[3:]: good[name] for name in good.files if name.startswith("in_")}
want = {name[4:]: good[name] for name in good.files if name.startswith("out_")}

def answer(path):
    try:
        found = byoc.load(path, threads=1).run(inputs)
    except byoc.ByocError as error:
        return "refused" if len(str(error).splitlines()) == 1 and str(error).isprintable() else (
            "badly refused: %r" % str(error))
    # By place: metadata may give outputs any names.
    close = len(found) == len(want) and all(
        f.shape == w.shape and np.abs(f - w).max() <= 1e-4 * np.ptp(w)
        for f, w in zip(found.values(), want.values())
    )
    return "right" if close else "wrong"

print("ready", flush=True)
for line in sys.stdin:
    path = line.rstrip()
    try:
        said = answer(path)
    except Exception as error:
        said = "untyped %s: %s" % (type(error).__name__, str(error)[:200].replace(chr(10), " "))
    print(said, flush=True)
"""


class _Child:
    def __init__(self, data: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(data)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._line(60) == "ready"

    def _line(self, limit: float) -> str | None:
        """The next line, or None where there is none in time."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], limit)
        return self._process.stdout.readline().rstrip("\n") if ready else None

    def ask(self, path: Path) -> str:
        """What becomes of a library."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{path}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return "ended"
        said = self._line(_LIMIT)
        if said is None:
            return f"no answer in {_LIMIT:.0f} s"
        return said or f"ended the process ({self._process.wait()})"

    def stop(self) -> None:
        """End it, however it is."""
        self._process.kill()
        self._process.communicate()


def try_all(
    library: Path, cases: list[Case], data: Path, folder: Path
) -> Iterator[tuple[Case, str]]:
    """Each case with what became of it; ``RIGHT``, ``REFUSED`` and ``WEIGHTS`` are as it should be.

    ``data`` is an .npz with the arrays in_NAME and out_NAME.
    """
    content = library.read_bytes()
    weights = _extent(library, WEIGHTS_SECTION)
    child = _Child(data)
    try:
        for number, case in enumerate(cases):
            path = folder / f"case{number}.so"
            damaged = case.make(content)
            path.write_bytes(damaged)
            if case.reseal:
                _seal(path)
            said = child.ask(path)
            if said.startswith(("ended", "no answer")):
                child.stop()
                child = _Child(data)
            yield case, _judge(said, content, damaged, weights, path)
            path.unlink()
    finally:
        child.stop()


def _judge(said: str, content: bytes, damaged: bytes, weights: range, path: Path) -> str:
    if said in ("right", "refused"):
        return RIGHT if said == "right" else REFUSED
    differ = [i for i in weights if i >= len(damaged) or content[i] != damaged[i]][:1]
    if said == "wrong" and differ:
        from byoc.deploy.compiled_file import whole_file_problem

        return WEIGHTS if whole_file_problem(path) else "other weights, not found"
    return said


def _extent(library: Path, name: str) -> range:
    with library.open("rb") as file:
        section = read_sections(file).named(name)
    return range(section.offset, section.offset + section.size) if section else range(0)


def _seal(path: Path) -> None:
    with suppress(ElfError):  # where not even the sums have a place
        seal(path)


def count(results: Iterator[tuple[Case, str]]) -> tuple[Counter[str], list[str]]:
    """How often what became of the cases, and a line for each that should not be."""
    counts: Counter[str] = Counter()
    bad = []
    for case, said in results:
        counts[said] += 1
        if said not in (RIGHT, REFUSED, WEIGHTS):
            bad.append(f"{case.name}: {said}")
    return counts, bad
