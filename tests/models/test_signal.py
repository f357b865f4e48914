"""Signals of any length: transforms, frames, sequences turned round, loops that count."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import byoc
from byoc.frontends.onnx import prepare
from tests.reference import onnxruntime_outputs

DRAW = np.random.default_rng(15)
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

Nodes = list[onnx.NodeProto]


def node(op: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def model(
    nodes: Nodes, inputs: dict[str, tuple[int, list]], outputs: str, **constants: np.ndarray
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs.split()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    for value in graph.output:
        value.type.tensor_type.elem_type = FLOAT
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


def compiled(graph: onnx.ModelProto, tmp_path, left: tuple[str, ...] = ()) -> byoc.Model:
    with pytest.warns(byoc.AxesNote) as notes:
        done = byoc.compile(graph, tmp_path / "model.so", min_bytes=0)
    assert "sizes:" not in str(notes[0].message)
    assert {entry.op.removeprefix("relax.") for entry in done.report.left} <= set(left)
    assert done.report.regions
    return byoc.load(tmp_path / "model.so")


def results(net: byoc.Model, **feeds: np.ndarray) -> list[np.ndarray]:
    return list(net.run(feeds).values())


def close(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, atol=2e-6 * max(1.0, np.abs(want).max(initial=0)))


def transformed(x: np.ndarray, window: np.ndarray, step: int, onesided: bool) -> np.ndarray:
    """The definition: the transform of each frame, in double precision."""
    count = (x.shape[1] - len(window)) // step + 1
    frames = np.stack([x[:, t * step : t * step + len(window)] for t in range(count)], 1) * window
    found = (np.fft.rfft if onesided else np.fft.fft)(
        frames.astype(complex if not onesided else float)
    )
    return np.stack([found.real, found.imag], -1)


def test_transforms_of_signals_of_any_length(tmp_path) -> None:
    window = np.hanning(12).astype("f4")
    window[[0, 1, -1]] = 0  # zeros at the ends take no part
    nodes = [
        node("STFT", "x step w", "flat"),
        node("Unsqueeze", "x last", "column"),
        node("STFT", "column step  n", "whole", onesided=0),
        node("Concat", "column column", "pairs", axis=2),
        node("STFT", "pairs step w", "complex", onesided=0),
        node("DFT", "column n", "cut", axis=1, onesided=1),
    ]
    nodes[2].input[:] = ["column", "step", "", "n"]
    constants = {"step": np.array(4), "w": window, "n": np.array(10), "last": np.array([2])}
    inputs = {"x": (FLOAT, ["b", "n"])}
    net = compiled(model(nodes, inputs, "flat whole complex cut", **constants), tmp_path)
    for batch, length in ((1, 12), (2, 33), (3, 64)):
        x = DRAW.standard_normal((batch, length)).astype("f4")
        flat, whole, pairs, cut = results(net, x=x)
        close(flat, transformed(x, window, 4, True))
        close(whole, transformed(x, np.ones(10), 4, False))
        close(pairs, transformed(x + 1j * x, window, 4, False))
        found = np.fft.rfft(x, 10, axis=1)
        close(cut, np.stack([found.real, found.imag], -1))


@pytest.mark.parametrize("time", [0, 1])
def test_sequences_of_any_length_are_turned_round(time: int, tmp_path) -> None:
    attributes = {"time_axis": time, "batch_axis": 1 - time}
    nodes = [node("Relu", "x", "r"), node("ReverseSequence", "r n", "y", **attributes)]
    inputs = {"x": (FLOAT, ["a", "c", 64]), "n": (INT64, ["a" if time else "c"])}
    graph = model(nodes, inputs, "y")
    net = compiled(graph, tmp_path, ("arange",))
    for rows, steps in ((2, 5), (1, 1), (4, 3)):
        shape = (rows, steps, 64) if time else (steps, rows, 64)
        x = DRAW.standard_normal(shape).astype("f4")
        feeds = {"x": x, "n": DRAW.integers(0, steps, rows, endpoint=True)}
        (got,), (want,) = results(net, **feeds), onnxruntime_outputs(graph, feeds).values()
        np.testing.assert_array_equal(got, want)


def frames() -> onnx.ModelProto:
    """A signal in frames of 10, of which each begins 4 after the one before."""
    body = helper.make_graph(
        [
            node("Concat", "prev curr", "frame", axis=-1),
            node("Slice", "frame from end minus", "next"),
        ],
        "body",
        [helper.make_tensor_value_info(n, FLOAT, ["b", e]) for n, e in (("prev", 6), ("curr", 4))],
        [helper.make_tensor_value_info(n, FLOAT, None) for n in ("next", "frame")],
    )
    nodes = [
        node("Slice", "x zero six one", "first"),
        node("Slice", "x six all one", "rest"),
        node("Reshape", "rest shape", "pieces"),
        node("Scan", "first pieces", "last y", body=body, num_scan_inputs=1,
             scan_input_axes=[1], scan_output_axes=[1]),
        node("Mul", "y window", "z"),
    ]  # fmt: skip
    numbers = {
        "zero": 0,
        "one": 1,
        "six": 6,
        "all": 2**62,
        "from": 4,
        "end": 2**62,
        "minus": -1,
    }
    constants = {name: np.array([number]) for name, number in numbers.items()}
    shape = np.array([0, -1, 4])
    return model(
        nodes,
        {"x": (FLOAT, ["b", "n"])},
        "last z",
        shape=shape,
        window=np.hanning(10).astype("f4"),
        **constants,
    )


@pytest.mark.slow
def test_frames_of_a_scan_are_slices(tmp_path) -> None:
    graph = frames()
    net = compiled(graph, tmp_path, ("reshape",))  # the length may be no multiple
    for batch, length in ((1, 10), (2, 26), (3, 90)):
        x = DRAW.standard_normal((batch, length)).astype("f4")
        for got, want in zip(
            results(net, x=x), onnxruntime_outputs(graph, {"x": x}).values(), strict=True
        ):
            np.testing.assert_array_equal(got, want)


def counting() -> onnx.ModelProto:
    """A recurrent layer as TensorFlow writes it: weights and limit are states of the loop."""
    states = [("i", TensorProto.INT32, []), ("h", FLOAT, ["b", 32]), ("m", TensorProto.INT32, []),
              ("w", FLOAT, [32, 32])]  # fmt: skip
    body = helper.make_graph(
        [
            node("Constant", "", "by", value=numpy_helper.from_array(np.array(1, "i4"))),
            node("Add", "i by", "i2"),
            node("Gather", "xt i", "now"),
            node("MatMul", "h w", "hw"),
            node("MatMul", "now w", "nw"),
            node("Add", "hw nw", "sum"),
            node("Sin", "sum", "h2"),  # no function of a recurrent layer
            node("Cast", "i2", "i2f", to=FLOAT),
            node("Cast", "m", "mf", to=FLOAT),
            node("Less", "i2f mf", "going"),
            node("Identity", "w", "w2"),
            node("Identity", "h2", "each"),
        ],
        "body",
        [helper.make_tensor_value_info(n, *rest) for n, *rest in
         [("n", INT64, []), ("go", TensorProto.BOOL, []), *states]],
        [helper.make_tensor_value_info(n, *rest) for n, *rest in
         [("going", TensorProto.BOOL, []), ("i2", TensorProto.INT32, []), ("h2", FLOAT, ["b", 32]),
          ("m", TensorProto.INT32, []), ("w2", FLOAT, [32, 32]), ("each", FLOAT, ["b", 32])]],
    )  # fmt: skip
    nodes = [
        node("Transpose", "x", "xt", perm=[1, 0, 2]),
        node("Shape", "x", "size"),
        node("Gather", "size one", "count"),
        node("Cast", "count", "limit", to=TensorProto.INT32),
        node("Cast", "limit", "limitf", to=FLOAT),
        node("Less", "zero limitf", "begin"),
        node("ReduceSum", "x axes", "s", keepdims=0),
        node("Sub", "s s", "h0"),
        helper.make_node("Loop", ["", "begin", "i0", "h0", "limit", "weight"],
                         ["i_end", "h_end", "m_end", "w_end", "y"], body=body),
        node("Add", "y xt", "z"),
        node("MatMul", "h_end w_end", "last"),
    ]  # fmt: skip
    weight = DRAW.standard_normal((32, 32)).astype("f4") / 6
    return model(
        nodes, {"x": (FLOAT, ["b", "n", 32])}, "z last", one=np.array(1), zero=np.array(0, "f4"),
        axes=np.array([1]), i0=np.array(0, "i4"), weight=weight,
    )  # fmt: skip


@pytest.mark.slow
def test_loops_that_count_to_an_extent(tmp_path) -> None:
    graph = counting()
    with pytest.warns(byoc.AxesNote, match=r"x:\[b,n,32\]"):
        done = byoc.compile(graph, tmp_path / "model.so")
    assert done.report.offloaded_macs == done.report.macs > 0
    prepared = prepare(graph)  # the products of all rounds' rows are one
    (loop,) = (n for n in prepared.graph.node if n.op_type == "Loop")
    assert [n.op_type for n in prepared.graph.node].count("MatMul") == 2
    assert [n.op_type for n in loop.attribute[0].g.node].count("MatMul") == 1
    net = byoc.load(tmp_path / "model.so")
    for batch, steps in ((1, 1), (2, 7), (1, 150)):
        x = DRAW.standard_normal((batch, steps, 32)).astype("f4")
        for got, want in zip(
            results(net, x=x), onnxruntime_outputs(graph, {"x": x}).values(), strict=True
        ):
            close(got, want)


@pytest.mark.slow
def test_loops_that_count_to_a_size(tmp_path) -> None:
    """Limit and first condition are constants then; 150 rounds are too many to be written out."""
    graph, steps = counting(), 150
    done = byoc.compile(graph, tmp_path / "model.so", {"x": [2, steps, 32]})
    assert done.report.offloaded_macs == done.report.macs > 0
    net = byoc.load(tmp_path / "model.so")
    assert next(info.shape for info in net.outputs) == (steps, 2, 32)
    x = DRAW.standard_normal((2, steps, 32)).astype("f4")
    for got, want in zip(
        results(net, x=x), onnxruntime_outputs(graph, {"x": x}).values(), strict=True
    ):
        close(got, want)


def test_transforms_along_axes_of_any_length(tmp_path) -> None:
    """There and back, of numbers and of pairs, and the half that tells all of real numbers."""
    nodes = [
        node("Unsqueeze", "x two", "pairs"),
        node("DFT", "pairs", "half", axis=1, onesided=1),
        node("DFT", "pairs", "waves", axis=1),
        node("DFT", "waves", "both", axis=1, inverse=1),
        node("DFT", "both", "back", axis=1, inverse=1),
    ]
    graph = model(nodes, {"x": (FLOAT, ["n", "time"])}, "waves back half", two=np.array(2))
    net = compiled(graph, tmp_path)
    for shape in ((2, 7), (1, 1), (3, 300)):
        x = DRAW.standard_normal(shape).astype(np.float32)
        waves, back, half = results(net, x=x)
        want = np.fft.fft(x.astype(np.float64), axis=1)
        close(waves, np.stack([want.real, want.imag], -1))
        close(half, np.stack([want.real, want.imag], -1)[:, : shape[1] // 2 + 1])
        want = np.fft.ifft(x.astype(np.float64), axis=1)
        close(back, np.stack([want.real, want.imag], -1))


def test_transforms_of_a_length_that_is_told(tmp_path) -> None:
    """As PyTorch's exporter writes them: the length is read from the shape."""
    nodes = [
        node("Unsqueeze", "x two", "pairs"),
        node("Shape", "pairs", "shape", start=1, end=2),
        node("Squeeze", "shape none", "length"),
        node("DFT", "pairs length", "half", axis=1, onesided=1),
    ]
    constants = {"two": np.array(2), "none": np.array([0])}
    net = compiled(model(nodes, {"x": (FLOAT, ["n", "time"])}, "half", **constants), tmp_path)
    for shape in ((2, 7), (1, 1), (3, 300)):
        x = DRAW.standard_normal(shape).astype(np.float32)
        want = np.fft.rfft(x.astype(np.float64), axis=1)
        close(results(net, x=x)[0], np.stack([want.real, want.imag], -1))


@pytest.mark.parametrize("length", [12, 16])
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_value_that_is_no_number_in_a_transform(length: int, value: float, tmp_path) -> None:
    """Signs of ONNX Runtime's infinities are those of its steps, or it has NaN for all of them."""
    graph = model([node("DFT", "x", "y", axis=1)], {"x": (FLOAT, [2, length, 1])}, "y")
    made = byoc.compile(graph, tmp_path / "m.so", min_bytes=0)
    assert made.report.regions and not made.report.left
    x = np.random.default_rng(0).standard_normal((2, length, 1)).astype("f4")
    x[0, 2] = value
    (got,) = results(byoc.load(tmp_path / "m.so"), x=x)
    want = onnxruntime_outputs(graph, {"x": x})["y"]
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    np.testing.assert_allclose(got[1], want[1], atol=1e-4)
    assert not np.isnan(value) or np.isnan(got[0]).all()


def test_frames_of_two_convolutions_are_numbered(tmp_path) -> None:
    """Nothing shows that there are 0 or more: the run looks at the frames themselves."""
    graph = model(
        [
            node("Conv", "x first", "a", strides=[4]),
            node("Relu", "a", "r"),
            node("Conv", "r second", "f", strides=[3]),
            node("Shape", "f", "shape"),
            node("Gather", "shape two", "count"),
            node("Range", "zero count one", "places"),
            node("Cast", "places", "floats", to=FLOAT),
            node("Sin", "floats", "waves"),
            node("Mul", "f waves", "y"),
        ],
        {"x": (FLOAT, ["batch", 1, "samples"])},
        "y",
        first=DRAW.normal(size=(5, 1, 9)).astype(np.float32),
        second=DRAW.normal(size=(6, 5, 7)).astype(np.float32),
        **{"zero": np.int64(0), "one": np.int64(1), "two": np.int64(2)},
    )
    net = compiled(graph, tmp_path)
    assert net.inputs[0].shape == ("batch", 1, "samples")
    for batch, samples in ((1, 33), (2, 100), (1, 501)):
        x = DRAW.normal(size=(batch, 1, samples)).astype(np.float32)
        (y,) = results(net, x=x)
        close(y, onnxruntime_outputs(graph, {"x": x})["y"])
    with pytest.raises(byoc.ByocError, match="inside the network"):
        net.run({"x": DRAW.normal(size=(1, 1, 8)).astype(np.float32)})


@pytest.mark.parametrize(("size", "length"), [("n", None), ("n", 9), (33, None)])
def test_real_signals_of_half_their_spectrum(size: str | int, length: int | None, tmp_path) -> None:
    """IRFFT, which ONNX Runtime does not have."""
    dft = node("DFT", "twice n", "y", axis=1, inverse=1, onesided=1)
    dft.input[:] = ["twice", "n" if length else ""]
    inputs = {"x": (FLOAT, ["b", size, 3, 2])}
    nodes = [node("Add", "x x", "twice"), dft]
    graph = model(nodes, inputs, "y", **({"n": np.array(length)} if length else {}))
    net = compiled(graph, tmp_path)
    x = DRAW.standard_normal((2, 33, 3, 2)).astype("f4")
    (y,) = results(net, x=x)
    spectrum = 2.0 * (x[..., 0] + 1j * x[..., 1].astype(np.float64))
    close(y, np.fft.irfft(spectrum, length or 64, axis=1)[..., None])


@pytest.mark.parametrize("length", [24, 31, 400, 1024])
def test_one_kernel_call_for_all_frames(length: int, tmp_path) -> None:
    """A fast transform reads the frames where they lie in the signal."""
    window = np.hanning(length).astype("f4")
    nodes = [node("STFT", "x step window", "y"), node("ReduceSumSquare", "y", "z", keepdims=0)]
    nodes[1].attribute.append(onnx.helper.make_attribute("axes", [3]))
    inputs = {"x": (FLOAT, ["b", 3000])}
    graph = model(nodes, inputs, "z", step=np.array(length // 4), window=window)
    with pytest.warns(byoc.AxesNote):
        made = byoc.compile(graph, tmp_path / "model.so")
    assert len(made.report.regions) == 1 and not made.report.left
    net = byoc.load(tmp_path / "model.so")
    for batch in (1, 3):
        x = DRAW.standard_normal((batch, 3000)).astype("f4")
        (got,) = results(net, x=x)
        close(got, (transformed(x, window, length // 4, True) ** 2).sum(-1))


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ({"x": (FLOAT, [2, 8, 3])}, {"axis": 1}, "1 or 2 as the last extent"),
        ({"x": (FLOAT, [2, 8, 2])}, {"axis": 2}, "axis attribute value 2 is invalid"),
        ({"x": (FLOAT, [2, 8, 1])}, {"axis": 1, "inverse": 1, "onesided": 1}, "complex"),
        ({"x": (FLOAT, [2, 8, 2]), "n": (INT64, [])}, {"axis": 1}, "length is computed"),
    ],
)
def test_transforms_that_are_none(inputs: dict, attributes: dict, message: str, tmp_path) -> None:
    graph = model([node("DFT", " ".join(inputs), "y", **attributes)], inputs, "y")
    with pytest.raises(byoc.ByocError, match=message):
        byoc.compile(graph, tmp_path / "model.so")


def test_a_transform_of_nothing(tmp_path) -> None:
    """Of no signals of no numbers there is nothing to tell, and nothing to refuse."""
    graph = model([node("DFT", "x", "y", axis=2)], {"x": (FLOAT, ["m", 1, "m", 1])}, "y")
    net = compiled(graph, tmp_path)
    for size in (0, 3):
        x = DRAW.standard_normal((size, 1, size, 1)).astype(np.float32)
        (found,) = results(net, x=x)
        (want,) = onnxruntime_outputs(graph, {"x": x}).values()
        close(found, want)
