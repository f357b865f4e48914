"""A part of what ``make hostile`` tries with models."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import byoc
from tests.hostile import models
from tests.hostile.models import FINE, LENIENT, REFUSED, RIGHT, Case


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The model of images, and that of rows with hostile names."""
    return models.write_models(tmp_path_factory.mktemp("models"))


@pytest.mark.slow
def test_every_flipped_bit_ends_in_one_line_or_a_right_answer(paths: list[Path]) -> None:
    cases = [Case(path, None) for path in paths]
    cases += [case for path in paths for case in models.bits(path, 16, seed=3)]
    outcomes: dict[Case, str] = {}
    counts, bad = models.try_all(cases, seen=lambda c, outcome, _: outcomes.update({c: outcome}))
    assert bad == []
    assert sum(counts[outcome] for outcome in FINE) == len(cases)
    assert [outcomes[Case(path, None)] for path in paths] == [RIGHT, RIGHT]
    assert counts[REFUSED] > len(cases) / 3  # the damage is real
    assert counts[LENIENT] < 3


def test_hostile_names_do_nothing(paths: list[Path], tmp_path: Path) -> None:
    """Names from the model reach the C source, messages and files, and none does damage."""
    model = onnx.load(paths[1])
    inside = tmp_path / "a/b/c/d"
    inside.mkdir(parents=True)
    compiled = byoc.compile(
        model, inside / "m.so", dump_code=inside / "code", dump_ir=inside / "ir"
    )
    assert compiled.report.offloaded
    assert [info.name for info in byoc.load(inside / "m.so").inputs] == [model.graph.input[0].name]
    assert [at.name for at in tmp_path.rglob("*") if at.parent not in (inside, *_within(inside))
            and at not in (inside, *inside.parents)] == []  # fmt: skip
    for source in (inside / "code").rglob("*.c"):
        assert source.read_text().isascii() and "\x1b" not in source.read_text()


def _within(folder: Path) -> list[Path]:
    return [at for at in folder.rglob("*") if at.is_dir()]


def conv(**attributes: object) -> onnx.ModelProto:
    """The model of images, whose first node, a convolution, has these attributes instead."""
    model = models.image_model()
    for name, value in attributes.items():
        old = next((a for a in model.graph.node[0].attribute if a.name == name), None)
        if old is not None:
            model.graph.node[0].attribute.remove(old)
        model.graph.node[0].attribute.append(onnx.helper.make_attribute(name, value))
    return model


def holding_another() -> onnx.ModelProto:
    model = models.image_model()
    model.graph.node[0].attribute[0].type = onnx.AttributeProto.FLOAT
    return model


def untyped() -> onnx.ModelProto:
    model = models.image_model()
    model.graph.node[0].attribute[0].ClearField("type")
    return model


def newer() -> onnx.ModelProto:
    model = models.image_model()
    model.ir_version = onnx.IR_VERSION + 1
    return model


def without_branch() -> onnx.ModelProto:
    model = models.row_model()
    node = next(node for node in model.graph.node if node.op_type == "If")
    branch = next(a for a in node.attribute if a.name == "else_branch")
    branch.name = "else_brinch"
    return model


def strange_branch() -> onnx.ModelProto:
    model = models.row_model()
    node = next(node for node in model.graph.node if node.op_type == "If")
    branch = next(a for a in node.attribute if a.name == "else_branch")
    branch.g.node[0].op_type = "Sagmoid"
    return model


def below_zero() -> onnx.ModelProto:
    model = models.image_model()
    attribute = next(a for a in model.graph.node[-1].attribute if a.name == "kernel_shape")
    attribute.ints[:] = [18, 3]
    return model


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: conv(kernel_shape=[3, 2]), "the weight is [3, 3]"),
        (lambda: conv(kernel_shape=[3]), "needs 2 numbers"),
        (lambda: conv(strides=[1, 1, 1]), "needs 2 numbers"),
        (lambda: conv(group=1.0), "is of type FLOAT and should be INT"),
        (holding_another, "is of type FLOAT and holds ints"),
        (untyped, "is of no type"),
        (newer, "of the format, and the installed package"),
        (without_branch, "lacks the attribute 'else_branch'"),
        (strange_branch, "has no such operator"),
        (below_zero, "gives shape [1, 8, -"),
    ],
)
def test_what_onnx_calls_invalid_is_refused(model: object, words: str) -> None:
    with pytest.raises(byoc.ByocError) as caught:
        byoc.compile(model())  # type: ignore[operator]
    assert words in str(caught.value) and str(caught.value).isprintable()


@pytest.mark.parametrize("name", [b"offset", b"kernel_shape", b"AveragePool"])
def test_a_text_that_is_none_is_refused(paths: list[Path], tmp_path: Path, name: bytes) -> None:
    path = paths[name == b"offset"]
    for beside in path.parent.glob("*.data"):
        (tmp_path / beside.name).write_bytes(beside.read_bytes())
    content = path.read_bytes()
    assert name in content
    (tmp_path / "m.onnx").write_bytes(content.replace(name, b"\xff" + name[1:], 1))
    with pytest.raises(byoc.ByocError, match="not UTF-8"):
        byoc.compile(tmp_path / "m.onnx")


def test_external_data_under_another_key_is_refused(paths: list[Path], tmp_path: Path) -> None:
    """Without its offset, a weight would be read from the beginning of the file."""
    for beside in paths[1].parent.glob("*.data"):
        (tmp_path / beside.name).write_bytes(beside.read_bytes())
    (tmp_path / "m.onnx").write_bytes(paths[1].read_bytes().replace(b"offset", b"offsat", 1))
    with pytest.raises(byoc.ByocError, match="describes its external data by"):
        byoc.compile(tmp_path / "m.onnx")
