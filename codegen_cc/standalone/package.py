"""The folder of a standalone model: headers, libraries and the C source that they came from.

    include/byoc_model.h    types that all models share
    include/NAME.h          the functions of this one
    lib/libNAME.a           code and weights; all symbols but those functions are local or hidden
    lib/libNAME.so          the same, linked
    NAME.c                  the generated code, to read

Several models may share a folder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tvm import relax

from codegen_cc.errors import LibraryError, ToolchainError
from codegen_cc.link.checksum import seal
from codegen_cc.link.embedded_text import METADATA_SECTION, c_bytes, c_checksum
from codegen_cc.link.foreign_kernels import kernel_file
from codegen_cc.link.toolchain import build_object
from codegen_cc.link.weights import WeightBlob, page_flags, write_in_large_pieces
from codegen_cc.lowering import plan_region
from codegen_cc.module import called_by
from codegen_cc.plan.builder import Plan
from codegen_cc.plan.plan_cost import PlanCost, cost_of
from codegen_cc.region.read_relax import read_region
from codegen_cc.several_ways import require_one_way
from codegen_cc.standalone.header import header_text
from codegen_cc.standalone.interface import Interface
from codegen_cc.standalone.source import source_text
from codegen_cc.target import HOST, Target
from codegen_cc.unfinished import folder_beside

#: What a program needs besides the model, as linker options; linkers drop what adds nothing.
_SYSTEM = ("-lm", "-pthread", "-ldl")
_UNDEFINED = re.compile(r"undefined (?:reference to|symbol:?) [`'\"]?(\w+)")


@dataclass(frozen=True)
class Package:
    """What ``build`` wrote: paths below ``folder``, and their sizes in bytes."""

    folder: Path
    files: dict[str, int]
    cost: PlanCost


def build(
    region: relax.Function,
    interface: Interface,
    folder: Path,
    describe: Callable[[frozenset[int]], str] = lambda in_place: "",
    target: Target = HOST,
) -> Package:
    """Compile a region and write the folder.

    ``describe`` gives the text of the libraries' section ``byoc_metadata``, of the region's inputs
    that are states which it writes in place.  The folder appears whole; where it exists already,
    each of its files is replaced at once, and others stay.  Raises
    ``CodegenError``, ``LibraryError`` and ``ToolchainError``.
    """
    with tempfile.TemporaryDirectory(prefix="byoc_") as name:
        work = Path(name)
        weights = WeightBlob(f"byoc_{interface.name}", work / f"{interface.name}_weights.o")
        function = region.with_attr("global_symbol", interface.name)
        require_one_way(function, "the standalone form")
        plan = plan_region(read_region(function), weights)
        text = source_text(plan, interface)
        metadata = describe(frozenset(rows.input for rows in plan.in_place))
        objects = _objects(plan, interface, weights, text, metadata, work, target)
        files = _write(folder, interface, text, objects, target)
    return Package(folder, files, cost_of(plan))


def _objects(
    plan: Plan,
    interface: Interface,
    weights: WeightBlob,
    text: str,
    metadata: str,
    work: Path,
    target: Target,
) -> list[Path]:
    """The model's code, its metadata and its weights, as objects."""
    (work / "code").mkdir()
    (work / "code" / f"{interface.name}.h").write_text(header_text(interface), encoding="ascii")
    libraries, callers = called_by([plan])
    code = build_object(
        f"{text}\n{c_bytes('metadata', metadata, METADATA_SECTION)}{c_checksum()}",
        work / "code",
        libraries,
        callers,
        [weight.symbol for weight in weights.weights],
        target,
        interface.functions,
        [kernel_file(target, "lib/libext_standalone.a")],
    )
    named = code.rename(work / f"{interface.name}.o")
    constants = weights.finish(named)
    return [named, constants] if constants is not None else [named]


def _write(
    folder: Path, interface: Interface, text: str, objects: list[Path], target: Target
) -> dict[str, int]:
    """Write all files beside ``folder``, then move them into it."""
    name = interface.name
    with folder_beside(folder) as temporary:
        new = temporary / "new"
        (new / "include").mkdir(parents=True)
        (new / "lib").mkdir()
        shutil.copyfile(kernel_file(target, "include/byoc_model.h"), new / "include/byoc_model.h")
        (new / "include" / f"{name}.h").write_text(header_text(interface), encoding="ascii")
        (new / f"{name}.c").write_text(text, encoding="ascii")
        _archive(new / "lib" / f"lib{name}.a", objects, target)
        _link(new / "lib" / f"lib{name}.so", objects, target)
        files = sorted(path for path in new.rglob("*") if path.is_file())
        sizes = {str(path.relative_to(new)): path.stat().st_size for path in files}
        try:
            if not folder.exists():
                new.rename(folder)
                return sizes
        except OSError:
            if not folder.is_dir():  # else another model was written to it at the same time
                raise
        for relative in sizes:
            (folder / relative).parent.mkdir(exist_ok=True)
            os.replace(new / relative, folder / relative)
    return sizes


def _archive(path: Path, objects: list[Path], target: Target) -> None:
    # D: no dates and owners inside, so that the same model gives the same file.
    _run([*target.archiver(), "rcsD", str(path), *map(str, objects)], path)


def _link(path: Path, objects: list[Path], target: Target) -> None:
    flags = ["-shared", f"-Wl,-soname,{path.name}", "-Wl,--build-id=none", "-Wl,-z,defs"]
    flags += page_flags(objects)
    command = [*target.compiler(), *flags, "-o", str(path), *map(str, objects)]
    _run([*command, "-Wl,--as-needed", *_SYSTEM], path)
    seal(path)
    write_in_large_pieces(path)


def _run(command: list[str], path: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 0:
        return
    if found := _UNDEFINED.search(done.stderr):
        raise LibraryError(
            f"{path.name} cannot be linked: {found[1]} is neither in a kernel library nor in the C "
            "library; a library that calls TVM or needs C++'s runtime does not fit the standalone "
            "form"
        )
    lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
    raise ToolchainError(f"{Path(command[0]).name} failed on {path.name}: {lines[0].strip()}")
