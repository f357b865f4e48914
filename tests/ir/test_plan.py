"""Planning: layouts, views and the calls that follow."""

from __future__ import annotations

import numpy as np
import pytest

from codegen_cc.dim import Dim, symbol
from codegen_cc.emit.entry import c_identifier
from codegen_cc.emit.source import emit_source
from codegen_cc.link.weights import WeightBlob
from codegen_cc.lowering import plan_region
from codegen_cc.operators.packing import FLOAT32_PANELS
from codegen_cc.plan.builder import Plan
from codegen_cc.plan.call import Struct
from tests.ir.regions import RegionBuilder


def plan(region) -> Plan:
    return plan_region(region, WeightBlob(region.symbol))


def functions(result: Plan) -> list[str]:
    return [call.function for call in result.calls]


def struct(result: Plan, index: int) -> dict[str, object]:
    return next(a for a in result.calls[index].arguments if isinstance(a, Struct)).fields


def test_a_cnn_reorders_only_at_its_border():
    b = RegionBuilder()
    x = b.input(1, 3, 8, 8)
    first = b.conv2d(x, 16)
    second = b.conv2d(first, 16, residual=first)
    pooled = b.add(
        "reduce", {"input": second}, (1, 16, 1, 1), kind="mean", axes=[2, 3], keepdims=True
    )
    flat = b.add("reshape", {"input": pooled}, (1, 16))
    result = plan(b.done(b.add("matmul", {"lhs": flat, "rhs": b.constant(16, 5)}, (1, 5))))
    assert functions(result) == [
        "ext_copy",
        "ext_conv2d",
        "ext_conv2d",
        "ext_reduce",
        "ext_matmul_packed",
    ]
    assert result.reorders == 1
    assert result.calls[-1].writes[0].buffer.kind == "output"


def test_depthwise_is_chosen_by_groups():
    b = RegionBuilder()
    x = b.input(1, 8, 6, 6)
    attrs = {"strides": [1, 1], "padding": [1] * 4, "dilation": [1, 1], "groups": 8}
    y = b.add("conv2d", {"input": x, "weight": b.constant(8, 1, 3, 3)}, (1, 8, 6, 6), **attrs)
    assert "ext_depthwise_conv2d" in functions(plan(b.done(y)))


@pytest.mark.parametrize(
    ("groups", "inputs", "outputs", "window", "stride", "shared"),
    [
        (4, 4, 4, 3, 1, True),
        (4, 4, 4, 3, 2, True),
        (4, 4, 4, 5, 1, True),
        (4, 4, 4, 1, 1, True),
        (4, 8, 8, 1, 1, False),
        (2, 32, 32, 3, 1, True),
        (2, 32, 32, 3, 2, False),
        (2, 64, 64, 3, 1, False),
        (2, 24, 24, 3, 1, False),
        (2, 8, 4, 3, 1, False),
        (1, 16, 16, 3, 2, False),
    ],
)
def test_groups_share_vectors_where_they_are_small(
    groups: int, inputs: int, outputs: int, window: int, stride: int, shared: bool
):
    """What stays a product for each group fills vectors, or does not fit into shared ones."""
    b = RegionBuilder()
    x = b.input(1, groups * inputs, 8, 8)
    attrs = {"strides": [stride] * 2, "padding": [window // 2] * 4, "dilation": [1, 1]}
    weight = b.constant(groups * outputs, inputs, window, window)
    shape = (1, groups * outputs, 8 // stride, 8 // stride)
    y = b.add("conv2d", {"input": x, "weight": weight}, shape, groups=groups, **attrs)
    found = functions(plan(b.done(y)))
    assert ("ext_grouped_conv2d" in found) == shared
    assert ("ext_conv2d" in found) != shared


@pytest.mark.parametrize(
    ("inputs", "outputs", "window", "stride", "function"),
    [
        (64, 1, 1, 1, "ext_conv2d_few"),
        (16, 1, 1, 1, "ext_conv2d_few"),
        (64, 5, 1, 1, "ext_conv2d"),
        (64, 3, 3, 1, "ext_conv2d_few"),
        (64, 8, 3, 2, "ext_conv2d_few"),
        (64, 12, 3, 2, "ext_conv2d"),
        (64, 5, 3, 1, "ext_conv2d_few"),
        (64, 12, 3, 1, "ext_conv2d_winograd"),
        (1, 1, 3, 1, "ext_conv2d"),
    ],
)
def test_few_outputs_are_dots(inputs: int, outputs: int, window: int, stride: int, function: str):
    """But for those whose sums over lanes take longer, and those that Winograd's algorithm has."""
    b = RegionBuilder()
    attrs = {"strides": [stride] * 2, "padding": [window // 2] * 4, "dilation": [1, 1]}
    operands = {
        "input": b.input(1, inputs, 64, 64),
        "weight": b.constant(outputs, inputs, window, window),
    }
    shape = (1, outputs, 64 // stride, 64 // stride)
    y = b.add("conv2d", operands, shape, groups=1, **attrs)
    assert [f for f in functions(plan(b.done(y))) if "conv" in f] == [function]


@pytest.mark.parametrize(
    ("side", "dilation", "function"),
    [
        (64, 2, "ext_conv2d_winograd"),
        (16, 12, "ext_conv2d"),
        (symbol("n"), 2, "ext_conv2d_winograd"),
        (symbol("n"), 4, "ext_conv2d_winograd"),
        (symbol("n"), 12, "ext_conv2d"),
        (symbol("n"), 36, "ext_conv2d"),
    ],
)
def test_pixels_between_which_a_dilation_lies_fill_tiles(side: Dim, dilation: int, function: str):
    """Of 24 pixels 36 apart, Winograd's algorithm would compute 1 296 tiles."""
    b = RegionBuilder()
    attrs = {"strides": [1, 1], "padding": [dilation] * 4, "dilation": [dilation] * 2}
    operands = {"input": b.input(1, 64, side, side), "weight": b.constant(64, 64, 3, 3)}
    y = b.add("conv2d", operands, (1, 64, side, side), groups=1, **attrs)
    assert [f for f in functions(plan(b.done(y))) if "conv" in f] == [function]


def test_attention_copies_nothing():
    b = RegionBuilder()
    x = b.input(1, 6, 8)

    def heads(axes):
        projected = b.add("matmul", {"lhs": x, "rhs": b.constant(8, 8)}, (1, 6, 8))
        split = b.add("reshape", {"input": projected}, (1, 6, 2, 4))
        shape = tuple(split.shape[axis] for axis in axes)
        return b.add("permute", {"input": split}, shape, axes=axes)

    query, key, value = heads([0, 2, 1, 3]), heads([0, 2, 3, 1]), heads([0, 2, 1, 3])
    scores = b.add("matmul", {"lhs": query, "rhs": key}, (1, 2, 6, 6))
    weights = b.add("softmax", {"input": scores}, (1, 2, 6, 6), axis=3, log=False)
    mixed = b.add("matmul", {"lhs": weights, "rhs": value}, (1, 2, 6, 4))
    back = b.add("permute", {"input": mixed}, (1, 6, 2, 4), axes=[0, 2, 1, 3])
    joined = b.add("reshape", {"input": back}, (1, 6, 8))
    result = plan(b.done(b.add("matmul", {"lhs": joined, "rhs": b.constant(8, 8)}, (1, 6, 8))))
    assert "ext_copy" not in functions(result) and result.reorders == 0
    scores_call = struct(result, functions(result).index("ext_matmul"))
    assert (scores_call["a_row"], scores_call["b_row"], scores_call["b_col"]) == (8, 1, 8)
    assert scores_call["a_batch"] == [4] and scores_call["y_batch"] == [36]


def test_leading_axes_fold_into_rows():
    b = RegionBuilder()
    x = b.input(2, 3, 5, 7)
    result = plan(b.done(b.add("matmul", {"lhs": x, "rhs": b.constant(7, 4)}, (2, 3, 5, 4))))
    assert struct(result, 0)["m"] == 30 and "batch_ndim" not in struct(result, 0)


def test_normalising_channels_in_channels_last_needs_no_copy():
    b = RegionBuilder()
    y = b.conv2d(b.input(1, 8, 4, 4), 16, act=None)
    last = b.add("permute", {"input": y}, (1, 4, 4, 16), axes=[0, 2, 3, 1])
    operands = {"input": last, "gamma": b.constant(16), "beta": b.constant(16)}
    normal = b.add("layer_norm", operands, (1, 4, 4, 16), axes=[3], epsilon=1e-5)
    back = b.add("permute", {"input": normal}, (1, 16, 4, 4), axes=[0, 3, 1, 2])
    result = plan(b.done(b.conv2d(back, 8)))
    assert functions(result) == [
        "ext_copy",
        "ext_conv2d",
        "ext_layer_norm",
        "ext_conv2d",
        "ext_copy",
    ]


def test_channel_scale_reads_a_vector_where_channels_are_innermost():
    b = RegionBuilder()
    y = b.conv2d(b.input(1, 8, 4, 4), 16)
    scaled = b.add("binary", {"lhs": y, "rhs": b.constant(1, 16, 1, 1)}, (1, 16, 4, 4), kind="mul")
    result = plan(b.done(b.conv2d(scaled, 8)))
    fields = struct(result, functions(result).index("ext_binary"))
    assert fields["shape"] == [4, 4, 16] and fields["b_strides"] == [0, 0, 1]


def test_equal_layers_keep_their_own_weights_and_equal_constants_are_stored_once():
    b = RegionBuilder()
    x = b.input(1, 16)
    shared = b.constant(16, 16)
    one = b.add("matmul", {"lhs": x, "rhs": b.constant(16, 16)}, (1, 16))
    two = b.add("matmul", {"lhs": one, "rhs": b.constant(16, 16)}, (1, 16))
    three = b.add("matmul", {"lhs": two, "rhs": shared}, (1, 16))
    four = b.add("matmul", {"lhs": three, "rhs": shared}, (1, 16))
    blob = WeightBlob("w")
    plan_region(b.done(four), blob)
    assert len(blob.weights) == 3


def test_one_value_as_two_outputs_is_written_twice():
    b = RegionBuilder()
    y = b.add("unary", {"input": b.input(3, 4)}, (3, 4), kind="relu")
    result = plan(b.done(y, y))
    assert functions(result) == ["ext_unary", "ext_copy"]
    assert {call.writes[0].buffer.name for call in result.calls} == {"output0", "output1"}


def test_panels_hold_the_matrix_column_by_sixteen():
    matrix = np.arange(3 * 20, dtype=np.float32).reshape(3, 20)
    panels = FLOAT32_PANELS.pack(matrix[None])[0]
    assert panels.shape == (2, 3, 16)
    np.testing.assert_array_equal(panels[1, :, :4], matrix[:, 16:])
    assert not panels[1, :, 4:].any()


def test_identifiers_are_ascii():
    for text in ['"; */', "naïve\n", "1x", "", "\\", "日本"]:
        name = c_identifier(text)
        assert name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()


def test_generated_c_stays_as_people_know_it(request):
    b = RegionBuilder()
    x = b.input(1, 3, 8, 8, name='x"*/;\n')
    y = b.conv2d(b.conv2d(x, 16), 16, kernel=1, act="silu")
    text = emit_source([plan(b.done(y))])
    golden = request.path.parent / "golden" / "two_convolutions.c"
    assert text == golden.read_text(), f"if the change is meant, write it to {golden.name}:\n{text}"
