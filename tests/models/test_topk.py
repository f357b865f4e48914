"""TopK from ONNX and from Relax, offloaded, against ONNX Runtime and NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import parser
from tvm import relax

import byoc
from byoc.compiler.partition import partition_with_report
from byoc.compiler.standalone import compile_standalone
from byoc.deploy.compiled_file import read_compiled
from byoc.errors import InputError, RunError
from tests.deploy.standalone_api import Instance
from tests.reference import onnxruntime_outputs


def model(
    body: str, inputs: str, outputs: str, constants: str = "", opset: int = 17
) -> onnx.ModelProto:
    """A graph in ONNX's text form, whose outputs have shapes that are to be inferred."""
    results = ", ".join("[] ".join(output.split()) for output in outputs.split(","))
    made = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g ({inputs}) => ({results})'
        f" <{constants}> {{ {body} }}"
    )
    for value in made.graph.output:
        value.type.tensor_type.ClearField("shape")
    return made


def rounded(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers with many ties."""
    return np.round(2 * np.random.default_rng(seed).standard_normal(shape)).astype("float32")


def compiled(given: onnx.ModelProto, folder: Path, *shapes: object) -> byoc.Model:
    """The model, all of it in one region, however little it computes."""
    report = byoc.compile(given, folder / "m.so", *shapes, min_bytes=0).report
    assert len(report.regions) == 1 and not report.left, report.left
    assert "ext.topk" in {node.operator for node in report.graph.nodes}
    return byoc.load(folder / "m.so")


K0, K3, K5, K7 = (f"int64[1] k = {{{k}}}" for k in (0, 3, 5, 7))
BOTH = "float v, int64 i"
TOPK = "v, i = TopK(x, k)"


def check(given: onnx.ModelProto, folder: Path, **inputs: np.ndarray) -> None:
    """Equal to ONNX Runtime: values, indices and dtypes."""
    want = onnxruntime_outputs(given, inputs)
    got = compiled(given, folder).run(inputs)
    assert got.keys() == want.keys()
    for name, expected in want.items():
        assert got[name].dtype == expected.dtype
        np.testing.assert_array_equal(got[name], expected, err_msg=name)


CONSTANTS = "int64[1] four = {4}, int64[1] one = {1}, int64[1] five = {5}"
FORMS = {
    1: ("v, i = TopK<k = 4>(x)  w, j = TopK<k = 1, axis = 0>(x)", ""),
    10: ("v, i = TopK(x, four)  w, j = TopK<axis = 0>(x, one)", CONSTANTS),
    11: ("v, i = TopK<largest = 0>(x, four)  w, j = TopK<axis = -3>(x, one)", CONSTANTS),
    17: ("v, i = TopK<axis = -2, largest = 0>(x, five)  w, j = TopK<axis = 1>(x, four)", CONSTANTS),
}


@pytest.mark.parametrize("opset", FORMS)
def test_forms(opset: int, tmp_path: Path) -> None:
    body, constants = FORMS[opset]
    outputs = "float v, int64 i, float w, int64 j"
    check(model(body, "float[3, 5, 9] x", outputs, constants, opset), tmp_path, x=rounded(3, 5, 9))


def test_order_of_our_own(tmp_path: Path) -> None:
    """Where any order will do."""
    given = model("v, i = TopK<sorted = 0>(x, k)", "float[4, 30] x", BOTH, K7, 11)
    x = np.random.default_rng(2).permutation(120).reshape(4, 30).astype("float32")
    want = onnxruntime_outputs(given, {"x": x})
    got = compiled(given, tmp_path).run({"x": x})
    np.testing.assert_array_equal(got["v"], -np.sort(-want["v"]))
    np.testing.assert_array_equal(np.sort(got["i"]), np.sort(want["i"]))
    np.testing.assert_array_equal(np.take_along_axis(x, got["i"], 1), got["v"])


@pytest.mark.parametrize(("opset", "axis"), [(10, 0), (11, -1)])
def test_nothing_is_asked_for(opset: int, axis: int, tmp_path: Path) -> None:
    given = model(f"v, i = TopK<axis = {axis}>(x, k)", "float[4, 5] x", BOTH, K0, opset)
    want = onnxruntime_outputs(given, {"x": rounded(4, 5)})
    byoc.compile(given, tmp_path / "m.so")
    got = byoc.load(tmp_path / "m.so").run({"x": rounded(4, 5)})
    for name in ("v", "i"):
        assert (got[name].shape, got[name].dtype) == (want[name].shape, want[name].dtype)
        assert got[name].size == 0


def test_computed_number_of_elements_as_opset_10_has_it(tmp_path: Path) -> None:
    given = model(TOPK, "float[4, 30] x, int64[1] k", BOTH, "", 10)
    report = byoc.compile(given, tmp_path / "m.so", min_bytes=0).report
    assert "ext.topk" in {node.operator for node in report.graph.nodes}
    with byoc.load(tmp_path / "m.so") as library:
        for k in (7, 1, 30):
            inputs = {"x": rounded(4, 30), "k": np.array([k])}
            got = library.run(inputs)
            for name, want in onnxruntime_outputs(given, inputs).items():
                np.testing.assert_array_equal(got[name], want)


def test_results_go_on_in_the_same_region(tmp_path: Path) -> None:
    """A router of experts: the best ones, their shares, and rows that their numbers name."""
    given = model(
        "v, i = TopK(x, k)  y = Softmax(v)  r = Gather(table, i)"
        " s = ReduceSum<keepdims = 0>(r, last)  z = Mul(y, s)",
        "float[6, 8] x",
        "float z, int64 i",
        "int64[1] k = {2}, int64[1] last = {-1}, float[8, 2] table ="
        " {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}",
    )
    x = rounded(6, 8, seed=1)
    want = onnxruntime_outputs(given, {"x": x})
    got = compiled(given, tmp_path).run({"x": x})
    np.testing.assert_array_equal(got["i"], want["i"])
    np.testing.assert_allclose(got["z"], want["z"], rtol=1e-6)


@pytest.mark.parametrize("output", ["float v", "int64 i"])
def test_one_result_alone(output: str, tmp_path: Path) -> None:
    given = model(TOPK, "float[4, 30] x", output, K7)
    check(given, tmp_path, x=rounded(4, 30))


def test_image_that_lies_channels_last(tmp_path: Path) -> None:
    """Along channels, width and the images of what a convolution gives: no axis is copied apart."""
    given = model(
        "y = Conv(x, w)  a, b = TopK<axis = 1>(y, k)  c, d = TopK(y, k)"
        " e, f = TopK<axis = 0>(y, one)",
        "float[2, 1, 5, 6] x",
        "int64 b, int64 d, int64 f",
        "int64[1] k = {3}, int64[1] one = {1}, float[4, 1, 1, 1] w = {1, -1, 0.5, 1}",
    )
    check(given, tmp_path, x=rounded(2, 1, 5, 6))


def test_special_values(tmp_path: Path) -> None:
    """As NumPy sorts them: NaN is the greatest, zeros are equal, the first of equals first."""
    given = model(
        "v, i = TopK(x, k)  w, j = TopK<largest = 0>(x, k)",
        "float[1, 9] x",
        "float v, int64 i, float w, int64 j",
        "int64[1] k = {9}",
    )
    x = np.array([[0, np.nan, -0.0, np.inf, -np.inf, 1, np.nan, 1e-45, np.inf]], "float32")
    got = compiled(given, tmp_path).run({"x": x})
    assert got["i"].tolist() == [[1, 6, 3, 8, 5, 7, 0, 2, 4]]
    assert got["j"].tolist() == np.argsort(x, axis=1, kind="stable").tolist()
    for values, places in (("v", "i"), ("w", "j")):
        np.testing.assert_array_equal(got[values], np.take_along_axis(x, got[places], 1))


def test_symbolic_batch(tmp_path: Path) -> None:
    given = model(TOPK, "float[n, 7] x", BOTH, K3)
    loaded = compiled(given, tmp_path, {"x": ["n", 7]})
    for n in (0, 1, 3):
        x = rounded(n, 7)
        want = onnxruntime_outputs(given, {"x": x})
        got = loaded.run({"x": x})
        for name in ("v", "i"):
            np.testing.assert_array_equal(got[name], want[name])


def test_symbolic_axis_that_is_long_enough(tmp_path: Path) -> None:
    given = model(
        "y = Concat<axis = 1>(x, c)  v, i = TopK(y, k)",
        "float[2, n] x",
        "float v, int64 i",
        "int64[1] k = {3}, float[2, 3] c = {0, 1, 2, 0.5, 0.5, -1}",
    )
    loaded = compiled(given, tmp_path, {"x": [2, "n"]})
    for n in (0, 1, 5):
        x = rounded(2, n)
        want = onnxruntime_outputs(given, {"x": x})
        got = loaded.run({"x": x})
        for name in ("v", "i"):
            np.testing.assert_array_equal(got[name], want[name])


def test_best_few_of_all_or_fewer(tmp_path: Path) -> None:
    """The best ``min(5, n)`` rows of each image, as RT-DETR has queries; ``n`` stays open."""
    given = model(
        "s = Shape(x)  n = Gather(s, one)  k = Clip(n, zero, five)  r = ReduceMax(x, last)"
        "  v, i = TopK<axis = 1>(r, k)  j = Expand(i, wide)  g = GatherElements<axis = 1>(x, j)"
        "  b = Gather(s, zero1)  w = Concat<axis = 0>(b, k, rest)  y = Reshape(g, w)",
        "float[b, n, 4] x",
        "float y, int64 i",
        "int64[1] one = {1}, int64[1] zero1 = {0}, int64 zero = {0}, int64 five = {5},"
        "int64[1] last = {2}, int64[3] wide = {1, 1, 4}, int64[1] rest = {-1}",
        opset=18,
    )
    loaded = compiled(given, tmp_path)
    for b, n in ((2, 1), (1, 4), (3, 5), (2, 9)):
        x = rounded(b, n, 4)
        want = onnxruntime_outputs(given, {"x": x})
        got = loaded.run({"x": x})
        assert got["y"].shape == (b, min(n, 5), 4)
        for name in ("y", "i"):
            np.testing.assert_array_equal(got[name], want[name])


def topk_module(shape: tuple, **arguments: object) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.topk(x, **arguments))
        builder.emit_func_output(y)
    return builder.get()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("ret_type", ["both", "values", "indices"])
@pytest.mark.parametrize("k", [-1, 0, 1, 3, 9])
def test_what_relax_returns(ret_type: str, k: int, dtype: str) -> None:
    """All elements for k below 1 and above the extent; the tuple is returned as a whole."""
    module = topk_module((4, 6), k=k, axis=0, ret_type=ret_type, largest=False, dtype=dtype)
    offloaded, report = partition_with_report(module, min_bytes=0)
    assert len(report.regions) == 1 and not report.left
    built = tvm.compile(relax.transform.RunCodegen()(offloaded), "llvm")
    x = rounded(4, 6)
    order = np.argsort(x, axis=0, kind="stable")[: k if 0 < k < 4 else 4]
    expected = {"values": np.take_along_axis(x, order, 0), "indices": order.astype(dtype)}
    result = relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(x))
    results = list(result) if ret_type == "both" else [result]
    for found, want in zip(
        results, expected.values() if ret_type == "both" else [expected[ret_type]], strict=True
    ):
        assert found.numpy().dtype == want.dtype
        np.testing.assert_array_equal(found.numpy(), want)


@pytest.mark.parametrize("skipped", [(), ("topk",)], ids=["ours", "TVM's"])
@pytest.mark.parametrize("axes", ["n", "n, 2"])
def test_open_axes_that_are_too_short_are_refused(
    axes: str, skipped: tuple[str, ...], tmp_path: Path
) -> None:
    # What is beyond the axis was read.
    given = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[8, {axes}] x) => (float[8, 3] values, int64[8, 3] indices)
        <int64[1] k = {{3}}, int64[2] rows = {{8, -1}}> {{
          line = Reshape(x, rows)
          right = Relu(line)
          values, indices = TopK(right, k)
        }}"""
    )
    report = byoc.compile(given, tmp_path / "m.so", skip_ops=skipped).report
    assert (len(report.regions), bool(report.left)) == ((1, False) if not skipped else (0, True))
    library = byoc.load(tmp_path / "m.so")
    columns = (2,) if "," in axes else ()
    for n in (3, 4, 9):
        x = rounded(8, n, *columns)
        for name, expected in onnxruntime_outputs(given, {"x": x}).items():
            np.testing.assert_array_equal(library.run({"x": x})[name], expected)
    for n in (0, 1):
        with pytest.raises((RunError, InputError), match=r"pass larger inputs|of 1 or more"):
            library.run({"x": np.zeros((8, n, *columns), "float32")})


def test_it_needs_no_sorting_of_tvms(tmp_path: Path) -> None:
    """Neither the library of functions that sort, nor TVM at all."""
    given = model(TOPK, "float[8, 40] x", BOTH, K5)
    byoc.compile(given, tmp_path / "m.so")
    assert read_compiled(tmp_path / "m.so").metadata().runtime == ()
    done = compile_standalone(given, tmp_path / "alone", name="best")
    x = rounded(8, 40)
    with Instance(done.folder / "lib" / "libbest.so") as instance:
        got = instance.answers({"x": x})
    for name, expected in onnxruntime_outputs(given, {"x": x}).items():
        np.testing.assert_array_equal(got[name], expected)
