"""``benchmarks.harness``: what the developers' benchmarks share, and that users need none of it."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import harness
from byoc.errors import BenchmarkError, ToolchainError

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(ROOT.glob("benchmarks/*.py")) + sorted(ROOT.glob("benchmarks/layers/*.py"))
#: What the verbs need besides ``byoc/bench`` itself.
VERBS = {"byoc/cli/bench.py", "byoc/cli/profile.py"}


def child(numbers: list[int], error: str = "") -> list[int]:
    """For ``call_apart``."""
    if error:
        raise BenchmarkError(error)
    print("a line that is no answer")
    return [2 * number for number in numbers]


def imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    plain = (node for node in ast.walk(tree) if isinstance(node, ast.Import))
    return found | {alias.name for node in plain for alias in node.names}


def test_every_contestant_has_each_place_in_turn() -> None:
    turns = list(harness.in_turns("abc", 3))
    assert "".join(turns) == "abcbcacab"
    assert Counter(turns) == {"a": 3, "b": 3, "c": 3}


def test_spread_is_least_median_and_ninth_tenth() -> None:
    assert harness.spread([*range(100, -1, -1)]) == (0.0, 50.0, 90.0)


def test_options_are_those_that_a_benchmark_names() -> None:
    parser = harness.parser("some", "About it.", threads=[1], only="")
    assert parser.parse_args(["--threads", "1", "2"]).threads == [1, 2]
    assert vars(parser.parse_args([])) == {"threads": [1], "only": "", "json": False}
    for wrong in (["--threads", "0"], ["--rounds", "1"], ["--markdown"]):
        with pytest.raises(SystemExit) as stopped:
            parser.parse_args(wrong)
        assert stopped.value.code == 2


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    @harness.one_line_errors(status=1)
    def main(arguments: Sequence[str] | None = None) -> int:
        raise BenchmarkError(f"nothing but {arguments}")

    assert main(["x"]) == 1
    assert capsys.readouterr().err == "error: nothing but ['x']\n"


def test_a_program_that_fails_says_why(tmp_path: Path) -> None:
    script = "import sys; print('first', 'last', sep='\\n', file=sys.stderr); sys.exit(3)"
    with pytest.raises(BenchmarkError, match=r"^it: last$"):
        harness.run([sys.executable, "-c", script], "it")
    with pytest.raises(BenchmarkError, match=r"^first$"):
        harness.run([sys.executable, "-c", script], line=0)
    source = tmp_path / "wrong.c"
    source.write_text("this is no C\n")
    with pytest.raises(ToolchainError, match=r"failed on wrong\.c: .*error"):
        harness.build_c(source, tmp_path / "wrong.o", "-c")


@pytest.mark.slow
def test_a_call_in_another_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # the checkout is found from anywhere
    assert harness.call_apart(__name__, [1, 2]) == [2, 4]
    with pytest.raises(BenchmarkError, match=r"^no such number$"):
        harness.call_apart(__name__, [1], "no such number")


def test_every_benchmark_takes_its_options_from_here() -> None:
    assert SCRIPTS
    mains = [path for path in SCRIPTS if "def main(" in path.read_text(encoding="utf-8")]
    assert len(mains) > 8
    for path in mains:
        if path.stem != "first_run":  # a process that others start
            text = path.read_text(encoding="utf-8")
            assert "@harness.one_line_errors" in text and "harness.parser(" in text, path


@pytest.mark.slow
def test_the_product_imports_no_benchmark() -> None:
    for path in (*ROOT.glob("byoc/**/*.py"), *ROOT.glob("codegen_cc/**/*.py")):
        modules = imports(path)
        assert not {name for name in modules if name.split(".")[0] == "benchmarks"}, path
        place = path.relative_to(ROOT).as_posix()
        if place not in VERBS and not place.startswith("byoc/bench/"):
            assert not {name for name in modules if name.startswith("byoc.bench")}, path
