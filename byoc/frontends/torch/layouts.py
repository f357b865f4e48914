"""Questions of PyTorch whether tensors are dense, which say nothing of sizes.

Where a part of an image is cut out of one that was made larger, windows wide, PyTorch asks whether
it is dense, and notes that both are as wide where they are so in the example. Its answer decides
whether elements are copied, and no result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch._prims_common as common
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import uninteresting_files

from byoc.frontends.torch.replaced import replaced

#: Where PyTorch's own code asks, and how.
_ASKING, _ASKED = "c10/core/Contiguity.h", ("guard_or_false", "guard_or_true")


@contextmanager
def unnoted_layouts() -> Iterator[None]:
    """Tensors are dense as in the example, and nothing is noted of it, within this context."""
    uninteresting_files().add(__file__)  # who asks is not told from what stands between
    check = common.check_contiguous_sizes_strides
    others = {(SymNode, name): _unnoted(getattr(SymNode, name)) for name in _ASKED}
    with replaced({**others, (common, check.__name__): _unnoted_of_sizes(check)}):
        yield


def _unnoted(ask: Callable[..., bool]) -> Callable[..., bool]:
    def asked(node: SymNode, file: str, line: int) -> bool:
        if not file.endswith(_ASKING):
            return ask(node, file, line)
        with node.shape_env.suppress_guards():
            return ask(node, file, line)

    return asked


def _unnoted_of_sizes(check: Callable[..., bool]) -> Callable[..., bool]:
    def is_dense(sizes: Sequence[Any], strides: Sequence[Any], false_if_dde: bool = False) -> bool:
        for size in (*sizes, *strides):
            if isinstance(size, torch.SymInt) and (env := getattr(size.node, "shape_env", None)):
                with env.suppress_guards():
                    return check(sizes, strides, false_if_dde)
        return check(sizes, strides, false_if_dde)

    return is_dense
