"""Bring your own kernels to TVM: partition, compile, load and run.

Importing this package imports neither TVM nor NumPy; names are resolved at first use, and
``load`` needs only TVM's runtime.
"""

# ruff: noqa: F401, F403 (what is imported here is for users; some of it for type checkers alone)

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc import errors
from byoc.errors import *
from byoc.version import __version__
from codegen_cc.lazy_names import lazy_names

if TYPE_CHECKING:
    from byoc.compiler.attach_metadata import describe
    from byoc.compiler.compile import Compiled, compile
    from byoc.compiler.partition import partition_for_ext, partition_with_report
    from byoc.compiler.standalone import compile_standalone
    from byoc.compiler.tune import tune
    from byoc.deploy.loader import Model, load
    from byoc.layer_errors.choose import choose_precision
    from byoc.layer_errors.compare import compare
    from byoc.layer_errors.comparison import Comparison
    from byoc.partition.marks import mark
    from byoc.patterns.registry import register_ext_op, unregister_ext_op
    from byoc.torch_compile.explanation import Explanation, explain
    from byoc.verification import Verification, verify
    from codegen_cc.libraries.measured_choice import TuningWarning

#: Where the names are that are imported when they are first asked for (for type checkers, above).
_HOMES = {
    "Comparison": "byoc.layer_errors.comparison",
    "Compiled": "byoc.compiler.compile",
    "Explanation": "byoc.torch_compile.explanation",
    "Model": "byoc.deploy.loader",
    "TuningWarning": "codegen_cc.libraries.measured_choice",
    "Verification": "byoc.verification",
    "compare": "byoc.layer_errors.compare",
    "choose_precision": "byoc.layer_errors.choose",
    "compile": "byoc.compiler.compile",
    "compile_standalone": "byoc.compiler.standalone",
    "describe": "byoc.compiler.attach_metadata",
    "explain": "byoc.torch_compile.explanation",
    "load": "byoc.deploy.loader",
    "mark": "byoc.partition.marks",
    "partition_for_ext": "byoc.compiler.partition",
    "partition_with_report": "byoc.compiler.partition",
    "register_ext_op": "byoc.patterns.registry",
    "tune": "byoc.compiler.tune",
    "unregister_ext_op": "byoc.patterns.registry",
    "verify": "byoc.verification",
}

__all__ = [*errors.__all__, *_HOMES]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)


def _autoload() -> None:
    """Register ``relax.ext.ext``; TVM calls this at ``import tvm`` through an entry point."""
    from byoc.autoload import register

    register()
