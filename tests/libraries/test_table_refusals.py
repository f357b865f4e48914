"""What the row of a kernel does not say it is not asked for; rows that are wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from byoc.library import Kernel, Library, LibraryError, Node, Operand, Step
from codegen_cc.libraries import registry
from tests.ir.regions import RegionBuilder
from tests.ir.run_regions import CompiledRegions
from tests.libraries.table.rows import (
    KERNELS,
    attention,
    binary,
    concat,
    conv2d,
    conv_attrs,
    kind,
    matmul,
    matmul_batched,
    matmul_plain,
    region_of,
    table,
    take,
    unary,
)

# ---------------------------------------------------------------- what a row does not say


def node_of(build) -> Node:
    b = RegionBuilder()
    build(b)
    return b.region.nodes[-1].node


def without(kernel_function: str, *names: str, **changes) -> Library:
    """The kernel alone, and without some of its arguments."""
    (kernel,) = (k for k in KERNELS if k.function == kernel_function)
    left = tuple(name for name in kernel.arguments if name not in names)
    return table(replace(kernel, arguments=left, supports=None, **changes))


def conv_of(**attrs):
    def build(b: RegionBuilder):
        operands = {"input": b.input(1, 4, 7, 6), "weight": b.constant(6, 4, 3, 3)}
        return b.add("conv2d", operands, (1, 6, 5, 4), **conv_attrs(**attrs))

    return build


def matmul_with(*steps: Step):
    def build(b: RegionBuilder):
        operands = {"lhs": b.input(3, 5), "rhs": b.constant(5, 4)}
        operands |= {s.kind: b.constant(4) for s in steps if s.kind == "bias"}
        operands |= {s.kind: b.input(3, 4) for s in steps if s.kind == "residual"}
        return b.add("matmul", operands, (3, 4), steps)

    return build


def broadcast_rhs(b: RegionBuilder):
    return b.add("binary", {"lhs": b.input(3, 4), "rhs": b.input(4)}, (3, 4), kind="sub")


def batch_of_lhs(b: RegionBuilder):
    return b.add("matmul", {"lhs": b.input(1, 3, 5), "rhs": b.input(2, 5, 4)}, (2, 3, 4))


def masked(b: RegionBuilder):
    attention(b)
    last = b.region.nodes[-1]
    operands = dict(zip(("query", "key", "value"), last.inputs, strict=True))
    return b.add("attention", operands | {"mask": b.input(1, 1, 3, 5)}, (1, 2, 3, 6), scale=0.5)


def guarded(b: RegionBuilder):
    attention(b)
    last = b.region.nodes[-1]
    operands = dict(zip(("query", "key", "value"), last.inputs, strict=True))
    return b.add("attention", operands, (1, 2, 3, 6), scale=0.5, guarded=True)


def three_inputs(b: RegionBuilder):
    operands = {f"input{i}": b.input(3, 2) for i in range(3)}
    return b.add("concat", operands, (3, 6), axis=1)


def apart(b: RegionBuilder):
    x = {"input": b.input(2, 3, 4)}
    return b.add("reduce", x, (3,), kind="sum", axes=[0, 2], keepdims=False)


def of_bool(b: RegionBuilder):
    return b.add("unary", {"input": b.input(3, dtype="bool")}, (3,), dtype="bool", **kind("not"))


_RESIZING = ("coordinate", "rounding", "cubic_alpha", "cubic_exclude", "divided")
DILATED, STRIDED = conv_of(dilation=[2, 2]), conv_of(strides=[2, 2])


@pytest.mark.parametrize(
    ("library", "build", "reason"),
    [
        (without("t_conv2d", "dilation_h"), DILATED, "dilation is [2, 2], which t_conv2d is not"),
        (without("t_conv2d", "stride_w"), STRIDED, "strides is [2, 2], which t_conv2d is not told"),
        (without("t_conv2d", "groups"), conv2d, "groups is 2, which t_conv2d is not told"),
        (without("t_conv2d", "batch"), conv2d, "batch is 2, which t_conv2d is not told"),
        (without("t_conv2d", "pad_top"), conv2d, "padding is [1, 0, 2, 1], which t_conv2d is not"),
        (without("t_conv2d", "out_h"), conv2d, "padding is [1, 0, 2, 1], which t_conv2d is not"),
        (without("t_conv2d"), matmul, "operator matmul; need one of conv2d"),
        (without("t_conv2d"), of_bool, "operator unary"),
        (without("t_unary"), of_bool, "input is bool; need float32"),
        (without("t_unary", "kind"), unary, "kind is leaky_relu, which t_unary is not told"),
        (without("t_unary", "alpha"), unary, "alpha is 0.25, which t_unary is not told"),
        (without("t_packed"), matmul_plain, "rhs float32[5, 4] is computed; need a constant"),
        (without("t_pixels"), DILATED, "dilation is [2, 2]; need (1, 1)"),
        (without("t_matmul"), matmul_batched, "rhs [2, 5, 4] has batch axes; t_matmul is not told"),
        (without("t_batched"), batch_of_lhs, "lhs [1, 3, 5] and rhs [2, 5, 4]; need equal batch"),
        (without("t_matmul"), matmul_with(Step("gelu")), "epilogue 'gelu'; t_matmul has 'bias re"),
        (
            without("t_matmul"),
            matmul_with(Step("relu"), Step("bias")),
            "epilogue 'relu bias'; t_matmul has 'bias relu'",
        ),
        (
            without("t_subtract", "activation.alpha"),
            binary,
            "leaky_relu has a parameter alpha, which t_subtract is not told",
        ),
        (without("t_subtract"), broadcast_rhs, "rhs [4] is broadcast; need [3, 4]"),
        (without("t_attention", "mask"), masked, "operand mask, which t_attention is not given"),
        (without("t_attention"), guarded, "guarded is True, which t_attention is not told"),
        (without("t_attention"), masked, "mask [1, 1, 3, 5] is broadcast; need [1, 2, 3, 5]"),
        (without("t_concat"), three_inputs, "operand input2, which t_concat is not given"),
        (without("t_concat", attributes={"axis": 0}), concat, "axis is 1; need 0"),
        (without("t_sum"), apart, "axes [0, 2]; need neighbours"),
        (without("t_take", dtypes={"indices": "int32"}), take, "indices is int64; need int32"),
        (
            table(Kernel("matmul", "f", ("lhs", "rhs", "output", "lhs.2"))),
            matmul_with(),
            "argument lhs.2: lhs has rank 2, without axis 2",
        ),
        (
            table(
                Kernel(
                    "resize2d",
                    "f",
                    ("input", "output", "attr.method"),
                    attributes=dict.fromkeys(_RESIZING, ...),
                )
            ),
            None,
            "argument attr.method: method is 'cubic'; a kernel is given numbers",
        ),
        (
            table(Kernel("matmul", "f", ("lhs", "rhs", "output"), supports=lambda n: "too\nwide ")),
            matmul_with(),
            "too wide",
        ),
    ],
)
def test_refused(library: Library, build, reason: str) -> None:
    node = node_of(build) if build else _resize()
    assert reason in str(library.supports(node))
    with pytest.raises(LibraryError, match=rf"library table does not compute {node.composite}: "):
        library.algorithm(node)


def _resize() -> Node:
    texts = {"method": "cubic", "coordinate": "half_pixel", "rounding": ""}
    attrs = {**texts, "cubic_alpha": -0.5, "cubic_exclude": 0, "divided": False}
    return Node(
        "resize2d", (Operand("input", (1, 1, 2, 2), "float32"),), (1, 1, 4, 4), "float32", attrs
    )


@pytest.mark.parametrize(
    ("library", "build"),
    [
        (without("t_conv2d", "dilation_h"), conv_of()),
        (without("t_conv2d", "out_h", "out_w"), conv_of(padding=[1, 0, 1, 0])),
        (without("t_conv2d", "dilation_h", attributes={"dilation": [2, 2]}), DILATED),
        (without("t_conv2d", "dilation_h", attributes={"dilation": ...}), DILATED),
        (without("t_matmul"), matmul_with(Step("relu"))),
        (without("t_batched"), matmul_with()),
    ],
)
def test_taken(library: Library, build) -> None:
    assert library.supports(node_of(build)) is None


# ---------------------------------------------------------------- tables that are wrong

PLAIN = Kernel("matmul", "f", ("lhs", "rhs", "output", "m", "n", "k"))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (
            Kernel("matmul", "f", ("lhs", "rhs", "outptu")),
            "unknown argument 'outptu'; did you mean 'o",
        ),
        (
            Kernel("matmul", "f", ("lhs", "rhs", "output", "attr.axis")),
            "unknown argument 'attr.axis'",
        ),
        (Kernel("matmul", "f", ("lhs", "rhs", "output", "m.0")), "unknown argument 'm.0'"),
        (Kernel("matmul", "f", ("lhs", "rhs", "output", None)), "argument None; need a name or"),
        (Kernel("matmul", "f", ("lhs", "rhs")), "no argument 'output'"),
        (Kernel("gemm", "f", ()), "no operator is called 'gemm'"),
        (replace(PLAIN, function="f; system"), "'f; system' is no name of a C function"),
        (replace(PLAIN, prepare="0f"), "'0f' is no name of a C function"),
        (replace(PLAIN, state="int x"), "'int x' is no name of a C type"),
        (replace(PLAIN, state="t_state"), "field and argument 'state' need each other"),
        (replace(PLAIN, scratch=64), "field and argument 'scratch' need each other"),
        (replace(PLAIN, returns="int"), "returns 'int'; need 'status' or 'void'"),
        (replace(PLAIN, epilogue=("relu",)), "epilogue step 'relu', but no argument 'relu'"),
        (replace(PLAIN, epilogue=("bias",)), "epilogue step 'bias', but no argument 'bias'"),
        (
            replace(PLAIN, epilogue=("square",)),
            "epilogue step 'square'; matmul has bias, activation",
        ),
        (replace(PLAIN, layouts={"lhs": "NHCC"}), "layout 'NHCC' of lhs; need the letters of"),
        (replace(PLAIN, layouts={"lhs": "any"}), "layout 'any' of lhs"),
        (replace(PLAIN, pack={"weight": np.copy}), "pack of unknown 'weight'"),
        (replace(PLAIN, attributes={"axis": 1}), "attributes of unknown 'axis'"),
        (replace(PLAIN, prepare="p", prepare_arguments=("output",)), "p is called before there is"),
        (
            Kernel("conv2d", "f", ("params", "input", "weight", "output")),
            "argument 'params' describes channels-last images; give input and output the",
        ),
        (
            Kernel("unary", "f", ("input", "output", "size"), layouts={"input": "any"}),
            "layout 'any' needs all operands and the output to have it, and output has not",
        ),
        (
            Kernel("matmul", "f", ("lhs", "rhs", "clip", "output"), epilogue=("clip",)),
            "epilogue step 'clip', but no argument 'clip.alpha'",
        ),
    ],
)
def test_wrong_table(kernel: Kernel, message: str) -> None:
    with pytest.raises(LibraryError) as error:
        table(kernel)
    assert str(error.value).startswith(f"library table, kernel for {kernel.op}: ")
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"supports": lambda node: node.no_such_field},
            "supports failed: AttributeError: 'Node' obj",
        ),
        ({"supports": lambda node: False}, "supports of f answered False; return None or a reason"),
        ({"cost": lambda node: 1 / 0}, "cost failed: ZeroDivisionError: division by zero"),
    ],
)
def test_functions_that_fail(change: dict, message: str) -> None:
    node = node_of(matmul_with())
    with pytest.raises(LibraryError) as error:
        table(replace(PLAIN, **change)).cost(node)
    assert str(error.value).startswith(f"library table, ext.matmul: {message}")


@pytest.mark.parametrize(
    ("pack", "message"),
    [
        (lambda array, node: array @ array, "lowering failed: ValueError: matmul"),
        (
            lambda array, node: [1.0],
            "lowering failed: TypeError: pack of rhs gave list; need an arr",
        ),
    ],
)
def test_packing_that_fails(pack, message: str, tmp_path: Path) -> None:
    library = table(replace(PLAIN, pack={"rhs": pack}))
    before = dict(registry._loaded)
    registry._loaded[library.name] = library
    try:
        with pytest.raises(LibraryError, match=r"^library table, ext.matmul: " + message):
            CompiledRegions([region_of(matmul_with(), library)], tmp_path, (library,))
    finally:
        registry._loaded.clear()
        registry._loaded.update(before)
