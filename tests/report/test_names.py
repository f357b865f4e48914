"""Names of ONNX nodes on their way through importer, canonicalisation, report and generated C."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx.backend.test.case.node import collect_testcases
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

import byoc
from byoc.canonicalise import canonicalise
from byoc.compiler.partition import partition_with_report
from byoc.errors import UnsupportedForm
from byoc.frontends.onnx import import_onnx, prepare
from byoc.frontends.onnx.converters import CONVERTERS
from byoc.frontends.onnx.named_import import import_named
from byoc.ir.origin import UNKNOWN, Origin, origin_of, with_origin
from codegen_cc.plan.call import source_comment
from models.builder import GraphBuilder
from models.zoo import ZOO

from .networks import HOSTILE, hostile_model

#: Operators with a converter of ours that leaves ONNX's tests of them to TVM's, but those of OWN.
HANDED_ON = {"ArgMax", "ArgMin", "Cast", "CastLike", "Elu", "LRN", "ScatterElements", "Selu"}
OWN = {"test_cast_e8m0_FLOAT8E8M0_to_FLOAT", "test_cast_e8m0_FLOAT8E8M0_to_FLOAT16"}


def origins(mod: tvm.IRModule) -> list[tuple[str, ...]]:
    return [
        origin_of(binding.value).names
        for block in mod["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call)
    ]


@pytest.mark.parametrize("name", ["squeezenet", "bert_small"])
def test_importer_yields_what_tvms_does(name: str) -> None:
    model = prepare(ZOO[name].build())
    named = import_named(model)
    tvm.ir.assert_structural_equal(named, from_onnx(model))
    assert all(origins(named)), "a call without a name"


def imported(importer: Callable[..., tvm.IRModule], model: onnx.ModelProto) -> tvm.IRModule | None:
    try:
        return importer(model)
    except UnsupportedForm:
        raise
    except Exception:
        return None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_importer_yields_what_tvms_does_for_every_operator() -> None:
    """ONNX's own node tests, but those with empty inputs, whose size TVM's own import forgets, and
    those of forms that are refused, or have a converter of ours, are evaluated or become functions.
    """
    both = 0
    for case in collect_testcases(None):
        dims = [d for value in case.model.graph.input for d in value.type.tensor_type.shape.dim]
        if any(dim.HasField("dim_value") and dim.dim_value == 0 for dim in dims):
            continue
        own = {"If", "Loop", "Scan", "Shape", *CONVERTERS.keys() - HANDED_ON}
        if case.name in OWN or any(node.op_type in own for node in case.model.graph.node):
            continue
        try:
            named, plain = imported(import_named, case.model), imported(from_onnx, case.model)
        except UnsupportedForm:
            continue
        assert (named is None) == (plain is None), case.name
        if named is not None:
            tvm.ir.assert_structural_equal(named, plain, map_free_vars=True)
            both += 1
    assert both > 380


@pytest.mark.parametrize("name", ["mobilenet_v2", "squeezenet"])
def test_every_node_is_in_the_report(name: str) -> None:
    model = prepare(ZOO[name].build())
    _, report = partition_with_report(import_onnx(model))
    found = {part for node in report.graph.nodes for part in node.name.split(" + ")}
    # An Identity, which gives an output its name, computes nothing.
    assert {node.name for node in model.graph.node if node.op_type != "Identity"} <= found


def test_folded_nodes_keep_their_names() -> None:
    """Conv, BatchNorm and ReLU become one composite; GELU one operator of five nodes."""
    graph = GraphBuilder("folded", seed=1)
    x = graph.input("x", (1, 3, 8, 8))
    x = graph.op("Relu", graph.batch_norm(graph.conv(x, (3, 4), 3), 4))
    graph.output(graph.gelu(x), "y", (1, 4, 8, 8))
    model = graph.build()
    mod = import_onnx(model)
    kept = {name for names in origins(canonicalise(mod)) for name in names}
    assert {node.name for node in model.graph.node if node.op_type != "Identity"} <= kept
    _, report = partition_with_report(mod)
    names = [node.name for node in report.graph.nodes if node.kind == "offloaded"]
    assert any("conv" in name and "batchnorm" in name and "relu" in name for name in names), names


def test_nodes_without_a_name_are_known_by_their_output() -> None:
    graph = GraphBuilder("nameless", seed=1)
    x = graph.input("x", (1, 3, 8, 8))
    graph.output(graph.op("Relu", x), "y", (1, 3, 8, 8))
    model = graph.build()
    for node in model.graph.node:
        node.name = ""
    expected = {node.output[0] for node in model.graph.node}
    assert {name for names in origins(import_onnx(model)) for name in names} <= expected


def test_names_survive_saving_and_tvms_passes() -> None:
    mod = import_onnx(prepare(hostile_model()))
    before = origins(mod)
    assert {name for names in before for name in names} == {
        f"{op} {name}" for op in ("MatMul", "Sigmoid") for name in HOSTILE
    }
    assert origins(tvm.ir.load_json(tvm.ir.save_json(mod))) == before
    mod = relax.transform.FoldConstant()(relax.transform.ToNonDataflow()(mod))
    assert origins(relax.transform.ConvertToDataflow()(mod)) == before


def test_origins() -> None:
    both = Origin(("a", "b")) | Origin(("b", "c"), marked=True)
    assert both == Origin(("a", "b", "c"), marked=True)
    x = relax.Var("x", relax.TensorType([2], "float32"))
    call = relax.op.nn.relu(x)
    assert origin_of(call) == UNKNOWN and not UNKNOWN
    assert origin_of(with_origin(call, both)) == both
    assert with_origin(x, both) is x
    elsewhere = tvm.ir.Span(tvm.ir.SourceName("file.py"), 1, 1, 1, 1)
    assert origin_of(relax.Call(call.op, call.args, call.attrs, [], elsewhere)) == UNKNOWN


def test_comments_hold_no_raw_name() -> None:
    assert source_comment(()) == ""
    assert source_comment(("/layer1/conv", "relu.1")) == "; from /layer1/conv, relu.1"
    for name in HOSTILE:
        text = source_comment((name,))
        assert text.isascii() and text.isprintable() and len(text) < 80
        assert not set('*"\\?%\n') & set(text)


def test_generated_c_names_the_nodes(tmp_path: Path) -> None:
    graph = GraphBuilder("commented", seed=1)
    x = graph.op("Relu", graph.conv(graph.input("x", (1, 3, 8, 8)), (3, 4), 3))
    graph.output(x, "y", (1, 4, 8, 8))
    model = graph.build()
    for node, name in zip(model.graph.node, ("/stem/conv", "/stem/relu"), strict=False):
        node.name = name
    byoc.compile(model, dump_code=tmp_path)
    text = "".join(path.read_text() for path in tmp_path.rglob("*.c"))
    assert "; from /stem/conv, /stem/relu" in text


def test_left_entries_have_names_of_nodes_or_variables() -> None:
    _, report = partition_with_report(import_onnx(prepare(hostile_model())), skip_ops=["sigmoid"])
    assert [left.name for left in report.left] == [f"Sigmoid {name}" for name in HOSTILE]
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([2], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            builder.emit(relax.op.nn.relu(x))
            y = builder.emit_output(relax.op.sin(x), "mine")
        builder.emit_func_output(y)
    _, report = partition_with_report(builder.get(), only=["relu"])
    assert [left.name for left in report.left] == ["mine"]
    assert np.isfinite(report.macs)
