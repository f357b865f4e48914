"""All commands and all code of the tutorial and of README's start say what the pages show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.site.pages import ROOT, Reader, agrees, blocks_of, pages


def test_there_are_six_steps() -> None:
    assert [page.name[0] for page in pages()] == list("123456")


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    blocks = blocks_of(page)
    assert any(block.language == "console" for block in blocks) or "own_operator" in page.name
    with Reader(tmp_path) as reader:
        if page != pages()[0] and "digits.onnx" in page.read_text(encoding="utf-8"):
            first = next(block for block in blocks_of(pages()[0]) if block.language == "python")
            reader.read([first])  # the network of step 1
            assert (tmp_path / "digits.onnx").is_file()
        reader.read(blocks)


@pytest.mark.slow
def test_the_readme_leads_to_a_network_that_runs(tmp_path: Path) -> None:
    blocks = blocks_of(ROOT / "README.md", until="## Layout")
    languages = [block.language for block in blocks if block.language]
    assert languages[:2] == ["console", "python"]
    with Reader(tmp_path) as reader:
        reader.read(blocks)
        assert reader.python("print(scores.shape, round(float(scores.sum()), 3))") == (
            "(1, 1000) 1.0\n"
        )


@pytest.mark.parametrize(
    ("shown", "said", "right"),
    [
        ("a 1.5 MB", "a   2.25 MB\n", True),
        ("a 1.5 MB", "a 2 MB", False),
        ("8 of 8", "7 of 8", False),
        ("first\n...\nlast", "first\n1\n2\nlast", True),
        ("first\n...", "first", True),
        ("first\n...\nlast", "first\n1\n2", False),
        ("", "something", False),
    ],
)
def test_what_is_shown_is_compared(shown: str, said: str, right: bool) -> None:
    assert agrees(shown, said) is right
