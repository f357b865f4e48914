"""What a compiled library says of itself: its metadata, JSON inside the file.

It is written when a model is compiled, lies in a section of its own, and can be read without
loading the library (``byoc.deploy.compiled_file``), whatever machine it is for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property, lru_cache
from typing import Any

from byoc.arguments import MAX_THREADS, as_whole
from byoc.deploy.typed_json import read_as
from byoc.errors import ByocError
from byoc.extent import Extent, parse_extent
from codegen_cc.dtypes import DTYPES
from codegen_cc.printable import printable

#: Changes when a library of one version cannot be used by the loader of another.
FORMAT_VERSION = 8

#: Of ``Metadata.form``.
FORMS = ("tvm", "standalone")
#: Dtypes of inputs and outputs that NumPy alone does not know: of whole bytes.
EXTENDED_DTYPES = tuple(
    dtype.name for dtype in DTYPES.values() if dtype.bits % 8 == 0 and not dtype.is_numpys
)


@dataclass(frozen=True)
class TensorInfo:
    """Name, shape and dtype of a model's input or output; a symbolic axis has a text as extent."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str

    def __str__(self) -> str:
        return printable(f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]")

    @cached_property
    def is_fixed(self) -> bool:
        """Whether no axis is symbolic."""
        return all(isinstance(extent, int) for extent in self.shape)

    @property
    def symbols(self) -> frozenset[str]:
        """The names in its extents."""
        texts = [extent for extent in self.shape if isinstance(extent, str)]
        return frozenset(name for text in texts for name in extent_of(text).names)

    @property
    def smallest(self) -> tuple[int, ...]:
        """The shape of an input where every symbol is 1."""
        return tuple(e if isinstance(e, int) else extent_of(e).at(1) for e in self.shape)


@lru_cache(1024)
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
class SymbolRange:
    """What the symbol of a symbolic axis may be: ``least`` at least, and ``most`` at most."""

    name: str
    least: int = 0
    most: int | None = None

    def refuses(self, value: int) -> str:
        """What is wrong with a value; empty where nothing is."""
        if value < self.least:
            return f"; {self.name} is {value} and must be {self.least} or more"
        if self.most is not None and value > self.most:
            return f"; {self.name} is {value} and must be {self.most} or less"
        return ""


@dataclass(frozen=True)
class FixedInput:
    """An input of the model that the library does not take, as it was fixed when compiling.

    ``value`` is what all of its elements are; None where they differ, or are NaN or infinite.
    """

    input: TensorInfo
    value: bool | int | float | None

    def __str__(self) -> str:
        return f"{self.input}: {'given when compiled' if self.value is None else self.value}"


#: Labels that are shown of many.
_SHOWN_LABELS = 8


@dataclass(frozen=True)
class LabelledOutput:
    """An output of numbers that stand for labels.

    ``columns``: the output is a matrix that has a column for each label, in their order; else its
    numbers are places among them.
    """

    output: str
    labels: tuple[str | int, ...]
    columns: bool

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.labels[:_SHOWN_LABELS]))
        more = len(self.labels) - _SHOWN_LABELS
        what = "has a column for each label of" if self.columns else "is a place among the labels"
        return f"output {self.output!r} {what} {shown}" + (f" and {more} more" * (more > 0))


@dataclass(frozen=True)
class StateInfo:
    """A value that is kept from call to call: the model's input, and the output that it becomes.

    ``input`` has the model's shape. Along ``axis`` the state grows by ``step`` at each call, an
    integer or an expression of the symbols of inputs; ``axis`` is None for a state that each call
    replaces. ``in_place``: the network's one region may be given its memory as that of the output,
    and writes some rows of it then.
    """

    input: TensorInfo
    output: str
    axis: int | None
    step: int | str
    in_place: bool = False

    @property
    def kind(self) -> str:
        """What a call does with it."""
        if self.axis is not None:
            return f"grows along axis {self.axis}"
        return "is written in place" if self.in_place else "is replaced"


@dataclass(frozen=True)
class Entry:
    """The region that alone computes the whole network, where there is one.

    Its packed function takes inputs, then room for outputs.  ``inputs[i]`` is the number of the
    network's input that is its input ``i``; ``outputs[j]`` the number of its output that is the
    network's output ``j``.  Before them it takes, as one shape, the symbols ``sizes``.
    """

    symbol: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    sizes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Metadata:
    """What the compiler writes into a library for whoever loads it.

    ``form`` is ``tvm`` for a library that TVM's runtime loads, ``standalone`` for one with a C
    interface, ``plain`` for one that holds no metadata; its ``outputs`` are not known, hence none.
    ``versions`` are those of ``byoc``, ``tvm`` and ``tvm_ffi`` that made it.
    ``entry`` may be called at once; ``repeats`` only with shapes that ``main`` took before, as an
    extent of a result may be below 0, which ``main`` refuses.
    ``runtime`` are the libraries of TVM's that must be loaded besides ``libtvm_runtime``.
    ``least_size`` is what the symbols of shapes stand for at least, 0 or 1; ``ranges`` are those
    that the model was declared for, where it was for some sizes only, and ``conditions`` what its
    sizes must meet, as the tracer of its code noted them.  ``states`` are kept by
    whoever runs the model: the network takes them behind ``inputs``, and gives those that a call
    replaces behind ``outputs``.  ``fixed`` are inputs of the model that became constants.
    ``labelled`` are outputs whose numbers stand for labels.
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
    repeats: Entry | None = None
    runtime: tuple[RuntimeLibrary, ...] = ()
    least_size: int = 1
    ranges: tuple[SymbolRange, ...] = ()
    conditions: tuple[str, ...] = ()
    states: tuple[StateInfo, ...] = ()
    fixed: tuple[FixedInput, ...] = ()
    labelled: tuple[LabelledOutput, ...] = ()
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
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"its metadata are no JSON ({error}); compile it again") from error
        version = raw.get("version") if isinstance(raw, dict) else None
        if type(version) is not int or version != FORMAT_VERSION:
            writer = raw.get("versions") if isinstance(raw, dict) else None
            name = writer.get("byoc") if isinstance(writer, dict) else None
            known = f" (byoc {name} wrote it)" if isinstance(name, str) and name else ""
            raise ValueError(
                f"format version {version!r:.40}{known}, where this byoc reads {FORMAT_VERSION}; "
                "compile the model again, or install the byoc that wrote it"
            )
        known = {key: value for key, value in raw.items() if key != "version"}
        try:
            metadata = read_as(cls, known, "metadata")
            _require_sense(metadata)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"its metadata are damaged ({error}); compile it again") from error
        return metadata


class Described:
    """A compiled model, here or on another machine: what it says of its inputs and outputs."""

    metadata: Metadata

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Names, shapes and dtypes of the inputs, in order."""
        return self.metadata.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """Names, shapes and dtypes of the outputs, in order."""
        return self.metadata.outputs


@dataclass(frozen=True)
class _Region:
    """What ``byoc inspect`` shows of a region in the report."""

    name: str
    operators: int
    weight_bytes: int


@dataclass(frozen=True)
class _Left:
    """What ``byoc inspect`` shows of an operator that TVM computes."""

    name: str
    op: str
    reason: str


@dataclass(frozen=True)
class _Use:
    """What ``byoc inspect`` shows of nodes that a library computes alike on a machine."""

    library: str
    algorithm: str
    nodes: int


@dataclass(frozen=True)
class _Coverage:
    """What ``byoc inspect`` shows of the report."""

    operators: int
    offloaded: int
    macs: int
    offloaded_macs: int
    regions: tuple[_Region, ...]
    left: tuple[_Left, ...]
    machines: Mapping[str, tuple[_Use, ...]]


def _require_sense(metadata: Metadata) -> None:
    """Raise ``ValueError`` for values of the right type that no compiler writes."""
    for what, infos in (("inputs", metadata.inputs), ("outputs", metadata.outputs)):
        names = [info.name for info in infos]
        if len(set(names)) < len(names):
            raise ValueError(f"{what} of one name")
        for info in infos:
            _require_tensor(info)
    for state in metadata.states:
        _require_tensor(state.input)
        if state.axis is not None and not 0 <= state.axis < len(state.input.shape):
            raise ValueError(f"state {state.input.name!r} has no axis {state.axis}")
        if state.in_place and (state.axis is not None or metadata.entry is None):
            raise ValueError(f"state {state.input.name!r} cannot be written in place")
    if metadata.form not in FORMS:
        raise ValueError(f"form {metadata.form!r}; need {' or '.join(FORMS)}")
    if metadata.threads is not None:
        as_whole(metadata.threads, "threads", _Senseless, 1, MAX_THREADS)
    if (entry := metadata.entry or metadata.repeats) is not None:
        replaced = [state for state in metadata.states if state.axis is None]
        counts = len(metadata.inputs) + len(metadata.states), len(metadata.outputs) + len(replaced)
        if not all(0 <= number < counts[0] for number in entry.inputs):
            raise ValueError(f"entry.inputs {list(entry.inputs)}; need numbers below {counts[0]}")
        if sorted(entry.outputs) != list(range(counts[1])):
            raise ValueError(f"entry.outputs {list(entry.outputs)}; need each below {counts[1]}")
        given = (*metadata.inputs, *(state.input for state in metadata.states))
        told = {name for info in given for name in info.symbols}
        if untold := sorted({*entry.sizes} - told):
            raise ValueError(f"entry needs {untold[0]}, which is no symbol of an input")
    if metadata.report:
        _require_report(metadata.report)


def _require_tensor(info: TensorInfo) -> None:
    import numpy as np

    try:
        known = info.dtype in EXTENDED_DTYPES or np.dtype(info.dtype).kind in "biuf"
    except TypeError:
        known = False
    if not known:
        raise ValueError(f"{info.name!r} has dtype {info.dtype!r}")
    for extent in info.shape:
        if isinstance(extent, int) and not 0 <= extent < 1 << 62:
            raise ValueError(f"{info.name!r} has extent {extent}")


def _require_report(report: Mapping[str, Any]) -> None:
    def shown(kind: type, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {field.name: value[field.name] for field in fields(kind) if field.name in value}

    about = {"machines": {}} | shown(_Coverage, dict(report))
    if isinstance(about["machines"], dict):
        about["machines"] = {
            name: [shown(_Use, use) for use in uses] if isinstance(uses, list) else uses
            for name, uses in about["machines"].items()
        }
    for name, kind in (("regions", _Region), ("left", _Left)):
        if isinstance(about.get(name), list):
            about[name] = [shown(kind, row) for row in about[name]]
    read_as(_Coverage, about, "report")


class _Senseless(ByocError, ValueError):
    """A number out of bounds."""
