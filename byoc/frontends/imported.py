"""What every front end gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm

from byoc.deploy.metadata import (
    FixedInput,
    LabelledOutput,
    SourceFile,
    StateInfo,
    SymbolRange,
    TensorInfo,
)


@dataclass(frozen=True)
class Imported:
    """A network as a Relax module, and what the model says that it came from.

    ``module`` has the function ``main``. ``inputs`` are its parameters and ``outputs`` its results,
    in order, by the model's names; a symbolic axis of an input is as the caller gave it.
    ``source`` are the files that the model was read from, or its content where it was in memory.
    ``ranges`` are those of symbols that the model is for some sizes of only.
    ``axes`` says in one line what dynamic axes got that the caller gave no size, empty for none.
    ``states`` are kept from call to call; they are parameters behind those of ``inputs``.
    ``fixed`` are inputs of the model that the caller made constants; ``inputs`` lack them.
    ``labelled`` are outputs whose numbers stand for labels.
    ``mutated`` are inputs that are values of the model's own, which it changes; the outputs of
    these names are what they become. They have to be kept as states.
    ``less_general`` imports the model with other extents for these, if there may be any: for when
    something after the import fails.
    """

    module: tvm.IRModule
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    source: tuple[SourceFile, ...] = ()
    axes: str = ""
    ranges: tuple[SymbolRange, ...] = ()
    conditions: tuple[str, ...] = ()
    states: tuple[StateInfo, ...] = ()
    fixed: tuple[FixedInput, ...] = ()
    labelled: tuple[LabelledOutput, ...] = ()
    mutated: frozenset[str] = frozenset()
    less_general: Callable[[], Imported] | None = None
