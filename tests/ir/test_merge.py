"""Regions: as few as can be, convex, in an order that runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from byoc.partition.annotate import annotate
from byoc.partition.merge import merge

from .graphs import random, regions, relax_module
from .interpret import run_with_tvm, without_regions

#: Stays with TVM in these tests: it has no pattern row.
HOST = op.cosh


pytestmark = pytest.mark.usefixtures("everything_is_supported")


def merged(mod: tvm.IRModule) -> tvm.IRModule:
    """Annotate and merge; the result is well formed and its calls are in a valid order."""
    out = merge(annotate(mod))
    relax.analysis.well_formed(out)
    return out


def check(
    build: Callable[..., relax.Expr], expected: list[list[str]], *inputs: np.ndarray
) -> tvm.IRModule:
    """Compare composites by region, and values with those before."""
    mod = relax_module(build, *(array.shape for array in inputs))
    out = merged(mod)
    assert list(regions(out).values()) == [[f"ext.{name}" for name in r] for r in expected]
    want = run_with_tvm(mod, *inputs)
    got = run_with_tvm(without_regions(out), *inputs)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return out


X = random(2, 8)


def test_straight_line_is_one_region() -> None:
    def build(emit, x):
        return emit(op.nn.softmax(emit(op.exp(emit(op.tanh(x))))))

    check(build, [["tanh", "exp", "softmax"]], X)


def test_counter_example_of_the_docstring() -> None:
    """c waits for t and t for a: a and c cannot be in one region."""

    def build(emit, x):
        a = emit(op.exp(x))
        t = emit(HOST(a))
        b = emit(op.tanh(a))
        return emit(op.maximum(t, b))

    out = check(build, [["exp", "tanh"], ["max"]], X)
    assert _calls(out) == ["ext_main_0", "relax.cosh", "ext_main_1"]


def test_diamond_of_offloaded_nodes_is_one_region() -> None:
    def build(emit, x):
        a = emit(op.exp(x))
        return emit(op.maximum(emit(op.tanh(a)), emit(op.sigmoid(a))))

    check(build, [["exp", "tanh", "sigmoid", "max"]], X)


def test_host_nodes_beside_a_region_do_not_split_it() -> None:
    def build(emit, x):
        a = emit(op.exp(x))
        side = emit(HOST(a))
        b = emit(op.sigmoid(emit(op.tanh(a))))
        return relax.Tuple([side, b])

    out = check(build, [["exp", "tanh", "sigmoid"]], X)
    assert isinstance(out["ext_main_0"].body.body.ty, relax.TupleType)


def test_host_nodes_before_do_not_count() -> None:
    def build(emit, x):
        return emit(op.maximum(emit(op.tanh(emit(HOST(x)))), emit(op.exp(x))))

    check(build, [["tanh", "exp", "max"]], X)


def test_two_branches_through_hosts_share_two_regions() -> None:
    def build(emit, x):
        left = emit(op.exp(emit(HOST(emit(op.tanh(x))))))
        right = emit(op.sigmoid(emit(HOST(emit(op.abs(x))))))
        return emit(op.maximum(left, right))

    out = check(build, [["tanh", "abs"], ["exp", "sigmoid", "max"]], X)
    assert _calls(out) == ["ext_main_0", "relax.cosh", "relax.cosh", "ext_main_1"]


def test_crossed_dependencies() -> None:
    """Two chains that wait for each other's hosts: a naive merge along edges makes a cycle."""

    def build(emit, x):
        a1 = emit(op.exp(x))
        b1 = emit(op.tanh(x))
        a2 = emit(op.maximum(a1, emit(HOST(b1))))
        b2 = emit(op.minimum(b1, emit(HOST(a1))))
        return emit(op.multiply(a2, b2))

    check(build, [["exp", "tanh"], ["max", "min", "mul"]], X)


def test_node_for_a_later_region_moves_there_if_that_passes_less() -> None:
    def build(emit, x, y):
        wide = emit(op.broadcast_to(y, [2, 8]))  # only read after the host
        t = emit(HOST(emit(op.exp(x))))
        return emit(op.maximum(t, wide))

    out = check(build, [["exp"], ["broadcast_to", "max"]], X, random(1, 8))
    assert [tuple(map(int, p.ty.shape)) for p in out["ext_main_1"].params] == [(1, 8), (2, 8)]


def test_value_read_twice_is_one_output() -> None:
    def build(emit, x):
        a = emit(op.exp(x))
        return relax.Tuple([emit(HOST(a)), a, emit(op.sinh(a))])

    out = check(build, [["exp"]], X)
    assert isinstance(out["ext_main_0"].body.body.ty, relax.TensorType)


def test_results_of_the_function_are_outputs() -> None:
    def build(emit, x):
        a = emit(op.exp(x))
        b = emit(op.tanh(a))
        return relax.Tuple([a, b, x])

    check(build, [["exp", "tanh"]], X)


def _calls(mod: tvm.IRModule) -> list[str]:
    return [
        getattr(binding.value.op, "name_hint", None) or binding.value.op.name
        for block in mod["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call)
    ]


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(seed: int) -> None:
    """Any mixture keeps its values; regions are no more than the alternations on a path."""
    draw = np.random.RandomState(seed)

    def build(emit, x):
        values, depth = [x], {x: 0}
        for _ in range(24):
            a, b = (values[draw.randint(max(0, len(values) - 6), len(values))] for _ in range(2))
            if draw.rand() < 0.3:
                y = emit(HOST(a))
                depth[y] = depth[a]
                host.add(y)
            else:
                y = emit(op.maximum(a, emit(op.tanh(b))))
                depth[y] = max(1, *(depth[v] + (v in host) for v in (a, b)))
            values.append(y)
            deepest.append(depth[y])
        return relax.Tuple(values[-3:])

    host: set[relax.Var] = set()
    deepest: list[int] = [0]
    mod = relax_module(build, (2, 4))
    out = merged(mod)
    assert len(regions(out)) <= max(deepest)
    x = random(2, 4, seed=seed)
    want, got = run_with_tvm(mod, x), run_with_tvm(without_regions(out), x)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


# ---------------------------------------------------------------------- names and forms


@pytest.mark.parametrize("name", ["main", "my model/1", "a" * 300, "größe", "1st", "int"])
def test_symbols_are_c_names(name: str) -> None:
    mod = relax_module(lambda emit, x: emit(op.exp(x)), (2, 3), name=name)
    (symbol,) = regions(merge(annotate(mod)))
    assert symbol.isascii() and symbol.isidentifier() and len(symbol) < 64


def test_symbols_do_not_collide() -> None:
    one = relax_module(lambda emit, x: emit(op.exp(x)), (2, 3), name="a-b")
    two = relax_module(lambda emit, x: emit(op.tanh(x)), (2, 3), name="a_b")
    three = relax_module(lambda emit, x: emit(HOST(x)), (2, 3), name="ext_a_b_0")
    for other in (two, three):
        for gvar, func in other.functions.items():
            one[gvar.name_hint] = func
    out = merge(annotate(one))
    relax.analysis.well_formed(out)
    assert sorted(regions(out)) == ["ext_a_b_1", "ext_a_b_2"]


def test_every_function_is_partitioned_for_itself() -> None:
    mod = relax_module(lambda emit, x: emit(op.exp(x)), (2, 3), name="prefill")
    other = relax_module(lambda emit, x: emit(op.tanh(x)), (2, 3), name="decode")
    mod["decode"] = other["decode"]
    expected = {"ext_decode_0": ["ext.tanh"], "ext_prefill_0": ["ext.exp"]}
    assert regions(merged(mod)) == expected


def test_match_cast_stays_where_it_is() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(None, "float32", ndim=2))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.match_cast(x, relax.TensorType([2, 3], "float32"))
            z = builder.emit(op.exp(builder.emit(op.tanh(y))))
            result = builder.emit_output(z)
        builder.emit_func_output(result)
    out = merged(builder.get())
    assert regions(out) == {"ext_main_0": ["ext.tanh", "ext.exp"]}
    bindings = list(itertools.chain(*(block.bindings for block in out["main"].body.blocks)))
    assert isinstance(bindings[0], relax.MatchCast)


@pytest.mark.slow
def test_a_long_chain_takes_linear_time() -> None:
    def build(emit, x):
        for _ in range(1500):
            x = emit(op.abs(emit(op.tanh(x))))
        return x

    out = merged(relax_module(build, (2, 2)))
    assert [len(names) for names in regions(out).values()] == [3000]
