"""The keywords of the public functions that partition and compile: names, types, defaults, once.

A function takes them as ``**keywords: Unpack[...]`` under ``takes``, which gives it a signature and
a docstring as if they were written out.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypedDict, TypeVar

from byoc.compiler.states import States
from byoc.frontends.onnx.fixed_inputs import FixedInputs
from byoc.partition.precision import PrecisionSpecs
from byoc.partition.prune import MIN_COMPUTE_BYTES
from byoc.partition.rules import Libraries
from byoc.patterns.registry import Predicate
from byoc.stages import Progress

_Function = TypeVar("_Function", bound=Callable[..., Any])


class PartitionKeywords(TypedDict, total=False):
    """These leave calls to TVM, whatever the kernels could do: ``skip_ops``, Relax operators by
    name (``relax.nn.softmax`` or ``softmax``); ``skip_nodes``, shell patterns of ONNX node names,
    or of variables in a module that did not come from ONNX; ``only``, the operators that may be
    offloaded, alone; ``predicate(node, call)``, asked about each call as in ``register_ext_op``.
    A module with marks (see ``mark``) has only marked bindings offloaded. A region without a
    contraction must compute on ``min_bytes`` bytes to be worth its call; 0 keeps every region.

    ``libraries`` are the kernel libraries to ask, in order: names (``builtin``, ``onednn``), paths
    of ``.py`` files or objects; ``conv2d=onednn`` and ``encoder/*=cblas`` force one for an operator
    or for named nodes. Without it, ``builtin`` computes everything. Where several can, ``choose``
    takes the first in ``order`` (the default), or by ``model`` the one that states the least cost;
    ``tuning_db``, a file that ``byoc.tune`` wrote, decides on library and algorithm of the layers
    that it knows by their times on this CPU (``measured``: the default database does). What is
    wrong with it is a ``TuningWarning``. ``tuning_machines`` are parts of the names of machines in
    ``tuning_db`` whose times count instead; of several, the library has the choices of all, and
    takes those of the machine that calls it.

    With ``exact``, NaN, infinities and huge numbers flow as through the operators' formulas: no
    Winograd, no joined branches, attention operator by operator, and no region is too small, as
    TVM's own kernels drop NaN in ``relu``, ``clip`` and ``maximum``. Numbers within their range are
    as right without it;
    docs/reliability.md has a table.

    ``precision`` is what networks of floats are multiplied in: ``fp32`` (the default), ``bf16`` or
    ``bf16x3``, with sums in fp32, or ``int8-data``, which rounds the data of products whose weight
    has 4 or 8 bits to bytes; ``softmax=fp32`` and ``head/*=fp32`` choose for an operator or for
    named nodes. Where a kernel gains nothing by it, it computes in fp32, and the report says
    why.

    With ``dump_ir``, the module after each pass is written to that folder as text, without
    weights.
    """

    skip_ops: Iterable[str]
    skip_nodes: Iterable[str]
    only: Iterable[str]
    predicate: Predicate | None
    libraries: Libraries
    choose: str | None
    tuning_db: str | os.PathLike[str] | None
    tuning_machines: Iterable[str]
    exact: bool
    min_bytes: int
    precision: PrecisionSpecs
    dump_ir: str | os.PathLike[str] | None


class CompileKeywords(PartitionKeywords, total=False):
    """``target`` is the machine to compile for (``codegen_cc.target.NAMES``), by default any CPU of
    this architecture. ``threads`` is stored as the number that a loaded model has by default;
    without it, that is all cores. ``allow_wrong`` names ONNX operators that are taken, with a
    warning, even in a form whose result is known or suspected to be wrong (see ``import_onnx``).
    ``progress`` is called with a stage's name when the stage begins.

    ``states`` names inputs whose value is that of an output of the call before, such as a decoder's
    keys and values: ``{"past.0.key": "present.0.key"}``, or ``True`` for all that are called as
    exporters call them (``past_key_values.*``, ``present.*``). The library keeps them; they are no
    inputs and outputs any more (see ``byoc.Model`` and docs/generation.md).

    ``fixed_inputs`` makes inputs of an ONNX model constants, each a number for all its elements or
    an array: ``{"use_cache_branch": True}``. They are no inputs of the library, and what depends on
    them alone, such as a branch that they choose, is decided when compiling.

    ``skip_ops``, ``skip_nodes``, ``only``, ``predicate``, ``libraries``, ``choose``, ``tuning_db``,
    ``tuning_machines``, ``exact``, ``min_bytes``, ``precision`` and ``dump_ir`` are those of
    ``partition_for_ext``, by times of ``threads`` threads, else one; where ``choose`` is
    ``measured``, what the database lacks is timed first (see ``byoc.tune``).
    """

    target: str | None
    threads: int | None
    allow_wrong: Iterable[str]
    progress: Progress | None
    states: States | None
    fixed_inputs: FixedInputs | None


#: What a keyword is where nobody gives it.
DEFAULTS: CompileKeywords = {
    "skip_ops": (),
    "skip_nodes": (),
    "only": (),
    "predicate": None,
    "libraries": None,
    "choose": None,
    "tuning_db": None,
    "tuning_machines": (),
    "exact": False,
    "min_bytes": MIN_COMPUTE_BYTES,
    "precision": (),
    "dump_ir": None,
    "target": None,
    "threads": None,
    "allow_wrong": (),
    "progress": None,
    "states": None,
    "fixed_inputs": None,
}


def takes(kind: type[Any]) -> Callable[[_Function], _Function]:
    """Let a function that ends in ``**keywords`` take those of ``kind``, a ``TypedDict`` of these.

    The function gets all of them, those that are not given with their defaults; others are a
    ``TypeError``. Its signature names each one, and the docstring of ``kind`` follows its own.
    """
    defaults = {name: DEFAULTS[name] for name in kind.__annotations__}

    def decorate(function: _Function) -> _Function:
        own = inspect.signature(function)
        listed = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
        known = {parameter.name for parameter in listed}

        @wraps(function)
        def checked(*given: Any, **keywords: Any) -> Any:
            for name in keywords:
                if name not in known:
                    raise TypeError(
                        f"{function.__name__}() got an unexpected keyword argument {name!r}"
                    )
            return function(*given, **(defaults | keywords))

        for name, default in defaults.items():
            type_ = kind.__annotations__[name].__forward_arg__
            listed.append(
                inspect.Parameter(
                    name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=type_
                )
            )
            known.add(name)
        checked.__signature__ = own.replace(parameters=listed)
        checked.__doc__ = f"{inspect.getdoc(function)}\n\n{inspect.getdoc(kind)}"
        return checked

    return decorate
