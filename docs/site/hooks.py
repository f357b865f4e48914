"""What MkDocs is told of the repository: pages link to files beside ``docs``, as on a forge.

README.md is the first page. Files and folders of the repository that pages link to become pages of
their own below ``repository/``: other Markdown as it is, sources as text, folders as lists. Pages
of ``docs`` that ``mkdocs.yml`` has nowhere in its navigation stand at the end of How-to.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
HOME = "README.md"
_FENCED = re.compile(r"^( *)(`{3,}).*?^\1\2 *$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_LANGUAGES = {".py": "python", ".c": "c", ".h": "c", ".cc": "cpp", ".sh": "bash"}
#: By the page's name in the site, where it lies in the repository.
_origins: dict[str, str] = {}


def on_config(config: Any) -> Any:
    """Add the pages that nobody listed to the navigation."""
    listed = set(_pages(config.nav))
    further = sorted(f.name for f in (ROOT / "docs").glob("*.md") if f.name not in listed)
    for section in config.nav:
        if further and "How-to" in section:
            section["How-to"].append({"Further": further})
    return config


def _pages(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        yield from _pages(list(nav.values()))
    else:
        for item in nav:
            yield from _pages(item)


def on_files(files: Files, config: Any) -> Files:
    """Make pages of what is linked, and of what these link to."""
    _origins.clear()
    for file in files.documentation_pages():
        _origins[file.src_uri] = f"docs/{file.src_uri}"
    _origins["index.md"] = HOME
    files.append(File.generated(config, "index.md", abs_src_path=str(ROOT / HOME)))
    waiting = [*_origins.values()]
    while waiting:
        origin = waiting.pop()
        for target in _targets(origin):
            uri = _uri(target)
            if uri not in _origins and not target.startswith("docs/") and target != HOME:
                _origins[uri] = target
                files.append(File.generated(config, uri, content=_text(target)))
                waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links to where their targets are in the site."""
    origin = _origins.get(page.file.src_uri)
    if origin is None or not _is_prose(origin):
        return markdown
    here = posixpath.dirname(page.file.src_uri)

    def moved(found: re.Match[str]) -> str:
        link, mark, heading = found[1].partition("#")
        target = _resolved(origin, link)
        return f"]({posixpath.relpath(_uri(target), here)}{mark}{heading})" if target else found[0]

    parts, last = [], 0
    for fence in _FENCED.finditer(markdown):
        parts += [_LINK.sub(moved, markdown[last : fence.start()]), fence[0]]
        last = fence.end()
    return "".join([*parts, _LINK.sub(moved, markdown[last:])])


def _is_prose(origin: str) -> bool:
    return origin.endswith(".md") or (ROOT / origin).is_dir()


def _targets(origin: str) -> Iterator[str]:
    """What a page links to in the repository."""
    if _is_prose(origin):
        text = _FENCED.sub("", _text(origin))
        for link in _LINK.findall(text):
            if target := _resolved(origin, link.partition("#")[0]):
                yield target


def _resolved(origin: str, link: str) -> str:
    """The path in the repository that a link leads to; empty for one that leads elsewhere."""
    if not link or "://" in link:
        return ""
    base = origin if (ROOT / origin).is_dir() else posixpath.dirname(origin)
    target = posixpath.normpath(posixpath.join(base, link))
    path = ROOT / target
    if path.is_dir() and (path / "README.md").is_file():
        target = f"{target}/README.md"
    return "" if target.startswith("..") or not path.exists() else target


def _uri(target: str) -> str:
    """The name of a page in the site."""
    if target == HOME:
        return "index.md"
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return f"repository/{target}" if target.endswith(".md") else f"repository/{target}.md"


def _text(target: str) -> str:
    """The Markdown of a page: the file's own, the source as text, or a list of the folder."""
    path = ROOT / target
    if path.is_dir():
        names = sorted(f.name for f in path.iterdir() if f.is_file() and f.name[0] != ".")
        return "\n".join([f"# {target}", "", *(f"- [{name}]({name})" for name in names), ""])
    text = path.read_text(encoding="utf-8")
    if target.endswith(".md"):
        return text
    return f"# {target}\n\n`````{_LANGUAGES.get(path.suffix, 'text')}\n{text}\n`````\n"
