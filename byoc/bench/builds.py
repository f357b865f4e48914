"""What an engine loads: the ONNX file itself, or what a compiler or converter makes of it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from byoc.bench.subjects import Subject
from byoc.errors import BenchmarkError
from codegen_cc.dtypes import SINGLE

if TYPE_CHECKING:
    from byoc.compiler.keywords import CompileKeywords
    from byoc.report.shortfall import Shortfall

_CONVERTER_LIMIT = 900  # seconds
#: pnnx's names of dtypes.
_PNNX_DTYPES = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "int64": "i64",
    "int32": "i32",
    "int8": "i8",
    "uint8": "u8",
    "bool": "bool",
}


@dataclass(frozen=True)
class Built:
    """A file for an engine; from ours also the network's multiply-accumulates, and a shortfall.

    ``kept`` says why no product of ours is in the precision that was asked for.
    """

    file: Path
    macs: int | None = None
    shortfall: Shortfall | None = None
    kept: str = ""


def build(engine: str, subject: Subject, source: Path, compiling: CompileKeywords) -> Built:
    """Make what ``engine`` loads, beside the model's file ``source``.

    ``compiling`` are keywords of ``byoc.compile`` for ours; by its ``target`` and ``allow_wrong``
    plain TVM compiles and imports too.  Raises whatever the compiler raises, and ``BenchmarkError``
    where a converter refuses the model.
    """
    if engine == "byoc":
        return _byoc(subject, source.with_name("byoc.so"), compiling)
    if engine == "tvm":
        return Built(_tvm(subject, source.with_name("tvm.so"), compiling))
    if engine == "ncnn":
        return Built(_ncnn(subject, source))
    return Built(source)


def _byoc(subject: Subject, output: Path, compiling: CompileKeywords) -> Built:
    from byoc.compiler.compile import compile

    report = compile(subject.model, output, **compiling).report
    kept = "; ".join(report.kept) if set(report.multiplied_in) <= {SINGLE} else ""
    return Built(output, report.macs, report.shortfall, kept)


def _tvm(subject: Subject, output: Path, compiling: CompileKeywords) -> Path:
    import tvm

    from byoc.compiler.compile import export
    from byoc.frontends import import_model
    from codegen_cc.target import Target

    machine = Target.parse(compiling.get("target"))
    module = import_model(subject.model, allow_wrong=compiling.get("allow_wrong", ())).module
    executable = tvm.compile(module, tvm.target.Target(machine.tvm))
    export(executable, output, machine, described=False)
    return output


def _ncnn(subject: Subject, source: Path) -> Path:
    """Convert with the program of the package pnnx, which needs none of the package's Python."""
    spec = find_spec("pnnx")
    assert spec is not None and spec.origin is not None  # the engine is not absent
    program = Path(spec.origin).with_name("pnnx")
    shapes = ",".join(map(_pnnx_shape, subject.inputs.values()))
    command = [str(program), source.name, f"inputshape={shapes}", "fp16=0"]
    try:
        done = subprocess.run(
            command,
            cwd=source.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=_CONVERTER_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"pnnx did not finish in {_CONVERTER_LIMIT} s") from None
    stem = source.with_suffix("").name
    for rest in source.parent.glob(f"{stem}*pnnx*"):  # copies of the weights
        rest.unlink()
    result = source.with_name(f"{stem}.ncnn.param")
    if done.returncode != 0 or not result.is_file():
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        reason = lines[-1] if lines else f"exit status {done.returncode}"
        raise BenchmarkError(f"pnnx cannot convert it: {reason}")
    return result


def _pnnx_shape(array: np.ndarray) -> str:
    dtype = str(array.dtype)
    if dtype not in _PNNX_DTYPES:
        raise BenchmarkError(f"pnnx takes no input of dtype {dtype}")
    return f"[{','.join(map(str, array.shape))}]{_PNNX_DTYPES[dtype]}"
