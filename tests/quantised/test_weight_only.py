"""Weights of 4 and 8 bits beside data of float32: offloaded, and the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

import byoc
import byoc.frontends.onnx.backend as backend
from byoc.errors import ByocError
from byoc.frontends.onnx import import_onnx, prepare
from tests.quantised.nodes import assert_alike, onnxruntime_of

f32 = np.float32
MICROSOFT = "com.microsoft"
#: How zero points are given to MatMulNBits.
ZEROS = ("none", "packed", "float")


def pairs(values: np.ndarray) -> np.ndarray:
    """Two integers of 4 bits along the last axis in each byte, the lower one first."""
    even = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, values.shape[-1] % 2)])
    return (even[..., ::2] | even[..., 1::2] << 4).astype(np.uint8)


def n_bits(
    x: tuple,
    n: int,
    k: int,
    bits: int = 4,
    block: int = 32,
    zeros: str = "none",
    bias: bool = False,
    seed: int = 0,
    level: int | None = None,
    changed: Mapping[str, object] = MappingProxyType({}),
) -> tuple[onnx.ModelProto, np.ndarray]:
    """A model of one MatMulNBits, and the weight that it has."""
    draw = np.random.default_rng(seed)
    blocks = -(-k // block)
    q = draw.integers(0, 1 << bits, (n, blocks, block), np.uint8)
    scale = draw.uniform(0.01, 0.1, (n, blocks)).astype(f32)
    zero = np.full((n, blocks), 1 << (bits - 1), f32)
    stored = {"b": pairs(q) if bits == 4 else q, "scales": scale.reshape(-1)}
    if zeros == "packed":
        integers = draw.integers(0, 1 << bits, (n, blocks), np.uint8)
        zero = integers.astype(f32)
        stored["zeros"] = (pairs(integers) if bits == 4 else integers).reshape(-1)
    elif zeros == "float":
        zero = draw.uniform(0, (1 << bits) - 1, (n, blocks)).astype(f32)
        stored["zeros"] = zero
    weight = ((q - zero[..., None].astype(np.float64)) * scale[..., None]).reshape(n, -1)[:, :k].T
    names = ["x", "b", "scales", "zeros" if zeros != "none" else ""]
    if bias:
        names += ["", "bias"]
        stored["bias"] = draw.standard_normal(n).astype(f32)
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block}
    if level is not None:
        attributes["accuracy_level"] = level
    attributes |= {key: value for key, value in changed.items() if key in attributes}
    stored |= {key: value for key, value in changed.items() if key in (*stored, "g_idx")}
    if "g_idx" in changed:
        names = [*names[:4], "g_idx"]
        weight = in_groups(q, scale, zero, changed["g_idx"])
    node = helper.make_node("MatMulNBits", names, ["y"], "product", domain=MICROSOFT, **attributes)
    return model_of([node], x, stored), weight


def in_groups(
    q: np.ndarray, scale: np.ndarray, zero: np.ndarray, group: np.ndarray
) -> np.ndarray | None:
    """The weight whose rows have the scales of these groups; None where there are no such."""
    if group.max() >= scale.shape[1]:
        return None
    rows = q.reshape(len(q), -1)[:, : len(group)]
    return ((rows - zero[:, group].astype(np.float64)) * scale[:, group]).T


def model_of(nodes: list, x: tuple, stored: dict, opset: int = 21) -> onnx.ModelProto:
    tensors = [
        value if isinstance(value, onnx.TensorProto) else numpy_helper.from_array(value, name)
        for name, value in stored.items()
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)]
    outputs = [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph(nodes, "weights", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run(model: onnx.ModelProto, x: np.ndarray, kernel: str) -> np.ndarray:
    """The result, of one region with that kernel and nothing left."""
    compiled = backend.prepare(model, min_bytes=0)
    (y,) = compiled.run([x])
    report = compiled.report
    assert report.left == () and len(report.regions) == 1
    assert [use.algorithm for use in report.kernels if use.macs] == [kernel]
    return y


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(f32)


@pytest.mark.parametrize("zeros", ZEROS)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    "x, n, block", [((1, 96), 48, 32), ((5, 100), 33, 32), ((40, 72), 31, 16), ((2, 3, 64), 7, 64)]
)
def test_mat_mul_n_bits(x: tuple, n: int, block: int, bits: int, zeros: str) -> None:
    model, weight = n_bits(x, n, x[-1], bits, block, zeros)
    values = data(*x)
    y = run(model, values, f"matmul, {bits}-bit weight")
    assert_alike(y, (values.astype(np.float64) @ weight).astype(f32))
    if bits == 4 or zeros != "float":  # ONNX Runtime has no others
        assert_alike(y, onnxruntime_of(model, values)[0])


def groups(kind: str) -> np.ndarray:
    """The group of each of 72 rows, in blocks of 16."""
    draw = np.random.default_rng(5)
    if kind == "shuffled":  # as GPTQ does, which quantises rows in the order of what they weigh
        return draw.permutation(np.arange(72) // 16).astype(np.int32)
    return draw.integers(0, 5, 72).astype(np.int32)


@pytest.mark.parametrize("zeros", ZEROS)
@pytest.mark.parametrize(
    "kind, kernel", [("shuffled", "matmul, 4-bit weight"), ("uneven", "matmul")]
)
def test_rows_that_are_in_groups(kind: str, kernel: str, zeros: str) -> None:
    """ONNX Runtime takes 8 for zero points of 4 bits here, whatever they are."""
    group = groups(kind)
    model, weight = n_bits((3, 72), 31, 72, 4, 16, zeros, changed={"g_idx": group})
    values = data(3, 72)
    compiled = backend.prepare(model, min_bytes=0)
    (y,) = compiled.run([values])
    report = compiled.report
    assert report.left == () and len(report.regions) == 1
    assert all(kernel in use.algorithm for use in report.kernels if use.macs)
    assert_alike(y, (values.astype(np.float64) @ weight).astype(f32))
    if zeros != "packed":
        assert_alike(y, onnxruntime_of(model, values)[0])


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_bias_activation_and_symbolic_rows(rows: int) -> None:
    model, weight = n_bits(("rows", 64), 30, 64, bias=True, level=4)
    model.graph.node[0].output[0] = "sums"
    model.graph.node.append(helper.make_node("Relu", ["sums"], ["y"]))
    values = data(rows, 64)
    bias = numpy_helper.to_array(model.graph.initializer[2])
    wanted = np.maximum(values.astype(np.float64) @ weight + bias, 0).astype(f32)
    assert_alike(run(model, values, "matmul, 4-bit weight"), wanted)


def test_symbolic_rows_of_one_library(tmp_path: Path) -> None:
    model, weight = n_bits(("rows", 64), 30, 64, zeros="packed")
    compiled = byoc.compile(
        model, tmp_path / "model.so", input_shapes={"x": ["rows", 64]}, min_bytes=0
    )
    assert compiled.report.left == ()
    with byoc.load(tmp_path / "model.so") as loaded:
        for rows in (0, 1, 5, 40):
            values = data(rows, 64)
            (y,) = loaded.run({"x": values}).values()
            assert_alike(y, (values.astype(np.float64) @ weight).astype(f32))


def test_the_library_is_as_small_as_the_model(tmp_path: Path) -> None:
    model, _ = n_bits((1, 1024), 2048, 1024, zeros="packed")
    byoc.compile(model, tmp_path / "model.so")
    size = (tmp_path / "model.so").stat().st_size
    empty, _ = n_bits((1, 32), 16, 32)
    byoc.compile(empty, tmp_path / "empty.so", min_bytes=0)
    assert size - (tmp_path / "empty.so").stat().st_size < 1.1 * model.ByteSize()


# ---------------------------------------------------------------------- DequantizeLinear


def four_bits(name: str, values: np.ndarray, kind: int) -> onnx.TensorProto:
    flat = values.reshape(-1).tolist()
    return helper.make_tensor(name, kind, values.shape, flat)


KINDS = {
    "int4": (TensorProto.INT4, -8, 7),
    "uint4": (TensorProto.UINT4, 0, 15),
    "int8": (TensorProto.INT8, -128, 127),
    "uint8": (TensorProto.UINT8, 0, 255),
}


def dequantised(
    kind: str, x: tuple, n: int, block: int, zero: bool, how: str = "MatMul"
) -> tuple[onnx.ModelProto, np.ndarray]:
    """x times a weight behind DequantizeLinear, blocks of rows or, with 0, a scale per column."""
    draw, k = np.random.default_rng(3), x[-1]
    code, low, high = KINDS[kind]
    blocks = -(-k // block) if block else 1
    q = draw.integers(low, high + 1, (k, n))
    scale = draw.uniform(0.01, 0.1, (blocks, n)).astype(f32)
    zeros = draw.integers(low, high + 1, (blocks, n)) if zero else np.zeros((blocks, n), int)
    rows = np.arange(k) // (block or k)
    weight = (q - zeros[rows]) * scale[rows].astype(np.float64)
    axis = 0 if block else 1
    if how != "MatMul":
        q, scale, zeros, axis = q.T, scale.T, zeros.T, 1 - axis
    if not block:
        scale, zeros = scale.reshape(-1), zeros.reshape(-1)
    stored = {"q": four_bits("q", q, code), "scale": np.ascontiguousarray(scale)}
    names = ["q", "scale"]
    if zero:
        stored["zero"] = four_bits("zero", zeros, code)
        names.append("zero")
    attributes = {"axis": axis} | ({"block_size": block} if block else {})
    nodes = [helper.make_node("DequantizeLinear", names, ["w"], "weight", **attributes)]
    if how == "Gemm":
        stored["bias"] = draw.standard_normal(n).astype(f32)
        nodes.append(helper.make_node("Gemm", ["x", "w", "bias"], ["y"], transB=1))
    else:
        turned = "w"
        if how == "Transpose":
            nodes.append(helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]))
            turned = "t"
        nodes.append(helper.make_node("MatMul", ["x", turned], ["y"]))
    return model_of(nodes, x, stored), weight


#: Each kind and block with all three ways that read the weight, in turn with zero points.
DEQUANTISED = [
    (kind, block, (first + second + third) % 2 == 0, how)
    for first, kind in enumerate(KINDS)
    for second, block in enumerate((0, 16, 24))
    for third, how in enumerate(("MatMul", "Transpose", "Gemm"))
]


@pytest.mark.parametrize(("kind", "block", "zero", "how"), DEQUANTISED)
def test_dequantize_linear(kind: str, block: int, zero: bool, how: str) -> None:
    model, weight = dequantised(kind, (3, 72), 21, block, zero, how)
    values = data(3, 72)
    y = run(model, values, f"matmul, {kind.strip('uint')}-bit weight")
    wanted = values.astype(np.float64) @ weight
    if how == "Gemm":
        wanted = wanted + numpy_helper.to_array(model.graph.initializer[-1])
    assert_alike(y, wanted.astype(f32))
    assert_alike(y, onnxruntime_of(model, values)[0])


def test_a_last_block_may_be_short() -> None:
    model, weight = dequantised("uint4", (4, 70), 18, 32, True)
    values = data(4, 70)
    y = run(model, values, "matmul, 4-bit weight")
    assert_alike(y, (values.astype(np.float64) @ weight).astype(f32))


def test_blocks_that_no_kernel_reads_become_floats() -> None:
    """Blocks of 20 rows are no whole words of 4-bit integers."""
    model, weight = dequantised("int4", (4, 60), 18, 20, True)
    values = data(4, 60)
    y = run(model, values, "matmul")
    assert_alike(y, (values.astype(np.float64) @ weight).astype(f32))


@pytest.mark.slow
def test_tvm_computes_the_same() -> None:
    for model, _weight in (
        n_bits((3, 70), 20, 70, zeros="float"),
        dequantised("uint4", (3, 70), 18, 32, True, "Gemm"),
    ):
        module = import_onnx(prepare(model))
        values = data(3, 70)
        machine = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
        y = machine["main"](tvm.runtime.tensor(values)).numpy()
        assert_alike(y, onnxruntime_of(model, values)[0])


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"block_size": 24}, "block_size=24; need a power of 2"),
        ({"block_size": 8}, "block_size=8; need a power of 2, 16 or more"),
        ({"bits": 3}, "bits=3; need 2, 4 or 8"),
        ({"K": 0}, "K=0; need 1 or more"),
        ({"scales": np.ones(3, f32)}, r"scales: of shape \[3\]; need \[32\] or \[16, 2\]"),
        ({"scales": np.full(32, np.nan, f32)}, "scale nan; need finite ones"),
        ({"scales": np.ones(32, np.float16)}, "scales: float16; need float32"),
        ({"b": np.ones((16, 2, 8), np.uint8)}, r"the weight: of shape .*; need \[16, 2, 16\]"),
        ({"zeros": np.ones(5, np.uint8)}, r"zero_points: of shape \[5\]; need \[16\] or \[16, 1\]"),
        ({"zeros": np.full(32, np.inf, f32)}, "zero point inf; need finite ones"),
        ({"g_idx": np.full(64, 2, np.int32)}, "g_idx from 2 to 2; need groups below 2"),
        ({"g_idx": np.zeros(60, np.int32)}, r"g_idx: of shape \[60\]; need \[64\]"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refusals(changed: dict, message: str) -> None:
    model, _ = n_bits((2, 64), 16, 64, zeros="packed", changed=changed)
    with pytest.raises(ByocError, match=message) as error:
        import_onnx(prepare(model))
    assert "MatMulNBits (node 'product')" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("bits, zeros", [(4, "none"), (4, "packed"), (8, "packed")])
def test_data_are_rounded_to_bytes_where_asked(
    rows: int, bits: int, zeros: str, tmp_path: Path
) -> None:
    """Which ONNX Runtime does with accuracy_level 4 and 4 bits."""
    model, weight = n_bits((rows, 256), 48, 256, bits, 32, zeros, level=4)
    values = data(rows, 256)
    file = tmp_path / "model.so"
    report = byoc.compile(model, file, min_bytes=0, precision="int8-data").report
    with byoc.load(file) as library:
        y = library(values)
    assert report.left == () and report.multiplied_in == {"int8": rows * 256 * 48}
    names = [use.algorithm for use in report.kernels if use.macs]
    assert names == [f"matmul, {bits}-bit weight, int8 data"]
    exact = values.astype(np.float64) @ weight
    limit = 0.01 * np.ptp(exact)
    assert np.abs(y - exact).max() <= limit
    if bits == 4:
        assert np.abs(y - onnxruntime_of(model, values)[0]).max() <= limit


def test_other_products_say_why_they_are_not_rounded(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((64, 32)).astype(f32)
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], (4, 64), {"w": weight})
    file = tmp_path / "model.so"
    report = byoc.compile(model, file, min_bytes=0, precision="int8-data").report
    assert report.multiplied_in == {"float32": 4 * 64 * 32}
    (reason,) = report.kept
    assert reason.startswith("int8-data rounds the data of products whose weight has 4 or 8 bits")
