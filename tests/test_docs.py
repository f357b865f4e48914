"""What the pages name is there: files, folders and links; and the layout that they tell is so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_imports import ROOT, folder_of, import_graph, modules
from tests.test_sources import sources

#: Folders whose files pages name in full.
TOPS = ("benchmarks", "byoc", "codegen_cc", "docs", "examples", "models", "runtime", "tests")
#: Pages that name files of the repository by their last parts as well, without the folder.
GUIDES = ("CONTRIBUTING.md", "README.md", "docs/architecture.md", "docs/adding_")
#: Not of this repository.
ELSEWHERE = ("tests/python/relax",)

PAGES = sources("*.md")


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    return re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )


def words(page: Path) -> Iterator[str]:
    """What stands in backticks and looks like a path; a test of a file counts as the file."""
    for span in re.findall(r"`([^`]+)`", prose(page)):
        for word in span.split():
            word = word.partition("::")[0].rstrip(",.;:/")
            if re.fullmatch(r"[\w./*-]+", word):
                yield word


def test_the_pages_are_found() -> None:
    assert {"README.md", "CONTRIBUTING.md", "docs/architecture.md"} <= set(map(page_id, PAGES))
    assert "codegen_cc/dtypes.py" in set(words(ROOT / "CONTRIBUTING.md"))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = {word for word in words(page) if word.partition("/")[0] in TOPS and "/" in word}
    assert {word for word in named if word not in ELSEWHERE and not any(ROOT.glob(word))} == set()


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page_id(page).startswith(GUIDES)], ids=page_id
)
def test_files_that_a_guide_names_by_their_last_parts_exist(page: Path) -> None:
    files = [f"/{file.relative_to(ROOT)}" for file in sources()]
    named = {word for word in words(page) if re.search(r"\w\.(py|c|h|cc|md)$", word)}
    named = {word for word in named if word.partition("/")[0] not in ("..", *TOPS)}
    assert {word for word in named if not any(file.endswith(f"/{word}") for file in files)} == set()


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    links = {link for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)) if "://" not in link}
    for link in links:
        target, _, heading = link.partition("#")
        file = page.parent / target if target else page
        assert file.exists(), link
        if heading:
            titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}


@pytest.mark.slow
@pytest.mark.parametrize("package", ["byoc", "codegen_cc"])
def test_the_architecture_has_every_folder_below_what_it_imports(package: str) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = text.partition(f"Folders of `{package}`")[2].partition("\n\n|")[2].partition("\n\n")[0]
    listed = [
        f"{package}.{folder}"
        for row in rows.splitlines()
        for folder in re.findall(r"`(\w+)/`", row.split("|")[1] if row.startswith("|") else "")
    ]
    known = modules()
    folders = {
        name
        for name, file in known.items()
        if name.startswith(f"{package}.") and name.count(".") == 1 and file.name == "__init__.py"
    }
    assert set(listed) == folders and len(listed) == len(folders)
    for name, imports in import_graph(known).items():
        folder = folder_of(name, known)
        for target in {folder_of(other, known) for other in imports} & folders - {folder}:
            if folder in folders:
                assert listed.index(target) < listed.index(folder), f"{name} imports {target}"


def test_the_readme_names_every_folder_of_the_product() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    layout = text.partition("## Layout")[2].partition("\n## ")[0]
    named = set(re.findall(r"^\| `([\w/]+)/` \|", layout, re.MULTILINE))
    folders = {f"byoc/{file.parent.name}" for file in (ROOT / "byoc").glob("*/__init__.py")}
    missing = {folder for folder in folders if not any(n.startswith(folder) for n in named)}
    assert missing == set()
    assert set(TOPS) <= named
