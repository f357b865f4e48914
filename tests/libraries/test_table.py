"""Libraries that are tables: every kind of argument reaches the C function as what it says."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from byoc.library import Node
from codegen_cc.dim import symbol
from codegen_cc.libraries import registry
from codegen_cc.region.graph import Region
from tests.ir.interpret import apply_node
from tests.ir.regions import RegionBuilder
from tests.ir.run_regions import CompiledRegions
from tests.libraries.table import rows
from tests.libraries.table.rows import region_of, table

CASES = {
    "t_matmul": (rows.matmul, rows.matmul_plain, rows.matmul_symbolic),
    "t_batched": (rows.matmul_batched,),
    "t_strided": (rows.matmul_strided,),
    "t_prepared": (rows.matmul_prepared,),
    "t_packed": (rows.matmul_packed,),
    "t_conv2d": (rows.conv2d,),
    "t_pixels": (rows.conv2d_pixels,),
    "t_pool": (rows.max_pool2d,),
    "t_softmax": (rows.softmax,),
    "t_sum": (rows.reduce,),
    "t_norm": (rows.layer_norm,),
    "t_attention": (rows.attention,),
    "t_unary": (rows.unary,),
    "t_subtract": (rows.binary,),
    "t_concat": (rows.concat,),
    "t_take": (rows.take,),
}
PAIRS = [(function, build) for function, builds in CASES.items() for build in builds]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompiledRegions]:
    before, library = dict(registry._loaded), registry.library(table())
    regions = [region_of(build, library) for _, build in PAIRS]
    yield CompiledRegions(regions, tmp_path_factory.mktemp("table"), (library,))
    registry._loaded.clear()
    registry._loaded.update(before)


@pytest.mark.parametrize(("function", "build"), PAIRS, ids=lambda x: getattr(x, "__name__", x))
def test_arguments(compiled: CompiledRegions, function: str, build) -> None:
    symbol_name = f"r_{build.__name__}"
    assert function in compiled.functions[symbol_name]
    region = compiled.regions[symbol_name]
    draw = np.random.default_rng(5)
    sizes = {"n": 6}
    shapes = [[sizes.get(str(d), d) for d in value.shape] for value in region.inputs]
    inputs = [draw.standard_normal(shape).astype(np.float32) for shape in shapes]
    expected = interpreted(region, inputs)
    for _ in range(2):  # what is prepared once serves the second call as well
        (found,) = compiled.run(symbol_name, *inputs, **sizes)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def interpreted(region: Region, inputs: list[np.ndarray]) -> np.ndarray:
    values = dict(zip(region.inputs, inputs, strict=True))
    for node in region.nodes:
        operands = [values[v] if v.data is None else v.data for v in node.inputs]
        values[node.output] = apply_node(concrete(node.node), operands)
    return values[region.outputs[0]]


def concrete(node: Node) -> Node:
    """The node with 6 in place of n."""

    def sizes(shape):
        return tuple(d if isinstance(d, int) else int(d.subs({symbol("n"): 6})) for d in shape)

    operands = tuple(replace(operand, shape=sizes(operand.shape)) for operand in node.operands)
    return replace(node, operands=operands, shape=sizes(node.shape))


def test_a_strided_side_is_not_copied(compiled: CompiledRegions) -> None:
    assert compiled.functions["r_matmul_strided"] == ["t_strided"]
    functions = compiled.functions["r_conv2d_pixels"]
    # The image on its way in, the result on its way out; no weight.
    assert functions.count("ext_copy") == 2
    for constant in ("packed", "prepared"):
        assert "ext_copy" not in compiled.functions[f"r_matmul_{constant}"]


def test_a_preparation_happens_once_among_threads(tmp_path: Path) -> None:
    """``t_prepare`` fails when it is called again."""
    before, library = dict(registry._loaded), table()
    registry._loaded[library.name] = library
    try:
        own = CompiledRegions([region_of(rows.matmul_prepared, library)], tmp_path, (library,))
    finally:
        registry._loaded.clear()
        registry._loaded.update(before)
    x = np.ones((3, 5), np.float32)
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda _: own.run("r_matmul_prepared", x)[0], range(64)))
    for result in results:
        np.testing.assert_array_equal(result, results[0])


def test_algorithm_and_cost() -> None:
    b = RegionBuilder()
    rows.matmul(b)
    node = b.region.nodes[0].node
    assert (table().algorithm(node), table().cost(node)) == ("three loops", 1e-9 * 120)
    b = RegionBuilder()
    rows.softmax(b)
    assert table().algorithm(b.region.nodes[0].node) == "t_softmax"
