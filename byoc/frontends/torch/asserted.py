"""What code asserts of the data of tensors (``assert (x >= 0).all()``) is taken for true.

PyTorch's tracer takes each question for a decision, and data may decide nothing. An assertion
decides nothing but whether there is an error: as other checks of values, it is left out.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

from torch.overrides import TorchFunctionMode


class PassedAssertions(TorchFunctionMode):
    """Tensors that code asserts are what passes."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if getattr(func, "__name__", "") == "__bool__":
            caller = sys._getframe(1)
            while caller.f_back and caller.f_code.co_name == "__torch_function__":
                caller = caller.f_back  # of another mode, which asks on behalf of the code
            passes = _what_passes(caller.f_code, caller.f_lasti)
            if passes is not None:
                return passes
        return func(*args, **(kwargs or {}))


@lru_cache(256)
def _what_passes(code: CodeType, place: int) -> bool | None:
    """What must be answered at a place of the code so that an assertion passes; None at others.

    A jump follows, to the error or past it.
    """
    steps = [step for step in dis.get_instructions(code) if step.offset >= place]
    while steps and steps[0].opname == "TO_BOOL":
        steps.pop(0)
    if len(steps) < 2 or "JUMP" not in steps[0].opname:
        return None
    jump, after = steps[:2]
    if not jump.opname.endswith(("IF_TRUE", "IF_FALSE")):
        return None
    jumps_if = jump.opname.endswith("IF_TRUE")
    if _fails(after):
        return jumps_if
    target = next((step for step in steps if step.offset == jump.argval), None)
    return not jumps_if if target is not None and _fails(target) else None


def _fails(step: dis.Instruction) -> bool:
    return step.opname == "LOAD_ASSERTION_ERROR" or (
        step.opname == "LOAD_COMMON_CONSTANT" and step.argval is AssertionError
    )
