"""What does not depend on the inputs is evaluated, rightly, and in one walk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import byoc.frontends.onnx.fold_onnx
from byoc.errors import ModelError
from byoc.frontends.onnx import prepare
from byoc.frontends.onnx.fold_onnx import MAX_BYTES, fold_constants
from byoc.frontends.onnx.graph_names import all_graphs
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import onnx_model, random

FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def kinds(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """A folded copy, which ONNX takes for valid and whose interface is the same."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    fold_constants(copy)
    assert copy.graph.input == model.graph.input and copy.graph.output == model.graph.output
    # The checker wants shapes of outputs, which ONNX Runtime does not.
    checked = onnx.ModelProto.FromString(copy.SerializeToString())
    for value in checked.graph.output:
        value.type.tensor_type.shape.SetInParent()
    onnx.checker.check_model(checked)
    return copy


def integers(values: dict[str, object]) -> dict[str, np.ndarray]:
    return {name: np.array(value, np.int64) for name, value in values.items()}


def same(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> onnx.ModelProto:
    """The folded model, after a look at its numbers."""
    result = folded(model)
    assert_agrees(onnxruntime_outputs(result, feed), onnxruntime_outputs(model, feed))
    return result


# ---------------------------------------------------------------------- what exporters write


def test_a_chain_is_folded_to_its_end() -> None:
    """Each Reshape's shape comes from the result of the one before."""
    nodes, value = [], "x"
    for index in range(12):
        nodes += [
            helper.make_node("Shape", [value], [f"s{index}"]),
            helper.make_node("Gather", [f"s{index}", "one"], [f"n{index}"]),
            helper.make_node("Mul", [f"n{index}", "two"], [f"m{index}"]),
            helper.make_node("Concat", ["minus", f"m{index}"], [f"t{index}"], axis=0),
            helper.make_node("Reshape", [value, f"t{index}"], [f"v{index}"]),
        ]
        value = f"v{index}"
    arrays = integers({"one": [1], "two": [2], "minus": [-1]})
    model = onnx_model(nodes, {"x": [4096, 2]}, [value], arrays)
    assert kinds(same(model, {"x": random(4096, 2)})) == ["Reshape"] * 12


def test_pads_as_pytorch_writes_them() -> None:
    """[left, right, top, bottom] becomes [0, 0, top, left, 0, 0, bottom, right]."""
    nodes = [
        helper.make_node("Shape", ["torch"], ["given"]),
        helper.make_node("Sub", ["eight", "given"], ["missing"]),
        helper.make_node("ConstantOfShape", ["missing"], ["zeros"], value=_scalar(0)),
        helper.make_node("Concat", ["torch", "zeros"], ["all"], axis=0),
        helper.make_node("Reshape", ["all", "pairs"], ["rows"]),
        helper.make_node("Slice", ["rows", "last", "first", "zero", "back"], ["turned"]),
        helper.make_node("Transpose", ["turned"], ["columns"], perm=[1, 0]),
        helper.make_node("Reshape", ["columns", "flat"], ["long"]),
        helper.make_node("Cast", ["long"], ["pads"], to=INT64),
        helper.make_node("Pad", ["x", "pads", "value"], ["padded"]),
        helper.make_node("MaxPool", ["padded"], ["y"], kernel_shape=[3, 3], strides=[2, 2]),
    ]
    arrays = integers(
        {
            **{"torch": [0, 1, 0, 1], "eight": [8], "pairs": [-1, 2], "last": [-1]},
            **{"first": [-(2**63) + 1], "zero": [0], "back": [-1], "flat": [-1]},
        }
    )
    weights = {**arrays, "value": np.array(-np.inf, np.float32)}
    model = onnx_model(nodes, {"x": [1, 2, 6, 6]}, ["y"], weights)
    result = same(model, {"x": random(1, 2, 6, 6)})
    assert kinds(result) == ["Pad", "MaxPool"]
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in result.graph.initializer}
    np.testing.assert_array_equal(stored["pads"], [0, 0, 0, 0, 0, 0, 1, 1])


def _scalar(value: int) -> onnx.TensorProto:
    return helper.make_tensor("value", INT64, [1], [value])


def test_a_producer_that_two_nodes_need_stays() -> None:
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["padded"]),
        helper.make_node("Conv", ["padded", "w"], ["c"]),
        helper.make_node("Identity", ["padded"], ["again"]),
        helper.make_node("Dropout", ["again"], ["kept", "mask"]),
        helper.make_node("ReduceMax", ["kept"], ["m"], axes=[2, 3]),
        helper.make_node("Add", ["c", "m"], ["y"]),
    ]
    weights = {"w": random(3, 3, 3, 3), **integers({"pads": [0, 0, 1, 1, 0, 0, 1, 1]})}
    model = onnx_model(nodes, {"x": [1, 3, 6, 6]}, ["y", "padded"], weights)
    result = same(model, {"x": random(1, 3, 6, 6)})
    assert kinds(result) == ["Pad", "Conv", "ReduceMax", "Add"]


def test_names_of_inputs_and_outputs_stay() -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["a"]),
        helper.make_node("Identity", ["a"], ["y"]),
        helper.make_node("Add", ["c", "c"], ["z"]),
        helper.make_node("Mul", ["z", "a"], ["w"]),
    ]
    model = onnx_model(nodes, {"x": [2]}, ["y", "z", "w"], {"c": random(2)})
    assert kinds(same(model, {"x": random(2)})) == ["Identity", "Add", "Mul"]


def test_a_mask_that_is_read_keeps_its_dropout() -> None:
    nodes = [
        helper.make_node("Dropout", ["x"], ["y", "mask"]),
        helper.make_node("Not", ["mask"], ["z"]),
    ]
    model = onnx_model(nodes, {"x": [2, 3]}, ["y", "z"])
    model.graph.output[1].type.tensor_type.elem_type = BOOL
    assert kinds(folded(model)) == ["Dropout", "Not"]


def test_sizes_of_an_image_with_bars() -> None:
    """An image as large as fits into 32 x 32, and what is padded, by sizes that are rounded."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[1, 3, 48, 63] x) => (float[1, 3, 32, 32] y) <float[2] side = {32, 32},
          int64[2] whole = {32, 32}, int64[1] two = {2}, int64[2] none = {0, 0}> {
          extents = Shape<start = 2>(x) size = Cast<to = 1>(extents) ratios = Div(side, size)
          least = ReduceMin<keepdims = 0>(ratios) exact = Mul(size, least) near = Round(exact)
          inside = Cast<to = 7>(near) fits = Resize<mode = "linear", axes = [2, 3]>(x, , , inside)
          bars = Sub(whole, inside) before = Div(bars, two) behind = Sub(bars, before)
          pads = Concat<axis = 0>(none, before, none, behind) y = Pad(fits, pads)
        }""")
    x = np.random.default_rng(0).standard_normal((1, 3, 48, 63), np.float32)
    assert kinds(same(model, {"x": x})) == ["Resize", "Pad"]


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(("size", "stride", "pad"), [(7, 2, 0), (6, 2, 1), (5, 3, 1), (4, 4, 1)])
def test_windows_that_begin_in_the_padding_do_not_count(
    kind: str, size: int, stride: int, pad: int
) -> None:
    """``onnx.shape_inference`` counts them, and with it ONNX Runtime where it folds a Shape."""
    attrs = {"kernel_shape": [2, 2], "strides": [stride] * 2, "pads": [0, 0, pad, pad]}
    nodes = [
        helper.make_node(kind, ["x"], ["p"], ceil_mode=1, **attrs),
        helper.make_node("Shape", ["p"], ["s"]),
        helper.make_node("Identity", ["s"], ["y"]),
    ]
    model = onnx_model(nodes, {"x": [1, 2, size, size]}, ["p", "y"], opset=19)
    model.graph.output[1].type.tensor_type.elem_type = INT64
    result = folded(model)
    assert kinds(result) == [kind, "Identity"]
    (constant,) = result.graph.initializer
    pooled = onnxruntime_outputs(model, {"x": random(1, 2, size, size)})["p"]
    assert tuple(numpy_helper.to_array(constant)) == pooled.shape


# ---------------------------------------------------------------------- branches


def branch(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    output = helper.make_tensor_value_info(nodes[-1].output[0], FLOAT, None)
    return helper.make_graph(nodes, name, [], [output])


def test_what_a_branch_reads_stays() -> None:
    """``b`` is read inside of an If alone, ``a`` by its name before folding."""
    nodes = [
        helper.make_node("Identity", ["x"], ["a"]),
        helper.make_node("Exp", ["x"], ["b"]),
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Cast", ["m"], ["which"], to=BOOL),
        helper.make_node(
            "If",
            ["which"],
            ["y"],
            then_branch=branch("then", helper.make_node("Add", ["a", "b"], ["t"])),
            else_branch=branch("else", helper.make_node("Mul", ["a", "b"], ["t"])),
        ),
    ]
    model = onnx_model(nodes, {"x": [3]}, ["y"])
    for values in (random(3), np.zeros(3, np.float32)):
        result = same(model, {"x": values})
    assert kinds(result) == ["Exp", "ReduceMax", "Cast", "If"]


def test_branches_that_are_taken_become_nodes() -> None:
    """Both have a value of the same name, as have the branches that are not taken."""

    def choice(condition: str, source: str, result: str) -> onnx.NodeProto:
        shape = helper.make_node("Shape", [source], ["s"])
        first = helper.make_node("Reshape", [source, "s"], ["inner"])
        return helper.make_node(
            "If",
            [condition],
            [result],
            then_branch=branch("then", shape, first, helper.make_node("Exp", ["inner"], ["o"])),
            else_branch=branch("else", helper.make_node("Neg", [source], ["o"])),
        )

    nodes = [
        helper.make_node("Size", ["x"], ["count"]),
        helper.make_node("Equal", ["count", "six"], ["holds"]),
        helper.make_node("Not", ["holds"], ["fails"]),
        choice("holds", "x", "a"),
        choice("fails", "a", "b"),
        choice("holds", "b", "y"),
    ]
    model = onnx_model(nodes, {"x": [2, 3]}, ["y"], integers({"six": 6}))
    result = same(model, {"x": random(2, 3)})
    assert kinds(result) == ["Reshape", "Exp", "Neg", "Reshape", "Exp", "Identity"]


# ---------------------------------------------------------------------- what stays


def test_random_operators_stay() -> None:
    nodes = [
        helper.make_node("RandomNormal", [], ["a"], shape=[3]),
        helper.make_node("RandomUniformLike", ["c"], ["b"]),
        helper.make_node("Bernoulli", ["c"], ["d"]),
        helper.make_node("Sum", ["a", "b", "d"], ["y"]),
    ]
    model = onnx_model(nodes, {"x": [3]}, ["y"], {"c": np.full(3, 0.5, np.float32)})
    stay = [kind for kind in kinds(folded(model)) if kind != "Cast"]
    # Bernoulli is written out.
    assert stay == ["RandomNormal", "RandomUniformLike", "RandomUniformLike", "Less", "Sum"]


def test_an_operator_that_fails_stays() -> None:
    nodes = [
        helper.make_node("Reshape", ["values", "shape"], ["a"]),
        helper.make_node("Add", ["x", "a"], ["y"]),
    ]
    weights = {"values": random(3), **integers({"shape": [2, 2]})}
    assert len(folded(onnx_model(nodes, {"x": [1]}, ["y"], weights)).graph.node) == 2


#: Elements of more than is evaluated here, and of more than is made at all.
LARGE, HUGE = 1 << 20, 300_000_000


def with_constants(kind: str, operands: Sequence[object]) -> onnx.ModelProto:
    names = [f"c{index}" for index in range(len(operands))]
    nodes = [
        helper.make_node(kind, names, ["a"]),
        helper.make_node("Cast", ["a"], ["b"], to=FLOAT),
        helper.make_node("Add", ["x", "b"], ["y"]),
    ]
    weights = integers(dict(zip(names, operands, strict=True)))
    return onnx_model(nodes, {"x": [1]}, ["y"], weights)


@pytest.mark.parametrize(
    ("kind", "operands"),
    [
        ("Range", [0, LARGE, 1]),
        ("Expand", [[1], [LARGE]]),
        ("Tile", [[1], [LARGE]]),
        ("ConstantOfShape", [[LARGE]]),
    ],
)
def test_large_results_are_not_evaluated(
    monkeypatch: pytest.MonkeyPatch, kind: str, operands: Sequence[object]
) -> None:
    def never(*_: object) -> None:
        raise AssertionError(f"{kind} was evaluated")

    monkeypatch.setattr(byoc.frontends.onnx.fold_onnx, "ReferenceEvaluator", never)
    model = with_constants(kind, operands)
    fold_constants(model)
    assert kinds(model) == [kind, "Cast", "Add"]


@pytest.mark.parametrize(
    ("kind", "operands"),
    [
        ("Range", [0, HUGE, 1]),
        ("Expand", [[1], [HUGE]]),
        ("Expand", [[1], [1 << 30, 1 << 30]]),
        ("Tile", [[1], [HUGE]]),
        ("ConstantOfShape", [[HUGE]]),
        ("ConstantOfShape", [[1 << 40, 1 << 20]]),
    ],
)
def test_gigabytes_of_constants_are_refused(kind: str, operands: Sequence[object]) -> None:
    with pytest.raises(ModelError, match=rf"operator {kind} \(node with output 'a'\) makes .* GB"):
        prepare(with_constants(kind, operands))


@pytest.mark.parametrize("steps", ["a thousand times", "twice", "many"])
def test_growing_in_steps_is_refused(steps: str) -> None:
    """No value is much larger than the one before it, and none is evaluated in the end."""
    if steps == "a thousand times":
        nodes = [helper.make_node("Tile", [f"v{i}", "times"], [f"v{i + 1}"]) for i in range(4)]
    elif steps == "twice":
        nodes = [
            helper.make_node("Concat", [f"v{i}"] * 2, [f"v{i + 1}"], axis=0) for i in range(60)
        ]
    else:
        nodes = [helper.make_node("Expand", ["v0", "large"], [f"v{i + 1}"]) for i in range(100)]
    last = nodes[-1].output[0]
    nodes.append(helper.make_node("Add", ["x", last], ["y"]))
    weights = {"v0": random(1), **integers({"times": [1024], "large": [1 << 24]})}
    with pytest.raises(ModelError, match=r"makes \d\.\d GB of constants, \d\.\d GB with those"):
        prepare(onnx_model(nodes, {"x": [1]}, ["y"], weights))


def test_many_results_are_not_more_than_a_few() -> None:
    count = MAX_BYTES // 4
    nodes = [helper.make_node("Expand", [f"c{i}", "shape"], [f"e{i}"]) for i in range(400)]
    nodes.append(helper.make_node("Sum", ["x", *(f"e{i}" for i in range(400))], ["y"]))
    weights = {f"c{i}": random(1, seed=i) for i in range(400)} | integers({"shape": [count]})
    model = onnx_model(nodes, {"x": [count]}, ["y"], weights)
    fold_constants(model)
    assert model.ByteSize() < byoc.frontends.onnx.fold_onnx.MAX_TOTAL * 1.1
    assert "Expand" in kinds(model)


# ---------------------------------------------------------------------- against ONNX Runtime


def random_model(seed: int) -> onnx.ModelProto:
    """Arithmetic on the shape of an input and on constants, with signs, that ends in one value."""
    draw = np.random.default_rng(seed)
    shape = [int(e) for e in draw.integers(1, 6, 3)]
    weights = integers({"i": draw.integers(-9, 10, 3), "j": draw.integers(1, 7, 3), "zero": [0]})
    weights |= integers({"two": [2], "three": [3], "back": [-1], "first": [-9]})
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Size", ["x"], ["n"])]
    values = ["i", "j", "s"]
    for index in range(12):
        kind = str(draw.choice(["Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Slice", "Gather",
                                "Where", "Concat", "Cast", "Neg", "Reshape"]))  # fmt: skip
        a, b = (str(name) for name in draw.choice(values, 2))
        out = f"v{index}"
        if kind in ("Div", "Mod"):
            b = "j"
        if kind == "Slice":
            made = [helper.make_node("Slice", [a, "back", "first", "zero", "back"], [out])]
        elif kind == "Gather":
            made = [
                helper.make_node("Mod", [b, "three"], [f"p{index}"]),
                helper.make_node("Gather", [a, f"p{index}"], [out]),
            ]
        elif kind == "Where":
            made = [
                helper.make_node("Less", [a, b], [f"p{index}"]),
                helper.make_node("Where", [f"p{index}", a, "n"], [out]),
            ]
        elif kind == "Concat":
            made = [
                helper.make_node("Concat", [a, b], [f"p{index}"], axis=0),
                helper.make_node("Slice", [f"p{index}", "two", "back"], [out]),
            ]
        elif kind == "Cast":
            made = [
                helper.make_node("Cast", [a], [f"p{index}"], to=FLOAT),
                helper.make_node("Div", [f"p{index}", "half"], [f"q{index}"]),
                helper.make_node("Floor", [f"q{index}"], [f"r{index}"]),
                helper.make_node("Cast", [f"r{index}"], [out], to=INT64),
            ]
        elif kind == "Reshape":
            made = [
                helper.make_node("Unsqueeze", [a, "zero"], [f"p{index}"]),
                helper.make_node("Transpose", [f"p{index}"], [f"q{index}"]),
                helper.make_node("Reshape", [f"q{index}", "back"], [out]),
            ]
        else:
            made = [helper.make_node(kind, [a] if kind == "Neg" else [a, b], [out])]
        nodes += made
        if kind not in ("Mul",):  # products grow
            values.append(out)
    nodes += [
        helper.make_node("Sum", [f"f{index}" for index in range(12)] + ["m"], ["y"]),
    ]
    casts = [helper.make_node("Cast", [f"v{i}"], [f"f{i}"], to=FLOAT) for i in range(12)]
    mean = helper.make_node("ReduceMean", ["x"], ["m"], keepdims=0)
    nodes = [*nodes[:-1], *casts, mean, nodes[-1]]
    weights["half"] = np.array(1.5, np.float32)
    return onnx_model(nodes, {"x": shape}, ["y"], weights)


@pytest.mark.parametrize("seed", range(60))
def test_random_arithmetic(seed: int) -> None:
    model = random_model(seed)
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    result = same(model, {"x": random(*shape)})
    assert set(kinds(result)) == {"ReduceMean", "Sum"}


# ---------------------------------------------------------------------- the whole preparation


def test_preparing_leaves_no_value_undefined() -> None:
    nodes = [
        helper.make_node("Constant", [], ["k"], value_ints=[0, -1]),
        helper.make_node("Reshape", ["x", "k"], ["flat"]),
        helper.make_node("Dropout", ["flat"], ["d"]),
        helper.make_node("MatMul", ["d", "w"], ["y"]),
    ]
    model = onnx_model(nodes, {"x": [2, 3, 4]}, ["y"], {"w": random(12, 5), "unused": random(3)})
    prepared = prepare(model)
    defined = {value.name for value in (*prepared.graph.input, *prepared.graph.initializer)}
    for graph in all_graphs(prepared.graph):
        for node in graph.node:
            assert defined.issuperset(filter(None, node.input))
            defined.update(node.output)
    assert [tensor.name for tensor in prepared.graph.initializer] == ["w", "k"]
    assert kinds(prepared) == ["Reshape", "MatMul"]
