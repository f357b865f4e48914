"""A model of PyTorch as users give it: a module, an exported program, or the file of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from byoc.deploy.conditions import Demands, condition
from byoc.deploy.exchange import array_of, tensor_of
from byoc.deploy.metadata import SymbolRange, TensorInfo
from byoc.errors import ModelError
from byoc.frontends.torch.asserted import PassedChecks
from byoc.frontends.torch.bounded_tables import require_sole_readers
from byoc.frontends.torch.buffers import lost_constant
from byoc.frontends.torch.called import (
    attention_of_any_length,
    exported_layers,
    unwritten,
)
from byoc.frontends.torch.conditions import COUNTS, always_holds, conditions_of
from byoc.frontends.torch.converters.table import draws
from byoc.frontends.torch.declared_axes import joined_axes, traced_sizes, with_two_rows
from byoc.frontends.torch.derivatives import VIOLATED, traced_below_autograd
from byoc.frontends.torch.equal_sizes import joined_names
from byoc.frontends.torch.examples import require_traceable, taken_inputs
from byoc.frontends.torch.failures import decided_by_data as is_of_data
from byoc.frontends.torch.failures import reason_of, tells_where
from byoc.frontends.torch.known_constants import known_constants
from byoc.frontends.torch.known_numbers import known_numbers, sized_by_numbers
from byoc.frontends.torch.levels import left_levels
from byoc.frontends.torch.multiples import in_multiples, multiples_of, renamed
from byoc.frontends.torch.names import leaf_names
from byoc.frontends.torch.noted_guards import (
    require_open,
    symbol_names,
    traced_with_conditions,
)
from byoc.frontends.torch.open_functions import functions_of_any_size
from byoc.frontends.torch.opened_results import is_unknown, opened, opened_results
from byoc.frontends.torch.plain_numbers import PlainNumbers
from byoc.frontends.torch.quiet import nothing_written
from byoc.frontends.torch.scripts import as_module, with_scripts
from byoc.frontends.torch.settled_sizes import SettledSizes
from byoc.frontends.torch.single_rows import not_for_one
from byoc.frontends.torch.surroundings import traced_as_it_runs
from byoc.frontends.torch.symbols import Symbols, decided_by_data
from codegen_cc.dtypes import KERNEL_HALVES
from codegen_cc.errors import one_line

#: Why a module does not run once more after it was traced.
_KEEPS = (
    "the module keeps tensors from call to call where torch.export left its own, outside of"
    " buffers; make them inputs and results, or registered buffers"
)


@dataclass(frozen=True)
class Program:
    """An exported program, the module that it was made of where that is known, and its file.

    ``symbols`` are the user's names of PyTorch's symbols, ``plural`` those that may not be 1.
    ``derives``: the module computes derivatives. ``fixed`` says which axes, left to the tracer, are
    so. ``noted`` are the conditions that sizes must meet for the code to be what was traced. Raises
    ``ModelError`` for one that cannot be looked at.
    """

    exported: torch.export.ExportedProgram
    module: torch.nn.Module | None = None
    file: Path | None = None
    symbols: Mapping[str, str] = field(default_factory=dict)
    plural: frozenset[str] = frozenset()
    derives: bool = False
    fixed: str = ""
    noted: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        # At once, as importing traces again, and what that notes is nobody's code.
        noted = conditions_of(self.exported, self.symbols)
        sizes = {s.name: self._name(s.name) for s in _sizes_of(self.exported)}
        if joined := joined_names(noted, sizes.values(), self.symbols):
            named = {own: joined[name] for own, name in sizes.items() if name in joined}
            object.__setattr__(self, "symbols", {**self.symbols, **named})
            noted = conditions_of(self.exported, self.symbols)
        object.__setattr__(self, "noted", noted)

    def _name(self, symbol: str) -> str:
        return self.symbols.get(symbol, symbol)

    def inputs(self) -> list[tuple[str, int]]:
        """Name and place, among all leaves of the arguments, of each input that is a tensor."""
        kinds = torch.export.graph_signature
        given = [s for s in self.exported.graph_signature.input_specs if _is_user_input(s)]
        return [
            (spec.arg.name, place)
            for place, spec in enumerate(given)
            if isinstance(spec.arg, kinds.TensorArgument)
        ]

    def outputs(self) -> list[tuple[str, int]]:
        """Name and place, among all leaves of the result, of each output that is a tensor."""
        kinds = torch.export.graph_signature
        names = leaf_names(self.exported.call_spec.out_spec, "output")
        specs = [s for s in self.exported.graph_signature.output_specs if _is_user_output(s)]
        found = []
        for place, (name, spec) in enumerate(zip(names, specs, strict=True)):
            if isinstance(spec.arg, kinds.TensorArgument):
                found.append((name, place))
            elif not isinstance(spec.arg, kinds.ConstantArgument) or spec.arg.value is not None:
                told = spec.arg.value if isinstance(spec.arg, kinds.ConstantArgument) else "a size"
                raise ModelError(
                    f"output {name!r} is {told}; need tensors, which torch.tensor makes of a number"
                )
        return found

    def ranges(self) -> tuple[SymbolRange, ...]:
        """What each symbol was declared to be; up to 2, PyTorch's least size says nothing."""
        found = []
        for symbol in _sizes_of(self.exported):
            bounds = self.exported.range_constraints[symbol]
            least = int(bounds.lower) if int(bounds.lower) > 2 else 0
            least = max(least, 2 * (symbol.name in self.plural))
            most = int(bounds.upper) if bounds.upper.is_Integer else None
            if least or most is not None:
                name = self._name(symbol.name)
                factor = self.multiples.get(symbol.name, 1)
                most = None if most is None else most // factor
                found.append(SymbolRange(name, -(-least // factor), most))
        return tuple(found)

    @cached_property
    def multiples(self) -> Mapping[str, int]:
        """By PyTorch's symbols, what their sizes are multiples of. Raises ``ModelError``."""
        found = multiples_of(self.exported, self.noted, self.symbols)
        named = {self._name(symbol): factor for symbol, factor in found.items()}
        sizes = [symbol.name for symbol in _sizes_of(self.exported)]
        return {size: named[self._name(size)] for size in sizes if self._name(size) in named}

    def conditions(self) -> tuple[str, ...]:
        """What was ``noted``, with multiples of symbols in place of those that have ``multiples``;
        what holds of all multiples is left out."""
        return tuple(text for _, text in self._conditions())

    def _conditions(self) -> list[tuple[str, str]]:
        """The conditions, each as it was ``noted`` and with multiples."""
        factors = {self._name(symbol): n for symbol, n in self.multiples.items()}
        if not factors:
            return [(text, text) for text in self.noted]
        written = ((text, in_multiples(text, factors)) for text in self.noted)
        counts = dict.fromkeys(factors, COUNTS)
        return [t for t in written if "!=" in t[1] or not always_holds(condition(t[1]), counts)]

    def sizes(self) -> Symbols:
        """PyTorch's symbols as variables, without any so far."""
        settled = SettledSizes(self.conditions(), self.ranges())
        return Symbols(self.symbols, self.multiples, settled)

    def demands_on(self, inputs: Sequence[TensorInfo]) -> tuple[str, ...]:
        """The conditions on axes of inputs, as these are named, also that they are multiples."""
        counted = self._counted(inputs)
        names = {name: axis for axis, (name, _) in counted.items()}
        divisors = (f"{axis} % {factor} == 0" for axis, (_, factor) in counted.items())
        return (*(renamed(text, names) for text, _ in self._conditions()), *divisors)

    def ranges_of(self, inputs: Sequence[TensorInfo]) -> tuple[SymbolRange, ...]:
        """The ranges, those of symbols that count multiples as ranges of the axes themselves."""
        known = {declared.name: declared for declared in self.ranges()}
        found = []
        for axis, (name, factor) in self._counted(inputs).items():
            if (declared := known.get(name)) is not None:
                most = None if declared.most is None else declared.most * factor
                found.append(SymbolRange(axis, declared.least * factor, most))
        counted = {name for name, _ in self._counted(inputs).values()}
        return (*(r for name, r in known.items() if name not in counted), *found)

    def _counted(self, inputs: Sequence[TensorInfo]) -> dict[str, tuple[str, int]]:
        """By the axes of inputs that are multiples, the symbols that count these, and of what."""
        sizes = {node.name: node.meta.get("val") for node in self.exported.graph.nodes}
        found = {}
        for (given, _), info in zip(self.inputs(), inputs, strict=False):
            for size, extent in zip(sizes[given].shape, info.shape, strict=True):
                factor = 1 if isinstance(size, int) else self.multiples.get(str(size), 1)
                if factor > 1:
                    found.setdefault(str(extent), (self._name(str(size)), factor))
        return found

    def examples(self) -> dict[str, np.ndarray]:
        """The example inputs by name; empty where the program has none."""
        given = self.exported.example_inputs
        if given is None:
            return {}
        leaves = pytree.tree_leaves(given)
        return {name: array_of_tensor(leaves[place]) for name, place in self.inputs()}

    def nodes(self) -> Iterator[torch.fx.Node]:
        """The nodes of all graphs of the program."""
        for module in self.exported.graph_module.modules():
            if isinstance(module, torch.fx.GraphModule):
                yield from module.graph.nodes

    def halves(self) -> list[str]:
        """The dtypes of 16 bits that results have on the way or at the end."""
        found = (node.meta.get("val") for node in self.nodes())
        dtypes = {value.dtype for value in found if isinstance(value, torch.Tensor)}
        return [name for name in KERNEL_HALVES if getattr(torch, name) in dtypes]

    def draws(self) -> bool:
        """Whether PyTorch draws random numbers, others at each call."""
        return any(draws(node.target) for node in self.nodes())

    def answer(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What PyTorch computes of inputs by name, and what becomes of inputs that it writes.

        It has the layers that it exports: transformers of its own have others for eager calls,
        which give 0 for what a mask of padding hides.
        """
        module = self.exported.module() if self.module is None else self.module
        try:
            return self._answer(module, arrays)
        except RuntimeError as error:
            if "FakeTensor" in str(error):
                raise ModelError(_KEEPS) from error
            raise

    def traced_answer(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What PyTorch computes of inputs by the exported program, be there a module or not."""
        return self._answer(self.exported.module(check_guards=False), arrays)

    def _answer(
        self, module: torch.nn.Module, arrays: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        leaves = list(pytree.tree_leaves(self.exported.example_inputs))
        given = {}
        for name, place in self.inputs():
            array = np.array(arrays[name])
            given[name] = leaves[place] = torch.from_dlpack(tensor_of(array)).clone()
        written = {name: tensor._version for name, tensor in given.items()}
        results = self._called(module, leaves)
        found = {name: array_of_tensor(results[place]) for name, place in self.outputs()}
        after = {n: array_of_tensor(t) for n, t in given.items() if t._version != written[n]}
        if not self.exported.graph_signature.user_inputs_to_mutate:
            # A view that got another shape in place (unsqueeze_) counts as written, too.
            after = {n: a for n, a in after.items() if a.tobytes() != np.array(arrays[n]).tobytes()}
        return found | after

    def with_plural_axes(self) -> Program:
        """The program with the axes that may not be 1, as its module tells them."""
        if self.module is None or not self.exported.range_constraints or self.draws():
            return self
        demands = Demands((), self.noted)

        def is_refused(sizes: Mapping[str, int]) -> bool:
            return bool(demands.problem({self._name(n): s for n, s in sizes.items()}))

        def answer(callee: torch.nn.Module, leaves: list[Any]) -> list[Any]:
            with unwritten(self.module), nothing_written():
                return self._called(callee, leaves)

        traced = self.exported.module(check_guards=False)
        answers = (partial(answer, callee) for callee in (self.module, traced))
        return replace(self, plural=not_for_one(self.exported, *answers, is_refused, self._name))

    def _called(self, module: torch.nn.Module, leaves: list[Any]) -> list[Any]:
        args, kwargs = pytree.tree_unflatten(leaves, self.exported.call_spec.in_spec)
        with torch.set_grad_enabled(self.derives), exported_layers(), left_levels():
            return pytree.tree_leaves(opened(module(*args, **kwargs)))


def _sizes_of(program: torch.export.ExportedProgram) -> list[Any]:
    """The symbols of inputs' sizes."""
    symbols = (s for s in program.range_constraints if s.is_Symbol)
    return [symbol for symbol in symbols if not decided_by_data(symbol)]


def _is_user_input(spec: Any) -> bool:
    return spec.kind is torch.export.graph_signature.InputKind.USER_INPUT


def _is_user_output(spec: Any) -> bool:
    return spec.kind is torch.export.graph_signature.OutputKind.USER_OUTPUT


def array_of_tensor(tensor: torch.Tensor) -> np.ndarray:
    """A copy of a tensor, of any dtype that libraries have."""
    dense = tensor.detach().contiguous()
    return np.array(dense.numpy() if dense.dtype == torch.bool else array_of(dense))


def exported(
    model: torch.nn.Module | torch.export.ExportedProgram,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    within_dynamo: bool = False,
) -> Program:
    """Trace a module on example inputs: positional ones, or by name where they are a mapping.

    ``dynamic_shapes`` is that of ``torch.export.export``. ``within_dynamo``: the tracer of
    ``torch.compile`` is at work, which cannot be asked once more meanwhile. Raises ``ModelError``
    for a module in training mode, without inputs, or that PyTorch cannot trace.
    """
    if isinstance(model, torch.export.ExportedProgram):
        if example_inputs is not None or dynamic_shapes is not None:
            raise ModelError("an exported program has its own example inputs and shapes")
        return Program(model)
    if example_inputs is None:
        raise ModelError(f"module {type(model).__name__} needs example_inputs to be traced")
    model = as_module(model)
    require_traceable(model)
    args, kwargs = with_two_rows(model, taken_inputs(example_inputs), dynamic_shapes)
    trace = partial(_traced, model, args, kwargs, within_dynamo, PlainNumbers(), dynamic_shapes)
    declared = partial(traced_sizes, model, shapes=dynamic_shapes)
    program = failure = None
    try:
        attempts = partial(traced_with_conditions, trace, declared, dynamic_shapes)
        program = with_scripts(model, attempts)
    except Exception as error:
        failure = error
    derives = not within_dynamo and _may_derive(program, failure)
    if derives and (below := traced_below_autograd(model, partial(trace, dynamic_shapes))):
        program = below
    elif program is None:
        why = f"PyTorch cannot export {type(model).__name__}: {reason_of(failure)}"
        raise ModelError(why) from failure
    else:
        derives = False
    require_sole_readers(program)
    names = symbol_names(declared(program))
    made = Program(program, model, symbols=names, derives=derives)
    extents = [n for array in made.examples().values() for n in array.shape]
    require_open(made.noted, names.values(), 2 * max(extents, default=0) + 2)
    return made.with_plural_axes()


def _may_derive(program: torch.export.ExportedProgram | None, failure: Exception | None) -> bool:
    """Whether a trace above autograd lost derivatives, or failed and perhaps for such ones."""
    if program is not None:
        return lost_constant(program) is not None
    return not is_of_data(failure) and VIOLATED not in str(failure)


def _traced(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    within_dynamo: bool,
    numbers: PlainNumbers,
    declared: Any,
    shapes: Any,
    below_autograd: bool = False,
) -> torch.export.ExportedProgram:
    """What PyTorch's tracer makes of a module; results of classes that it does not know are
    opened. ``below_autograd``: what derivatives compute is part of it, not that they are asked."""

    def trace(strict: bool = False) -> torch.export.ExportedProgram:
        with torch.set_grad_enabled(below_autograd), ExitStack() as stack:
            stack.enter_context(traced_as_it_runs())
            stack.enter_context(functions_of_any_size(model))
            if not strict:
                stack.enter_context(joined_axes(model, (args, kwargs), declared))
            if below_autograd:
                below = partial(torch.export._trace._export, strict=False, pre_dispatch=False)
                return below(model, args, kwargs, dynamic_shapes=shapes)
            return torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=strict)

    try:
        return numbers.left_open(partial(_followed, model, trace, within_dynamo))
    except Exception as error:
        if not is_unknown(error):
            raise
    with opened_results(model):
        return numbers.left_open(partial(_followed, model, trace, within_dynamo))


def _followed(
    model: torch.nn.Module,
    trace: Callable[..., torch.export.ExportedProgram],
    within_dynamo: bool,
) -> torch.export.ExportedProgram:
    """The trace of a module. Where numbers among its buffers decide what is computed, they are as
    now; where ``int(x.item())`` does, ``torch.compile`` follows it. Assertions are true."""
    known = partial(_with_known_numbers, model, trace)
    try:
        program = trace()
        if sized_by_numbers(program):
            with suppress(Exception):
                return known()
        return program
    except Exception as error:
        if "specialized it to be a constant" in str(error) and not within_dynamo:
            # len(x) is one number for this tracer alone.
            with suppress(Exception):
                return trace(True)
        if not is_of_data(error):
            raise
        any_length = attention_of_any_length()(trace)
        others = [any_length, known, partial(known, floats=True), partial(any_length, True)]
        last = error
        for other in others[: 3 if within_dynamo else 4]:
            try:
                with PassedChecks():
                    return other()
            except Exception as failure:
                if is_unknown(failure):
                    raise
                last = failure if tells_where(failure) else last
        raise last from None


def _with_known_numbers(
    model: torch.nn.Module, trace: Callable[..., torch.export.ExportedProgram], floats: bool = False
) -> torch.export.ExportedProgram:
    with known_constants(), known_numbers(model, floats) as written:
        program = trace()
        if written() is not None:
            raise ModelError(f"the module changes its number {written()!r}")
        return program


def read(path: Path) -> Program:
    """Read a .pt2 file. Raises ``ModelError``."""
    if not path.is_file():
        raise ModelError(f"{path} does not exist")
    import torch.ao.quantization.fx._decomposed  # the operators of quantised networks

    try:
        with nothing_written():
            program = torch.export.load(path)
    except Exception as error:
        raise ModelError(f"{path} is no exported program of PyTorch: {one_line(error)}") from error
    return Program(program, file=path)
