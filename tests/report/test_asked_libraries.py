"""Each kernel library that was asked for: how many nodes it took, and why none where none."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path

import onnx
import pytest
import tvm
from rich.console import Console
from tvm import relax
from tvm.relax import op

from byoc.cli import main
from byoc.compiler.partition import partition_with_report
from byoc.report.asked import Asked
from tests.ir.graphs import constant, random
from tests.libraries.sample import SampleLibrary, two_products

from .modules import floats, typed_module


class Rows(SampleLibrary):
    """Says that it computes softmax and layer normalisation; nothing here compiles it."""

    def supports(self, node):
        """Rows of no more than 64 numbers."""
        if node.op not in ("softmax", "layer_norm"):
            return f"{node.op}; need softmax or layer_norm"
        return None if node.shape[-1] <= 64 else f"{node.shape[-1]} columns; need 64 at most"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """A library by the name of ``rows``, which a process can have once."""
    return Rows(tmp_path_factory.mktemp("rows"), "source", name="rows")


def asked(mod: tvm.IRModule, *libraries: object) -> list[Asked]:
    """What became of the libraries."""
    return list(partition_with_report(mod, libraries=libraries, min_bytes=0)[1].asked)


def attention() -> tvm.IRModule:
    """Attention, whose node contains the softmax, and a product."""

    def build(q: relax.Expr, w: relax.Expr) -> relax.Expr:
        out = op.nn.attention(q, q, q)
        return op.matmul(op.reshape(out, [8, 32]), w)

    return typed_module(build, floats(1, 8, 2, 16), floats(32, 32))


def force(rows: Rows, op_name: str, mod: tvm.IRModule) -> list[Asked]:
    """``op_name=rows``, with the library known by an object that stands before it."""
    from codegen_cc.libraries import Selection, library

    builtin = library("builtin")
    selection = Selection((builtin,), by_operator=((op_name, library(rows)),))
    return list(partition_with_report(mod, libraries=selection, min_bytes=0)[1].asked)


def test_a_library_whose_operator_became_part_of_another_node(rows: Rows):
    builtin, idle = force(rows, "softmax", attention())
    assert builtin.nodes > 0
    why = ("1 x softmax is part of attention, which builtin computes",)
    assert idle == Asked("rows", "softmax", 0, why)
    assert str(idle) == f"rows, asked for softmax: no node ({why[0]})"


def test_a_library_of_an_operator_that_is_not_there(rows: Rows):
    assert force(rows, "layer_norm", attention())[1] == Asked(
        "rows", "layer_norm", 0, ("no layer_norm among the nodes",)
    )


def test_a_library_that_refuses(rows: Rows):
    mod = typed_module(lambda x: op.nn.softmax(x), floats(4, 128))
    reason = "1 x softmax: 128 columns; need 64 at most"
    assert asked(mod, rows, "builtin") == [
        Asked("rows", "every node", 0, (reason,)),
        Asked("builtin", "every node", 1),
    ]
    # Forced, the node stays with TVM, with the library's reason.
    why = ("1 x relax.nn.softmax: 128 columns; need 64 at most",)
    assert force(rows, "softmax", mod)[1] == Asked("rows", "softmax", 0, why)


def test_a_library_behind_another(rows: Rows):
    mod = typed_module(lambda x: op.nn.softmax(x), floats(4, 16))
    assert asked(mod, "builtin", rows)[1] == Asked(
        "rows", "every node", 0, ("1 x softmax: builtin was preferred",)
    )
    assert asked(mod, rows, "builtin")[0] == Asked("rows", "every node", 1)


def test_a_library_for_names(rows: Rows):
    from codegen_cc.libraries import Selection, library

    def build(x: relax.Expr) -> relax.Expr:
        return op.nn.softmax(op.matmul(x, constant(random(16, 16))))

    mod = typed_module(build, floats(4, 16))
    name = mod["main"].body.blocks[0].bindings[0].var.name
    selection = Selection((library("builtin"),), by_name=((name, library(rows)),))
    found = partition_with_report(mod, libraries=selection, min_bytes=0)[1].asked[1]
    assert (found.what, found.nodes) == (name, 0)
    assert "need softmax or layer_norm" in found.why[0]


def test_text_json_and_page_name_the_idle_library(rows: Rows):
    report = partition_with_report(attention(), libraries=[rows, "builtin"], min_bytes=0)[1]
    console = Console(record=True, width=200, file=StringIO())
    report.render(console)
    assert "rows, asked for every node: no node (" in console.export_text()
    (entry,) = [e for e in report.to_json()["asked_libraries"] if e["library"] == "rows"]
    assert entry["nodes"] == 0 and entry["why"]
    assert re.search(r'<ul id="idle"><li>rows, asked for every node: no node', report.to_html())


def test_nothing_is_said_where_only_builtin_was_asked():
    report = partition_with_report(attention(), min_bytes=0)[1]
    assert report.idle == ()
    assert 'id="idle"' not in report.to_html()


def test_the_command_line_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    model = tmp_path / "m.onnx"
    onnx.save(two_products(), model)
    cblas = pytest.importorskip("scipy_openblas32", reason="needs the extra 'cblas'")
    del cblas
    arguments = ["--library", "softmax=cblas"]
    assert main(["compile", str(model), "-o", str(tmp_path / "m.so"), *arguments]) == 0
    line = "cblas, asked for softmax: no node (no softmax among the nodes)"
    assert line in capsys.readouterr().out
    assert main(["partition", str(model), "--json", *arguments]) == 0
    data = json.loads(capsys.readouterr().out)["asked_libraries"]
    assert [entry["nodes"] for entry in data if entry["library"] == "cblas"] == [0]
