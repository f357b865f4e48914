"""Names that would act on a terminal, or be read as markup, are shown and nothing else."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest

from byoc.cli import main
from byoc.errors import OffloadWarning
from codegen_cc.printable import printable
from models.builder import GraphBuilder
from tests.test_tiny import tiny_model

#: Clear the screen, rename the window, turn the direction of writing, a bell, a line that pretends
#: to be another, markup of Rich's that closes what nobody opened, and the ends of other languages.
EVIL = "\x1b[2J\x1b]0;gone\x07 \u202e \r\nerror: fake [/red] [bold]%s */ \" ' :smile: \x9b1m"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every name in it is evil; one operator stays with TVM."""
    graph = GraphBuilder(f"g{EVIL}", 2)
    x = graph.input(f"x{EVIL}", (1, 4))
    y = graph.op("Softmax", graph.op("Relu", x), axis=1)
    graph.output(graph.op("Mod", y, graph.op("Exp", y), fmod=1), f"y{EVIL}", (1, 4))
    made = graph.build()
    for index, node in enumerate(made.graph.node):
        node.name = f"n{index}{EVIL}"
    path = tmp_path_factory.mktemp("terminal") / "m.onnx"
    onnx.save(made, path)
    return path


@pytest.fixture(scope="module")
def library(model: Path) -> Path:
    path = model.with_name("m.so")
    assert main(["compile", str(model), "-o", str(path)]) == 0
    return path


def require_harmless(capsys: pytest.CaptureFixture[str], shows: str = "\\x1b[2J") -> None:
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert all(c.isprintable() or c == "\n" for c in text)
        assert not any(line.startswith("error: fake") for line in text.splitlines())
    assert shows in said.out + said.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["compile", "{model}", "-o", "{folder}/again.so"],
        ["inspect", "{library}"],
        ["inspect", "{library}", "--json"],
        ["run", "{library}", "--print-top", "2"],
        ["run", "{library}", "--json"],
        ["partition", "{model}"],
        ["partition", "{model}", "--json"],
        ["profile", "{model}"],
    ],
    ids=lambda arguments: " ".join(arguments[::2]) if isinstance(arguments, list) else None,
)
def test_verbs(
    arguments: list[str],
    model: Path,
    library: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    capsys.readouterr()
    places = {"model": model, "library": library, "folder": tmp_path}
    code = main([argument.format(**places) for argument in arguments])
    said = capsys.readouterr()
    assert code == 0, said.err
    for text in (said.out, said.err):
        assert all(c.isprintable() or c == "\n" for c in text)
        assert not any(line.startswith("error: fake") for line in text.splitlines())


def test_names_are_shown_as_escapes(library: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["inspect", str(library)]) == 0
    require_harmless(capsys)
    assert main(["run", str(library)]) == 0
    require_harmless(capsys)


def test_errors_and_exceptions(
    library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import byoc

    capsys.readouterr()
    np.savez(tmp_path / "in.npz", **{"other\x1b[2J": np.zeros(1, np.float32)})
    assert main(["run", str(library), "-i", str(tmp_path / "in.npz")]) == 2
    require_harmless(capsys)
    loaded = byoc.load(library)
    for inputs in ({}, {"\x1b[2J": 1}, {loaded.inputs[0].name: np.zeros(3, np.float32)}):
        with pytest.raises(byoc.ByocError) as caught:
            loaded.run(inputs)
        assert str(caught.value).isprintable()
    assert repr(loaded).isprintable()


def test_printable() -> None:
    assert printable("naïve 名前 ✓") == "naïve 名前 ✓"
    assert printable("a\nb\tc", keep="\n") == "a\nb\\tc"
    assert printable("\x1b\x9b\u202e\ud800\x7f") == "\\x1b\\x9b\\u202e\\ud800\\x7f"


@pytest.mark.parametrize("verbose", [False, True])
def test_messages_of_tvm_are_shown_with_v_alone(
    verbose: bool,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Written by compiled code to file 2, or warned of by Python code of TVM's."""
    import byoc.compiler.compile as compiling

    lower = compiling._lower

    def talkative(*arguments: object) -> object:
        os.write(2, b"tvm: native words\n")
        warnings.warn_explicit("python words", UserWarning, "/site/tvm/relax/frontend.py", 1)
        warnings.warn("words of ours", OffloadWarning, stacklevel=1)
        return lower(*arguments)

    monkeypatch.setattr(compiling, "_lower", talkative)
    source, library = tmp_path / "m.onnx", tmp_path / "m.so"
    onnx.save(tiny_model(), source)
    flag = ["-v"] if verbose else []
    assert main(["compile", str(source), "-o", str(library), *flag]) == 0
    said = capfd.readouterr().err
    assert ("native words" in said, "python words" in said) == (verbose, verbose)
    assert "warning: words of ours" in said
    os.write(2, b"afterwards\n")
    assert capfd.readouterr().err == "afterwards\n"
