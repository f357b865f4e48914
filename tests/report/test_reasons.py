"""Why operators stay with TVM: each reason says what was found and what would be needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm import relax
from tvm.relax import op

import byoc
from byoc.compiler.partition import partition_with_report
from byoc.patterns.unmatched import REWRITTEN
from byoc.report import Report
from byoc.report.left import left_of
from codegen_cc.dtypes import KERNEL_DTYPES
from tests.ir.graphs import constant, random, relax_module

from .modules import IMAGE, floats, integers, typed_module
from .rewritten import CASES


def left(mod: tvm.IRModule, **rules: Any) -> dict[str, str]:
    """Reasons by operator, without the common prefix of operators."""
    rules.setdefault("min_bytes", 0)
    report = partition_with_report(mod, **rules)[1]
    return {entry.op.removeprefix("relax."): entry.reason for entry in report.left}


NO_ROW = "no pattern row for relax.{} on {}; need one, as byoc.register_ext_op adds"

UNSUPPORTED: dict[str, tuple[Callable[..., relax.Expr], list[relax.Type], str]] = {
    "operator without a row": (op.sort, [floats(2, 3)], NO_ROW.format("sort", "float32")),
    "operator of integers without a row": (
        op.sort,
        [integers(2, 3)],
        NO_ROW.format("sort", "int64"),
    ),
    "operator of two dtypes without a row": (
        lambda x, i: op.multinomial_from_uniform(x, x, i),
        [floats(3, 1), integers(3, 1)],
        NO_ROW.format("multinomial_from_uniform", "float32 and int64"),
    ),
    "operator of no tensor": (
        lambda x: op.shape_of(x),
        [relax.TensorType(dtype="float32", ndim=2)],
        NO_ROW.format("shape_of", "float32"),
    ),
    "dtype of a binary operator": (
        op.add,
        [floats(2, dtype="float64"), floats(2, dtype="float64")],
        "lhs has dtype float64; need float32 or int32 or int64 or int8 or uint8",
    ),
    "dtype of a division": (
        op.divide,
        [floats(2, dtype="float64"), floats(2, dtype="float64")],
        "lhs has dtype float64; need float32 or int32 or int64 or int8 or uint8",
    ),
    "dtype of a product": (
        op.matmul,
        [floats(2, 2, dtype="float64"), floats(2, 2, dtype="float64")],
        "lhs has dtype float64; need float32",
    ),
    "dtype of a function": (
        op.nn.relu,
        [floats(2, dtype="float64")],
        "input has dtype float64; need float32",
    ),
    "dtype of a root": (
        op.sqrt,
        [floats(2, dtype="float64")],
        "input has dtype float64; need float32",
    ),
    "dtype of movement": (
        lambda x: op.permute_dims(x, [1, 0]),
        [floats(2, 3, dtype="uint16")],
        f"input has dtype uint16; need {' or '.join(KERNEL_DTYPES)}",
    ),
    "result of a cast": (
        lambda x: op.astype(x, "uint16"),
        [floats(2)],
        f"result has dtype uint16; need {' or '.join(KERNEL_DTYPES)}",
    ),
    "layout": (
        lambda x: op.nn.conv2d(x, constant(random(4, 3, 1, 1)), data_layout="NHWC"),
        [floats(1, 5, 5, 3)],
        "data_layout NHWC; need NCHW",
    ),
    "axis": (
        lambda x: op.cumsum(x),
        [floats(2, 3)],
        "axis None of float32[2, 3]; need a number and a rank of 1 at least",
    ),
    "axis of a scalar": (
        lambda x: op.cumsum(x, 0),
        [floats()],
        "axis 0 of float32[]; need a number and a rank of 1 at least",
    ),
    "region of interest": (
        lambda x: op.image.resize2d(
            x, (4, 4), layout="NCHW", coordinate_transformation_mode="tf_crop_and_resize"
        ),
        [IMAGE],
        "coordinate transformation tf_crop_and_resize; need one without a region of interest",
    ),
    "reflection": (
        lambda x: op.nn.pad(x, [0, 0, 0, 0, 0, 0, 9, 0], "reflect"),
        [IMAGE],
        "widths [9, 0] of axis 3; need less than its extent 6",
    ),
    "rank of a product": (
        op.matmul,
        [floats(*[2] * 7), floats(*[2] * 7)],
        "5 batch axes; need at most 4",
    ),
    "backward steps over a symbol": (
        lambda x: op.strided_slice(x, [0], [1], [-9], [-1]),
        [floats("n", 3)],
        "stride -1; need a positive one",
    ),
    "rank": (op.nn.relu, [floats(*[1] * 9)], "rank 9; need at most 8"),
    "computed weight": (
        lambda x, w: op.nn.conv2d_transpose(x, w, groups=3),
        [IMAGE, floats(3, 1, 2, 2)],
        "weight float32[3, 1, 2, 2] is computed; need a constant",
    ),
    "unknown shape": (
        lambda x: op.nn.softmax(x),
        [relax.TensorType(dtype="float32", ndim=2)],
        "input is float32[?]; need a known shape",
    ),
    "unknown rank": (
        lambda x: op.matmul(x, x),
        [relax.TensorType(dtype="float32")],
        "lhs is float32[?]; need a known shape",
    ),
    "symbol that no operand has": (
        lambda x: op.reshape(x, (tvm.tirx.Var("m", "int64"), 3)),
        [floats("n")],
        "dimension m of the result is in no operand's shape; need one",
    ),
    "symbolic tile": (
        lambda x: op.tile(x, [2, 1]),
        [floats("n", 3)],
        "float32[n, 3], repeats [2, 1]; need a static shape",
    ),
    "function of a library": (
        lambda x: relax.call_pure_packed("some.function", x, ty_args=[floats(2, 3)]),
        [floats(2, 3)],
        NO_ROW.format("call_pure_packed", "float32"),
    ),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported(name: str) -> None:
    build, types, expected = UNSUPPORTED[name]
    reasons = left(typed_module(build, *types))
    assert list(reasons.values()) == [expected]


def test_loop_nest() -> None:
    def tan_of(tensor: Any) -> Any:
        return tvm.topi.tan(tensor)

    builder = relax.BlockBuilder()
    x = relax.Var("x", floats(2, 3))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(builder.emit_te(tan_of, x))
        builder.emit_func_output(result)
    assert left(builder.get()) == {
        "call_tir(tan_of)": "loop nest tan_of on float32; need a clip of float32 or a copy"
    }


def test_external_function() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", floats(2, 3))
    with builder.function("main", [x]):
        call = relax.Call(relax.ExternFunc("some.function"), [x], ty_args=[floats(2, 3)])
        builder.emit_func_output(builder.emit(call))
    (reason,) = left(builder.get()).values()
    assert reason == "ExternFunc(some.function) is outside of a dataflow block; need one"


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (
            op.nn.relu,
            "relax.nn.relu is cast to float32[2, 3] where it is bound; need no cast there",
        ),
        (op.sort, NO_ROW.format("sort", "float32")),
    ],
)
def test_cast_where_a_value_is_bound(operator: Callable[..., relax.Expr], expected: str) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", floats(2, 3))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.match_cast(operator(x), floats(2, 3))
            result = builder.emit_output(op.exp(y))
        builder.emit_func_output(result)
    assert list(left(builder.get()).values()) == [expected]


def test_local_function() -> None:
    inner = relax.Var("y", floats(2, 3))
    body = relax.BlockBuilder()
    with body.function("inner", [inner]):
        body.emit_func_output(body.emit(op.nn.relu(inner)))
    x = relax.Var("x", floats(2, 3))
    closure = relax.Var("closure", body.get()["inner"].ty)
    bindings = [relax.VarBinding(closure, body.get()["inner"].without_attr("global_symbol"))]
    func = relax.Function(
        [x], relax.SeqExpr([relax.BindingBlock(bindings)], x), floats(2, 3), is_pure=True
    )
    (entry,) = left_of(func, {})
    assert entry.reason == (
        "relax.nn.relu is inside a local function; need a function of the module"
    )


def test_module_whose_reasons_nobody_collected() -> None:
    mod = relax_module(lambda emit, x: emit(op.sort(x)), (2, 3))
    (entry,) = Report.of(mod).left
    assert entry.reason == (
        "relax.sort was not looked at; need partition_with_report, which collects reasons"
    )


# ---------------------------------------------------------------------- rewritten operators


def test_every_rewritten_operator_has_a_case() -> None:
    assert set(CASES) == set(REWRITTEN)


@pytest.mark.parametrize("name", REWRITTEN)
def test_operator_that_canonicalisation_writes_in_others(name: str) -> None:
    """What the table says is needed is enough, and without it the reason says so."""
    case = CASES[name]
    short = name.removeprefix("relax.")
    assert short not in left(typed_module(case.fit, *case.types))
    reason = left(typed_module(case.unfit, *(case.unfit_types or case.types)))[short]
    found, _, need = reason.partition("; need ")
    assert need == REWRITTEN[name][1]
    assert case.found in found


# ---------------------------------------------------------------------- rules and regions


def network() -> tvm.IRModule:
    """A product, ReLU and softmax."""

    def build(emit: Any, x: Any) -> relax.Expr:
        return emit(op.nn.softmax(emit(op.nn.relu(emit(op.matmul(x, constant(random(8, 8))))))))

    return relax_module(build, (4, 8))


@pytest.mark.parametrize(
    ("rules", "operator", "expected"),
    [
        ({"skip_ops": ["relu"]}, "nn.relu", "skipped by operator relax.nn.relu"),
        ({"skip_nodes": ["lv1"]}, "nn.relu", "skipped by node name 'lv1'"),
        (
            {"only": ["matmul", "softmax"]},
            "nn.relu",
            "not among the operators to offload (relax.matmul, relax.nn.softmax)",
        ),
        (
            {"predicate": lambda node, call: node.op != "softmax" or f"{node.shape[0]} rows"},
            "nn.softmax",
            "4 rows",
        ),
    ],
)
def test_refused_by_a_rule(rules: dict[str, Any], operator: str, expected: str) -> None:
    assert left(network(), **rules) == {operator: expected}


@pytest.mark.parametrize("answer", [False, ""])
def test_refused_without_a_reason(answer: object) -> None:
    def never(node: Any, call: Any) -> Any:
        return answer

    assert set(left(network(), predicate=never).values()) == {"refused by predicate never"}


def test_builder_that_refuses_without_a_reason() -> None:
    def build(call: Any) -> Any:
        raise byoc.patterns.registry.Unfit

    byoc.register_ext_op("relax.matmul", build=build)
    try:
        assert left(network()) == {"matmul": "refused by the builder of relax.matmul"}
    finally:
        byoc.unregister_ext_op("relax.matmul")


def test_outside_of_the_marks() -> None:
    assert left(byoc.mark(network(), ops=["matmul", "softmax"])) == {
        "nn.relu": "relax.nn.relu is not marked; need a mark, as the module has some"
    }


def test_pruned_regions() -> None:
    def beside(emit, x, made):
        return relax.Tuple([made, emit(op.sort(x))])  # a whole network is always called

    sort = {
        "sort": "no pattern row for relax.sort on float32; need one, as byoc.register_ext_op adds"
    }
    mod = relax_module(lambda emit, x: beside(emit, x, emit(op.exp(x))), (2, 3))
    assert left(mod, min_bytes=512) == sort | {
        "exp": "region of 0 MACs and 48 bytes; need 512 bytes to be worth a call"
    }
    mod = relax_module(lambda emit, x: beside(emit, x, emit(op.permute_dims(x, [1, 0]))), (2, 3))
    assert left(mod, min_bytes=512) == sort | {
        "permute_dims": "region of data movement alone (1 node); need one that computes"
    }
