"""PyTorch's tracer, and programs that it made, without what they write of attempts that fail: the
next may succeed, and the last failure is told in one line."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from byoc.frontends.torch.replaced import replaced

#: Who writes the traceback of what is raised as well, and that sizes may not be open.
_WRITERS = (
    *("torch.export", "torch.export._trace", "torch._guards"),
    "torch.fx.experimental.symbolic_shapes",
)


@contextmanager
def nothing_written() -> Iterator[None]:
    """Neither errors nor graphs that the tracer has half are written within this context."""
    import torch.export._trace as tracer  # brings much, which who asks for no trace does without
    import torch.fx.graph_module as graphs

    logs = [logging.getLogger(name) for name in _WRITERS]
    usual = [log.disabled for log in logs]
    for log in logs:
        log.disabled = True
    # Stands before Python's own in these files alone.
    prints = {(file, "print"): lambda *_, **__: None for file in (tracer, graphs)}
    try:
        with replaced(prints):
            yield
    finally:
        for log, was_disabled in zip(logs, usual, strict=True):
            log.disabled = was_disabled
