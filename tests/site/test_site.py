"""The site builds without a warning, its links lead somewhere, and it has all public functions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

import byoc
from byoc import errors
from tests.site.notebooks import PAGES, notebook_of, path_of
from tests.site.pages import ROOT, TUTORIAL, blocks_of, commands_of

_TARGET = re.compile(r'<(a|link|script|img)\b[^>]*? (?:href|src)="([^"]*)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="MkDocs is not installed: the extra 'docs'")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def targets(site: Path) -> Iterator[tuple[Path, str, str]]:
    for page in site.rglob("*.html"):
        for element, link in _TARGET.findall(page.read_text(encoding="utf-8")):
            yield page, element, unquote(link)


@pytest.mark.slow
def test_every_page_is_there_and_in_the_navigation(site: Path) -> None:
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 25
    home = (site / "index.html").read_text(encoding="utf-8")
    navigation = home.partition('<nav class="md-nav md-nav--primary')[2].partition(
        "</nav>\n  </div"
    )
    for page in pages:
        uri = page.with_suffix(".html").as_posix()
        assert (site / uri).is_file(), uri
        assert f'href="{uri}"' in navigation[0], uri


def test_links_lead_to_files_of_the_site(site: Path) -> None:
    found = [
        (page, link)
        for page, _, link in targets(site)
        if not re.match(r"\w+:|#|$", link) and page.name != "404.html"
    ]
    assert len(found) > 1000
    broken = {
        f"{page.relative_to(site)}: {link}"
        for page, link in found
        if not (page.parent / link.partition("#")[0]).resolve().exists()
    }
    assert broken == set()


def test_nothing_comes_from_the_network(site: Path) -> None:
    assert {link for _, kind, link in targets(site) if kind != "a" and "//" in link} == set()


def test_the_reference_has_all_that_users_import(site: Path) -> None:
    text = "".join(p.read_text(encoding="utf-8") for p in (site / "reference").glob("*.html"))
    wanted = [f"byoc.{name}" for name in byoc.__all__ if name not in errors.__all__]
    assert len(wanted) > 15
    assert [name for name in wanted if f'id="{name}"' not in text] == []
    for kind in errors.__all__:
        assert f".errors.{kind}" in text


@pytest.mark.parametrize("name", PAGES)
def test_a_notebook_is_its_page(name: str) -> None:
    """`make docs` writes it; its cells are the blocks that test_tutorial.py runs."""
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: the extra 'docs'")
    written = path_of(name).read_text(encoding="utf-8")
    assert written == notebook_of(name)
    notebook = nbformat.reads(written, as_version=4)
    nbformat.validate(notebook)
    blocks = blocks_of(TUTORIAL / f"{name}.md")
    commands = [f"!{c}" for b in blocks if b.language == "console" for c, _ in commands_of(b)]
    python = [block.text.rstrip("\n") for block in blocks if block.language == "python"]
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert sorted(sources) == sorted(python + commands) and len(python) > 1


def test_long_signatures_are_broken_into_lines(site: Path) -> None:
    pytest.importorskip("ruff", reason="Ruff is not installed: the extra 'docs'")
    text = (site / "reference" / "compiling.html").read_text(encoding="utf-8")
    signature = re.search(r'<span class="nf">compile</span>.*?</pre>', text, re.DOTALL)
    assert signature is not None
    lines = re.sub(r"<[^>]*>", "", signature[0]).splitlines()
    assert len(lines) > 10 and max(map(len, lines)) < 100
