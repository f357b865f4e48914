"""Operators of users' own domains, in ONNX files and in PyTorch, computed by users' kernels."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx import helper as oh

import byoc
from byoc.cli import main
from byoc.errors import ByocError, CompileError, ImportFailure, UnsupportedForm, VerifyError
from byoc.library import Custom, Kernel, Library, LibraryError, Link, Operator

pytestmark = pytest.mark.usefixtures("forget_operators")

HEADER = """
#include <stdint.h>
int own_histogram(const float* x, const float* weight, int64_t bins, float top, int64_t size,
                  int32_t* counts, float* most);
int own_pairs(const float* x, int64_t rows, int64_t half, float* y);
"""
SOURCE = """
#include "own.h"
int own_histogram(const float* x, const float* weight, int64_t bins, float top, int64_t size,
                  int32_t* counts, float* most) {
  *most = 0;
  for (int64_t i = 0; i < bins; i++) counts[i] = 0;
  for (int64_t i = 0; i < size; i++) {
    int64_t bin = (int64_t)(x[i] / top * (float)bins);
    counts[bin < bins ? bin : bins - 1] += weight ? (int32_t)weight[i] : 1;
  }
  for (int64_t i = 0; i < bins; i++) *most = counts[i] > *most ? (float)counts[i] : *most;
  return 0;
}
int own_pairs(const float* x, int64_t rows, int64_t half, float* y) {
  for (int64_t i = 0; i < rows * half; i++) y[i] = x[2 * i] + x[2 * i + 1];
  return 0;
}
"""


def bins_and_most(operands, attributes):
    return [((attributes["bins"],), "int32"), ((), "float32")]


def half_as_wide(operands, attributes):
    rows, columns = operands["input"].shape
    if isinstance(columns, int) and columns % 2:
        raise ValueError(f"{columns} columns; need pairs")
    return [((rows, columns // 2), "float32")]


HISTOGRAM = Operator(
    "histogram",
    roles=("input", "weight"),
    optional=("weight",),
    results=("counts", "most"),
    custom=Custom(
        ("com.acme::Histogram", "acme::histogram"),
        bins_and_most,
        {"bins": int, "top": 1.0},
    ),
)
PAIRS = Operator("pairs", roles=("input",), custom=Custom(["com.acme::Pairs"], half_as_wide))


def library(folder: Path, *operators: Operator, name: str = "own") -> Library:
    (folder / "own.c").write_text(SOURCE)
    (folder / "own.h").write_text(HEADER)
    link = Link(headers=("own.h",), include_dirs=(folder,), sources=(folder / "own.c",))
    told = ("input", "weight", "attr.bins", "attr.top", "input.0", "counts", "most")
    kernels = [
        Kernel("histogram", "own_histogram", told, dtypes={"counts": "int32"}),
        Kernel("pairs", "own_pairs", ("input", "output.0", "output.1", "output")),
    ]
    operators = operators or (HISTOGRAM, PAIRS)
    kernels = [kernel for kernel in kernels if kernel.op in {each.name for each in operators}]
    return Library(name, version="1", abi=1, link=link, operators=operators, kernels=kernels)


def model(nodes: list[onnx.NodeProto], shape: list, outputs: dict[str, int]) -> onnx.ModelProto:
    graph = oh.make_graph(
        nodes,
        "custom",
        [oh.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [oh.make_tensor_value_info(name, dtype, None) for name, dtype in outputs.items()],
    )
    imports = [oh.make_opsetid("", 17), oh.make_opsetid("com.acme", 1)]
    return oh.make_model(graph, opset_imports=imports, ir_version=9)


def histogram(**attributes) -> list[onnx.NodeProto]:
    """Its counts, squared, and the greatest count."""
    return [
        oh.make_node("Relu", ["x"], ["r"]),
        oh.make_node("Histogram", ["r"], ["h", "m"], name="hist", domain="com.acme", **attributes),
        oh.make_node("Cast", ["h"], ["f"], to=TensorProto.FLOAT),
        oh.make_node("Mul", ["f", "f"], ["y"]),
    ]


RNG = np.random.default_rng(3)
BOTH = {"y": TensorProto.FLOAT, "m": TensorProto.FLOAT}


@pytest.mark.parametrize("extent", [64, "n"])
def test_a_node_of_a_users_domain_is_part_of_a_region(extent: int | str, tmp_path: Path) -> None:
    own = library(tmp_path)
    done = byoc.compile(
        model(histogram(bins=8, top=2.0), [extent], BOTH),
        tmp_path / "m.so",
        libraries=[own, "builtin"],
    )
    assert done.report.offloaded == done.report.operators and len(done.report.regions) == 1
    assert "ext.histogram" in str(done.report.to_json())
    x = 2 * RNG.random(64, np.float32)
    found = byoc.load(tmp_path / "m.so").run({"x": x})
    counts = np.histogram(x, 8, (0, 2))[0]
    np.testing.assert_array_equal(found["y"], counts.astype(np.float32) ** 2)
    assert found["m"] == counts.max()


def test_sizes_follow_the_record(tmp_path: Path) -> None:
    """What reads the shape behind it is told: it would stay open otherwise."""
    nodes = [
        oh.make_node("Pairs", ["x"], ["p"], domain="com.acme"),
        oh.make_node("Shape", ["p"], ["s"]),
        oh.make_node("Pairs", ["p"], ["q"], domain="com.acme"),
        oh.make_node("Expand", ["one", "s"], ["e"]),
        oh.make_node("ReduceSum", ["q"], ["t"], keepdims=1),
        oh.make_node("Mul", ["e", "t"], ["y"]),
    ]
    given = model(nodes, ["n", 8], {"y": TensorProto.FLOAT})
    given.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(1, np.float32), "one"))
    own = library(tmp_path)
    done = byoc.compile(given, tmp_path / "m.so", libraries=[own, "builtin"])
    assert len(done.report.regions) == 1 and not done.report.left
    x = RNG.standard_normal((3, 8)).astype(np.float32)
    (found,) = byoc.load(tmp_path / "m.so").run({"x": x}).values()
    np.testing.assert_allclose(found, np.full((3, 4), x.sum()), rtol=1e-5)


def test_a_kernel_comes_before_a_function_of_the_file(tmp_path: Path) -> None:
    """The function serves those who have no kernel, ONNX Runtime among them: ``verify`` does."""
    function = oh.make_function(
        "com.acme",
        "Pairs",
        ["a"],
        ["b"],
        [
            oh.make_node("Constant", [], ["to"], value_ints=[0, -1, 2]),
            oh.make_node("Reshape", ["a", "to"], ["c"]),
            oh.make_node("Constant", [], ["last"], value_ints=[2]),
            oh.make_node("ReduceSum", ["c", "last"], ["b"], keepdims=0),
        ],
        [oh.make_opsetid("", 17)],
    )
    given = model(
        [oh.make_node("Pairs", ["x"], ["y"], domain="com.acme")],
        [3, 8],
        {"y": TensorProto.FLOAT},
    )
    given.functions.append(function)
    done = byoc.compile(
        given, tmp_path / "m.so", libraries=[library(tmp_path), "builtin"], verify=True
    )
    (kernel,) = done.report.kernels
    assert kernel.library == "own" and kernel.nodes == 1


@pytest.mark.parametrize("is_right", [True, False])
def test_a_reference_in_numpy(is_right: bool, tmp_path: Path) -> None:
    def counted(x, weight, bins, top):
        assert weight is None
        places = np.minimum((x / np.float32(top) * bins).astype(int), bins - 1)
        counts = np.bincount(places, minlength=bins).astype(np.int32)
        return counts + (not is_right), np.float32(counts.max())

    record = replace(HISTOGRAM, custom=replace(HISTOGRAM.custom, reference=counted))
    given = model(histogram(bins=8, top=2.0), [64], BOTH)
    keywords = {"libraries": [library(tmp_path, record), "builtin"], "verify": True}
    if is_right:
        byoc.compile(given, tmp_path / "m.so", **keywords)
    else:
        with pytest.raises(VerifyError, match="output 'y': it is off by"):
            byoc.compile(given, tmp_path / "m.so", **keywords)


def test_verifying_without_a_reference_asks_for_one(tmp_path: Path) -> None:
    keywords = {"libraries": [library(tmp_path), "builtin"], "verify": True}
    said = r"Histogram of domain 'com.acme' \(node 'hist'\): its record has no reference; give Cust"
    with pytest.raises(VerifyError, match=said):
        byoc.compile(model(histogram(bins=8), [64], BOTH), tmp_path / "m.so", **keywords)


def test_in_a_branch(tmp_path: Path) -> None:
    value = oh.make_tensor_value_info("b", TensorProto.FLOAT, None)
    pairs = oh.make_graph(
        [oh.make_node("Pairs", ["x"], ["b"], domain="com.acme")], "t", [], [value]
    )
    plain = oh.make_graph(
        [oh.make_node("Slice", ["x", "zero", "four", "axis"], ["b"])],
        "e",
        [],
        [value],
        [
            onnx.numpy_helper.from_array(np.array([number]), name)
            for name, number in (("zero", 0), ("four", 4), ("axis", 1))
        ],
    )
    nodes = [
        oh.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        oh.make_node("Greater", ["sum", "none"], ["c"]),
        oh.make_node("If", ["c"], ["y"], then_branch=pairs, else_branch=plain),
    ]
    given = model(nodes, [3, 8], {"y": TensorProto.FLOAT})
    given.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(0), "none"))
    byoc.compile(given, tmp_path / "m.so", libraries=[library(tmp_path), "builtin"])
    x = np.abs(RNG.standard_normal((3, 8)).astype(np.float32))
    with byoc.load(tmp_path / "m.so") as loaded:
        np.testing.assert_allclose(loaded.run({"x": x})["y"], x[:, ::2] + x[:, 1::2], rtol=1e-6)
        np.testing.assert_array_equal(loaded.run({"x": -x})["y"], -x[:, :4])


@pytest.mark.parametrize(
    ("nodes", "error", "said"),
    [
        (
            histogram(),
            UnsupportedForm,
            r"of domain 'com.acme' \(node 'hist'\): attribute 'bins' is missing",
        ),
        (histogram(bins=1.5), UnsupportedForm, "attribute 'bins' is 1.5; need int"),
        (
            histogram(bins=8, more=1),
            UnsupportedForm,
            "'more' is unknown; its record has bins, top",
        ),
        (histogram(bins=-1), UnsupportedForm, r"results of its record gave the shape \[-1\]"),
        (
            [oh.make_node("Histogram", ["x", "x", "x"], ["m", "y"], domain="com.acme", bins=1)],
            UnsupportedForm,
            "has 3 inputs; its record has 2",
        ),
        (
            [oh.make_node("Pairs", ["x"], ["y"], name="p", domain="com.acme")],
            UnsupportedForm,
            r"Pairs of domain 'com.acme' \(node 'p'\): not enough values to unpack",
        ),
        (
            [oh.make_node("Other", ["x"], ["y"], name="o", domain="com.acme")],
            ImportFailure,
            r"Other of domain 'com.acme' \(node 'o'\); .* or bring a kernel for it",
        ),
    ],
)
def test_what_does_not_fit_the_record_is_refused(
    nodes: list[onnx.NodeProto], error: type[ByocError], said: str, tmp_path: Path
) -> None:
    outputs = {name: TensorProto.FLOAT for name in nodes[-1].output}
    with pytest.raises(error, match=said) as raised:
        byoc.compile(
            model(nodes, [64], outputs),
            tmp_path / "m.so",
            libraries=[library(tmp_path), "builtin"],
        )
    assert "\n" not in str(raised.value) and not (tmp_path / "m.so").exists()


def test_what_no_kernel_takes_is_refused(tmp_path: Path) -> None:
    """TVM has no code for it, so that it cannot stay there."""
    own = library(tmp_path)
    given = model(histogram(bins=8), [64], BOTH)
    with pytest.raises(CompileError, match="library own has it and is not asked; need --library"):
        byoc.compile(given, tmp_path / "m.so")
    told = ("input", "input.0", "counts", "most")
    short = Kernel("histogram", "own_histogram", told, dtypes={"counts": "int32"})
    own.kernels = (short,)
    with pytest.raises(CompileError, match=r"no kernel computes hist .*bins is 8, which own_hist"):
        byoc.compile(given, tmp_path / "m.so", libraries=[own, "builtin"])
    assert not (tmp_path / "m.so").exists()


def test_the_command_reads_the_library_before_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_table.py").write_text(
        "from pathlib import Path\n"
        "from tests.libraries.test_custom_operators import library\n"
        "LIBRARY = library(Path(__file__).parent, name='own_table')\n"
    )
    onnx.save(model(histogram(bins=8), [64], BOTH), tmp_path / "m.onnx")
    given = [str(tmp_path / "m.onnx"), "--library", f"{tmp_path / 'own_table.py'},builtin"]
    assert main(["partition", *given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left"] == []
    assert main(["tune", *given, "--db", str(tmp_path / "db.json"), "--quiet"]) == 0


@pytest.mark.parametrize(
    ("custom", "said"),
    [
        (Custom((), half_as_wide), "names of custom is"),
        (Custom("com.acme::A", half_as_wide), "need a list of names"),
        (Custom(["Pairs"], half_as_wide), "'Pairs' is no name; need domain::Name"),
        (Custom(["ai.onnx::Relu"], half_as_wide), "'ai.onnx::Relu' is not yours"),
        (Custom(["ai.onnx.ml::Scaler"], half_as_wide), "'ai.onnx.ml::Scaler' is not yours"),
        (Custom(["a::B"], None), "results of custom is None"),
        (Custom(["a::B"], half_as_wide, reference=3), "reference of custom is 3"),
        (Custom(["a::B"], half_as_wide, {"k": None}), "attribute 'k' is None; need a type"),
        (Custom(["a::B"], half_as_wide, {"k": []}), r"attribute 'k' is \[\]; need a type"),
        (
            Custom(["com.acme::Pairs"], half_as_wide),
            "is operator 'pairs' already",
        ),
    ],
)
def test_bad_records(custom: Custom, said: str, tmp_path: Path) -> None:
    library(tmp_path)
    with pytest.raises(LibraryError, match=said):
        library(tmp_path, Operator("other", roles=("input",), custom=custom))


@pytest.mark.parametrize(
    ("results", "said"),
    [
        (lambda operands, attributes: [((2,), "float32")] * 2, "gave 2; need 1"),
        (lambda operands, attributes: [((2,), "floaty")], "gave the dtype 'floaty'"),
        (lambda operands, attributes: [(("a",), "float32")], "failed: TypeError: 'str'"),
        (lambda operands, attributes: operands["nope"], "failed: KeyError: 'nope'"),
    ],
)
def test_results_that_are_none(results: Callable, said: str, tmp_path: Path) -> None:
    wrong = Operator("pairs", roles=("input",), custom=Custom(["com.acme::Pairs"], results))
    given = [oh.make_node("Pairs", ["x"], ["y"], domain="com.acme")]
    with pytest.raises(UnsupportedForm, match=said):
        byoc.compile(
            model(given, [3, 8], {"y": TensorProto.FLOAT}),
            tmp_path / "m.so",
            libraries=[library(tmp_path, wrong), "builtin"],
        )
