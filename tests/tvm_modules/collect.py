"""A pytest plugin that keeps the modules which TVM's tests parse, build, transform or compile.

    TVM_MODULES=<folder> pytest -p tests.tvm_modules.collect <checkout>/tests/python/relax/test_x.py

Each module is written once, as ``<structural hash>.json`` with the test that showed it first in
``<structural hash>.txt``. What the tests themselves find does not matter here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import relax

#: Longer modules are mostly weights; they take long and show nothing that shorter ones do not.
MAX_BYTES = 32 << 20

_folder = Path(os.environ["TVM_MODULES"])
_test = "import"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note the test that runs."""
    global _test
    _test = item.nodeid


@pytest.hookimpl(tryfirst=True)
def pytest_collectstart(collector: pytest.Collector) -> None:
    """Note the file that is imported."""
    global _test
    _test = collector.nodeid


def keep(mod: object) -> None:
    """Write a module with a Relax function, unless it was seen before."""
    if not isinstance(mod, tvm.ir.IRModule):
        return
    if not any(isinstance(func, relax.Function) for func in mod.functions.values()):
        return
    stem = f"{tvm_ffi.structural_hash(mod) & (2**64 - 1):016x}"
    if (_folder / f"{stem}.txt").exists():
        return
    try:
        text = tvm.ir.save_json(mod)
    except (RuntimeError, TypeError, ValueError) as error:
        with open(_folder / "unsaved.log", "a") as log:
            log.write(f"{_test}: {str(error).splitlines()[-1]}\n")
        return
    if len(text) <= MAX_BYTES:
        (_folder / f"{stem}.json").write_text(text)
        (_folder / f"{stem}.txt").write_text(f"{_test}\n")


def _watch(owner: object, name: str, look_at_result: bool) -> None:
    """Keep the module that a function is given, or the one that it returns."""
    original: Callable[..., Any] = getattr(owner, name)

    @wraps(original)
    def watched(*args: Any, **kwargs: Any) -> Any:
        if not look_at_result:
            for value in (*args, *kwargs.values()):
                keep(value)
        result = original(*args, **kwargs)
        if look_at_result:
            keep(result)
        return result

    setattr(owner, name, watched)


def _install() -> None:
    from tvm.script.parser.ir import entry

    _watch(entry, "parse", look_at_result=True)  # @I.ir_module
    _watch(relax.BlockBuilder, "get", look_at_result=True)
    _watch(relax.BlockBuilder, "finalize", look_at_result=True)
    _watch(tvm.transform.Pass, "__call__", look_at_result=False)
    _watch(tvm.ir.IRModule, "from_expr", look_at_result=True)
    for owner in (tvm, relax):
        for name in ("compile", "build"):
            if hasattr(owner, name):
                _watch(owner, name, look_at_result=False)


_folder.mkdir(parents=True, exist_ok=True)
_install()
