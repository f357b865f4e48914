"""What surrounds a module while PyTorch's tracer follows it, whatever its axes are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from byoc.frontends.torch.called import (
    places_of_one_number,
    plain_scalars,
    unchecked_distributions,
)
from byoc.frontends.torch.layouts import unnoted_layouts
from byoc.frontends.torch.left_modules import left_modules
from byoc.frontends.torch.noted_guards import unsolved_conditions
from byoc.frontends.torch.quiet import nothing_written
from byoc.frontends.torch.remembered import nothing_remembered
from byoc.frontends.torch.set_data import noted_data
from byoc.frontends.torch.short_sizes import short_sizes
from byoc.frontends.torch.whole_layers import whole_layers

_CONTEXTS = (
    nothing_written,
    whole_layers,
    unchecked_distributions,
    places_of_one_number,
    plain_scalars,
    unnoted_layouts,
    unsolved_conditions,
    short_sizes,
    noted_data,
    left_modules,
    nothing_remembered,
)


@contextmanager
def traced_as_it_runs() -> Iterator[None]:
    """All of these at once."""
    with ExitStack() as stack:
        for context in _CONTEXTS:
            stack.enter_context(context())
        yield
