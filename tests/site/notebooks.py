"""The first steps of the tutorial as notebooks: ``python -m tests.site.notebooks`` writes them.

A cell of code is a block of Python of the page, or its commands after ``!``, with what the page
shows as its output; what stands between blocks is a cell of text.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.site.pages import FENCE, TUTORIAL, Block, commands_of

#: The pages that are notebooks as well.
PAGES = ("1_first_model", "2_report")


def path_of(name: str) -> Path:
    """Where the notebook of a page lies."""
    return TUTORIAL / f"{name}.ipynb"


def notebook_of(name: str) -> str:
    """The notebook of a page, as JSON of nbformat 4.5."""
    text = (TUTORIAL / f"{name}.md").read_text(encoding="utf-8")
    cells: list[dict[str, Any]] = []
    last = 0
    for found in FENCE.finditer(text):
        block = Block(*found.groups(default=""))
        if block.language in ("python", "console", "text"):
            _add_prose(cells, text[last : found.start()])
            _add_block(cells, block)
            last = found.end()
    _add_prose(cells, text[last:])
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    notebook = {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1) + "\n"


def _add_prose(cells: list[dict[str, Any]], text: str) -> None:
    if text.strip():
        cells.append({"cell_type": "markdown", "metadata": {}, "source": text.strip()})


def _add_block(cells: list[dict[str, Any]], block: Block) -> None:
    if block.language == "python":
        _add_code(cells, block.text.rstrip("\n"), "")
    elif block.language == "text":
        cells[-1]["outputs"] = _outputs(block.text)
    else:
        for command, shown in commands_of(block):
            _add_code(cells, f"!{command}", shown)


def _add_code(cells: list[dict[str, Any]], source: str, shown: str) -> None:
    cell = {"cell_type": "code", "metadata": {}, "execution_count": None}
    cells.append(cell | {"source": source, "outputs": _outputs(shown)})


def _outputs(text: str) -> list[dict[str, str]]:
    return [{"name": "stdout", "output_type": "stream", "text": text}] if text else []


if __name__ == "__main__":
    for page in PAGES:
        path_of(page).write_text(notebook_of(page), encoding="utf-8")
