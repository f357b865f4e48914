"""A profile as a page, and as a trace for Perfetto or Chrome."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from math import log10
from typing import Any

from byoc.bench.profile import CallTime, Profile
from byoc.bench.tables import in_words
from byoc.errors import BenchmarkError
from byoc.report.graph import OFFLOADED, Graph
from byoc.report.html import Further, Heat, html_page
from codegen_cc.emit.timers import WHOLE

#: Shares of the slowest box's time that have the colours of the scale.
_SHARES = (1.0, 0.3, 0.1, 0.03, 0.01)


def profile_page(found: Profile) -> str:
    """The page: the network in the colours of its times, roofline, calls and timeline.

    It needs no other file. Raises ``BenchmarkError`` for a profile without roofs.
    """
    if found.roofs is None:
        raise BenchmarkError("a page of a profile needs the CPU's roofs: profile(with_roofs=True)")
    boxes = _boxes(found)
    times: Counter[int] = Counter()
    for call, box in zip(found.calls, boxes, strict=True):
        times[box] += call.milliseconds
    del times[-1]
    slowest = max(times.values(), default=0.0)
    report = replace(found.report, graph=_coloured(found, times, slowest))
    scale = [(_heat(share), f"{share * slowest:.3g} ms") for share in _SHARES]
    return html_page(
        report,
        found.title,
        _answer(found),
        heat=Heat(scale, "not timed"),
        further=Further(
            "profile.html",
            "profile.js",
            values={
                "roofs": _roofs_line(found),
                "calls": [_row(found, call) for call in found.calls],
                "by_kernel": _by_kernel(found),
                "timeline": _timeline_line(found),
            },
            data=_data(found, boxes),
        ),
    )


def _answer(found: Profile) -> str:
    calls = f"{len(found.calls)} kernel calls"
    return (
        f"{found.whole_ms:.3f} ms: median of {found.runs} runs, {in_words(found.threads)}, {calls},"
        f" {found.outside_ms:.3f} ms outside of kernels"
    )


def _roofs_line(found: Profile) -> str:
    assert found.roofs is not None
    peaks = [f"{name} {peak:.1f} GFLOP/s" for name, peak in found.roofs.gflops.items()]
    roofs = ", ".join([*peaks, f"reading memory {found.roofs.gbytes:.1f} GB/s"])
    return f"Measured in this run with {in_words(found.threads)}: {roofs}."


def _timeline_line(found: Profile) -> str:
    line = found.timeline
    text = (
        f"the run nearest the median, {line.milliseconds:.3f} ms; a worker's span lasts from its"
        " start on a launch until no work is left, and what TVM's own loops or other libraries'"
        " threads do is not seen"
    )
    return f"{text}; {line.lost}" if line.lost else text


def _boxes(found: Profile) -> list[int]:
    """For each call the number of its box in the drawing, -1 for none."""
    members: dict[str, list[int]] = defaultdict(list)
    for index, node in enumerate(found.report.graph.nodes):
        if node.kind == OFFLOADED:
            members[node.region].append(index)
    return [
        members[call.region][call.node] if 0 <= call.node < len(members[call.region]) else -1
        for call in found.calls
    ]


def _coloured(found: Profile, times: Counter[int], slowest: float) -> Graph:
    graph = found.report.graph
    nodes = [
        node
        if index not in times
        else replace(
            node,
            time=f"{times[index]:.4f} ms, {_share(found, times[index])} %",
            heat=_heat(times[index] / slowest if slowest else 0.0),
        )
        for index, node in enumerate(graph.nodes)
    ]
    return replace(graph, nodes=tuple(nodes))


def _heat(share: float) -> float:
    """From 0 to 1, by the logarithm: the least share of the scale is 0."""
    return max(0.0, 1 - log10(share) / log10(_SHARES[-1])) if share > 0 else 0.0


def _share(found: Profile, milliseconds: float) -> str:
    return f"{100 * milliseconds / found.whole_ms:.1f}"


def _row(found: Profile, call: CallTime) -> dict[str, str]:
    """The texts of a call in the table."""
    assert found.roofs is not None
    roof = found.roofs.at(call.precision, call.intensity) if call.macs else None
    return {
        "ms": f"{call.milliseconds:.4f}",
        "share": _share(found, call.milliseconds),
        "gflops": f"{call.gflops:.1f}" if call.macs else "",
        "gbytes": f"{call.gbytes:.1f}" if call.bytes else "",
        "intensity": f"{call.intensity:.1f}" if call.macs else "",
        "of_roof": f"{100 * call.gflops / roof:.0f}" if roof else "",
        "name": call.name,
    }


def _by_kernel(found: Profile) -> list[dict[str, str]]:
    rows = [
        {"name": n, "calls": str(count), "ms": f"{ms:.3f}", "share": _share(found, ms)}
        for n, count, ms, _ in found.by_kernel()
    ]
    outside = found.outside_ms
    last = {"name": "(outside of kernels)", "calls": "", "ms": f"{outside:.3f}"}
    return [*rows, last | {"share": _share(found, outside)}]


def _data(found: Profile, boxes: list[int]) -> dict[str, Any]:
    assert found.roofs is not None
    calls = [
        {
            "name": call.name,
            "kernel": call.kernel,
            "text": f"{call.milliseconds:.4f} ms, {_share(found, call.milliseconds)} %",
            "ms": call.milliseconds,
            "gflops": call.gflops if call.precision else 0.0,
            "intensity": call.intensity,
            "precision": call.precision,
            "box": box,
        }
        for call, box in zip(found.calls, boxes, strict=True)
    ]
    roofs = {"gflops": dict(found.roofs.gflops), "gbytes": found.roofs.gbytes}
    line = {"spans": found.timeline.spans, "run_ms": found.timeline.milliseconds}
    return {"calls": calls, "roofs": roofs, "whole_ms": found.whole_ms, **line}


def trace_text(found: Profile) -> str:
    """The timeline in Chrome's trace event format, which Perfetto opens as well; microseconds.

    Thread 0 has the network and its calls, threads from 1 on the workers of the kernels' pool.
    Where spans found no room, an event at the end of the run says how many.
    """
    events = list(_events(found))
    other = {"network": found.title, "threads": found.threads, "dropped": found.timeline.dropped}
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": other})


def _events(found: Profile) -> Iterator[dict[str, Any]]:
    line = found.timeline
    names = {0: "network"}
    for worker in sorted({span[1] for span in line.spans} - {WHOLE}):
        names[worker + 1] = f"worker {worker}"
    yield {"ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": {"name": found.title}}
    for thread, name in names.items():
        yield {"ph": "M", "pid": 1, "tid": thread, "name": "thread_name", "args": {"name": name}}
    whole = {"ph": "X", "pid": 1, "tid": 0, "ts": 0.0, "dur": 1e3 * line.milliseconds}
    yield whole | {"name": found.title, "cat": "run"}
    for index, worker, begin, end in line.spans:
        call = found.calls[index]
        times = {"ts": round(1e3 * begin, 3), "dur": round(1e3 * (end - begin), 3)}
        about: dict[str, Any] = {"what": call.what, "region": call.region, "library": call.library}
        if worker == WHOLE and call.macs:
            about |= {"macs": call.macs, "gflops": round(call.gflops, 1)}
        thread = 0 if worker == WHOLE else worker + 1
        kind = {"ph": "X", "pid": 1, "tid": thread, "name": call.kernel, "cat": "kernel"}
        yield kind | times | {"args": about}
    if line.lost:
        end = {"ph": "i", "pid": 1, "tid": 0, "ts": 1e3 * line.milliseconds, "s": "p"}
        yield end | {"name": line.lost, "cat": "run"}
