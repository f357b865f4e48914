"""The code generator that TVM calls: regions in, runtime modules out (``relax.ext.ext``)."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import tvm
from tvm import relax
from tvm_ffi import register_error

from codegen_cc.emit.entry import c_identifier
from codegen_cc.emit.source import emit_source
from codegen_cc.emit.timers import LINK_FLAGS, calls_symbol, describe_calls, times_symbol
from codegen_cc.errors import CodegenError, LibraryError, ToolchainError, foreign_errors_as
from codegen_cc.libraries import KernelLibrary
from codegen_cc.libraries import library as library_named
from codegen_cc.link.embedded_text import METADATA_SECTION, c_bytes, c_checksum
from codegen_cc.link.object_file import ObjectFile
from codegen_cc.link.toolchain import build_object, build_text_object
from codegen_cc.link.weights import WeightBlob
from codegen_cc.lowering import plan_region
from codegen_cc.plan.builder import Plan
from codegen_cc.plan.plan_cost import PlanCost, cost_of
from codegen_cc.region.read_relax import read_region
from codegen_cc.several_ways import require_one_way, several_ways
from codegen_cc.target import HOST, Target

# TVM's FFI passes errors on by name; unknown ones come out of RunCodegen as RuntimeError.
for error in (CodegenError, LibraryError, ToolchainError):
    register_error(error.__name__, error)

#: The first line of a source that is kept for reading.
_INERT = "#if 0 /* compiled already; kept for reading */"

#: The symbol of the text of a library's metadata.
_METADATA = "byoc_metadata_text"

#: Options that ``RunCodegen({"ext": {...}})`` understands.
OPTIONS = ("dump_code", "modules", "target", "timers", "weights")


@dataclass(frozen=True)
class Generated:
    """What was made of regions: modules that TVM links, and the cost of each plan by its symbol.

    ``in_place`` are, by symbol, the inputs whose memory may be that of the outputs which replace
    them.

    The modules are one static library that exports ``__tvm_ffi_<global_symbol>`` per region
    (destination-passing style: inputs, then outputs) with the kernels inside, one with the weights,
    one module of inert C text that ``inspect_source()`` shows and, with timers, one for each region
    that describes its calls.
    """

    modules: tuple[tvm.runtime.Module, ...] = ()
    costs: Mapping[str, PlanCost] = field(default_factory=dict)
    in_place: Mapping[str, frozenset[int]] = field(default_factory=dict)


def codegen(
    functions: Sequence[relax.Function],
    options: Mapping[str, object] | None = None,
    constant_names: Mapping[tvm.ir.GenericConst, str] | None = None,
) -> list[tvm.runtime.Module]:
    """Compile region functions to modules that TVM links into the executable: ``relax.ext.ext``.

    ``options``: ``dump_code``, ``target`` (by name), ``timers`` and ``weights`` are those of
    ``generate``; ``modules``, alone, are what ``generate`` made of these functions before.
    ``constant_names`` is part of TVM's interface and not needed: constants are packed here.
    Raises ``CodegenError``, ``LibraryError`` and ``ToolchainError``.
    """
    del constant_names
    options = {str(key): value for key, value in (options or {}).items()}
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise CodegenError(
            f"unknown option {', '.join(unknown)} of backend ext; known: {', '.join(OPTIONS)}"
        )
    if "modules" in options:
        if len(options) > 1:
            raise CodegenError("option modules of backend ext stands alone: they are made already")
        return _made_before(functions, list(options["modules"]))
    paths = {
        name: Path(str(options[name])) for name in ("dump_code", "weights") if options.get(name)
    }
    target = Target.parse(str(options["target"])) if options.get("target") else HOST
    return list(generate(functions, target, timers=bool(options.get("timers")), **paths).modules)


def generate(
    functions: Sequence[relax.Function],
    target: Target = HOST,
    *,
    timers: bool = False,
    dump_code: Path | None = None,
    weights: Path | None = None,
) -> Generated:
    """Plan regions, write their C, and compile it for ``target``.

    With ``timers`` the modules tell how long each kernel call took (``codegen_cc.emit.timers``).
    ``dump_code`` is a directory that receives ``<first symbol>.c``. ``weights`` is a path for the
    object file with the weights, where there are any: no module holds them then, which saves
    memory, and whoever links the result has to add that file.

    Raises ``CodegenError``, ``LibraryError`` and ``ToolchainError``.
    """
    if not functions:
        return Generated()
    symbols = [str(function.attrs["global_symbol"]) for function in functions]
    with (
        foreign_errors_as(CodegenError, f"code for region {', '.join(symbols[:1])}"),
        tempfile.TemporaryDirectory(prefix="byoc_") as name,
    ):
        directory = Path(name)
        stored = WeightBlob(
            c_identifier(symbols[0], len(symbols[0])), weights or directory / "weights.o"
        )
        plans = [plan_region(read_region(function), stored) for function in functions]
        if timers:
            for function in functions:
                require_one_way(function, "a library with timers")
        several = several_ways(functions, plans, stored)
        source = emit_source(plans, timers, several)
        if dump_code is not None:
            _dump(dump_code, symbols[0], source)
        libraries, callers = called_by([*plans, *(plan for w in several for plan in w.plans)])
        objects = [weight.symbol for weight in stored.weights]
        flags = LINK_FLAGS if timers else ()
        built = build_object(source, directory, libraries, callers, objects, target, flags=flags)
        exported = [*symbols, *(times_symbol(symbol) for symbol in symbols if timers)]
        modules = [tvm.runtime.load_static_library(str(built), exported)]
        constants = stored.finish(built)
        if constants is not None and weights is None:
            modules.append(tvm.runtime.load_static_library(str(constants), []))
    modules.append(_readable(source, symbols[0]))
    for plan in plans if timers else ():
        modules.append(text_module(describe_calls(plan), calls_symbol(plan.region.symbol), target))
    in_place = {plan.region.symbol: _in_place(plan) for plan in plans}
    for ways in several:
        in_place[ways.symbol] = frozenset.intersection(*map(_in_place, ways.plans))
    costs = {plan.region.symbol: cost_of(plan) for plan in plans}
    return Generated(tuple(modules), costs, in_place)


def _in_place(plan: Plan) -> frozenset[int]:
    return frozenset(rows.input for rows in plan.in_place)


def _made_before(
    functions: Sequence[relax.Function], modules: list[tvm.runtime.Module]
) -> list[tvm.runtime.Module]:
    """The modules, if they have every region. Raises ``CodegenError`` else."""
    for function in functions:
        symbol = str(function.attrs["global_symbol"])
        if not any(module.implements_function(symbol) for module in modules):
            raise CodegenError(f"region {symbol} is in none of the modules that were made before")
    return modules


def called_by(plans: Sequence[Plan]) -> tuple[list[KernelLibrary], dict[str, str]]:
    """The libraries that the plans call, and who calls each function, for messages."""
    used = dict.fromkeys(name for plan in plans for name in plan.libraries)
    callers = {
        call.function: f"library {call.library}, {call.composite}"
        for plan in plans
        for call in plan.calls
    }
    return [library_named(name) for name in used], callers


def plan_functions(functions: Sequence[relax.Function]) -> list[Plan]:
    """Plan regions without compiling them, for reports and tests."""
    weights = WeightBlob("plan")
    return [plan_region(read_region(function), weights) for function in functions]


def text_module(text: str, symbol: str, target: Target = HOST) -> tvm.runtime.Module:
    """A module whose packed function ``symbol`` returns ``text``, any Unicode string."""
    length = str(len(text.encode("utf-8")))
    source = _packed_text(c_bytes("text", text), "text", length, symbol)
    with tempfile.TemporaryDirectory(prefix="byoc_") as name:
        built = build_text_object(source, Path(name), target, [f"__tvm_ffi_{symbol}"])
        return tvm.runtime.load_static_library(str(built), [symbol])


def metadata_module(text: str, target: Target = HOST) -> tuple[tvm.runtime.Module, ...]:
    """The modules with the metadata of a library, to be linked into it.

    The packed function ``byoc_metadata`` returns ``text``, which has no zeros; it lies in the
    section of the same name as well, where it can be read without loading the library.  Beside it
    is room for checksums.
    """
    data = text.encode("utf-8") + b"\0"
    with tempfile.TemporaryDirectory(prefix="byoc_") as name:
        code = Path(name, "text.o")
        code.write_bytes(_metadata_code(target, target.compiler()))
        stored = ObjectFile(Path(name, "metadata.o"))
        stored.write(0, memoryview(data))
        built = stored.finish(METADATA_SECTION, len(data), [(_METADATA, 0, len(data))], like=code)
        return (
            tvm.runtime.load_static_library(str(code), [METADATA_SECTION]),
            tvm.runtime.load_static_library(str(built), []),
        )


@cache
def _metadata_code(target: Target, compiler: tuple[str, ...]) -> bytes:
    """An object with all that the metadata of libraries need but for the text, compiled once."""
    del compiler  # of which the object is
    hidden = '__attribute__((visibility("hidden")))'
    storage = f"extern {hidden} const char {_METADATA}[];\n{c_checksum()}"
    length = f"__builtin_strlen({_METADATA})"
    source = _packed_text(storage, _METADATA, length, METADATA_SECTION)
    with tempfile.TemporaryDirectory(prefix="byoc_") as name:
        keep = [f"__tvm_ffi_{METADATA_SECTION}"]
        return build_text_object(source, Path(name), target, keep).read_bytes()


def _packed_text(storage: str, array: str, length: str, symbol: str) -> str:
    """C of a packed function. Two declarations stand for TVM's header, which takes longer to read
    than all the rest.
    """
    return f"""\
/* {symbol}: UTF-8 text that describes this library. */
typedef struct {{
  const char* data;
  __SIZE_TYPE__ size;
}} TVMFFIByteArray;
int TVMFFIStringFromByteArray(const TVMFFIByteArray* input, void* result);

{storage}
__attribute__((visibility("default"))) int __tvm_ffi_{symbol}(void* self, const void* args, int n,
                                                             void* result) {{
  TVMFFIByteArray bytes = {{(const char*){array}, {length}}};
  (void)self;
  (void)args;
  (void)n;
  return TVMFFIStringFromByteArray(&bytes, result);
}}
"""


def _dump(directory: Path, symbol: str, source: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{c_identifier(symbol, 80)}.c").write_text(source, encoding="ascii")


def _readable(source: str, symbol: str) -> tvm.runtime.Module:
    """The source as a C module for ``inspect_source``, of which no linker needs anything.

    TVM asks every C module for the name of a function; this one exports none, so the name only has
    to differ from those of the regions.
    """
    inert = f"{_INERT}\n{source}\n#endif\n"
    return tvm.get_global_func("runtime.CSourceModuleCreate")(inert, "c", [f"{symbol}_source"], [])


def without_inert(files: Sequence[str]) -> list[str]:
    """The files to link without C that defines nothing, which would be compiled for nothing.

    Such are the sources of regions, and the empty module that TVM makes of a network of which it
    computes nothing itself.
    """
    return [file for file in files if not (file.endswith(".c") and _is_inert(Path(file)))]


def _is_inert(file: Path) -> bool:
    text = file.read_text(encoding="utf-8").strip()
    return text in ("", ";") or (text.startswith(_INERT) and text.endswith("#endif"))
