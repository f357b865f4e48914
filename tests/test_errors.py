"""One family of errors, and what other packages raise inside a stage joins it."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest
import tvm

import byoc
import byoc.errors
import codegen_cc
from byoc.stages import Stages
from codegen_cc.errors import foreign_errors_as, one_line

#: Caught where they are raised, by the one function that raises them.
INTERNAL = {"BadExpression", "ElfError", "NoRow", "Unfit"}


def test_every_error_of_the_packages_is_a_byoc_error() -> None:
    strangers = set()
    for package in (byoc, codegen_cc):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "bench" in found.name or "_runtime" in found.name or "__main__" in found.name:
                continue
            try:
                module = importlib.import_module(found.name)
            except ModuleNotFoundError as error:
                if error.name != "torch":  # which is on the path where tests/torch runs as well
                    raise
                continue
            strangers |= {
                name
                for name, value in vars(module).items()
                if isinstance(value, type)
                and issubclass(value, Exception)
                and value.__module__.partition(".")[0] in ("byoc", "codegen_cc")
                and not issubclass(value, byoc.ByocError | Warning)
                and not name.startswith("_")
            }
    assert strangers == INTERNAL


def test_errors_are_exported_without_importing_anything_heavy() -> None:
    check = (
        "import byoc, sys\n"
        "for name in ('InputError', 'LoadError', 'CodegenError', 'CompileError', 'RpcError'):\n"
        "    assert issubclass(getattr(byoc, name), byoc.ByocError), name\n"
        "assert not {'tvm', 'tvm_ffi', 'numpy', 'onnx'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", check], check=True)
    assert set(byoc.errors.__all__) <= set(byoc.__all__)
    assert byoc.CodegenError is codegen_cc.CodegenError


def test_a_stage_turns_strange_errors_into_ours_and_keeps_them() -> None:
    stages = Stages(None)
    with (
        pytest.raises(
            byoc.PartitionError, match=r"stage 'partition'.*KeyError: 'float8'"
        ) as caught,
        stages("partition", byoc.PartitionError),
    ):
        raise KeyError("float8")
    assert isinstance(caught.value.__cause__, KeyError)
    for own in (byoc.ShapeError("of ours"), MemoryError(), KeyboardInterrupt()):
        with pytest.raises(type(own)) as caught, stages("partition", byoc.PartitionError):
            raise own
        assert caught.value is own


def test_messages_of_tvm_become_one_line() -> None:
    error = tvm.error.InternalError(
        "[12:00:00] /src/a.cc:17: Check failed: (x) is false: \x1b[2J\nmore"
    )
    assert one_line(error) == r"InternalError: Check failed: (x) is false: \x1b[2J"
    with pytest.raises(byoc.CodegenError) as caught, foreign_errors_as(byoc.CodegenError, "It"):
        raise ValueError
    assert str(caught.value) == "It failed: ValueError"
