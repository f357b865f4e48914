"""What holds for the regions of any graph, on random ones.

The partitioned module is well formed and acyclic, has the same results, and no two of its regions
could have been one. Operators that the tests call *host* are refused, hence stay with TVM.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax, tirx
from tvm.relax import op

import byoc.partition.epilogues
from byoc.canonicalise import apply_rule
from byoc.canonicalise.inline_tuples import inline_tuples
from byoc.ir.dataflow import op_name, variables
from byoc.partition.annotate import annotate
from byoc.partition.merge import merge
from byoc.partition.prune import prune
from byoc.patterns.registry import register_ext_op, unregister_ext_op
from byoc.patterns.row import Candidate, Unfit, candidate
from codegen_cc.libraries import KernelLibrary, Selection, library
from codegen_cc.node import Node

from .graphs import random, regions, relax_module
from .interpret import Interpreter, apply_function

SHAPE = (2, 4)
SETTINGS = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(autouse=True)
def all_but_abs_are_supported(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``abs`` is the host operator, on its own and in epilogues; ``split`` in half is no host's."""

    def supports(node: Node) -> str | None:
        kinds = {node.attrs.get("kind"), *(step.kind for step in node.epilogue)}
        return "left to the host" if "abs" in kinds else None

    def pick(self: Selection, node: Node, names: Iterable[str] = ()) -> KernelLibrary | str:
        return supports(node) or library("builtin")

    monkeypatch.setattr(byoc.partition.epilogues, "supports", supports)
    monkeypatch.setattr(Selection, "pick", pick)
    register_ext_op("relax.split", build=_halved)
    yield
    unregister_ext_op("relax.split")


def _halved(call: relax.Call) -> Candidate:
    if not isinstance(call.attrs.indices_or_sections, tirx.IntImm):
        raise Unfit("left to the host")
    return candidate("halves", call, [("input", call.args[0])])


# ---------------------------------------------------------------------- random graphs

#: Makes a value from two others: (emit, a, b) -> y, all of one shape.
Maker = Callable[..., relax.Expr]


def _halves(emit: Callable, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """Two slices of one value, joined the other way round."""
    left = emit(op.strided_slice(a, [1], [0], [2]))
    right = emit(op.strided_slice(b, [1], [2], [4]))
    return emit(op.concat([right, left], axis=1))


def _through_tuple(emit: Callable, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """A tuple that is bound, and taken apart and read as a whole."""
    pair = emit(relax.Tuple([a, b]))
    first = emit(relax.TupleGetItem(pair, 0))
    whole = emit(op.concat(pair, axis=0))
    return emit(op.maximum(first, emit(op.strided_slice(whole, [0], [1], [3]))))


def _two_results(emit: Callable, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """An offloaded node with two results, one of which goes through the host."""
    parts = emit(op.split(emit(op.tanh(a)), 2, axis=1))
    left, right = (emit(relax.TupleGetItem(parts, index)) for index in (0, 1))
    return emit(op.maximum(b, emit(op.concat([right, emit(op.abs(left))], axis=1))))


def _one_of_two_results(emit: Callable, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """Nobody reads the other one."""
    part = emit(relax.TupleGetItem(emit(op.split(a, 2, axis=1)), 1))
    return emit(op.concat([emit(op.tanh(part)), emit(op.strided_slice(b, [1], [0], [2]))], axis=1))


def _results_as_a_whole(emit: Callable, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """Both results, taken out one by one and passed on as the tuple that they are."""
    parts = emit(op.split(a, 2, axis=1))
    joined = emit(op.concat(parts, axis=1))
    first = emit(op.sigmoid(emit(relax.TupleGetItem(parts, 0))))
    return emit(op.minimum(b, emit(op.add(joined, emit(op.concat([first, first], axis=1))))))


def _host_tuple(emit: Callable, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """A tuple that a host operator makes."""
    parts = emit(op.split(emit(op.abs(a)), [2], axis=1))
    left = emit(relax.TupleGetItem(parts, 1))
    return emit(op.concat([left, emit(op.strided_slice(b, [1], [0], [2]))], axis=1))


def _diamond(emit: Callable, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """One arm through the host."""
    y = emit(op.tanh(a))
    return emit(op.maximum(emit(op.abs(y)), emit(op.minimum(emit(op.sigmoid(y)), b))))


MAKERS: dict[str, Maker] = {
    "unary": lambda emit, a, b: emit(op.tanh(a)),
    "binary": lambda emit, a, b: emit(op.maximum(a, b)),
    "same twice": lambda emit, a, b: emit(op.subtract(a, a)),
    "host": lambda emit, a, b: emit(op.abs(a)),
    "residual": lambda emit, a, b: emit(op.add(emit(op.sigmoid(a)), a)),
    "host residual": lambda emit, a, b: emit(op.add(emit(op.abs(a)), a)),
    "halves": _halves,
    "tuple": _through_tuple,
    "host tuple": _host_tuple,
    "two results": _two_results,
    "one of two results": _one_of_two_results,
    "results as a whole": _results_as_a_whole,
    "diamond": _diamond,
}

#: Steps (maker, first operand, second operand), and which values the function returns.
GRAPHS = st.tuples(
    st.lists(
        st.tuples(st.sampled_from(sorted(MAKERS)), st.integers(0, 99), st.integers(0, 99)),
        min_size=1,
        max_size=14,
    ),
    st.lists(st.integers(0, 99), min_size=1, max_size=4),
)


def build(graph: tuple[list[tuple[str, int, int]], list[int]]) -> tvm.IRModule:
    """The module that a drawn graph describes; operands are counted from the newest value."""
    steps, results = graph

    def fill(emit: Callable, *inputs: relax.Var) -> relax.Expr:
        values: list[relax.Expr] = list(inputs)
        for maker, first, second in steps:
            a, b = (values[-1 - index % len(values)] for index in (first, second))
            values.append(MAKERS[maker](emit, a, b))
        chosen = [values[-1 - index % len(values)] for index in results]
        return relax.Tuple(chosen) if len(chosen) > 1 else chosen[0]

    return relax_module(fill, SHAPE, SHAPE)


# ---------------------------------------------------------------------- properties


class _Mixed(Interpreter):
    """Runs modules in which some operators stayed."""

    def _value(self, expr: relax.Expr, values: dict[relax.Expr, object]) -> object:
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
            name = expr.op.name.removeprefix("relax.").removeprefix("nn.")
            if name == "strided_slice":
                return _slices(expr, self._value(expr.args[0], values))
            if name in _HOST:
                return _HOST[name](expr, [self._value(arg, values) for arg in expr.args])
        elif isinstance(expr, relax.Call) and isinstance(expr.op, relax.Var):
            node = values[expr.op]
            if node.op == "halves":
                assert len(node.results) == 2
                return tuple(np.split(self._value(expr.args[0], values), 2, axis=1))
        return super()._value(expr, values)


def _slices(call: relax.Call, x: np.ndarray) -> np.ndarray:
    axes, begin, end = ([int(item) for item in field.fields] for field in call.args[1:4])
    index = [slice(None)] * x.ndim
    for axis, low, high in zip(axes, begin, end, strict=True):
        index[axis] = slice(low, high)
    return x[tuple(index)]


_HOST: dict[str, Callable[[relax.Call, list], object]] = {
    "abs": lambda call, args: np.abs(args[0]),
    "tanh": lambda call, args: np.tanh(args[0]),
    "sigmoid": lambda call, args: apply_function("sigmoid", 0, 0, args[0]),
    "maximum": lambda call, args: np.maximum(*args),
    "minimum": lambda call, args: np.minimum(*args),
    "add": lambda call, args: np.add(*args),
    "subtract": lambda call, args: np.subtract(*args),
    "concat": lambda call, args: np.concatenate(args[0], int(call.attrs.axis)),
    "split": lambda call, args: tuple(np.split(args[0], 2, int(call.attrs.axis))),
}


def partitioned(mod: tvm.IRModule) -> tvm.IRModule:
    """Everything between import and pruning that these graphs need; checked to be well formed."""
    out = merge(annotate(apply_rule(mod, inline_tuples)))
    relax.analysis.well_formed(out)
    return out


def assert_same_values(one: tvm.IRModule, other: tvm.IRModule) -> None:
    inputs = [random(*SHAPE, seed=seed).astype("float64") for seed in (1, 2)]
    for a, b in zip(_Mixed(one)(*inputs), _Mixed(other)(*inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def dependencies(mod: tvm.IRModule) -> tuple[list[str], dict[str, set[str]]]:
    """Regions of ``main`` by name, and for every node of ``main`` the nodes that it reads.

    The items of a region's results count as the region. Definitions come before uses, so that the
    relation has no cycle; that they do is asserted.
    """
    owner: dict[relax.Var, str] = {}
    found: list[str] = []
    reads: dict[str, set[str]] = {}
    for index, binding in enumerate(b for blk in mod["main"].body.blocks for b in blk.bindings):
        value, name = binding.value, f"host {index}"
        sources = variables(value)
        assert all(var in owner or var in mod["main"].params for var in sources)
        if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
            name = value.op.name_hint
            assert name not in found, "a region is called twice"
            found.append(name)
        elif isinstance(value, relax.TupleGetItem) and owner[value.tuple_value] in found:
            owner[binding.var] = owner[value.tuple_value]
            continue
        owner[binding.var] = name
        reads[name] = {owner[var] for var in sources if var in owner}
    return found, reads


def assert_regions_are_maximal(mod: tvm.IRModule) -> None:
    """A path through another node joins any two regions: as one they would wait for themselves."""
    found, reads = dependencies(mod)
    above: dict[str, set[str]] = {}
    for name, direct in reads.items():
        above[name] = direct.union(*(above[source] for source in direct))
    for first, second in itertools.combinations(found, 2):
        between = reads[second] - {first}
        assert any(first in above[source] for source in between), f"{first} and {second}"


@pytest.mark.slow
@SETTINGS
@given(GRAPHS)
def test_any_graph(graph: tuple[list[tuple[str, int, int]], list[int]]) -> None:
    mod = build(graph)
    out = partitioned(mod)
    assert_same_values(mod, out)
    assert_regions_are_maximal(out)
    assert "relax.tanh" not in out["main"].script()


@pytest.mark.slow
@SETTINGS
@given(GRAPHS, st.sets(st.integers(0, 3)))
def test_any_regions_can_be_given_back(
    graph: tuple[list[tuple[str, int, int]], list[int]], dropped: set[int]
) -> None:
    """Whichever regions pruning takes away, the rest is as good as before."""
    mod = build(graph)
    whole = partitioned(mod)
    count = itertools.count()
    out = prune(whole, verdict=lambda nodes: "test" if next(count) in dropped else None)
    relax.analysis.well_formed(out)
    assert len(regions(out)) == sum(i not in dropped for i in range(len(regions(whole))))
    assert_same_values(mod, out)
    assert_regions_are_maximal(out)


@pytest.mark.slow
@SETTINGS
@given(GRAPHS, GRAPHS)
def test_functions_of_one_module_are_independent(
    one: tuple[list[tuple[str, int, int]], list[int]],
    two: tuple[list[tuple[str, int, int]], list[int]],
) -> None:
    """Names that look alike to C do not mix; each function gets what it gets alone."""
    mod = build(one)
    mod["ma_in"] = build(two)["main"].with_attr("global_symbol", "ma_in")
    mod["ma-in"] = build(one)["main"].with_attr("global_symbol", "ma-in")
    out = partitioned(mod)
    alone = [list(regions(partitioned(build(graph))).values()) for graph in (one, two, one)]
    assert sorted(regions(out).values()) == sorted(itertools.chain(*alone))


# ---------------------------------------------------------------------- control flow


def with_branch() -> tvm.IRModule:
    """tanh, then by a flag sigmoid or tanh of it, then maximum of both."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(list(SHAPE), "float32"))
    flag = relax.Var("flag", relax.TensorType([], "bool"))
    with builder.function("main", [x, flag]):
        with builder.dataflow():
            y = builder.emit_output(builder.emit(op.tanh(builder.emit(op.sigmoid(x)))))
        branches = []
        for function in (op.sigmoid, op.tanh):
            result = relax.Var("branch", y.ty)
            binding = relax.VarBinding(result, builder.normalize(function(y)))
            branches.append(relax.SeqExpr([relax.BindingBlock([binding])], result))
        chosen = builder.emit(relax.If(flag, *branches))
        with builder.dataflow():
            z = builder.emit_output(builder.emit(op.maximum(y, chosen)))
        builder.emit_func_output(z)
    return builder.get()


def test_control_flow_stays_outside() -> None:
    from byoc.compiler.partition import partition_with_report

    from .interpret import run_with_tvm, without_regions

    mod = with_branch()
    out = partitioned(mod)
    assert regions(out) == {
        "ext_main_0": ["ext.sigmoid", "ext.tanh"],
        "ext_main_1": ["ext.max"],
    }
    x = random(*SHAPE)
    for flag in (True, False):
        want = run_with_tvm(mod, x, np.array(flag))
        got = run_with_tvm(without_regions(out), x, np.array(flag))
        np.testing.assert_allclose(got[0], want[0], rtol=1e-6)
    _, report = partition_with_report(mod)
    left = {entry.op: entry.reason for entry in report.left}
    assert "branch" in left["relax.sigmoid"] and "branch" in left["relax.tanh"]


# ---------------------------------------------------------------------- symbols that casts define


def test_what_names_a_symbol_stays_after_the_cast_that_defines_it() -> None:
    """``full`` reads no value at all, but its shape is known after the region and the cast."""
    rows = tvm.tirx.Var("rows", "int64")
    builder = relax.BlockBuilder()
    sizes = relax.Var("sizes", relax.TensorType([1], "int64"))
    with builder.function("main", [sizes]):
        with builder.dataflow():
            target = builder.emit(op.tensor_to_shape(builder.emit(op.add(sizes, sizes))))
            builder.match_cast(target, relax.ShapeType([rows]))
            ones = op.full(relax.ShapeExpr([rows]), relax.const(1.0, "float32"), "float32")
            y = builder.emit_output(op.sum(builder.emit(ones)))
        builder.emit_func_output(y)
    out = merge(annotate(builder.get()))
    bindings = itertools.chain(*(block.bindings for block in out["main"].body.blocks))
    calls = [op_name(binding.value) for binding in bindings]
    assert calls.index("relax.full") > calls.index("relax.tensor_to_shape")
    assert regions(out) == {"ext_main_0": ["ext.add"], "ext_main_1": ["ext.reduce_sum"]}
