"""Imports run one way: no circle of files, none of folders, and any package may come first.

The graph is drawn from the text of the modules. Imports inside of functions count, and so do those
for type checkers alone: a module that needs another's types knows of it. That of the C files is
drawn from their symbols.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

import byoc
from codegen_cc.runtime_files import runtime_file
from codegen_cc.target import HOST

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("byoc", "codegen_cc")

#: Where a module imports another: the line, by the other's name.
Imports = dict[str, int]

#: Besides the front end for it: the zoo, whose networks are built as ONNX models.
KNOW_ONNX = ("byoc.frontends.onnx", "byoc.zoo")

#: Imports each package in a process that has imported nothing of ours, and prints what failed.
FIRST = """
import importlib, os, sys, traceback
import onnx.reference, sympy, tvm.relax.frontend.onnx  # once for all, as they take a second
# With TVM comes what is ours and registered with it, which is forgotten again.
for name in [n for n in sys.modules if n.partition(".")[0] in ("byoc", "codegen_cc")]:
    del sys.modules[name]
for name in sys.argv[1:]:
    if not os.fork():
        try:
            importlib.import_module(name)
        except BaseException:
            print(name, traceback.format_exc(), flush=True)
        os._exit(0)
    os.wait()
"""


def modules() -> dict[str, Path]:
    """The files of the modules by their names; a package's is its ``__init__``."""
    found = {}
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            if "_runtime" not in file.parts:
                found[".".join(file.relative_to(ROOT).with_suffix("").parts)] = file
    return {name.removesuffix(".__init__"): file for name, file in found.items()}


def packages(known: Mapping[str, Path]) -> list[str]:
    return sorted(name for name, file in known.items() if file.name == "__init__.py")


@cache
def imported(file: Path) -> tuple[tuple[str, int], ...]:
    """Everything that a file imports, by full name; what is imported from a module as its part."""
    return tuple(_imported(file))


def _imported(file: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}:{node.lineno}: a relative import"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def import_graph(known: Mapping[str, Path]) -> dict[str, Imports]:
    """What each module imports of these modules."""
    graph: dict[str, Imports] = {}
    for name, file in known.items():
        graph[name] = {}
        for full, line in imported(file):
            target = full if full in known else full.rpartition(".")[0]
            if target in known and target != name:
                graph[name].setdefault(target, line)
    return graph


def folder_of(name: str, known: Mapping[str, Path]) -> str:
    """The package of the first two levels that a module is in; itself where it is in none."""
    folder = ".".join(name.split(".")[:2])
    return folder if folder in known and known[folder].name == "__init__.py" else name


def circle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Names of a circle, its first one at the end again; empty where there is none."""
    done: set[str] = set()

    def search(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name not in done:
            for other in sorted(graph.get(name, ())):
                if found := search(other, [*path, name]):
                    return found
            done.add(name)
        return []

    return next((found for name in sorted(graph) if (found := search(name, []))), [])


def test_the_search_finds_circles() -> None:
    assert circle({"a": "bc", "b": "d", "c": "d", "d": ""}) == []
    assert circle({"a": "b", "b": "c", "c": "db", "d": ""}) == ["b", "c", "b"]


def test_files_import_one_way() -> None:
    graph = import_graph(modules())
    assert len(graph) > 250 and "codegen_cc.errors" in graph["byoc.errors"]
    found = circle(graph)
    steps = pairwise(found)
    assert not found, "\n".join(f"{a} imports {b} in line {graph[a][b]}" for a, b in steps)


@pytest.mark.parametrize("archive", ["libext_kernels.a", "libext_standalone.a"])
def test_c_files_call_one_way(archive: str) -> None:
    """By the symbols of an archive's objects; one of several levels counts as one file."""
    command = [HOST.tool("nm"), "-A", str(runtime_file(f"lib/{archive}"))]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    symbols = re.findall(r":(\w+)\.o: *(?:[0-9a-f]+)? (\w) (\w+)", listed)
    owner = {symbol: file for file, kind, symbol in symbols if kind != "U"}
    graph: dict[str, set[str]] = {file: set() for file in owner.values()}
    for file, kind, symbol in symbols:
        if kind == "U" and owner.get(symbol, file) != file:
            graph[file].add(owner[symbol])
    assert any(graph.values())
    assert circle(graph) == []


def test_folders_import_one_way() -> None:
    known = modules()
    reasons: dict[str, dict[str, str]] = {}
    for name, imports in import_graph(known).items():
        folder = folder_of(name, known)
        for other, line in imports.items():
            if (target := folder_of(other, known)) != folder:
                reason = f"{name} imports {other} in line {line}"
                reasons.setdefault(folder, {}).setdefault(target, reason)
    assert "byoc.ir" in reasons["byoc.partition"]
    found = circle(reasons)
    steps = pairwise(found)
    assert not found, "\n".join(f"{a} -> {b}: {reasons[a][b]}" for a, b in steps)


def test_the_partitioner_knows_nothing_of_tuning() -> None:
    graph = import_graph(modules())
    reached, waiting = set(), [name for name in graph if name.startswith("byoc.partition")]
    assert "byoc.partition.rules" in waiting
    while waiting:
        reached.add(name := waiting.pop())
        waiting += [other for other in graph[name] if other not in reached]
    assert {"byoc.report.report", "codegen_cc.libraries.selection"} < reached
    assert not {name for name in reached if name.startswith(("byoc.tuning", "byoc.compiler"))}


def test_any_package_may_be_imported_first() -> None:
    names = packages(modules())
    assert {"byoc.canonicalise", "byoc.report"} < set(names)
    command = [sys.executable, "-c", FIRST, *names]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == ""


def test_front_ends_alone_know_onnx() -> None:
    knowing = {
        name
        for name, file in modules().items()
        for full, _ in imported(file)
        if full.partition(".")[0] == "onnx"
    }
    assert "byoc.frontends.onnx.read_model" in knowing
    assert {name for name in knowing if not name.startswith(KNOW_ONNX)} == set()


def test_type_checkers_see_what_is_imported_when_it_is_asked_for() -> None:
    pairs = (full.rpartition(".") for full, _ in imported(Path(byoc.__file__)))
    seen = {name: home for home, _, name in pairs}
    lazy = set(byoc.__all__) - set(byoc.errors.__all__)
    assert lazy and {name: seen.get(name) for name in lazy} == {n: byoc._HOMES[n] for n in lazy}
