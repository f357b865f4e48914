"""Programs of PyTorch as the operators that converters are for."""

from __future__ import annotations

from functools import partial

import torch

from byoc.errors import ImportFailure, ModelError
from byoc.frontends.torch.buffers import tensor_of_two_names
from byoc.frontends.torch.called import attention_of_any_length
from byoc.frontends.torch.composites import composites_in_less_time
from byoc.frontends.torch.decompositions import decompositions
from byoc.frontends.torch.levels import left_levels
from byoc.frontends.torch.masked_copies import chosen_in_place
from byoc.frontends.torch.open_functions import functions_of_any_size
from byoc.frontends.torch.short_sizes import short_sizes
from byoc.frontends.torch.sparse_products import gathered_products
from byoc.frontends.torch.views import with_copies
from byoc.frontends.torch.whole_layers import whole_layers
from codegen_cc.errors import one_line


def taken_apart(given: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """A program of the operators that are converted. Raises ``ImportFailure``, ``ModelError``."""
    try:
        with (
            left_levels(),
            whole_layers(),
            attention_of_any_length(),
            short_sizes(),
            functions_of_any_size(),
            composites_in_less_time(),
        ):
            take_apart = partial(given.run_decompositions, decompositions())
            return chosen_in_place(gathered_products(with_copies(given, take_apart)))
    except Exception as error:
        if twice := tensor_of_two_names(given):
            raise ModelError(
                f"{twice[0]!r} and {twice[1]!r} are one tensor, of which the module may change "
                "one; export it with strict=True"
            ) from error
        raise ImportFailure(f"PyTorch cannot take the program apart: {one_line(error)}") from error
