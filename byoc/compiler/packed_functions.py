"""The packed functions that a compiled module calls, and who has them where the model will run.

A process that compiles has all of TVM; one that runs a model may have ``libtvm_runtime`` alone.  So
what is called is settled while compiling: it is TVM's runtime that has it, another of TVM's runtime
libraries, which is noted in the metadata, the model itself, or the model is refused.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import tvm

from byoc.deploy.metadata import RuntimeLibrary
from byoc.deploy.tvm_runtime import CORE, EXTRAS
from byoc.errors import CompileError
from byoc.ir.packed_calls import bring_along, called, named
from codegen_cc.target import Target

#: The core library has every function whose name begins so, but these of TVM's Python package.
_BUILTIN = "vm.builtin."
_NOT_BUILTIN = ("vm.builtin.debug_print",)

#: Run in a process of its own: names of the functions that each runtime library registers.
_LIST = """
import sys
sys.path.insert(0, sys.argv[1])
sys.modules["torch"] = None
from byoc.deploy.tvm_runtime import CORE, EXTRAS, load_library
import json, tvm_ffi.registry
known, found = set(), {}
for name in (CORE, *EXTRAS):
    load_library(name)
    names = set(tvm_ffi.registry.list_global_func_names())
    found[name], known = sorted(names - known), names
print(json.dumps(found))
"""


def settle(module: tvm.IRModule, target: Target) -> tuple[tvm.IRModule, tuple[RuntimeLibrary, ...]]:
    """Give a lowered module what it calls and nobody else has; tell which libraries it needs.

    Raises ``CompileError`` for a function that only a process that compiles has.
    """
    names = named(module)
    module = bring_along(module, target, names)
    needs: dict[str, list[str]] = {}
    for name in called(module, names):
        if not _is_core(name) and (library := _library_of(name)) != CORE:
            needs.setdefault(library, []).append(name)
    return module, tuple(RuntimeLibrary(k, tuple(sorted(v))) for k, v in sorted(needs.items()))


def _is_core(name: str) -> bool:
    return name.startswith(_BUILTIN) and name not in _NOT_BUILTIN


def _library_of(name: str) -> str:
    """The runtime library that has a function. Raises ``CompileError``."""
    for library, names in registered().items():
        if name in names:
            return library
    raise CompileError(
        f"the function {name!r}, which TVM would call, is in none of its runtime libraries "
        f"({', '.join((CORE, *EXTRAS))}); leave out the operator that needs it, or let"
        " a kernel library compute it (byoc partition says why none does)"
    )


@functools.cache
def registered() -> dict[str, frozenset[str]]:
    """Names of the packed functions that each of TVM's runtime libraries brings.

    A fresh process is asked, as this one has TVM's compiler and Python functions as well. Raises
    ``CompileError``.
    """
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", _LIST, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise CompileError(f"cannot list the functions of TVM's runtime libraries: {last}")
    return {name: frozenset(names) for name, names in json.loads(done.stdout).items()}
