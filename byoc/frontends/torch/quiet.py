"""PyTorch's tracer without what it writes of attempts that fail: the next may succeed, and the
last failure is told in one line."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

#: Who writes the traceback of what is raised as well, and that sizes may not be open.
_WRITERS = ("torch.export", "torch.export._trace", "torch._guards")


@contextmanager
def nothing_written() -> Iterator[None]:
    """The tracer writes neither errors nor graphs that it has half within this context."""
    import torch.export._trace as tracer  # brings much, which who asks for no trace does without

    logs = [logging.getLogger(name) for name in _WRITERS]
    usual = [log.disabled for log in logs]
    for log in logs:
        log.disabled = True
    tracer.print = lambda *_, **__: None  # stands before Python's own in that file alone
    try:
        yield
    finally:
        del tracer.print
        for log, was_disabled in zip(logs, usual, strict=True):
            log.disabled = was_disabled
