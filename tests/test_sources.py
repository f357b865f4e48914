"""The rules of CONTRIBUTING.md that can be read off the sources: lengths, dependencies, lists."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from codegen_cc.operator import known_operators
from tests.test_imports import ROOT, imported, modules

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

LONGEST_FILE, LONGEST_FUNCTION = 450, 60

#: Where float32 may be named freely: the table of dtypes, what reads models, and kernels' rules.
NAME_FLOAT32 = (
    "codegen_cc.dtypes",
    "codegen_cc.libraries",
    "codegen_cc.operators",
    "byoc.frontends",
)
#: Lines that may name it elsewhere.
MOST_FLOAT32 = 24

#: What a distribution is imported as, where that is another name.
IMPORTED_AS = {"apache-tvm": "tvm", "apache-tvm-ffi": "tvm_ffi", "protobuf": "google"}
#: Imported only by what needs an extra.
EXTRAS = {
    *("matplotlib", "mlserver", "ncnn", "onnxruntime", "onnxruntime-genai", "openvino"),
    *("openvino-genai", "pycparser", "ray", "torch"),
}

#: Where operators are described, read, imported or offered to C functions, by name.
NAME_OPERATORS = (
    *("codegen_cc.operators", "codegen_cc.libraries", "byoc.extern"),
    *("byoc.frontends", "byoc.canonicalise", "byoc.patterns"),
)
#: Who else tells operators apart, and why that is no fact about an operator.
TELL_OPERATORS_APART = {
    "codegen_cc.plan.concat_in_place",  # rewrites concatenations of slices
    "codegen_cc.plan.prologue",  # which steps one kernel can do while it reads
    "byoc.partition.sizes_of_nothing",  # operators of TVM, by its names
    "byoc.tuning.build",  # writes the graphs that are timed
    "byoc.tuning.layers",  # which layers are worth timing
}


def sources(*patterns: str) -> list[Path]:
    """The files of the repository that fit one of these patterns, or all."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("the sources are in no checkout", allow_module_level=True)
    return [file for name in done.stdout.split() if (file := ROOT / name).is_file()]


def test_files_are_short() -> None:
    files = sources("*.py", "*.c", "*.cc", "*.h")
    lines = {str(f.relative_to(ROOT)): f.read_text(encoding="utf-8").count("\n") for f in files}
    assert len(lines) > 600 and "runtime/include/ext_kernels.h" in lines
    assert {name: count for name, count in lines.items() if count > LONGEST_FILE} == {}


def functions(file: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.end_lineno - node.lineno + 1


def test_functions_are_short() -> None:
    lengths = {
        f"{module}.{name}": length
        for module, file in modules().items()
        for name, length in functions(file)
    }
    assert len(lengths) > 2000
    assert {name: n for name, n in lengths.items() if n > LONGEST_FUNCTION} == {}


def test_keywords_are_those_of_the_oldest_python() -> None:
    """Of functions of Python whose newer keywords no check of types sees here."""
    newer = {"catch_warnings": {"action", "category", "lineno", "append"}}  # 3.11
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in sources("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if {word.arg for word in node.keywords} & newer.get(node.func.attr, set())
    ]
    assert found == []


def test_dtypes_of_onnx_are_those_of_the_oldest() -> None:
    """Newer ones are looked up by name, where the installed onnx has them."""
    newer = re.compile(r"TensorProto\.(U?INT2|FLOAT4\w+|FLOAT8E8M0)\b")  # not in 1.16
    files = [file for file in modules().values() if newer.search(file.read_text(encoding="utf-8"))]
    assert files == []


def test_what_the_product_imports_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [re.split(r"[<>=!\[ ]", line)[0] for line in project["dependencies"]]
    declared = {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names}
    optional = {
        re.split(r"[<>=!\[ ]", line)[0]
        for extra in project["optional-dependencies"].values()
        for line in extra
    }
    assert optional >= EXTRAS
    extras = {name.replace("-", "_") for name in EXTRAS}
    known = {*declared, *extras, *sys.stdlib_module_names, "byoc", "codegen_cc"}
    found = {full.partition(".")[0] for file in modules().values() for full, _ in imported(file)}
    assert found - known == set()
    assert declared - found == set()


def test_operators_are_told_apart_in_few_places() -> None:
    """A list of operators in a module is a fact that belongs to their records."""
    operators = set(known_operators())
    telling = set()
    for name, file in modules().items():
        tree = ast.parse(file.read_text(encoding="utf-8"))
        strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        if len(strings & operators) > 1 and not name.startswith(NAME_OPERATORS):
            telling.add(name)
    assert telling == TELL_OPERATORS_APART


def test_float32_is_named_in_few_places() -> None:
    """The dtype of numbers has a name in the table; where it is written out, it is by habit."""
    lines = [
        f"{name}:{number}"
        for name, file in modules().items()
        if not name.startswith(NAME_FLOAT32)
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if "float32" in line
    ]
    assert "byoc.ir.dataflow" in {line.partition(":")[0] for line in lines}
    assert len(lines) <= MOST_FLOAT32, lines
