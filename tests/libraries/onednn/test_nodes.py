"""Every operator that oneDNN computes, against NumPy; what it refuses, and why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from codegen_cc.dim import symbol
from codegen_cc.errors import LibraryError
from codegen_cc.libraries import registry
from codegen_cc.libraries.onednn import rules
from codegen_cc.node import Node, Operand, Step
from codegen_cc.region.graph import Region, Value
from tests.ir.interpret import apply_node
from tests.ir.regions import RegionBuilder
from tests.ir.run_regions import CompiledRegions
from tests.libraries.onednn.cases import BIAS, CASES, RESIDUAL, Case
from tests.reference import assert_agrees

try:
    LIBRARY = registry.library("onednn")
except LibraryError as error:
    pytest.skip(str(error), allow_module_level=True)


def reference(region: Region, inputs: list[np.ndarray]) -> np.ndarray:
    """The region's output by NumPy in fp64, node by node."""
    values: dict[Value, np.ndarray] = dict(zip(region.inputs, inputs, strict=True))
    for node in region.nodes:
        operands = [values.get(value, value.data) for value in node.inputs]
        sizes = [array.shape for array in operands]
        concrete = tuple(
            replace(operand, shape=size)
            for operand, size in zip(node.node.operands, sizes, strict=True)
        )
        shape = node.node.shape
        if not all(isinstance(extent, int) for extent in shape):
            shape = (sizes[0][0], *shape[1:])  # the symbolic batch of test_symbolic_batch
        values[node.output] = apply_node(
            replace(node.node, operands=concrete, shape=shape), operands
        )
    return values[region.outputs[0]].astype(np.float32)


def draw(region: Region, seed: int = 3) -> list[np.ndarray]:
    """Inputs away from 0, where a division or a reciprocal would be wild."""
    random = np.random.default_rng(seed)
    arrays = []
    for value in region.inputs:
        numbers = random.standard_normal(value.shape, dtype=np.float32)
        arrays.append(numbers + np.sign(numbers) * np.float32(0.25))
    return arrays


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> CompiledRegions:
    regions = [case.region() for case in CASES]
    return CompiledRegions(regions, tmp_path_factory.mktemp("onednn"), (LIBRARY,))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_agrees_with_numpy(case: Case, compiled: CompiledRegions) -> None:
    symbol_ = f"r_{case.name}"
    called = Counter(compiled.functions[symbol_])
    copies = called.pop("ext_copy", 0)
    assert called == {f"ext_onednn_{case.function}": 1}
    assert case.copies is None or copies == case.copies
    region = compiled.regions[symbol_]
    inputs = draw(region)
    if case.name.endswith("_sqrt"):
        inputs = [np.abs(array) for array in inputs]
    for _ in range(2):  # the second call finds what the first prepared
        (result,) = compiled.run(symbol_, *inputs)
        assert_agrees({"y": result}, {"y": reference(region, inputs)})


@pytest.mark.parametrize("kind", rules.EXACT)
def test_special_numbers(kind: str, compiled: CompiledRegions) -> None:
    """What is called exact keeps NaN, and gives what the formula has at infinity and at 0."""
    region = compiled.regions[f"r_unary_{kind}"]
    numbers = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-20, 100, -100], np.float32)
    inputs = [np.resize(numbers, region.inputs[0].shape)]
    (result,) = compiled.run(region.symbol, *inputs)
    expected = reference(region, inputs)
    assert np.isnan(result[0, 0])
    # x * sigmoid(x) and the like: 0 * infinity, or its limit 0.
    unclear = np.isneginf(inputs[0]) if kind in _AT_MINUS_INFINITY else np.zeros_like(result, bool)
    assert np.all(np.isnan(result[unclear]) | (result[unclear] == 0))
    # What is below the normal numbers may become 0.
    np.testing.assert_allclose(result[~unclear], expected[~unclear], rtol=1e-5, atol=1e-37)


_AT_MINUS_INFINITY = ("silu", "hard_swish", "gelu_tanh", "mish")


def image_region(name: str) -> Region:
    """A convolution and a product of a symbolic batch."""
    n = symbol("n")
    b = RegionBuilder(name)
    x = b.input(n, 3, 6, 6)
    attrs = {"strides": [1, 1], "padding": [1] * 4, "dilation": [1, 1], "groups": 1}
    operands = {"input": x, "weight": b.constant(8, 3, 3, 3), "bias": b.constant(8)}
    y = b.add("conv2d", operands, (n, 8, 6, 6), (BIAS, Step("relu")), **attrs)
    y = b.add("matmul", {"lhs": y, "rhs": b.constant(6, 5)}, (n, 8, 6, 5))
    region = b.done(b.add("softmax", {"input": y}, (n, 8, 6, 5), axis=3, log=False))
    for node in region.nodes:
        node.node = replace(node.node, library="onednn")
    return region


@pytest.fixture(scope="module")
def symbolic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompiledRegions]:
    regions = [image_region("ext_one"), image_region("ext_two")]
    yield CompiledRegions(regions, tmp_path_factory.mktemp("symbolic"), (LIBRARY,))


def images(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, 3, 6, 6), dtype=np.float32)


def test_symbolic_batch(symbolic: CompiledRegions) -> None:
    """More sizes than a call site keeps plans for, in two rounds."""
    assert [f for f in symbolic.functions["ext_one"] if f != "ext_copy"] == [
        "ext_onednn_conv2d",
        "ext_onednn_matmul_constant",
        "ext_onednn_softmax",
    ]
    for n in [*range(1, 21), 1, 19, 20, 2]:
        (result,) = symbolic.run("ext_one", images(n), n=n)
        expected = reference(symbolic.regions["ext_one"], [images(n)])
        assert_agrees({"y": result}, {"y": expected})


def test_threads_share_a_region(symbolic: CompiledRegions) -> None:
    """First calls and later ones, of one shape and of several, at once."""
    sizes = [3, 3, 1, 3, 2, 1] * 8
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda n: symbolic.run("ext_two", images(n), n=n)[0], sizes))
    expected = {n: reference(symbolic.regions["ext_two"], [images(n)]) for n in set(sizes)}
    for n, result in zip(sizes, results, strict=True):
        assert_agrees({"y": result}, {"y": expected[n]})


# ---------------------------------------------------------------- refusals


FIXED = ("weight", "bias", "gamma", "beta")


def node(
    op: str,
    shapes: dict[str, tuple[int, ...]],
    shape: tuple[int, ...],
    steps: tuple[Step, ...] = (),
    dtype: str = "float32",
    fixed: tuple[str, ...] = FIXED,
    **attrs: object,
) -> Node:
    operands = tuple(Operand(role, s, dtype, role in fixed) for role, s in shapes.items())
    return Node(op, operands, shape, dtype, attrs, tuple(steps))


def conv_node(*steps: Step, **changes) -> Node:
    attrs = {"strides": [1, 1], "padding": [0] * 4, "dilation": [1, 1], "groups": 1, **changes}
    shapes = {"input": (1, 4, 5, 5), "weight": (6, 4, 1, 1)}
    if RESIDUAL in steps:
        shapes["residual"] = (1, 6, 5, 5)
    return node("conv2d", shapes, (1, 6, 5, 5), steps, **attrs)


def pool_node(op: str, **changes) -> Node:
    attrs = {"pool_size": [2, 2], "strides": [2, 2], "dilation": [1, 1], "padding": [0] * 4}
    attrs |= {"ceil_mode": False, "count_include_pad": False, **changes}
    return node(op, {"input": (1, 4, 6, 6)}, (1, 4, 3, 3), **attrs)


def unary_node(kind: str, **attrs) -> Node:
    return node("unary", {"input": (3, 4)}, (3, 4), kind=kind, **attrs)


def binary_node(kind: str, lhs: tuple[int, ...], rhs: tuple[int, ...]) -> Node:
    return node("binary", {"lhs": lhs, "rhs": rhs}, (3, 4), kind=kind)


REFUSED = {
    "operator": (
        node("reduce", {"input": (3, 4)}, (3,), kind="sum"),
        "operator reduce; need one of conv2d",
    ),
    "dtype": (
        node("softmax", {"input": (3, 4)}, (3, 4), dtype="int32", axis=1, log=False),
        "input has dtype int32; need float32",
    ),
    "computed_weight": (
        node("conv2d", {"input": (1, 4, 5, 5), "weight": (6, 4, 1, 1)}, (1, 6, 5, 5), fixed=()),
        r"weight float32\[6, 4, 1, 1\] is computed; need a constant",
    ),
    "negative_padding": (conv_node(padding=[-1, 0, 0, 0]), "need no negative padding"),
    "function_in_epilogue": (conv_node(Step("exp")), "activation exp: oneDNN's turns NaN into"),
    "unknown_function": (conv_node(Step("erf")), "activation erf: oneDNN has none"),
    "inner_softplus": (conv_node(Step("softplus"), RESIDUAL), "softplus: oneDNN's is wrong by"),
    "clip": (conv_node(Step("clip", 2.0, 1.0)), r"clip to \[2.0, 1.0\]; need bounds in order"),
    "order_of_steps": (conv_node(Step("relu"), BIAS), "epilogue 'relu bias' of conv2d"),
    "dilated_pool": (pool_node("max_pool2d", dilation=[2, 2]), r"dilation \[2, 2\].*need 1"),
    "ceil": (
        pool_node("avg_pool2d", ceil_mode=True, count_include_pad=True),
        "ceil_mode with count_include_pad",
    ),
    "relu": (unary_node("relu"), "unary relu: oneDNN's turns NaN into 0; need one of sigmoid"),
    "gelu": (unary_node("gelu"), "unary gelu: oneDNN's turns infinity into NaN"),
    "sin": (unary_node("sin"), "unary sin: oneDNN has none"),
    "leaky": (unary_node("leaky_relu", alpha=0.0), "leaky_relu of slope 0"),
    "pow": (binary_node("pow", (3, 4), (3, 4)), "binary pow; need one of add, sub, mul, div"),
    "repeated_lhs": (
        binary_node("sub", (4,), (3, 4)),
        r"sub of lhs \[4\], rhs \[3, 4\]: oneDNN repeats only the right side; need \[3, 4\]",
    ),
    "both_repeated": (binary_node("mul", (3, 1), (1, 4)), "oneDNN repeats only the right side"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_with_a_reason(name: str) -> None:
    refused, reason = REFUSED[name]
    found = LIBRARY.supports(refused)
    assert found is not None and re.search(reason, found), found
