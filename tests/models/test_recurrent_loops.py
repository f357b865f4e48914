"""Loops whose rounds are the steps of a recurrent layer, against ONNX Runtime, which runs them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import byoc
from tests.reference import onnxruntime_outputs

INPUTS, UNITS = 6, 8

#: New states of cells as exporters write them, of x [batch, 6] and states h and c [batch, 8].
CELLS = {
    "RNN": "p = MatMul(x, w1) q = MatMul(h, r1) s = Add(q, p) t = Add(s, b1) nh = Tanh(t)",
    "RNN of Relu": "p = Gemm(x, w1, b1) q = MatMul(h, r1) s = Add(q, p) nh = Relu(s)",
    "GRU that resets last": """
        p = MatMul(x, w3) pb = Add(p, b3) xz, xr, xn = Split <axis = -1> (pb, thirds)
        q = MatMul(h, r3) qb = Add(q, c3) hz = Slice(qb, zero, eight, first)
        hr = Slice(qb, eight, sixteen, first) hn = Slice(qb, sixteen, end, first)
        sz = Add(xz, hz) z = Sigmoid(sz) sr = Add(xr, hr) r = Sigmoid(sr)
        rn = Mul(r, hn) sn = Add(xn, rn) n = Tanh(sn)
        left = Sub(one, z) new = Mul(left, n) old = Mul(z, h) nh = Add(old, new)""",
    "GRU that resets first": """
        p = MatMul(x, w3) pb = Add(p, b3) xz, xr, xn = Split <axis = 1> (pb, thirds)
        q = MatMul(h, r2) hz, hr = Split <axis = 1> (q, halves)
        sz = Add(xz, hz) z = HardSigmoid(sz) sr = Add(xr, hr) r = HardSigmoid(sr)
        rh = Mul(r, h) hn = MatMul(rh, r1) sn = Add(xn, hn) n = Softsign(sn)
        d = Sub(h, n) zd = Mul(z, d) nh = Add(n, zd)""",
    "GRU of PyTorch": """
        p = MatMul(x, w3) pb = Add(p, b3) xr, xz, xn = Split <axis = 1> (pb, thirds)
        q = MatMul(h, r3) qb = Add(q, c3) hr, hz, hn = Split <axis = 1> (qb, thirds)
        sz = Add(xz, hz) z = Sigmoid(sz) sr = Add(xr, hr) r = Sigmoid(sr)
        rn = Mul(r, hn) sn = Add(xn, rn) n = Tanh(sn)
        left = Sub(one, z) new = Mul(left, n) old = Mul(z, h) nh = Add(new, old)""",
    "LSTM": """
        p = MatMul(x, w4) q = MatMul(h, r4) s = Add(p, q) sb = Add(s, b4)
        i0, f0, g0, o0 = Split <axis = 1> (sb, fourths)
        i = Sigmoid(i0) f = Sigmoid(f0) g = Tanh(g0) o = Sigmoid(o0)
        fc = Mul(f, c) ig = Mul(i, g) nc = Add(fc, ig) tc = Tanh(nc) nh = Mul(o, tc)""",
    "LSTM of Keras's hard sigmoid": """
        p = MatMul(x, w4) q = MatMul(h, r4) s = Add(p, q) sb = Add(s, b4)
        i0, f0, g0, o0 = Split <axis = 1> (sb, fourths)
        i1 = Add(i0, three) f1 = Add(three, f0) o1 = Add(o0, three)
        i2 = Clip(i1, nil, six) f2 = Clip(f1, nil, six) o2 = Clip(o1, nil, six)
        i = Mul(i2, sixth) f = Mul(f2, sixth) o = Mul(sixth, o2) g = Tanh(g0)
        fc = Mul(f, c) ig = Mul(i, g) nc = Add(fc, ig) tc = Tanh(nc) nh = Mul(o, tc)""",
    "LSTM of Keras 2's hard sigmoid": """
        p = MatMul(x, w4) q = MatMul(h, r4) s = Add(p, q) sb = Add(s, b4)
        i0, f0, g0, o0 = Split <axis = 1> (sb, fourths)
        i1 = Mul(i0, fifth) f1 = Mul(f0, fifth) o1 = Mul(o0, fifth)
        i2 = Add(i1, half) f2 = Add(f1, half) o2 = Add(o1, half)
        i3 = Min(i2, one) f3 = Min(one, f2) o3 = Max(o2, nil)
        i = Max(i3, nil) f = Max(nil, f3) o = Min(o3, one) g = Tanh(g0)
        fc = Mul(f, c) ig = Mul(i, g) nc = Add(fc, ig) tc = Tanh(nc) nh = Mul(o, tc)""",
    "LSTM of one function": """
        p = MatMul(x, w4) q = MatMul(h, r4) s = Add(p, q) sg = Sigmoid(s)
        o, f, i, g = Split <axis = 1> (sg, fourths)
        fc = Mul(c, f) ig = Mul(g, i) nc = Add(ig, fc) tc = Relu(nc) nh = Mul(tc, o)""",
}

#: Cells that are none of these, and must stay loops.
OTHERS = {
    "state added": "p = MatMul(x, w1) q = MatMul(h, r1) s = Add(q, p) t = Tanh(s) nh = Add(t, h)",
    "bounds of other signs": """
        p = MatMul(x, w1) q = MatMul(h, r1) s = Add(q, p) t = Add(s, one)
        nh = Clip(t, half, six)""",
    "a part that is clipped": """
        p = MatMul(x, w1) q = MatMul(h, r1) s = Mul(q, half) a = Add(s, p)
        nh = Clip(a, nil, six)""",
    "twice the row": "p = MatMul(x, w1) q = MatMul(h, r1) a = Add(p, p) s = Add(q, a) nh = Tanh(s)",
    "gate of its own": """
        p = MatMul(x, w3) xz, xr, xn = Split <axis = 1> (p, thirds) q = MatMul(h, r1)
        sz = Add(xz, q) z = Sigmoid(sz) m = Sigmoid(xr) sn = Add(xn, q) n = Tanh(sn)
        left = Sub(one, m) new = Mul(left, n) old = Mul(z, h) nh = Add(old, new)""",
    "sum of two functions": """
        p = MatMul(x, w1) q = MatMul(h, r1) s = Add(q, p) t = Tanh(s) u = Sigmoid(s)
        nh = Add(t, u)""",
}

WEIGHTS = {
    **{f"w{n}": (INPUTS, n * UNITS) for n in (1, 3, 4)},
    **{f"r{n}": (UNITS, n * UNITS) for n in (1, 2, 3, 4)},
    **{f"{name}{n}": (n * UNITS,) for name, n in (("b", 1), ("b", 3), ("c", 3), ("b", 4))},
}


def looped(
    cell: str, given: str = "nh", begins: str = "states", steps: str = "T", more: str = ""
) -> onnx.ModelProto:
    """The cell in a loop over x [T, N, 6], which gives ``given`` of each step."""
    rng = np.random.default_rng(0)
    weights = ", ".join(
        f"float[{','.join(map(str, shape))}] {name} ="
        f" {{{', '.join(map(str, rng.uniform(-0.6, 0.6, shape).ravel()))}}}"
        for name, shape in WEIGHTS.items()
    )
    both = "nc =" in cell
    first = "h0" if begins == "states" else "none"
    states = {"c": ["c0" if begins == "states" else "none"]} if both else {}
    inputs = "".join(f", float[N, {UNITS}] {name}" for name in ("h0", "c0")[: 1 + both])
    return parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[{steps}, N, {INPUTS}] xs{inputs if begins == "states" else ""})
          => (float[A, B, C] y, float[D, E] last) <{weights}, float nought = {{0}},
            int64 start = {{0}}, int64[1] axis = {{1}}, int64[1] units = {{{UNITS}}}>
        {{
          shape = Shape(xs) count = Gather(shape, start) batch = Gather(shape, axis)
          wide = Concat <axis = 0> (batch, units) none = Expand(nought, wide) {more}
          any = Less(start, count)
          k, last{", lastc" if both else ""}, y = Loop(
            count, any, start, {", ".join([first, *states.get("c", [])])}) <body = step (
            int64 number, bool going, int64 at, float[n, {UNITS}] h
            {f", float[m, {UNITS}] c" if both else ""}
          ) => (bool more, int64 next, float[o, {UNITS}] nh
            {f", float[l, {UNITS}] nc" if both else ""}, float[i, j] out)
          <int64[3] thirds = {{8, 8, 8}}, int64[2] halves = {{8, 8}},
           int64[4] fourths = {{8, 8, 8, 8}}, int64[1] zero = {{0}}, int64[1] first = {{1}},
           int64[1] eight = {{8}}, int64[1] sixteen = {{16}}, int64[1] end = {{2147483647}},
           float one = {{1}}, float nil = {{0}}, float three = {{3}}, float six = {{6}},
           float sixth = {{{1 / 6}}}, float fifth = {{0.2}}, float half = {{0.5}},
           int64 step_by = {{1}}>
          {{
            x = Gather(xs, at) {cell} out = Identity({given})
            next = Add(at, step_by) more = Less(next, count)
          }}>
        }}"""
    )


def check(model: onnx.ModelProto, folder: Path, *sizes: tuple[int, int]) -> byoc.Report:
    """The report, of a library that agrees with ONNX Runtime at all sizes."""
    report = byoc.compile(model, folder / "m.so", min_bytes=0).report
    library = byoc.load(folder / "m.so")
    rng = np.random.default_rng(1)
    for steps, batch in sizes:
        feeds = {"xs": rng.uniform(-1, 1, (steps, batch, INPUTS)).astype("float32")}
        for value in model.graph.input[1:]:
            feeds[value.name] = rng.uniform(-1, 1, (batch, UNITS)).astype("float32")
        want, got = onnxruntime_outputs(model, feeds), library.run(feeds)
        for name in ("y", "last") if steps else ("last",):  # ONNX Runtime gives y [0, 0, 8]
            np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=2e-6)
    return report


@pytest.mark.parametrize("cell", CELLS)
def test_cells_are_layers(cell: str, tmp_path: Path) -> None:
    report = check(looped(CELLS[cell]), tmp_path, (5, 3), (1, 1), (9, 2))
    assert (report.left, len(report.regions)) == ((), 1)


@pytest.mark.parametrize("cell", ["GRU that resets last", "LSTM"])
def test_states_of_zeros(cell: str, tmp_path: Path) -> None:
    report = check(looped(CELLS[cell], begins="zeros"), tmp_path, (5, 3), (1, 1))
    assert (report.left, len(report.regions)) == ((), 1)


@pytest.mark.slow
def test_gates_of_two_functions_stay_loops(tmp_path: Path) -> None:
    other = CELLS["GRU that resets first"].replace("r = HardSigmoid", "r = Sigmoid")
    assert len(check(looped(other), tmp_path, (4, 2)).regions) > 1


@pytest.mark.slow
@pytest.mark.parametrize("cell", OTHERS)
def test_other_cells_stay_loops(cell: str, tmp_path: Path) -> None:
    assert len(check(looped(OTHERS[cell]), tmp_path, (5, 3), (2, 1)).regions) > 1


def test_no_steps(tmp_path: Path) -> None:
    """The last state is then the first one."""
    report = check(looped(CELLS["LSTM"]), tmp_path, (0, 3), (2, 3))
    assert len(report.regions) == 1


@pytest.mark.slow
def test_what_is_given_must_be_the_state(tmp_path: Path) -> None:
    report = check(looped(CELLS["LSTM"], given="fc"), tmp_path, (4, 2))
    assert len(report.regions) > 1


@pytest.mark.slow
def test_steps_of_a_part(tmp_path: Path) -> None:
    """Rounds that are fewer than rows do not go through them all."""
    model = looped(CELLS["RNN"])
    for node in model.graph.node:
        if node.op_type == "Gather" and node.output[0] == "count":
            node.output[0] = "rows"
    place = next(n for n, node in enumerate(model.graph.node) if node.op_type == "Concat")
    half = parser.parse_graph(
        "g (int64 rows) => (int64 count) <int64 two = {2}> { count = Div(rows, two) }"
    )
    model.graph.initializer.extend(half.initializer)
    model.graph.node.insert(place, half.node[0])
    assert len(check(model, tmp_path, (6, 2), (3, 1)).regions) > 1


def test_going_backwards(tmp_path: Path) -> None:
    """ReverseSequence of whole sequences, as tf2onnx writes it, is a slice."""
    more = "long = Expand(count, batch) back = ReverseSequence <time_axis = 0> (xs, long)"
    model = looped(CELLS["GRU of PyTorch"], more=more)
    for node in model.graph.node:
        if node.op_type == "Loop":
            body = next(a.g for a in node.attribute if a.name == "body")
            body.node[0].input[0] = "back"
    report = check(model, tmp_path, (5, 3), (1, 2))
    assert (report.left, len(report.regions)) == ((), 1)


@pytest.mark.parametrize("backwards", [False, True])
def test_steps_that_a_pool_leaves(backwards: bool, tmp_path: Path) -> None:
    """ONNX infers no name for their number, of which the layer reads all."""
    more = """ahead = Transpose <perm = [1, 2, 0]> (xs)
        pooled = MaxPool <kernel_shape = [2], strides = [2]> (ahead)
        rows = Transpose <perm = [2, 0, 1]> (pooled)"""
    given = "rows"
    if backwards:
        more += " long = Expand(count, batch) back = ReverseSequence <time_axis = 0> (rows, long)"
        given = "back"
    model = looped(CELLS["GRU of PyTorch"], begins="zeros", more=more)
    nodes = list(model.graph.node)
    pools = [node for node in nodes if node.output[0] in ("ahead", "pooled", "rows")]
    nodes = pools + [node for node in nodes if node not in pools]
    for node in nodes:
        if node.op_type == "Shape":
            node.input[0] = "rows"
        if node.op_type == "Loop":
            body = next(a.g for a in node.attribute if a.name == "body")
            body.node[0].input[0] = given
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    report = check(model, tmp_path, (11, 3), (2, 2))
    assert (report.left, len(report.regions)) == ((), 1)


def test_known_steps(tmp_path: Path) -> None:
    report = check(looped(CELLS["LSTM"], steps="4"), tmp_path, (4, 3))
    assert (report.left, len(report.regions)) == ((), 1)


def of_constants(cell: str, count: int, limits: tuple[float, float]) -> onnx.ModelProto:
    """Keras's loop over known steps, whose limits tf2onnx folds into the body as floats."""
    model = looped(cell, steps="4")
    head, tail = (
        parser.parse_graph(text).node
        for text in (
            """g () => (bool any) <float nought = {0}, float four = {4}>
            { less = Less(nought, four) any = And(less, less) }""",
            """g (int64 number, int64 next) => (bool more) {
                done = Cast<to = 1>(number) then = Cast<to = 1>(next)
                low = Less(done, lower) high = Less(then, upper) more = And(low, high) }""",
        )
    )
    place = next(n for n, node in enumerate(model.graph.node) if node.op_type == "Loop")
    loop = model.graph.node[place]
    body = next(a.g for a in loop.attribute if a.name == "body")
    for name, value in zip(("lower", "upper"), limits, strict=True):
        body.initializer.append(onnx.numpy_helper.from_array(np.float32(value), name))
    del body.node[-1]
    body.node.extend(tail)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.int64(count), "rounds"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(4), "four"))
    loop.input[0] = "rounds"
    kept = [node for node in model.graph.node[:place] if "any" not in node.output]
    rest = [loop, *model.graph.node[place + 1 :]]
    del model.graph.node[:]
    model.graph.node.extend([*kept, *head, *rest])
    return model


@pytest.mark.parametrize("cell", ["RNN", "GRU that resets last", "LSTM"])
def test_known_steps_of_keras(cell: str, tmp_path: Path) -> None:
    report = check(of_constants(CELLS[cell], 4, (4, 4)), tmp_path, (4, 3))
    assert (report.left, len(report.regions)) == ((), 1)


@pytest.mark.parametrize(
    ("count", "limits"), [(4, (4, 3)), (3, (4, 4)), (4, (2, 2)), (4, (2.5, 2.5))]
)
def test_limits_that_differ(count: int, limits: tuple[float, float], tmp_path: Path) -> None:
    """The least of them ends the loop."""
    check(of_constants(CELLS["RNN"], count, limits), tmp_path, (4, 3))
