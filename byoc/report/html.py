"""The report as one page of HTML that needs no other file and no network.

Everything that comes from a model is data: the template escapes it, and the drawing's data is JSON
in which no character can end the element that holds it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from byoc.report.coverage import Coverage
from byoc.report.render import coverage_line, grouped, hint_of, names_of

#: The libraries that draw, in the order in which they must be loaded.
LIBRARIES = ("cytoscape.min.js", "cytoscape-dagre.min.js")

#: Names that one row of the table lists; the search finds the others.
MAX_NAMES = 40

#: Characters that mean something to an HTML parser, as JSON writes them in a string.
ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


@dataclass(frozen=True)
class Heat:
    """The colours of boxes: what some heats mean, and what a box without heat is."""

    scale: Sequence[tuple[float, str]] = ()
    without: str = ""


@dataclass(frozen=True)
class Further:
    """What a page has beyond the partition: a template that extends ``page.html``, and its parts.

    ``values`` are for the template, ``data`` for its ``script``, which runs last; both are files of
    the folder ``page``.
    """

    template: str
    script: str
    values: Mapping[str, Any]
    data: Mapping[str, Any]


def html_page(
    report: Coverage,
    title: str,
    answer: str = "",
    errors: Sequence[ErrorRow] = (),
    heat: Heat = Heat(),
    further: Further | None = None,
) -> str:
    """The page. ``title`` names the model, ``answer`` is its heading (default: the coverage).

    ``errors`` are the nodes that were compared, the worst first. With a scale of ``heat``, boxes
    have the colours of their heat.
    """
    scripts = [*(_library(name) for name in LIBRARIES), _read("page", "page.js")]
    drawing = _drawing(report) | {"scale": list(heat.scale), "without": heat.without}
    values: Mapping[str, Any] = {}
    if further is not None:
        scripts.append(_read("page", further.script))
        drawing |= further.data
        values = further.values
    return filled(
        further.template if further else "page.html",
        title=title,
        answer=answer or coverage_line(report),
        errors=errors,
        hint=hint_of(report),
        report=report,
        planned=any(region.plan for region in report.regions),
        kernels=report.machines or {"": report.kernels},
        idle=report.idle,
        groups=[
            {
                "op": op,
                "shapes": shapes,
                "reason": reason,
                "names": names_of(entries, MAX_NAMES),
                "count": len(entries),
                "first": entries[0].name,
            }
            for (op, shapes, reason), entries in grouped(report.left)
        ],
        # Ours and well-known libraries, hence not escaped.
        style=page_style(),
        scripts=scripts,
        data=embedded_json(drawing),
        **values,
    )


def page_style() -> str:
    """The style sheet of all pages."""
    return _read("page", "page.css")


def filled(template: str, **values: Any) -> str:
    """A template of the folder ``page`` with these values, escaped but where it says otherwise."""
    import jinja2  # not needed for any other form of the report

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: _read("page", name)),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(template).render(**values)


@dataclass(frozen=True)
class ErrorRow:
    """A result that was compared: its node's name and operator in the drawing, what it is called
    beside others of the node, and its errors as texts."""

    name: str
    operator: str
    title: str
    own: str
    own_snr: str
    total: str
    total_snr: str
    computes: str


def _drawing(report: Coverage) -> dict[str, Any]:
    return {
        "nodes": [asdict(node) | {"kernel": str(node.kernel)} for node in report.graph.nodes],
        "edges": [list(edge) for edge in report.graph.edges],
        "regions": [region.name for region in report.regions],
    }


def embedded_json(value: object) -> str:
    """JSON that can stand inside a ``<script>`` element, whatever texts are in it."""
    text = json.dumps(value, ensure_ascii=True)
    for character, escape in ESCAPES.items():
        text = text.replace(character, escape)
    return text


@cache
def _read(folder: str, name: str) -> str:
    return (files(__package__) / folder / name).read_text(encoding="utf-8")


def _library(name: str) -> str:
    """A library's text, without the reference to a map of its source, which is not shipped."""
    lines = _read("vendor", name).splitlines()
    return "\n".join(line for line in lines if not line.startswith("//# sourceMappingURL="))
