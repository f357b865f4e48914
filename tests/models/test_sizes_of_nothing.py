"""Axes of size 0 and images smaller than a window: right results, or one line that says why not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
import tvm_ffi
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

import byoc
from byoc.errors import InputError, RunError
from tests.reference import assert_agrees, onnxruntime_outputs

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[int | str | None]],
    weights: dict[str, np.ndarray],
    dtype: int = FLOAT,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(nodes[-1].output[0], dtype, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=8)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype="float32")


CACHE = model(
    [
        helper.make_node("Concat", ["past", "new"], ["keys"], axis=1),
        helper.make_node("MatMul", ["keys", "w"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["y"]),
    ],
    {"past": ["b", "p", 64], "new": ["b", 1, 64]},
    {"w": random(64, 8)},
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> byoc.Model:
    path = tmp_path_factory.mktemp("cache") / "m.so"
    report = byoc.compile(CACHE, path, {"past": ["b", "p", 64], "new": ["b", 1, 64]}).report
    assert len(report.regions) == 1 and not report.left
    return byoc.load(path)


@pytest.mark.parametrize("size", [(2, 3), (2, 0), (1, 1), (0, 4), (0, 0)])
def test_an_empty_cache(cache: byoc.Model, size: tuple[int, int]) -> None:
    """Through the virtual machine, and by a call of the region as C++ makes it."""
    batch, past = size
    arrays = {"past": random(batch, past, 64), "new": random(batch, 1, 64)}
    expected = onnxruntime_outputs(CACHE, arrays)
    assert_agrees(cache.run(arrays), expected)
    room = np.full((batch, past + 1, 8), 77, "float32")
    tensors = [tvm_ffi.from_dlpack(array) for array in (*arrays.values(), room)]
    cache.function("ext_main_0")(*tensors)
    assert_agrees({"y": room}, expected)


@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
def test_there_is_no_place_of_the_extreme_of_nothing(kind: str, tmp_path: Path) -> None:
    """ONNX Runtime fails as well, with no message at all."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node(kind, ["r"], ["at"], axis=1, keepdims=0),
        helper.make_node("Cast", ["at"], ["y"], to=FLOAT),
    ]
    made = model(nodes, {"x": ["n", "m", 3]}, {})
    report = byoc.compile(made, tmp_path / "m.so", {"x": ["n", "m", 3]}, min_bytes=0).report
    assert len(report.regions) == 1 and not report.left
    net = byoc.load(tmp_path / "m.so")
    for shape in ((2, 5, 3), (1, 1, 3), (0, 4, 3)):
        arrays = {"x": random(*shape)}
        assert_agrees(net.run(arrays), onnxruntime_outputs(made, arrays))
    assert net.run({"x": random(0, 0, 3)})["y"].shape == (0, 3)
    said = f"axis 1 of {kind.lower()}, which needs 1 or more, inside the network would be 0"
    with pytest.raises(RunError, match=said):
        net.run({"x": random(2, 0, 3)})


REDUCTIONS = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "SumSquare", "LogSum"]


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_reductions_over_nothing(dtype: str, tmp_path: Path) -> None:
    """TVM's own loops would leave results as they were."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    names = [n for n in REDUCTIONS if dtype == "float32" or n in ("Sum", "Max", "Min", "Prod")]
    made = model([helper.make_node("Identity", ["x"], ["same"])], {"x": [3, 0, 2]}, {}, kind)
    for name in names:
        made.graph.node.append(helper.make_node(f"Reduce{name}", ["x", "axis"], [name]))
        made.graph.output.append(helper.make_tensor_value_info(name, kind, None))
    made.graph.initializer.append(numpy_helper.from_array(np.array([1]), "axis"))
    byoc.compile(made, tmp_path / "m.so", {"x": [3, 0, 2]})
    arrays = {"x": np.zeros((3, 0, 2), dtype)}
    found = byoc.load(tmp_path / "m.so").run(arrays)
    assert_agrees(found, onnxruntime_outputs(made, arrays))


def test_a_small_reduction_over_what_may_be_nothing_is_ours(tmp_path: Path) -> None:
    node = helper.make_node("ReduceMax", ["x", "axis"], ["y"])
    made = model([node], {"x": ["n", 2]}, {"axis": np.array([0])})
    report = byoc.compile(made, tmp_path / "m.so", {"x": ["n", 2]}).report
    assert len(report.regions) == 1
    loaded = byoc.load(tmp_path / "m.so")
    for n in (0, 1, 3):
        arrays = {"x": random(n, 2)}
        assert_agrees(loaded.run(arrays), onnxruntime_outputs(made, arrays))


def test_sizes_that_tvm_gets_wrong_are_refused(tmp_path: Path) -> None:
    node = helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=1)
    weights = {"i": np.array([[0, 1]]), "u": random(1, 2)}
    made = model([node], {"x": ["n", 5]}, weights)
    byoc.compile(made, tmp_path / "m.so", {"x": ["n", 5]})
    loaded = byoc.load(tmp_path / "m.so")
    arrays = {"x": random(3, 5)}
    assert_agrees(loaded.run(arrays), onnxruntime_outputs(made, arrays))
    with pytest.raises(InputError, match=r"need \[n, 5\] with n of 1 or more, as TVM computes"):
        loaded.run({"x": random(0, 5)})


# ---------------------------------------------------------------------- too small


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> byoc.Model:
    """A convolution, whose extents are inside a region, and a pool that TVM computes."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[3, 3]),
        helper.make_node("Conv", ["p", "w"], ["c"]),
        helper.make_node("GlobalAveragePool", ["c"], ["y"]),
    ]
    shape: list[int | str | None] = [1, 2, "h", "w"]
    path = tmp_path_factory.mktemp("windows") / "m.so"
    made = model(nodes, {"x": shape}, {"w": random(4, 2, 3, 3)})
    report = byoc.compile(made, path, {"x": shape}, skip_ops=["max_pool2d"]).report
    assert report.regions and report.left
    return byoc.load(path)


@pytest.mark.parametrize("size", [(1, 9), (9, 1), (1, 1), (3, 9)])
def test_an_image_smaller_than_a_window(windows: byoc.Model, size: tuple[int, int]) -> None:
    assert windows.run({"x": random(1, 2, 7, 8)})["y"].shape == (1, 4, 1, 1)
    with pytest.raises(RunError, match=r"would be -[12]; pass larger inputs"):
        windows.run({"x": random(1, 2, *size)})


@pytest.mark.parametrize("skip", [[], ["max_pool2d", "avg_pool2d"]], ids=["ours", "TVM's"])
@pytest.mark.parametrize("named", [{}, {"auto_pad": "VALID"}], ids=["", "VALID"])
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_a_part_of_a_window(
    kind: str, named: dict[str, str], skip: list[str], tmp_path: Path
) -> None:
    """ONNX's formula gives none, ONNX Runtime one of whatever the image has: refused."""
    node = helper.make_node(kind, ["x"], ["y"], kernel_shape=[2, 4], strides=[2, 3], **named)
    shape: list[int | str | None] = [1, 64, "h", "w"]
    made = model([node], {"x": shape}, {})
    report = byoc.compile(made, tmp_path / "m.so", {"x": shape}, skip_ops=skip, min_bytes=0).report
    assert bool(report.regions) is not bool(skip)
    loaded = byoc.load(tmp_path / "m.so")
    for size in [(2, 4), (3, 9), (2, 1)]:  # of 1 the formula gives 0 without a rest
        arrays = {"x": random(1, 64, *size)}
        assert_agrees(loaded.run(arrays), onnxruntime_outputs(made, arrays))
    for size in [(1, 4), (2, 3), (2, 2)]:
        with pytest.raises(RunError, match=r"would be -[12]; pass larger inputs"):
            loaded.run({"x": random(1, 64, *size)})


@pytest.mark.parametrize("operator", ["Max", "Min", "Sum", "Mean"])
@pytest.mark.parametrize("shape", [[0], [1, 1, 1, 0], [2, 0, 3]])
def test_operators_that_tvm_writes_as_reshapes_of_nothing(
    operator: str, shape: list[int], tmp_path: Path
) -> None:
    made = model([helper.make_node(operator, ["x"], ["y"])], {"x": shape}, {})
    byoc.compile(made, tmp_path / "m.so", {"x": shape}, min_bytes=0)
    arrays = {"x": np.zeros(shape, "float32")}
    found = byoc.load(tmp_path / "m.so").run(arrays)
    assert_agrees(found, onnxruntime_outputs(made, arrays))


# ---------------------------------------------------------------------- names of axes


def test_symbols_of_one_name_are_several(tmp_path: Path) -> None:
    """Exporters write "?" for every axis that they know nothing of; TVM makes each a symbol."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["z", "w"], ["b"]),
        helper.make_node("Concat", ["a", "b"], ["y"], axis=0),
    ]
    made = model(nodes, {"x": ["?", 64], "z": ["?", 64]}, {"w": random(64, 32)})
    module = from_onnx(made)
    symbols = relax.analysis.defined_symbolic_vars(module["main"])
    assert [symbol.name for symbol in symbols].count("?") == len(symbols) == 2
    partitioned = byoc.partition_for_ext(module)
    assert any("Codegen" in (f.attrs or {}) for f in partitioned.functions.values())
    byoc._autoload()
    built = tvm.compile(relax.transform.RunCodegen()(partitioned), "llvm")
    machine = relax.VirtualMachine(built, tvm.cpu())
    for x, z in ((3, 5), (1, 0), (4, 4)):
        arrays = {"x": random(x, 64), "z": random(z, 64)}
        found = machine["main"](*(tvm.runtime.tensor(array) for array in arrays.values()))
        assert_agrees({"y": found.numpy()}, onnxruntime_outputs(made, arrays))


@pytest.mark.parametrize("unknown", ["?", "-1", "None", "unk", "", "*"])
def test_placeholders_are_no_names(unknown: str, tmp_path: Path) -> None:
    node = helper.make_node("MatMul", ["x", "z"], ["y"])
    made = model([node], {"x": [unknown, 4], "z": [4, unknown]}, {})
    shapes = {"x": ["rows", 4], "z": [4, "columns"]}
    prepared = byoc.frontends.onnx.prepare(made, shapes)
    dims = [value.type.tensor_type.shape.dim for value in prepared.graph.input]
    assert [dim.dim_param for dim in (dims[0][0], dims[1][1])] == ["rows", "columns"]


def test_given_sizes_count_for_more_than_equal_names(tmp_path: Path) -> None:
    """Some exporters give one name to axes of several lengths; ONNX Runtime takes those too."""
    node = helper.make_node("MatMul", ["x", "z"], ["y"])
    made = model([node], {"x": ["unk__7", 4], "z": [4, "unk__7"]}, {})
    byoc.compile(made, tmp_path / "m.so", {"x": [3, 4], "z": [4, 5]})
    feeds = {"x": random(3, 4), "z": random(4, 5)}
    assert_agrees(byoc.load(tmp_path / "m.so").run(feeds), onnxruntime_outputs(made, feeds))
    alike = byoc.frontends.onnx.prepare(made, {"x": [3, 4]})
    assert alike.graph.input[1].type.tensor_type.shape.dim[1].dim_value == 3


@pytest.mark.parametrize("extents", [(6, 0), (6, 0, 2), (0, 6)])
def test_constants_without_elements_are_loaded(tmp_path: Path, extents: tuple[int, ...]) -> None:
    """TVM's runtime takes those whose first extent is not 0 for damaged ones."""
    node = helper.make_node("Concat", ["x", "w"], ["y"], axis=0)
    shapes = {"x": [2, *extents[1:]]}
    made = model([node], shapes, {"w": np.zeros(extents, "float32")})
    byoc.compile(made, tmp_path / "m.so", shapes, skip_ops=["relax.concat"])
    feeds = {"x": np.zeros((2, *extents[1:]), "float32")}
    found = byoc.load(tmp_path / "m.so").run(feeds)
    assert found["y"].shape == onnxruntime_outputs(made, feeds)["y"].shape


@pytest.mark.slow
def test_pools_round_up_at_every_size(tmp_path: Path) -> None:
    """With an operator behind them that TVM computes; ends of windows in and beyond the padding."""
    forms = [
        (kernel, stride, pads, dilation)
        for kernel in (1, 2, 3)
        for stride in (1, 2, 3)
        for pads in ((0, 0), (1, 0), (0, 1), (1, 1))
        for dilation in (1, 2)
        if max(pads) < kernel
    ]
    nodes = []
    for number, (kernel, stride, pads, dilation) in enumerate(forms):
        options = {"kernel_shape": [kernel], "strides": [stride], "pads": pads, "ceil_mode": 1}
        options["dilations"] = [dilation]
        for operator in ("MaxPool", "AveragePool"):
            name = f"{operator}{number}"
            nodes.append(helper.make_node(operator, ["x"], [f"_{name}"], **options))
            nodes.append(helper.make_node("Cosh", [f"_{name}"], [name]))
    names = [node.output[0] for node in nodes if node.op_type == "Cosh"]
    made = model(nodes, {"x": [2, 3, "n"]}, {})
    made.graph.ClearField("output")
    made.graph.output.extend(helper.make_tensor_value_info(name, FLOAT, None) for name in names)
    compiled = byoc.compile(made, tmp_path / "m.so", {"x": [2, 3, "n"]}, min_bytes=0)
    assert {entry.op for entry in compiled.report.left} == {"relax.cosh"}
    library = byoc.load(tmp_path / "m.so")
    for n in range(5, 12):
        feeds = {"x": random(2, 3, n)}
        assert_agrees(library.run(feeds), onnxruntime_outputs(made, feeds))


@pytest.mark.parametrize("skipped", [(), ("relax.strided_slice",)], ids=["region", "TVM"])
def test_no_table_is_read_past_its_end(tmp_path: Path, skipped: tuple[str, ...]) -> None:
    """A sentence takes as many of 20 positions as it is long; a longer one is refused."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["n"], axis=0),
        helper.make_node("Slice", ["table", "zero", "n", "zero"], ["places"]),
        helper.make_node("Add", ["x", "places"], ["placed"]),
        helper.make_node("MatMul", ["placed", "w"], ["y"]),
    ]
    weights = {"one": np.array([1]), "zero": np.array([0])}
    weights |= {"table": random(20, 64), "w": random(64, 32)}
    made = model(nodes, {"x": [1, "n", 64]}, weights)
    compiled = byoc.compile(made, tmp_path / "m.so", skip_ops=skipped)
    if not skipped:
        assert compiled.metadata.entry is not None
    loaded = byoc.load(tmp_path / "m.so")
    for n in (1, 7, 20):
        feeds = {"x": random(1, n, 64)}
        assert_agrees(loaded.run(feeds), onnxruntime_outputs(made, feeds))
    for n in (21, 500):
        with pytest.raises(RunError, match=f"would be {20 - n}; pass smaller inputs"):
            loaded.run({"x": random(1, n, 64)})


@pytest.mark.parametrize("skipped", [(), ("relax.strided_slice",)], ids=["region", "TVM"])
def test_no_table_is_read_past_its_ends(tmp_path: Path, skipped: tuple[str, ...]) -> None:
    """n elements have 2 n - 1 distances of 39, from the middle on in both directions."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["n"], axis=0),
        helper.make_node("Sub", ["middle", "n"], ["first"]),
        helper.make_node("Add", ["n", "before"], ["last"]),
        helper.make_node("Slice", ["table", "first", "last", "zero"], ["distances"]),
        helper.make_node("Transpose", ["distances"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "turned"], ["y"]),
    ]
    weights = {"one": np.array([1]), "zero": np.array([0]), "table": random(39, 64)}
    weights |= {"middle": np.array([20]), "before": np.array([19])}
    made = model(nodes, {"x": [1, "n", 64]}, weights)
    compiled = byoc.compile(made, tmp_path / "m.so", skip_ops=skipped)
    if not skipped:
        assert compiled.metadata.entry is not None
    loaded = byoc.load(tmp_path / "m.so")
    for n in (2, 7, 20):
        feeds = {"x": random(1, n, 64)}
        assert_agrees(loaded.run(feeds), onnxruntime_outputs(made, feeds))
    for n in (21, 500):
        with pytest.raises(RunError, match=f"would be {20 - n}; pass smaller inputs"):
            loaded.run({"x": random(1, n, 64)})


def test_a_slice_that_always_ends_past_the_end_is_cut(tmp_path: Path) -> None:
    """As a window of an inverse STFT, of which a network asks for as much as it has samples."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["n"], axis=0),
        helper.make_node("Mul", ["n", "five"], ["most"]),
        helper.make_node("Add", ["most", "twenty"], ["end"]),
        helper.make_node("Slice", ["window", "zero", "end", "zero"], ["cut"]),
        helper.make_node("ReduceSum", ["cut", "zero"], ["sum"], keepdims=0),
        helper.make_node("Mul", ["x", "sum"], ["scaled"]),
        helper.make_node("MatMul", ["scaled", "w"], ["y"]),
    ]
    weights = {"one": np.array([1]), "zero": np.array([0]), "five": np.array([5])}
    weights |= {"twenty": np.array([20]), "window": random(20), "w": random(64, 32)}
    made = model(nodes, {"x": [1, "n", 64]}, weights)
    byoc.compile(made, tmp_path / "m.so")
    for n in (1, 30):
        feeds = {"x": random(1, n, 64)}
        assert_agrees(byoc.load(tmp_path / "m.so").run(feeds), onnxruntime_outputs(made, feeds))


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [100, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.uint8])
def test_what_tvm_reduces_may_have_no_terms(dtype: type, threshold: int, tmp_path: Path) -> None:
    """Those of 12 numbers that are greater: as many as data decide, in dtypes without kernels."""
    kinds = ["Max", "Min"] if dtype is np.uint8 else ["Max", "Min", "Prod", "Mean", "Sum"]
    nodes = [
        helper.make_node("Greater", ["x", "threshold"], ["greater"]),
        helper.make_node("Compress", ["x", "greater"], ["line"], axis=0),
        helper.make_node("Reshape", ["line", "column"], ["found"]),
        *(helper.make_node(f"Reduce{k}", ["found", "first"], [k], keepdims=0) for k in kinds),
        helper.make_node("Concat", kinds, ["y"], axis=0),
    ]
    weights = {
        "threshold": np.array(threshold, dtype),
        "column": np.array([-1, 1]),
        "first": np.array([0]),
    }
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    source, inputs = model(nodes, {"x": [12]}, weights, kind), {"x": np.arange(12).astype(dtype)}
    byoc.compile(source, tmp_path / "m.so")
    got = byoc.load(tmp_path / "m.so").run(inputs)["y"]
    np.testing.assert_array_equal(got, onnxruntime_outputs(source, inputs)["y"])
