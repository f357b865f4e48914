"""The plot of ``byoc bench``: median times relative to the best peer, as grouped bars."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from byoc.bench.comparison import Comparison
from byoc.bench.engines import ENGINES
from byoc.bench.measure import Row
from byoc.bench.tables import in_words
from byoc.errors import BenchmarkError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".svg", ".png")

_HIGHEST = 3.0  # bars above this are cut, and say how high they are
_GROUP = 0.8  # width of a group of bars; the distance of groups is 1
_COLOURS = {"byoc": "#c0392b", "onnxruntime": "#7f8c8d", "openvino": "#5d8aa8", "ncnn": "#a3b899"}


def check_plot(path: Path) -> None:
    """Refuse what could not be written, before minutes of measuring. Raises ``BenchmarkError``."""
    if path.suffix not in FORMATS:
        raise BenchmarkError(f"cannot plot to {path}: the name must end in {' or '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise BenchmarkError(f"cannot plot to {path}: there is no folder {path.parent}")
    if find_spec("matplotlib") is None:
        raise BenchmarkError(
            f"cannot plot to {path}: matplotlib is missing; pip install matplotlib"
        )


def plot(path: Path, rows: Sequence[Row], comparisons: Sequence[Comparison], caption: str) -> None:
    """Draw a panel for each precision and number of threads, a group for each network and batch.

    A bar is an engine's median by that of the best peer; plain TVM is left out.  A short line over
    our bar is its target.  Raises ``BenchmarkError`` where there is nothing to compare.
    """
    from matplotlib.figure import Figure

    if not comparisons:
        raise BenchmarkError(f"cannot plot to {path}: there is no time of ours beside a peer's")
    settings: dict[tuple[str, int], list[Comparison]] = {}
    for comparison in comparisons:
        settings.setdefault((comparison.precision, comparison.threads), []).append(comparison)
    groups = max(map(len, settings.values()))
    figure = Figure(figsize=(max(6.0, 2.5 + 0.9 * groups), 1.0 + 3.2 * len(settings)))
    panels = figure.subplots(len(settings), squeeze=False)[:, 0]
    for panel, (setting, own) in zip(panels, settings.items(), strict=True):
        _panel(panel, [row for row in rows if row.precision == setting[0]], own, setting[1])
        panel.set_title(f"{setting[0]}, {in_words(setting[1])}", loc="left", fontsize="medium")
    panels[0].legend(loc="upper left", ncols=5, fontsize="small", frameon=False)
    figure.text(0.01, 0.005, caption, fontsize="x-small", color="#555555")
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(path, dpi=150)


def _panel(panel: Axes, rows: Sequence[Row], groups: Sequence[Comparison], threads: int) -> None:
    drawn = [name for name in _COLOURS if any(row.engine == name for row in rows)]
    times = {(row.model, row.batch, row.threads, row.engine): row.p50_ms for row in rows}
    width = _GROUP / len(drawn)
    for index, engine in enumerate(drawn):
        offset = (index + 0.5) * width - _GROUP / 2
        found = {}
        for place, group in enumerate(groups):
            time = times.get((group.model, group.batch, threads, engine))
            if time is not None:
                found[place + offset] = time / group.peer_ms
        heights = [min(height, _HIGHEST) for height in found.values()]
        label = ENGINES[engine].title
        panel.bar(list(found), heights, 0.9 * width, label=label, color=_COLOURS[engine])
        for x, height in found.items():
            if height > _HIGHEST:
                panel.text(x, 0.97 * _HIGHEST, f"{height:.1f}", ha="center", va="top", fontsize=6)
        if engine == "byoc":
            for place, group in enumerate(groups):
                if group.target is not None:
                    left = place + offset - width / 2
                    panel.hlines(group.target, left, left + width, color="black", linewidth=1.5)
    panel.axhline(1.0, color="black", linewidth=0.6, linestyle=":")
    turned = {"rotation": 20, "ha": "right", "rotation_mode": "anchor"} if len(groups) > 4 else {}
    labels = [g.title if g.batch is None else f"{g.title}\nbatch {g.batch}" for g in groups]
    panel.set_xticks(range(len(groups)), labels, fontsize="small", **turned)
    panel.set_ylabel("p50 / best peer's")
    panel.set_ylim(0, 1.15 * min(_HIGHEST, max(1.3, _tallest(times, groups))))


def _tallest(
    times: dict[tuple[str, int | None, int, str], float], groups: Sequence[Comparison]
) -> float:
    """The greatest ratio among the bars of the groups."""
    return max(
        time / group.peer_ms
        for group in groups
        for (*setting, engine), time in times.items()
        if engine in _COLOURS and setting == [group.model, group.batch, group.threads]
    )
