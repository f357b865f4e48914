"""Templates, and lists broken over lines the way the project's formatters break them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import jinja2

from byoc.extern.spelling import python_name

#: Columns of generated code.
WIDTH = 100


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("byoc.extern"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # C and Python, not HTML; every name was checked when it was read
    )
    environment.filters["args"] = python_list
    environment.filters["lines"] = str.splitlines
    environment.filters["python"] = python_name
    return environment


def render(template: str, **names: object) -> str:
    """Fill in a template of ``byoc/extern/templates``."""
    return _environment().get_template(template).render(names)


def python_list(items: Sequence[str], before: str, after: str = ")", indent: int = 0) -> str:
    """``before item, item after`` on one line, on one line of its own, or an item per line.

    ``before`` ends with the opening bracket, ``after`` begins with the closing one.
    """
    margin = " " * indent
    one_line = f"{margin}{before}{', '.join(items)}{after}"
    if len(one_line) <= WIDTH or not items:
        return one_line
    inner = f"{margin}    {', '.join(items)}"
    if len(inner) <= WIDTH:
        return f"{margin}{before}\n{inner}\n{margin}{after}"
    lines = [f"{margin}    {item}," for item in items]
    return "\n".join([f"{margin}{before}", *lines, f"{margin}{after}"])


def c_list(items: Sequence[str], before: str, after: str = ");", indent: int = 0) -> str:
    """``before item, item after`` with as many items per line as fit, aligned with the first."""
    lines, line = [], " " * indent + before
    align = " " * len(line)
    for position, item in enumerate(items):
        last = position == len(items) - 1
        piece = item + (after if last else ",")
        gap = "" if line == align or line.endswith("(") else " "
        if len(line) + len(gap) + len(piece) > WIDTH and line.strip():
            lines.append(line)
            line, gap = align, ""
        line += gap + piece
    return "\n".join([*lines, line if items else line + after])
