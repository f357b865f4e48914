"""``byoc.verify``: right libraries hold, and each kind of wrong answer is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper
import pytest
from click.testing import CliRunner

import byoc
from byoc import verification
from byoc.cli import cli, main
from byoc.frontends.onnx import references
from byoc.frontends.onnx.dynamic_axes import sizes_to_try
from codegen_cc.link.checksum import seal
from tests.deploy.networks import inputs_of_two_by_two, two_by_two

_F = onnx.TensorProto.FLOAT


def _model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[int | str]]],
    outputs: dict[str, tuple[int, list[int | str]]],
    **weights: np.ndarray,
) -> onnx.ModelProto:
    value = oh.make_tensor_value_info
    graph = oh.make_graph(
        nodes,
        "g",
        [value(name, *kind) for name, kind in inputs.items()],
        [value(name, *kind) for name, kind in outputs.items()],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)


def _scaled(factor: float, name: str = "x") -> onnx.ModelProto:
    """[n, 3] times a constant, and a comparison with 0."""
    return _model(
        [oh.make_node("Mul", [name, "k"], ["y"]), oh.make_node("Greater", ["y", "zero"], ["b"])],
        {name: (_F, ["n", 3])},
        {"y": (_F, ["n", 3]), "b": (onnx.TensorProto.BOOL, ["n", 3])},
        k=np.array(factor, np.float32),
        zero=np.array(0, np.float32),
    )


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Times 2, with a symbolic axis."""
    path = tmp_path_factory.mktemp("scaled") / "scaled.so"
    byoc.compile(_scaled(2), path, {"x": ["n", 3]})
    return path


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two inputs and two outputs of fixed shape."""
    path = tmp_path_factory.mktemp("two") / "two.so"
    assert len(byoc.compile(two_by_two(), path).report.regions) == 1
    return path


def test_a_right_library_holds(two: Path) -> None:
    found = byoc.verify(two_by_two(), two)
    assert found.holds and found.reference.startswith("ONNX Runtime ")
    (run,) = found.runs
    assert [check.name for check in run.outputs] == ["probabilities", "mean"]
    assert all(0 <= check.error < 1e-5 and check.tolerance == 1e-4 for check in run.outputs)
    assert not byoc.verify(two_by_two(), two, tolerance=0).holds


def test_symbolic_axes_are_tried_at_several_sizes(scaled: Path) -> None:
    found = byoc.verify(_scaled(2), scaled, seed=7)
    assert found.holds
    assert [run.sizes["n"] for run in found.runs] == [1, 2, 5, 16]
    assert sizes_to_try("height", 32, [1, 2, 5, 16]) == [2, 3, 4, 7]
    assert sizes_to_try("n", 1, [1, 2, 5, 16]) == [1, 2, 5, 16]
    given = byoc.verify(_scaled(2), scaled, {"x": np.ones((4, 3), np.float32)})
    assert [run.outputs[0].shape for run in given.runs] == [(4, 3)]


@pytest.mark.parametrize("factor", [2.01, -2, float("nan")])
def test_wrong_numbers_are_found(factor: float, scaled: Path) -> None:
    found = byoc.verify(_scaled(factor), scaled)
    assert not found.holds
    y, b = found.runs[-1].outputs
    if factor == 2.01:
        assert b.holds and not y.problem and y.error == pytest.approx(0.005, rel=0.9)
    elif factor == -2:
        assert y.error > 0.5 and "elements differ" in b.problem
    else:
        assert y.problem == "NaN or infinity is at other places"


def test_other_shapes_and_dtypes_are_found() -> None:
    limits = verification.TOLERANCES
    want = np.zeros((2, 3), np.float32)
    for mine, problem in (
        (want.T, r"float32[3, 2]; need float32[2, 3]"),
        (want.astype(np.float64), "it is float64[2, 3]; need float32[2, 3]"),
        (None, "does not give it"),
    ):
        check = verification._check("y", mine, want, limits)
        assert problem in check.problem and not check.holds
    assert verification._check("y", want, want, limits).holds
    assert verification._check("y", want[:0], want[:0], limits).holds
    ramp = np.linspace(0, 1, 9).astype("f2")
    half = verification._check("y", ramp, ramp + np.float16(1e-3), limits)
    assert half.holds and half.tolerance == 5e-3
    infinite = np.array([np.inf, -np.inf, np.nan, 1], np.float32)
    assert verification._check("y", infinite, infinite, limits).holds
    assert not verification._check("y", -infinite, infinite, limits).holds


def test_small_results_of_sigmoid_may_be_rounded() -> None:
    """By the reference: 1017 steps of 2^-25 where the right number is 1016.06 of them."""
    nodes = [oh.make_node("Sigmoid", ["x"], ["y"]), oh.make_node("Exp", ["x"], ["z"])]
    values = [oh.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in "xyz"]
    model = oh.make_model(oh.make_graph(nodes, "g", values[:1], values[1:]))
    rounding = references.rounding_of(model.graph)
    assert rounding == {"y": references.SIGMOID_ERROR}
    right = np.float32([1e-9, 3.01e-5])
    limits = verification.TOLERANCES
    for off, holds in ((1.5e-7, True), (3e-7, False)):
        shifted = right + np.float32(off)
        assert verification._check("y", right, shifted, limits, rounding["y"]).holds is holds
        assert not verification._check("z", right, shifted, limits, 0.0).holds


def test_without_onnx_runtime_the_evaluator_judges(
    scaled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    found = byoc.verify(_scaled(2), scaled)
    assert found.holds and found.reference.startswith("ONNX's reference evaluator ")
    assert not byoc.verify(_scaled(3), scaled).holds


def test_what_cannot_be_compared_is_refused(scaled: Path, two: Path, tmp_path: Path) -> None:
    with pytest.raises(byoc.VerifyError, match="compiled from another model: input 'z'"):
        byoc.verify(_scaled(2, "z"), scaled)
    unknown = _model(
        [oh.make_node("Unheard", ["x"], ["y"], domain="of.nobody")],
        {"x": (_F, ["n", 3])},
        {"y": (_F, ["n", 3])},
    )
    unknown.opset_import.append(oh.make_opsetid("of.nobody", 1))
    with pytest.raises(byoc.VerifyError, match="no reference can compute the model: "):
        byoc.verify(unknown, scaled)
    foreign = bytearray(two.read_bytes())
    foreign[18:20] = (183).to_bytes(2, "little")  # AArch64
    (tmp_path / "foreign.so").write_bytes(foreign)
    seal(tmp_path / "foreign.so")
    with pytest.raises(byoc.LoadError, match="it is for aarch64"):
        byoc.verify(two_by_two(), tmp_path / "foreign.so")
    for options, said in (
        ({"tolerance": -1}, "tolerance is -1; need a number of 0 or more"),
        ({"tolerance": float("nan")}, "tolerance is nan"),
        ({"seed": "x"}, "seed is 'x'"),
        ({"inputs": {"no": np.zeros(1)}}, "unknown input 'no'"),
        ({"inputs": 5}, "inputs is 5; need a dictionary of arrays by name, or an .npz file"),
        ({"inputs": tmp_path / "no.npz"}, "cannot read inputs .*no.npz: no such file"),
    ):
        with pytest.raises(byoc.ByocError, match=said):
            byoc.verify(two_by_two(), two, **options)


def test_the_verb_prints_and_exits_with_the_answer(two: Path, tmp_path: Path) -> None:
    onnx.save(two_by_two(), tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", **inputs_of_two_by_two(3))
    command = ["verify", str(tmp_path / "m.onnx"), str(two), "-i", str(tmp_path / "in.npz")]
    done = CliRunner().invoke(cli, command, standalone_mode=False)
    assert done.return_value == 0
    assert done.output.startswith("agrees with ONNX Runtime ") and "probabilities" in done.output
    wrong = CliRunner().invoke(cli, [*command, "--tolerance", "0"], standalone_mode=False)
    assert wrong.return_value == 1 and "does not agree with ONNX Runtime" in wrong.output
    told = json.loads(CliRunner().invoke(cli, [*command, "--json"]).output)
    assert told["holds"] and [o["name"] for o in told["runs"][0]["outputs"]] == [
        "probabilities",
        "mean",
    ]
    assert main(["verify", str(tmp_path / "no.onnx"), str(two)]) == 2


def test_compile_verifies_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(two_by_two(), tmp_path / "m.onnx")
    command = ["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.so"), "--verify"]
    assert main(command) == 0
    assert "agrees with ONNX Runtime " in capsys.readouterr().out
    monkeypatch.setattr(verification, "TOLERANCES", {"float32": 0.0})
    assert main([*command, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verified"]["holds"] is False
    for more in (["--target", "aarch64-linux-gnu"], ["--emit", "standalone"]):
        assert main([*command, *more]) == 2
        assert "--verify runs the library here" in capsys.readouterr().err


@pytest.mark.parametrize("axis", [-1, 0])
def test_places_of_values_that_tie_may_be_others(axis: int) -> None:
    """Rows of TopK with two equal values, and one as large as the last behind it."""
    values = np.array([[5, 3, 3, 1], [9, 8, 7, 6]], np.float32)
    theirs = np.array([[4, 2, 6, 0], [0, 1, 2, 3]])

    def ties(first: list[int], second: list[int]) -> bool:
        mine = np.array([first, second])
        rows = (np.moveaxis(a, -1, axis) for a in (mine, theirs, values))
        return verification.only_ties(*rows, 1e-4, axis)

    assert ties([4, 2, 6, 0], [0, 1, 2, 3]) and ties([4, 6, 2, 0], [0, 1, 2, 3])
    assert ties([4, 2, 6, 7], [0, 1, 2, 9])  # what is as large as the last one, behind it
    assert not ties([2, 4, 6, 0], [0, 1, 2, 3]) and not ties([4, 2, 6, 0], [0, 1, 3, 2])
    assert not ties([4, 9, 6, 0], [0, 1, 2, 3]) and not ties([4, 2, 2, 0], [0, 1, 2, 3])


def test_topk_of_sums_that_tie_holds(tmp_path: Path) -> None:
    """Scores of two equal columns differ by a rounding, and any order of the two is right."""
    weight = np.random.default_rng(0).standard_normal((64, 40)).astype(np.float32)
    weight[:, 20:] = weight[:, :20] * np.float32(1 + 1e-7)
    model = _model(
        [oh.make_node("MatMul", ["x", "w"], ["s"]), oh.make_node("TopK", ["s", "k"], ["v", "i"])],
        {"x": (_F, [8, 64])},
        {"v": (_F, [8, 11]), "i": (onnx.TensorProto.INT64, [8, 11])},
        w=weight,
        k=np.array([11]),
    )
    made = byoc.compile(model, tmp_path / "m.so")
    assert not made.report.left
    assert byoc.verify(model, tmp_path / "m.so").holds
