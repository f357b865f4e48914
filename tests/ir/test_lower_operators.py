"""Nodes of every dtype, lowered, compiled and compared with numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from codegen_cc import supports
from codegen_cc.dim import symbol
from codegen_cc.node import Node, Operand, Step
from codegen_cc.region.graph import Value
from tests.ir.regions import RegionBuilder
from tests.ir.run_regions import CompiledRegions

Build = Callable[[RegionBuilder, list[Value]], Value]
Reference = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Case:
    """A region of ``inputs``, the kernels that it must call, and its formula."""

    name: str
    inputs: tuple[np.ndarray, ...]
    build: Build
    reference: Reference
    functions: tuple[str, ...]


_RNG = np.random.default_rng(20)


def floats(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(np.float32)


def integers(dtype: str, low: int, high: int, *shape: int) -> np.ndarray:
    return _RNG.integers(low, high, shape).astype(dtype)


def bools(*shape: int) -> np.ndarray:
    return _RNG.integers(0, 2, shape).astype(bool)


def one(op: str, roles: str, shape, dtype="float32", epilogue=(), **attrs) -> Build:
    """A region of one node whose operands are the inputs."""

    def build(b: RegionBuilder, values: list[Value]) -> Value:
        operands = dict(zip(roles.split(), values, strict=True))
        return b.add(op, operands, shape, epilogue, dtype, **attrs)

    return build


def turned(inner: Build) -> Build:
    """The same with the first input as a channels-last view of itself."""

    def build(b: RegionBuilder, values: list[Value]) -> Value:
        n, h, w, c = values[0].shape
        x = values[0]
        view = b.add("permute", {"input": x}, (n, c, h, w), dtype=x.dtype, axes=[0, 3, 1, 2])
        return inner(b, [view, *values[1:]])

    return build


TABLE = floats(11, 6)


def _embedding(b: RegionBuilder, values: list[Value]) -> Value:
    return b.add("take", {"input": b.value(TABLE), "indices": values[0]}, (2, 5, 6), axis=0)


def _moved(dtype: str) -> Build:
    def build(b: RegionBuilder, values: list[Value]) -> Value:
        x = values[0]
        turn = b.add("permute", {"input": x}, (4, 2, 3), dtype=dtype, axes=[2, 0, 1])
        both = b.add("concat", {"input0": turn, "input1": turn}, (4, 4, 3), dtype=dtype, axis=1)
        part = {"begin": [0, 1, 0], "end": [4, 4, 3], "strides": [2, 1, 2]}
        cut = b.add("slice", {"input": both}, (2, 3, 2), dtype=dtype, **part)
        wide = b.add("broadcast_to", {"input": cut}, (5, 2, 3, 2), dtype=dtype)
        return b.add("reshape", {"input": wide}, (10, 6), dtype=dtype)

    return build


def _moved_reference(x: np.ndarray) -> np.ndarray:
    turn = x.transpose(2, 0, 1)
    cut = np.concatenate([turn, turn], 1)[::2, 1:4, ::2]
    return np.broadcast_to(cut, (5, 2, 3, 2)).reshape(10, 6)


MOVED = [
    Case(f"move_{v.dtype}", (v,), _moved(str(v.dtype)), _moved_reference, ("ext_copy",) * 3)
    for v in (
        floats(2, 3, 4),
        integers("int32", -9, 9, 2, 3, 4),
        integers("int64", -(1 << 40), 1 << 40, 2, 3, 4),
        bools(2, 3, 4),
    )
]

TAKE = [
    Case(
        f"embedding_{dtype}",
        (integers(dtype, -11, 11, 2, 5),),
        _embedding,
        lambda i: TABLE[i],
        ("ext_take",),
    )
    for dtype in ("int32", "int64")
] + [
    Case(
        "take_of_integers",
        (integers("int64", -99, 99, 3, 4, 2), integers("int32", -4, 4, 5)),
        one("take", "input indices", (3, 5, 2), "int64", axis=1),
        lambda x, i: x[:, i],
        ("ext_take",),
    ),
    Case(
        "take_one",
        (floats(3, 4), np.array(-1, np.int64)),
        one("take", "input indices", (3,), axis=1),
        lambda x, i: x[:, -1],
        ("ext_take",),
    ),
]

CAST = [
    Case(
        f"cast_{x.dtype}_{to}",
        (x,),
        one("cast", "input", x.shape, to),
        lambda x, to=to: x.astype(to),
        ("ext_cast",) if str(x.dtype) != to else ("ext_copy",),
    )
    for x in (
        floats(3, 5) * 9,
        integers("int32", -3, 3, 3, 5),
        integers("int64", -3, 3, 7),
        bools(6),
    )
    for to in ("float32", "int32", "int64", "bool")
]

LOGIC = [
    Case(
        "less_with_a_scalar",
        (floats(3, 5), np.array(0.25, np.float32)),
        one("compare", "lhs rhs", (3, 5), "bool", kind="less"),
        np.less,
        ("ext_compare",),
    ),
    Case(
        "equal_integers",
        (integers("int64", 0, 3, 4, 1), integers("int64", 0, 3, 1, 6)),
        one("compare", "lhs rhs", (4, 6), "bool", kind="equal"),
        np.equal,
        ("ext_compare",),
    ),
    Case(
        "xor",
        (bools(9), bools(9)),
        one("logical", "lhs rhs", (9,), "bool", kind="xor"),
        np.logical_xor,
        ("ext_compare",),
    ),
    Case(
        "and",
        (bools(2, 1), bools(3)),
        one("logical", "lhs rhs", (2, 3), "bool", kind="and"),
        np.logical_and,
        ("ext_compare",),
    ),
    Case(
        "not",
        (bools(3, 7),),
        one("unary", "input", (3, 7), "bool", kind="not"),
        np.logical_not,
        ("ext_compare",),
    ),
    Case(
        "where",
        (bools(2, 1, 4), floats(3, 1), floats(2, 3, 4)),
        one("where", "condition lhs rhs", (2, 3, 4)),
        np.where,
        ("ext_where",),
    ),
    Case(
        "where_of_integers_channels_last",
        (bools(1, 4, 5, 3), integers("int64", 0, 9, 1), integers("int64", 0, 9, 1, 3, 4, 5)),
        turned(one("where", "condition lhs rhs", (1, 3, 4, 5), "int64")),
        lambda c, a, b: np.where(c.transpose(0, 3, 1, 2), a, b),
        ("ext_copy", "ext_where"),
    ),
    Case(
        "integer_product",
        (integers("int32", -9, 9, 2, 3), integers("int32", -9, 9, 3)),
        one("binary", "lhs rhs", (2, 3), "int32", kind="mul"),
        np.multiply,
        ("ext_binary",),
    ),
    Case(
        "prelu_per_channel",
        (floats(1, 4, 5, 3), floats(3, 1, 1)),
        turned(one("binary", "lhs rhs", (1, 3, 4, 5), kind="prelu")),
        lambda x, s: np.where(x < 0, x * s.reshape(3), x).transpose(0, 3, 1, 2),
        ("ext_binary", "ext_copy"),
    ),
]


def _rms(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * GAMMA


GAMMA = floats(6)


def _rms_build(b: RegionBuilder, values: list[Value]) -> Value:
    operands = {"input": values[0], "gamma": b.value(GAMMA)}
    return b.add("rms_norm", operands, values[0].shape, axes=[2], epsilon=1e-5)


WEIGHT = floats(5, 7)


def _matmul_mish(b: RegionBuilder, values: list[Value]) -> Value:
    operands = {"lhs": values[0], "rhs": b.value(WEIGHT)}
    return b.add("matmul", operands, (3, 7), [Step("mish")])


def _mish(x: np.ndarray) -> np.ndarray:
    return x * np.tanh(np.logaddexp(0, x))


ROWS = [
    Case("rms_norm", (floats(2, 5, 6),), _rms_build, _rms, ("ext_rms_norm",)),
    Case("matmul_mish", (floats(3, 5),), _matmul_mish, lambda x: _mish(x @ WEIGHT),
         ("ext_matmul_packed",)),
    Case("elu", (floats(40),), one("unary", "input", (40,), kind="elu", alpha=0.5, beta=0.0),
         lambda x: np.where(x < 0, 0.5 * np.expm1(x), x), ("ext_unary",)),
    Case("product", (floats(2, 3, 4),),
         one("reduce", "input", (2, 4), kind="prod", axes=[1], keepdims=False),
         lambda x: x.prod(1), ("ext_reduce",)),
    *(
        Case(f"{kind}_of_integers", (integers("int64", -9, 9, 3, 4, 5),),
             one("reduce", "input", (3, 1, 5), "int64", kind=kind, axes=[1], keepdims=True),
             lambda x, kind=kind: getattr(x, kind)(1, keepdims=True), ("ext_reduce_integers",))
        for kind in ("sum", "max", "min", "prod")
    ),
    Case("argmax", (integers("int32", 0, 3, 4, 5, 6).astype(np.float32),),
         one("argreduce", "input", (4, 6), "int64", kind="argmax", axis=1, keepdims=False),
         lambda x: x.argmax(1), ("ext_argreduce",)),
    Case("argmin_channels_last", (floats(2, 4, 5, 9),),
         turned(one("argreduce", "input", (2, 1, 4, 5), "int64", kind="argmin", axis=1,
                    keepdims=True)),
         lambda x: x.argmin(3)[:, None], ("ext_argreduce",)),
    Case("cumsum", (floats(3, 4, 5),),
         one("cumsum", "input", (3, 4, 5), axis=1, exclusive=False, reverse=False),
         lambda x: x.cumsum(1), ("ext_cumsum",)),
    Case("cumsum_backwards", (floats(3, 4),),
         one("cumsum", "input", (3, 4), axis=1, exclusive=True, reverse=True),
         lambda x: x[:, ::-1].cumsum(1)[:, ::-1] - x, ("ext_cumsum",)),
    Case("cumsum_of_integers", (integers("int32", -9, 9, 3, 4),),
         one("cumsum", "input", (3, 4), "int32", axis=0, exclusive=False, reverse=False),
         lambda x: x.cumsum(0, np.int32), ("ext_cumsum_integers",)),
]  # fmt: skip


def _attention(mask_shape: tuple[int, ...] | None) -> Build:
    def build(b: RegionBuilder, values: list[Value]) -> Value:
        heads = []
        for value in values[:3]:
            n, rows, width = value.shape
            split = b.add("reshape", {"input": value}, (n, rows, 2, width // 2))
            shape = (n, 2, rows, width // 2)
            heads.append(b.add("permute", {"input": split}, shape, axes=[0, 2, 1, 3]))
        operands = dict(zip(("query", "key", "value"), heads, strict=True))
        if mask_shape is not None:
            operands["mask"] = values[3]
        n, _, rows, width = (*heads[0].shape[:3], heads[2].shape[3])
        mixed = b.add("attention", operands, (n, 2, rows, width), scale=0.25)
        back = b.add("permute", {"input": mixed}, (n, rows, 2, width), axes=[0, 2, 1, 3])
        return b.add("reshape", {"input": back}, (n, rows, 2 * width))

    return build


def _attention_reference(q, k, v, mask=None) -> np.ndarray:
    q, k, v = (t.reshape(*t.shape[:2], 2, -1).transpose(0, 2, 1, 3) for t in (q, k, v))
    scores = 0.25 * (q @ k.swapaxes(-1, -2)) + (0 if mask is None else mask)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = weights / weights.sum(-1, keepdims=True) @ v
    return mixed.transpose(0, 2, 1, 3).reshape(q.shape[0], q.shape[2], -1)


ATTENTION = [
    Case("attention", (floats(2, 5, 8), floats(2, 7, 8), floats(2, 7, 6)), _attention(None),
         _attention_reference, ("ext_attention",)),
    Case("attention_masked",
         (floats(2, 5, 8), floats(2, 7, 8), floats(2, 7, 6), floats(2, 1, 1, 7)),
         _attention((2, 1, 1, 7)), _attention_reference, ("ext_attention",)),
]  # fmt: skip

PAD = [
    Case(
        f"pad_{mode}{'_channels_last' * last}",
        (floats(2, 5, 6, 3) if last else floats(2, 3, 5, 6),),
        (turned if last else lambda inner: inner)(
            one("pad", "input", (2, 3, 8, 7), pads=[0, 0, 1, 0, 0, 0, 2, 1], mode=mode, value=0.5)
        ),
        lambda x, mode=mode, last=last: np.pad(
            x.transpose(0, 3, 1, 2) if last else x,
            ((0, 0), (0, 0), (1, 2), (0, 1)),
            mode,
            **({"constant_values": 0.5} if mode == "constant" else {}),
        ),
        ("ext_pad", "ext_copy")[: 1 + last],
    )
    for mode in ("constant", "reflect", "edge", "wrap")
    for last in (False, True)
]

CASES = (*MOVED, *TAKE, *CAST, *LOGIC, *ROWS, *ATTENTION, *PAD)


def _symbolic_region():
    """Every family on a dimension that is known at run time only."""
    n = symbol("n")
    b = RegionBuilder("ext_symbolic")
    indices, keep = b.input(2, n, dtype="int64"), b.input(2, n, dtype="bool")
    rows = b.add("take", {"input": b.value(TABLE), "indices": indices}, (2, n, 6), axis=0)
    split = b.add("reshape", {"input": rows}, (2, n, 2, 3))
    heads = b.add("permute", {"input": split}, (2, 2, n, 3), axes=[0, 2, 1, 3])
    same = dict.fromkeys(("query", "key", "value"), heads)
    mixed = b.add("attention", same, (2, 2, n, 3), scale=0.5)
    sums = b.add("cumsum", {"input": mixed}, (2, 2, n, 3), axis=2, exclusive=False, reverse=False)
    wide = b.add("pad", {"input": sums}, (2, 2, n + 1, 3), pads=[0, 0, 0, 0, 0, 0, 1, 0],
                 mode="constant", value=2.0)  # fmt: skip
    last = b.add("argreduce", {"input": wide}, (2, 2, 3), dtype="int64", kind="argmax", axis=2,
                 keepdims=False)  # fmt: skip
    mask = b.add("reshape", {"input": keep}, (2, n, 1), dtype="bool")
    chosen = b.add("where", {"condition": mask, "lhs": rows, "rhs": b.value(GAMMA)}, (2, n, 6))
    return b.done(wide, last, chosen)


def _symbolic_reference(indices: np.ndarray, keep: np.ndarray) -> tuple[np.ndarray, ...]:
    rows = TABLE[indices]
    heads = rows.reshape(2, -1, 2, 3).transpose(0, 2, 1, 3)
    scores = 0.5 * (heads @ heads.swapaxes(-1, -2))
    weights = np.exp(scores)
    sums = (weights / weights.sum(-1, keepdims=True) @ heads).cumsum(2)
    wide = np.pad(sums, ((0, 0), (0, 0), (0, 1), (0, 0)), constant_values=2)
    return wide, wide.argmax(2), np.where(keep[..., None], rows, GAMMA)


@pytest.mark.parametrize("n", [1, 7, 40])
def test_a_dimension_may_be_known_at_run_time_only(compiled: CompiledRegions, n: int) -> None:
    inputs = integers("int64", 0, 11, 2, n), bools(2, n)
    got = compiled.run("ext_symbolic", *inputs, n=n)
    for result, want in zip(got, _symbolic_reference(*inputs), strict=True):
        np.testing.assert_allclose(result, want, rtol=2e-5, atol=2e-5)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> CompiledRegions:
    regions = []
    for case in CASES:
        b = RegionBuilder(f"ext_{case.name}")
        values = [
            b.input(*v.shape, name=f"x{i}", dtype=str(v.dtype)) for i, v in enumerate(case.inputs)
        ]
        regions.append(b.done(case.build(b, values)))
    regions.append(_symbolic_region())
    return CompiledRegions(regions, tmp_path_factory.mktemp("regions"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_operator(compiled: CompiledRegions, case: Case) -> None:
    assert tuple(compiled.functions[f"ext_{case.name}"]) == case.functions
    (got,) = compiled.run(f"ext_{case.name}", *case.inputs)
    want = np.asarray(case.reference(*case.inputs))
    assert got.shape == want.shape
    if got.dtype == np.float32:
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)
    else:
        np.testing.assert_array_equal(got, want)


def test_an_index_outside_raises(compiled: CompiledRegions) -> None:
    bad = np.full((2, 5), 11, np.int64)
    with pytest.raises(RuntimeError, match="take failed: an index lies outside of the axis"):
        compiled.run("ext_embedding_int64", bad)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (Node("where", tuple(Operand(r, (2,), "float32") for r in ("condition", "lhs", "rhs")),
              (2,), "float32"), "condition has dtype float32; need bool"),
        (Node("take", (Operand("input", (2,), "float32"), Operand("indices", (1,), "float32")),
              (1,), "float32", {"axis": 0}), "indices has dtype float32; need int32 or int64"),
        (Node("binary", tuple(Operand(r, (2,), "int64") for r in ("lhs", "rhs")), (2,), "int64",
              {"kind": "pow"}), "lhs has dtype int64; need float32"),
        (Node("compare", (Operand("lhs", (2,), "int64"), Operand("rhs", (2,), "int32")), (2,),
              "bool", {"kind": "less"}), "rhs has dtype int32; need int64"),
        (Node("softmax", (Operand("input", (2,), "int32"),), (2,), "int32",
              {"axis": 0, "log": False}), "input has dtype int32; need float32"),
        (Node("pad", (Operand("input", (3,), "float32"),), (9,), "float32",
              {"pads": [3, 3], "mode": "reflect", "value": 0.0}), "need less than its extent 3"),
    ],
    ids=lambda item: item if isinstance(item, str) else item.op,
)  # fmt: skip
def test_what_no_kernel_computes_has_a_reason(node: Node, reason: str) -> None:
    assert reason in (supports(node) or "")
