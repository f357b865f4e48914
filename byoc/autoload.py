"""Make this backend known to TVM."""

from __future__ import annotations

from typing import Any


def register() -> None:
    """Register ``relax.ext.ext``.

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
