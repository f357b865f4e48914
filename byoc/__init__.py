"""Bring your own kernels to TVM: partition, compile, load and run.

Importing this package imports neither TVM nor NumPy; names are resolved at first use, and
``load`` needs only TVM's runtime.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from byoc.compiler import Compiled, compile
    from byoc.deploy.attach_metadata import describe
    from byoc.deploy.loader import Model, load
    from byoc.deploy.standalone import compile_standalone
    from byoc.errors import (
        BenchmarkError,
        ByocError,
        CodegenError,
        CompileError,
        ControlError,
        CoverageError,
        ExternError,
        ImportFailure,
        InputError,
        LibraryError,
        LoadError,
        ModelError,
        OffloadWarning,
        PartitionError,
        RunError,
        ShapeError,
        SuspectWarning,
        ToolchainError,
        TuningError,
        UnsupportedForm,
        VerifyError,
    )
    from byoc.partition import partition_for_ext, partition_with_report
    from byoc.partition.marks import mark
    from byoc.patterns.registry import register_ext_op, unregister_ext_op
    from byoc.rpc.errors import RpcError, RpcLost, RpcRefused, RpcTimeout
    from byoc.tuning.tuner import tune
    from byoc.verification import Verification, verify
    from codegen_cc.libraries.measured_choice import TuningWarning

__version__ = "0.1.0"

__all__ = [
    "BenchmarkError",
    "ByocError",
    "CodegenError",
    "CompileError",
    "Compiled",
    "ControlError",
    "CoverageError",
    "ExternError",
    "ImportFailure",
    "InputError",
    "LibraryError",
    "LoadError",
    "Model",
    "ModelError",
    "OffloadWarning",
    "PartitionError",
    "RpcError",
    "RpcLost",
    "RpcRefused",
    "RpcTimeout",
    "RunError",
    "ShapeError",
    "SuspectWarning",
    "ToolchainError",
    "TuningError",
    "TuningWarning",
    "UnsupportedForm",
    "Verification",
    "VerifyError",
    "compile",
    "compile_standalone",
    "describe",
    "load",
    "mark",
    "partition_for_ext",
    "partition_with_report",
    "register_ext_op",
    "tune",
    "unregister_ext_op",
    "verify",
]

_HOMES = {
    "BenchmarkError": "byoc.errors",
    "ByocError": "byoc.errors",
    "CodegenError": "byoc.errors",
    "CompileError": "byoc.errors",
    "Compiled": "byoc.compiler",
    "ControlError": "byoc.errors",
    "CoverageError": "byoc.errors",
    "ExternError": "byoc.errors",
    "ImportFailure": "byoc.errors",
    "InputError": "byoc.errors",
    "LibraryError": "byoc.errors",
    "LoadError": "byoc.errors",
    "Model": "byoc.deploy.loader",
    "ModelError": "byoc.errors",
    "OffloadWarning": "byoc.errors",
    "PartitionError": "byoc.errors",
    "RpcError": "byoc.rpc.errors",
    "RpcLost": "byoc.rpc.errors",
    "RpcRefused": "byoc.rpc.errors",
    "RpcTimeout": "byoc.rpc.errors",
    "RunError": "byoc.errors",
    "ShapeError": "byoc.errors",
    "SuspectWarning": "byoc.errors",
    "ToolchainError": "byoc.errors",
    "TuningError": "byoc.errors",
    "TuningWarning": "codegen_cc.libraries.measured_choice",
    "Verification": "byoc.verification",
    "VerifyError": "byoc.errors",
    "UnsupportedForm": "byoc.errors",
    "compile": "byoc.compiler",
    "compile_standalone": "byoc.deploy.standalone",
    "describe": "byoc.deploy.attach_metadata",
    "load": "byoc.deploy.loader",
    "mark": "byoc.partition.marks",
    "partition_for_ext": "byoc.partition",
    "partition_with_report": "byoc.partition",
    "register_ext_op": "byoc.patterns.registry",
    "tune": "byoc.tuning.tuner",
    "unregister_ext_op": "byoc.patterns.registry",
    "verify": "byoc.verification",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'byoc' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


def _autoload() -> None:
    """Register ``relax.ext.ext``; TVM calls this at ``import tvm`` through an entry point.

    The code generator is imported when ``RunCodegen`` first calls it.  In a process with TVM's
    runtime only there is nothing to compile, hence nothing to register.
    """
    from tvm.base import _RUNTIME_ONLY
    from tvm_ffi import register_global_func

    if _RUNTIME_ONLY:
        return

    @register_global_func("relax.ext.ext", override=True)
    def codegen_ext(functions: Any, options: Any, constant_names: Any) -> Any:
        from codegen_cc import codegen

        return codegen(functions, options, constant_names)
