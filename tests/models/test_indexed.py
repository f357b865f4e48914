"""Gathers and scatters by element and by coordinates, from ONNX to results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import byoc
from tests.reference import onnxruntime_outputs

#: Operators with their attributes; the kernels that they become.
MODEL = """<ir_version: 8, opset_import: ["": 18]>
g (float[b,n,8] x, int64[b,m,8] e, int64[b,m,1] p, int32[k,2] c, float[b,m,8] u, float[k,8] v)
  => (float[b,m,8] taken, float[b,m,8] runs, float[b,n,8] put, float[b,n,8] sums,
      float[b,n,8] products, float[b,n,8] rows)
{
  t = Exp(x)
  taken = GatherElements<axis = 1>(t, e)
  runs = GatherND<batch_dims = 1>(t, p)
  q = Exp(u)
  put = ScatterElements<axis = 1>(t, e, q)
  sums = ScatterElements<axis = 1, reduction = "add">(t, e, q)
  products = ScatterElements<axis = 1, reduction = "mul">(t, e, q)
  d = Cast<to = 7>(c)
  w = Exp(v)
  rows = ScatterND(t, d, w)
}"""
KERNELS = {"gather_elements", "gather_nd", "scatter_elements", "scatter_nd"}


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return onnx.parser.parse_model(MODEL)


def inputs(b: int, n: int, m: int, k: int) -> dict[str, np.ndarray]:
    """Negative indices as well; no element gets two updates, which may come in any order."""
    rng = np.random.default_rng(b + n)
    order = rng.permuted(np.broadcast_to(np.arange(n)[:, None], (b, n, 8)), axis=1)[:, :m]
    rows = rng.permutation(b * n)[:k]
    return {
        "x": rng.standard_normal((b, n, 8)).astype("float32"),
        "e": order - n * rng.integers(0, 2, order.shape),
        "p": rng.integers(-n, n, (b, m, 1)),
        "c": np.stack([rows // n, rows % n], 1).astype("int32"),
        "u": rng.standard_normal((b, m, 8)).astype("float32"),
        "v": rng.standard_normal((k, 8)).astype("float32"),
    }


def test_static_and_symbolic_shapes(model: onnx.ModelProto, tmp_path: Path) -> None:
    static = {name: list(array.shape) for name, array in inputs(2, 5, 4, 3).items()}
    names = {
        **{"x": ["b", "n", 8], "e": ["b", "m", 8], "p": ["b", "m", 1]},
        **{"c": ["k", 2], "u": ["b", "m", 8], "v": ["k", 8]},
    }
    several = [(2, 5, 4, 3), (1, 9, 9, 1), (3, 1, 0, 0)]
    for shapes, sizes in (static, several[:1]), (names, several):
        report = byoc.compile(model, tmp_path / "m.so", shapes).report
        assert {f"ext.{kernel}" for kernel in KERNELS} <= {n.operator for n in report.graph.nodes}
        library = byoc.load(tmp_path / "m.so")
        for each in sizes:
            feed = inputs(*each)
            found, want = library.run(feed), onnxruntime_outputs(model, feed)
            for name, array in want.items():
                np.testing.assert_allclose(found[name], array, 1e-6, 1e-6, err_msg=name)


POOLED = """<ir_version: 8, opset_import: ["": 18]>
g (float[nodes,8] x, int64[places,8] e) => (float[4,8] y)
{
  zeros = Constant<value = float[1] {0.0}>()
  sizes = Constant<value_ints = [4, 8]>()
  t = Exp(x)
  none = Expand(zeros, sizes)
  y = ScatterElements<axis = 0, reduction = "add">(none, e, t)
}"""


def test_axes_are_as_long_where_each_element_has_a_place(tmp_path: Path) -> None:
    """PyTorch's dynamo exporter names the nodes of a graph anew for each input."""
    model = onnx.parser.parse_model(POOLED)
    with pytest.warns(byoc.AxesNote):
        compiled = byoc.compile(model, tmp_path / "pooled.so")
    assert compiled.report.left == () and len(compiled.report.regions) == 1
    loaded = byoc.load(tmp_path / "pooled.so")
    rng = np.random.default_rng(1)
    for nodes in (1, 5, 40):
        given = {
            "x": rng.standard_normal((nodes, 8)).astype("float32"),
            "e": rng.integers(-4, 4, (nodes, 8)),
        }
        wanted = onnxruntime_outputs(model, given)["y"]
        np.testing.assert_allclose(loaded.run(given)["y"], wanted, rtol=1e-5)
    with pytest.raises(byoc.InputError):
        loaded.run({"x": given["x"][:3], "e": given["e"]})


#: What is stored in a tensor, or says where, that is the tensor itself; nobody reads it later.
THEMSELVES = {
    "elements": "r = ScatterElements<axis = 0>(t, i, t) s = Mul(r, r) y = Exp(s)",
    "factors": """r = ScatterElements<axis = 0, reduction = "mul">(t, i, t)
                  s = Mul(r, r) y = Neg(s)""",
    "rows": "r = ScatterND(t, p, t) s = Mul(r, r) y = Exp(s)",
    "places": """k = Add(i, i) h = Sub(k, i) q = ScatterElements<axis = 0>(h, h, h)
                 r = Cast<to = 1>(q) s = Mul(r, r) y = Add(s, t)""",
}


@pytest.mark.parametrize("case", THEMSELVES)
def test_tensors_are_stored_in_themselves(case: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 18]>
        g (float[7,8] x, int64[7,8] i, int64[7,1] p) => (float[7,8] y)
        {{ a = Tanh(x) t = Exp(a) {THEMSELVES[case]} }}"""
    )
    compiled = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert compiled.report.left == () and len(compiled.report.regions) == 1
    rng = np.random.default_rng(2)
    places = np.array([3, 0, 5, 6, 1, 2, 4])
    given = {
        "x": rng.standard_normal((7, 8)).astype("float32"),
        "i": np.ascontiguousarray(np.broadcast_to(places[:, None], (7, 8))),
        "p": places[:, None].copy(),
    }
    given = {name: given[name] for name in (i.name for i in model.graph.input)}
    wanted = onnxruntime_outputs(model, given)["y"]
    found = byoc.load(tmp_path / "m.so").run(given)["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
