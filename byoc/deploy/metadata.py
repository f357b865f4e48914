"""What a compiled library says of itself: its metadata, JSON inside the file.

It is written when a model is compiled, lies in a section of its own, and can be read without
loading the library (``byoc.deploy.library_file``), whatever machine it is for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from byoc.extent import Extent, parse_extent

#: Changes when a library of one version cannot be used by the loader of another.
FORMAT_VERSION = 3


@dataclass(frozen=True)
class TensorInfo:
    """Name, shape and dtype of a model's input or output; a symbolic axis has a text as extent."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str

    def __str__(self) -> str:
        name = self.name if self.name.isprintable() else repr(self.name)
        return f"{name}: {self.dtype}[{', '.join(map(str, self.shape))}]"

    @property
    def smallest(self) -> tuple[int, ...]:
        """The shape of an input where every symbol is 1."""
        return tuple(e if isinstance(e, int) else extent_of(e).at(1) for e in self.shape)


def extent_of(text: str) -> Extent:
    """A symbolic axis as the compiler wrote it down; any other text is a symbol of that name."""
    try:
        return parse_extent(text)
    except ValueError:
        return Extent(text)


@dataclass(frozen=True)
class LibraryInfo:
    """A kernel library that a model uses: name, version, and how it is linked."""

    name: str
    version: str
    linked: str


@dataclass(frozen=True)
class RuntimeLibrary:
    """A runtime library of TVM's besides ``libtvm_runtime``, and the packed functions called."""

    name: str
    functions: tuple[str, ...]


@dataclass(frozen=True)
class TargetInfo:
    """The machine that a library is for.

    ``machine`` is its architecture as ``uname -m`` has it, ``kernel_levels`` are the instruction
    sets that the kernels inside choose from, and ``cpu_flags`` what the CPU must have at least, by
    the names of /proc/cpuinfo.
    """

    name: str
    machine: str
    kernel_levels: tuple[str, ...] = ()
    cpu_flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class SourceFile:
    """A file that the model was read from, and the SHA-256 of its content in hexadecimal digits."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Entry:
    """The region that alone computes the whole network, where there is one.

    Its packed function takes inputs, then room for outputs.  ``inputs[i]`` is the number of the
    network's input that is its input ``i``; ``outputs[j]`` the number of its output that is the
    network's output ``j``.
    """

    symbol: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Metadata:
    """What the compiler writes into a library for whoever loads it.

    ``form`` is ``tvm`` for a library that TVM's runtime loads, ``standalone`` for one with a C
    interface.  ``versions`` are those of ``byoc``, ``tvm`` and ``tvm_ffi`` that made it.
    ``runtime`` are the libraries of TVM's that must be loaded besides ``libtvm_runtime``.
    ``report`` is the partition report's JSON (``Report.to_json``).
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    threads: int | None = None
    libraries: tuple[LibraryInfo, ...] = ()
    form: str = "tvm"
    target: TargetInfo | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    source: tuple[SourceFile, ...] = ()
    entry: Entry | None = None
    runtime: tuple[RuntimeLibrary, ...] = ()
    report: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for ``json.dumps``, the format's version first."""
        return {"version": FORMAT_VERSION, **asdict(self)}

    def to_json(self) -> str:
        """One line of ASCII JSON."""
        return json.dumps(self.to_dict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Metadata:
        """Read ``to_json``'s text.

        Raises ``ValueError`` for another version of the format, or for a text that is none.
        """
        raw = json.loads(text)
        version = raw.get("version") if isinstance(raw, dict) else None
        if version != FORMAT_VERSION:
            writer = raw.get("versions", {}).get("byoc", "") if isinstance(raw, dict) else ""
            known = f" (byoc {writer} wrote it)" if writer else ""
            raise ValueError(
                f"format version {version}{known}, where this byoc reads {FORMAT_VERSION}; "
                "compile the model again, or install the byoc that wrote it"
            )
        try:
            return cls(**_fields(raw))
        except (KeyError, TypeError) as error:
            raise ValueError(f"its metadata are damaged ({error}); compile it again") from error


def _fields(raw: dict[str, Any]) -> dict[str, Any]:
    def several(kind: type, values: list[dict[str, Any]]) -> tuple[Any, ...]:
        return tuple(kind(**{k: _tupled(v) for k, v in value.items()}) for value in values)

    known = {key: value for key, value in raw.items() if key != "version"}
    for key, kind in (
        ("inputs", TensorInfo),
        ("outputs", TensorInfo),
        ("libraries", LibraryInfo),
        ("source", SourceFile),
        ("runtime", RuntimeLibrary),
    ):
        known[key] = several(kind, raw[key])
    for key, kind in (("target", TargetInfo), ("entry", Entry)):
        known[key] = several(kind, [raw[key]])[0] if raw[key] is not None else None
    return known


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
