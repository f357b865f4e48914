"""One module through plain TVM and through us: the same answers, or the same refusal."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from byoc.compiler.partition import partition_for_ext
from byoc.ir.dataflow import is_region
from byoc.partition import convert_to_dataflow
from tests.tvm_modules.inputs import Draw, NoArgument, draws

#: Greatest |error| as a share of the range, by the width of a result's dtype in bits. TVM's own
#: fused loops add in another order than kernels do.
TOLERANCE = {8: 0.26, 16: 2e-2, 32: 2e-4, 64: 2e-4}

#: Operators whose results nobody needs to write.
UNWRITTEN = re.compile(r"alloc_tensor|alloc_storage")

EQUAL = "equal"
#: Nothing was offloaded or rewritten: what TVM compiles is the same.
UNCHANGED = "left as it was"
#: Plain TVM compiles it and cannot run it as it stands here (a missing function, unknown types).
COMPILED = "compiled alike"
#: Plain TVM does not compile it either (another device, operators to be lowered first).
PARTITIONED = "partitioned, TVM refuses"
#: Not a well-formed module, and nothing that TVM compiles.
ILL_FORMED = "ill-formed"
DIFFERENT = "different"
#: Plain TVM ends the process, or does not end.
TVM_FAILS = "TVM crashes or hangs"


@dataclass(frozen=True)
class Verdict:
    """What became of a module: its class, why, and how many regions it had."""

    kind: str
    why: str = ""
    regions: int = 0


def check(mod: tvm.IRModule, tell: Callable[[str], None], values: bool = True) -> Verdict:
    """Compare a module with plain TVM; ``tell`` is called with the name of each stage."""
    tell("partition")
    partitioned, failure = None, ""
    try:
        partition_for_ext(mod)
        # Tiny modules have tiny regions.
        partitioned = partition_for_ext(mod, min_bytes=0)
        if tvm_ffi.structural_equal(partitioned, convert_to_dataflow(mod)):
            return Verdict(UNCHANGED)
    except Exception as error:  # a difference, unless the module is none
        failure = f"{type(error).__name__}: {_line(error)}"
    tell("plain compile")
    try:
        plain, refusal = tvm.compile(mod, target="llvm"), ""
    except Exception as error:  # whatever plain TVM says is what is compared with
        plain, refusal = None, _line(error)
        if not relax.analysis.check_well_formed(mod):
            return Verdict(ILL_FORMED, failure or refusal)
    if partitioned is None:
        return Verdict(DIFFERENT, failure)
    regions = sum(is_region(func) for func in partitioned.functions.values())
    sound = relax.analysis.check_well_formed
    if sound(mod) and not sound(partitioned):
        return Verdict(DIFFERENT, "the partitioned module is not well-formed", regions)
    if any("Codegen" in (f.attrs or {}) and not is_region(f) for f in mod.functions.values()):
        return Verdict(PARTITIONED, "regions of another backend", regions)
    tell("generate code")
    try:
        # TVM's pass drops private functions that nothing calls, so it runs only where it must.
        generated = relax.transform.RunCodegen()(partitioned) if regions else partitioned
        if plain is None:
            return Verdict(PARTITIONED, refusal, regions)
        tell("compile")
        ours = tvm.compile(generated, target="llvm")
    except Exception as error:  # plain TVM compiles it, or code generation failed
        return Verdict(DIFFERENT, f"{type(error).__name__}: {_line(error)}", regions)
    if not values:
        return Verdict(COMPILED, "TVM takes too long to run it", regions)
    return _compare(mod, plain, ours, regions, tell)


def _compare(
    mod: tvm.IRModule,
    plain: Any,
    ours: Any,
    regions: int,
    tell: Callable[[str], None],
) -> Verdict:
    if UNWRITTEN.search(_text(mod)):
        return Verdict(COMPILED, "memory that nothing writes has no value to compare", regions)
    tell("plain run")
    try:
        machines = [relax.VirtualMachine(plain, tvm.cpu())]
    except Exception as error:  # TVM cannot load it: a function that the test would register
        return Verdict(COMPILED, _line(error), regions)
    tell("load")
    try:
        machines.append(relax.VirtualMachine(ours, tvm.cpu()))
    except Exception as error:
        return Verdict(DIFFERENT, f"load: {type(error).__name__}: {_line(error)}", regions)
    compared, why = 0, "no public function"
    for gvar, func in mod.functions.items():
        attributes = getattr(func, "attrs", None) or {}
        if not isinstance(func, relax.Function) or "global_symbol" not in attributes:
            continue
        if "Codegen" in attributes:
            continue
        for draw in draws(func):
            found = _run_both(machines, gvar.name_hint, draw, tell)
            if found is None:
                compared += 1
                break
            if found.kind == DIFFERENT:
                return Verdict(DIFFERENT, f"{gvar.name_hint}: {found.why}", regions)
            why = found.why
    return Verdict(EQUAL, "", regions) if compared else Verdict(COMPILED, why, regions)


def _text(mod: tvm.IRModule) -> str:
    try:
        return mod.script(show_meta=False)
    except Exception:  # an ill-formed module that TVM compiles and does not print
        return ""


def _run_both(
    machines: list[relax.VirtualMachine], name: str, draw: Draw, tell: Callable[[str], None]
) -> Verdict | None:
    """None where both give the same, twice in a row in plain TVM's case."""
    plain, ours = machines
    tell("plain run")
    try:
        wanted = _plain(plain[name](*draw()))
        again = _plain(plain[name](*draw()))
    except (NoArgument, TypeError, ValueError) as error:
        return Verdict(COMPILED, _line(error))
    except Exception as error:  # plain TVM refuses these arguments
        return Verdict(COMPILED, _line(error))
    if difference(again, wanted) is not None:
        return Verdict(COMPILED, "TVM gives another answer each time")
    tell("run")
    try:
        found = _plain(ours[name](*draw()))
    except Exception as error:
        return Verdict(DIFFERENT, f"run: {type(error).__name__}: {_line(error)}")
    reason = difference(found, wanted)
    return None if reason is None else Verdict(DIFFERENT, reason)


def _plain(value: Any) -> Any:
    """A result of the virtual machine as nested lists of arrays in memory of their own."""
    if isinstance(value, tvm.runtime.Tensor):
        return value.numpy().copy()
    if isinstance(value, tvm_ffi.Array | list | tuple) and not isinstance(value, tvm_ffi.Shape):
        return [_plain(item) for item in value]
    if isinstance(value, tvm_ffi.Shape):
        return [int(extent) for extent in value]
    return value if isinstance(value, int | float | str | type(None)) else type(value).__name__


def difference(found: Any, wanted: Any) -> str | None:
    """How two results differ, or None."""
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(found) != len(wanted):
            return f"{type(found).__name__} instead of {len(wanted)} results"
        parts = (difference(f, w) for f, w in zip(found, wanted, strict=True))
        return next((part for part in parts if part is not None), None)
    if not isinstance(wanted, np.ndarray):
        return None if found == wanted else f"{found} instead of {wanted}"
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype}{found.shape} instead of {wanted.dtype}{wanted.shape}"
    if "float" not in wanted.dtype.name:
        count = int((found != wanted).sum())
        return f"{count} of {wanted.size} integers differ" if count else None
    return _float_difference(found.astype("float64"), wanted.astype("float64"), wanted.itemsize)


def _float_difference(found: np.ndarray, wanted: np.ndarray, itemsize: int) -> str | None:
    special = ~np.isfinite(wanted)
    if not np.array_equal(found[special], wanted[special], equal_nan=True):
        return "NaN or infinity at other places"
    if not np.isfinite(found[~special]).all():
        return "NaN or infinity where plain TVM has none"
    if special.all():
        return None
    want = wanted[~special]
    error = float(np.abs(found[~special] - want).max())
    limit = TOLERANCE[8 * itemsize] * max(float(np.ptp(want)), float(np.abs(want).max())) + 1e-6
    return f"|error| {error:.3g}, limit {limit:.3g}" if error > limit else None


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:200]


def quiet() -> None:
    """Keep warnings of NumPy and of ours off the terminal."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
