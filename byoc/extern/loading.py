"""Packed functions that were built to a library, made known to TVM."""

from __future__ import annotations

from pathlib import Path

import tvm
import tvm_ffi


def load_packed(library: Path, name: str) -> None:
    """Register the function of that name, for ``call_packed`` and the Relax VM in this process.

    Raises ``FileNotFoundError`` where the library is not built.
    """
    if not library.exists():
        raise FileNotFoundError(f"{library} is not built; run make -C {library.parent}")
    # The registered function keeps the library loaded.
    function = tvm.runtime.load_module(str(library))[name]
    tvm_ffi.register_global_func(name, function, override=True)
