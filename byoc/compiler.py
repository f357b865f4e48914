"""ONNX in, one deployable library out: every stage in one call."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx
import tvm
from tvm import relax

from byoc import _autoload
from byoc.control import Libraries
from byoc.define_symbols import hide_definitions
from byoc.errors import ByocError
from byoc.input_shapes import model_inputs
from byoc.loader import METADATA_FUNCTION, LibraryInfo, Metadata, TensorInfo
from byoc.partition import partition_with_report
from byoc.prepare import import_onnx, prepare
from byoc.registry import Predicate
from byoc.report import Report
from codegen_cc.relax_dims import dim_text

#: What TVM's exporter tries when neither CXX nor CC is set, in its order.
_LINKERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")

Progress = Callable[[str], None]


class CompileError(ByocError):
    """A stage after partitioning failed, or a tool that it needs is missing."""


@dataclass
class Compiled:
    """What ``compile`` made."""

    executable: relax.VMExecutable
    report: Report
    metadata: Metadata
    path: Path | None = None
    #: Seconds per stage, in the order in which the stages ran.
    seconds: dict[str, float] = field(default_factory=dict)


def compile(
    model: str | os.PathLike[str] | onnx.ModelProto,
    output: str | os.PathLike[str] | None = None,
    input_shapes: Mapping[str, Sequence[int | str]] | None = None,
    *,
    target: str = "llvm",
    threads: int | None = None,
    dump_code: str | os.PathLike[str] | None = None,
    dump_ir: str | os.PathLike[str] | None = None,
    skip_ops: Iterable[str] = (),
    skip_nodes: Iterable[str] = (),
    only: Iterable[str] = (),
    predicate: Predicate | None = None,
    libraries: Libraries = None,
    min_coverage: float | None = None,
    require_full: bool = False,
    timers: bool = False,
    progress: Progress | None = None,
) -> Compiled:
    """Compile an ONNX model into one library that needs only TVM's runtime.

    ``output`` is the library to write; without it the model is only compiled in process
    (``relax.VirtualMachine(compiled.executable, tvm.cpu())`` runs it).  ``input_shapes`` gives
    dynamic axes a size, or a symbol (see ``prepare``).  ``threads`` is stored as the default of
    ``byoc.load``.  ``dump_code`` and ``dump_ir`` are folders for the emitted C and for the module
    after each pass.  ``skip_ops``, ``skip_nodes``, ``only`` and ``predicate`` leave operators to
    TVM, and ``libraries`` says which kernel libraries to use (see ``partition_for_ext``);
    ``min_coverage`` and ``require_full`` say how much must be offloaded (see ``Report.require``).
    With ``timers`` the library tells how long each kernel call took (see ``byoc.profile``).
    ``progress`` is called with a stage's name when the stage begins.

    Raises ``ByocError`` or ``codegen_cc.errors.CodegenError``; ``output`` is then left as it was.
    """
    if output is not None:
        output = Path(output)
        _require_linker()
        _require_folder(output)
    stages = _Stages(progress)
    with stages("prepare the model"):
        prepared = prepare(model, None if input_shapes is None else dict(input_shapes))
    with stages("import into TVM"):
        module = import_onnx(prepared)
        metadata = _metadata(prepared, module, threads)
    with stages("partition"):
        module, report = partition_with_report(
            module,
            skip_ops=skip_ops,
            skip_nodes=skip_nodes,
            only=only,
            predicate=predicate,
            libraries=libraries,
            dump_ir=dump_ir and Path(dump_ir),
        )
        report.require(min_coverage, require_full)
        used = tuple(LibraryInfo(u.name, u.version, u.linked) for u in report.libraries)
        metadata = replace(metadata, libraries=used)
    with stages("generate code"):
        module = _generate(module, metadata, dump_code and Path(dump_code), timers)
    with stages("compile what TVM keeps"):
        executable = _build(module, target)
    compiled = Compiled(executable, report, metadata, seconds=stages.seconds)
    if output is not None:
        with stages("link"):
            export(executable, output)
        compiled.path = output
    return compiled


def export(executable: relax.VMExecutable, output: Path) -> None:
    """Write the library, replacing ``output`` only when it is complete."""
    # In the same folder, hence on the same file system: the replacement is atomic.
    with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as folder:
        unfinished = Path(folder, "model.so")
        try:
            executable.export_library(str(unfinished))
        except Exception as error:
            raise CompileError(f"linking {output} failed: {error}") from error
        os.replace(unfinished, output)


class _Stages:
    """Announces the stages and keeps their times."""

    def __init__(self, progress: Progress | None) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        if self._progress is not None:
            self._progress(name)
        begin = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - begin


def _generate(
    module: tvm.IRModule, metadata: Metadata, dump_code: Path | None, timers: bool
) -> tvm.IRModule:
    """Replace the regions by calls, and attach the names of inputs and outputs."""
    from codegen_cc import metadata_module

    _autoload()  # for a source tree that is not installed, where TVM sees no entry point
    options: dict[str, object] = {"timers": timers}
    if dump_code:
        options["dump_code"] = str(dump_code)
    module = relax.transform.RunCodegen({"ext": options})(module)
    existing = (module.attrs or {}).get("external_mods") or []
    names = metadata_module(metadata.to_json())
    return module.with_attr("external_mods", [*existing, names])


def _build(module: tvm.IRModule, target: str) -> relax.VMExecutable:
    """Fuse and compile what was not offloaded; the calls into regions are opaque to this."""
    with tvm.target.Target(target), tvm.transform.PassContext(opt_level=3):
        return tvm.compile(relax.get_pipeline("zero")(hide_definitions(module)), target)


def _metadata(model: onnx.ModelProto, module: tvm.IRModule, threads: int | None) -> Metadata:
    """Pair the names of the ONNX model with the shapes and dtypes of the Relax function."""
    main = module["main"]
    inputs, outputs = model_inputs(model), list(model.graph.output)
    # The declared result knows no symbols but the parameters' own.
    result = main.body.body.ty
    results = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    _require_same_count("input", inputs, list(main.params))
    _require_same_count("output", outputs, results)
    return Metadata(
        inputs=tuple(
            _input_info(value, parameter.ty)
            for value, parameter in zip(inputs, main.params, strict=True)
        ),
        outputs=tuple(
            _output_info(value.name, type_) for value, type_ in zip(outputs, results, strict=True)
        ),
        threads=threads,
    )


def _require_same_count(
    what: str, values: Sequence[onnx.ValueInfoProto], found: Sequence[object]
) -> None:
    if len(values) != len(found):
        names = [value.name for value in values]
        raise CompileError(
            f"the imported model has {len(found)} {what}s where ONNX has {len(names)}: {names}"
        )


def _input_info(value: onnx.ValueInfoProto, type_: relax.Type) -> TensorInfo:
    """Symbolic extents as the caller gave them: main itself takes whatever its symbols allow."""
    info = _output_info(value.name, type_)
    dims = value.type.tensor_type.shape.dim
    shape = (
        dim.dim_param if isinstance(extent, str) else extent
        for extent, dim in zip(info.shape, dims, strict=True)
    )
    return TensorInfo(info.name, tuple(shape), info.dtype)


def _output_info(name: str, type_: relax.Type) -> TensorInfo:
    shape = getattr(type_, "shape", None)
    sizes = getattr(shape, "values", None)
    if sizes is None:
        raise CompileError(
            f"{name!r} has no known shape after import ({type_}); "
            "give every dynamic axis a size, or cut the model before it"
        )
    extents = (int(size) if isinstance(size, tvm.tirx.IntImm) else dim_text(size) for size in sizes)
    return TensorInfo(name, tuple(extents), str(type_.dtype))


def _require_linker() -> None:
    """Stop before minutes of work when the last step could not be done."""
    named = os.environ.get("CXX") or os.environ.get("CC")
    candidates = (named,) if named else _LINKERS
    if not any(shutil.which(candidate) for candidate in candidates):
        raise CompileError(
            f"no C compiler found (looked for {', '.join(candidates)}); install the package gcc "
            "(Debian, Ubuntu: apt install gcc) or set CC"
        )


def _require_folder(output: Path) -> None:
    if not output.parent.is_dir():
        raise CompileError(f"cannot write {output}: there is no folder {output.parent}")
    if output.is_dir():
        raise CompileError(f"cannot write {output}: it is a folder; give a file name")
    if output.suffix != ".so":
        raise CompileError(f"cannot write {output}: the name must end in .so to be loadable")


__all__ = ["METADATA_FUNCTION", "CompileError", "Compiled", "compile", "export"]
