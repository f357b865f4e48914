"""What PyTorch does about all operators that it can take apart, for each program, in less time.

``run_decompositions`` asks twice for the composite operators of all namespaces, some thirty, and
for each namespace PyTorch looks up all 1,000 of them, wherever they are. Then it gives 650 of them
twenty kernels each, with seven checks for a kernel. For a small module the two took as long as all
the rest of its compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch._export import utils
from torch._ops import OperatorBase

from byoc.frontends.torch.replaced import replaced

_Key = torch._C.DispatchKey


@contextmanager
def composites_in_less_time() -> Iterator[None]:
    """For as long as a program is taken apart, in which nobody registers composite operators."""
    others = {
        (utils, "_materialize_cpp_cia_ops"): cache(utils._materialize_cpp_cia_ops),
        (OperatorBase, "py_impl"): _for_key,
    }
    with replaced(others):
        yield


def _for_key(
    operator: OperatorBase, key: Any, usual: Callable[..., Any] = OperatorBase.py_impl
) -> Callable[..., Any]:
    """What registers a kernel of an operator; PyTorch itself does where it would refuse."""
    if type(key) is not _Key or key in operator.py_kernels or key == _Key.Python:
        return usual(operator, key)

    def register(kernel: Any) -> Any:
        operator.py_kernels[key] = kernel
        operator._dispatch_cache.clear()
        return kernel

    return register
