"""A comparison as the partition report's page: nodes in the colours of their own errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import isfinite, log10

from byoc.accuracy import Errors
from byoc.layer_errors.layer import Layer
from byoc.report import Graph, Report
from byoc.report.html import ErrorRow, Heat, html_page

#: Powers of ten of own errors, as shares of the range, that have the colours of the scale's ends.
_COLD, _HOT = -7, -1


def comparison_page(report: Report, layers: Sequence[Layer], answer: str, title: str) -> str:
    """The page; ``layers`` are in the order of its table."""
    drawn = replace(report, graph=_with_errors(report.graph, layers))
    scale = [
        (_heat(10.0**power), f"own error {10.0**power:.0e} of the range")
        for power in range(_COLD, _HOT + 1, 2)
    ]
    heat = Heat(scale, "not compared")
    return html_page(drawn, title, answer, [_row(layer) for layer in layers], heat)


def snr_text(errors: Errors) -> str:
    """The ratio in decibels, or that nothing differs."""
    return "equal" if errors.greatest == 0 else f"{errors.snr_db:.1f}"


def _row(layer: Layer) -> ErrorRow:
    own, total = layer.own, layer.total
    texts = (f"{own.share:.1e}", snr_text(own), f"{total.share:.1e}", snr_text(total))
    return ErrorRow(layer.name, layer.operator, layer.title, *texts, layer.computes)


def _with_errors(graph: Graph, layers: Iterable[Layer]) -> Graph:
    waiting: dict[tuple[str, str], list[Layer]] = {}
    for layer in layers:
        waiting.setdefault((layer.name, layer.operator), []).append(layer)
    nodes = []
    for node in graph.nodes:
        found = waiting.get((node.name, node.operator))
        if found:
            # Several of one name and operator are parts of one node: the worst of them counts.
            own, total = found[0].own, found[0].total
            text = f"own {own.share:.1e}, SNR {snr_text(own)}; "
            text += f"total {total.share:.1e}, SNR {snr_text(total)}"
            node = replace(node, error=text, heat=_heat(own.share))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _heat(share: float) -> float:
    """From 0 to 1, by the logarithm."""
    if not isfinite(share):
        return 1.0
    power = log10(share) if share > 0 else _COLD
    return min(1.0, max(0.0, (power - _COLD) / (_HOT - _COLD)))
