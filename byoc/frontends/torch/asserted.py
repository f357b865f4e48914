"""What code checks of the data of tensors, on pain of an error, is taken to pass.

PyTorch's tracer takes each question for a decision, and data may decide nothing. An assertion
(``assert (x >= 0).all()``) decides nothing but whether there is an error, and neither does what
raises one (``if x.min() < 0: raise ValueError``): as other checks of values, they are left out.
Where the model itself catches the error, it decides between two answers.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

#: How instructions begin that go on elsewhere, or leave otherwise than by an error.
_OTHER_WAYS = ("FOR_ITER", "RERAISE", "RETURN", "SEND", "YIELD")
#: Where the code is that runs the model's: this package, and PyTorch.
_OURS, _PYTORCH = str(Path(__file__).parents[2]), str(Path(torch.__file__).parent)


class PassedChecks(TorchFunctionMode):
    """Tensors that code checks, on pain of an error, are what passes."""

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
            if passes is not None and not _caught_by_a_caller(caller.f_back):
                return passes
        return func(*args, **(kwargs or {}))


@lru_cache(256)
def _what_passes(code: CodeType, place: int) -> bool | None:
    """What must be answered at a place of the code so that a check passes; None at others.

    A jump follows, to the error or past it.
    """
    steps = [step for step in dis.get_instructions(code) if step.offset >= place]
    while steps and steps[0].opname == "TO_BOOL":
        steps.pop(0)
    if len(steps) < 2 or "JUMP" not in steps[0].opname:
        return None
    jump = steps[0]
    if not jump.opname.endswith(("IF_TRUE", "IF_FALSE")):
        return None
    jumps_if = jump.opname.endswith("IF_TRUE")
    after, target = steps[1:], [step for step in steps if step.offset >= jump.argval]
    if _fails(after, code) or _asks_again(after, jump.argval, code):
        return jumps_if
    return not jumps_if if jump.argval > place and _fails(target, code) else None


def _asks_again(steps: Sequence[dis.Instruction], passed: int, code: CodeType) -> bool:
    """Whether what follows is but one more chance to pass, as in ``assert up.all() or down.all()``:
    a jump, by which the code goes on where it does now, or fails."""
    for place, step in enumerate(steps):
        if "JUMP" in step.opname and step.opname.endswith(("IF_TRUE", "IF_FALSE")):
            return step.argval == passed and _fails(steps[place + 1 :], code)
        if "JUMP" in step.opname or step.opname.startswith(_OTHER_WAYS):
            return False
    return False


def _fails(steps: Sequence[dis.Instruction], code: CodeType) -> bool:
    """Whether nothing but an error follows, which the code itself does not catch."""
    if steps and _is_assertion(steps[0]):
        return not _caught(code, steps[0].offset)  # its text may be chosen among several
    for step in steps:
        if step.opname == "RAISE_VARARGS":
            return not _caught(code, step.offset)
        if "JUMP" in step.opname or step.opname.startswith(_OTHER_WAYS):
            return False
    return False


def _is_assertion(step: dis.Instruction) -> bool:
    return step.opname == "LOAD_ASSERTION_ERROR" or (
        step.opname == "LOAD_COMMON_CONSTANT" and step.argval is AssertionError
    )


@lru_cache(1024)
def _caught(code: CodeType, place: int) -> bool:
    """Whether an error at a place meets an ``except`` or ``finally`` of the code."""
    steps = list(dis.get_instructions(code))
    names = {step.offset: step.opname for step in steps}
    if sys.version_info < (3, 11):
        blocks = [step for step in steps if step.opname == "SETUP_FINALLY"]
        return any(block.offset < place < block.argval for block in blocks)
    after = {one.offset: other.opname for one, other in pairwise(steps)}
    return any(
        entry.start <= place < entry.end
        and names[entry.target] == "PUSH_EXC_INFO"
        and after[entry.target] != "WITH_EXCEPT_START"  # the end of a ``with``
        for entry in dis.Bytecode(code).exception_entries
    )


def _caught_by_a_caller(frame: FrameType | None) -> bool:
    """Whether code of the model's that called this one catches errors; not PyTorch, nor byoc."""
    while frame is not None and not frame.f_code.co_filename.startswith(_OURS):
        code = frame.f_code
        if not code.co_filename.startswith(_PYTORCH) and _caught(code, frame.f_lasti):
            return True
        frame = frame.f_back
    return False
