"""Arguments of the kernels of a table: which names there are, and what each becomes in a call."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import numpy as np

from codegen_cc.activations import ACTIVATIONS, parameters_of
from codegen_cc.dim import Dim, is_static, product
from codegen_cc.dtypes import KERNEL_DTYPES
from codegen_cc.errors import LibraryError
from codegen_cc.libraries.kernel import Kernel
from codegen_cc.node import JOINED, STEP_OPERANDS, Node
from codegen_cc.operator import Layout, Operator, operator_of
from codegen_cc.operators.epilogue import epilogue_struct, joined_role
from codegen_cc.operators.matmul import place_matmul
from codegen_cc.operators.placement import Placement
from codegen_cc.plan import call
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.tensors import Tensor, strides_for
from codegen_cc.region.graph import RegionNode

#: Dense memory in whatever order, the same for every operand and the result.
ANY_ORDER = "any"
_LOGICAL = {3: "NCW", 4: "NCHW", 5: "NCDHW"}


def told(kernel: Kernel) -> set[str]:
    """The names that a kernel is given, those of its preparation included."""
    names = [*kernel.arguments, *(kernel.prepare_arguments if kernel.prepare else ())]
    return {name for name in names if isinstance(name, str)}


def order_of(operator: Operator, role: str, layout: str) -> tuple[int, ...] | None:
    """Axes from outermost to innermost that a layout means, or None where it means nothing."""
    logical = operator.weight_layout if role == "weight" else _LOGICAL.get(len(layout))
    if not logical or sorted(layout) != sorted(logical):
        return None
    return tuple(logical.index(letter) for letter in layout)


# ---------------------------------------------------------------- the table itself


def check_names(kernel: Kernel, what: str) -> None:
    """Raise ``LibraryError`` for an argument, role, step or attribute that does not exist."""
    operator = operator_of(kernel.op)
    known = _known(kernel, operator)
    for name in (*kernel.arguments, *(kernel.prepare_arguments if kernel.prepare else ())):
        if isinstance(name, str) and not _is_known(name, known, operator):
            raise LibraryError(f"{what}: unknown argument {name!r}{_close(name, known)}")
        if not isinstance(name, str | int | float):
            raise LibraryError(f"{what}: argument {name!r}; need a name or a number")
    roles = {*operator.roles, *operator.results}
    for field, keys, allowed in (
        ("attributes", kernel.attributes, {*operator.attributes, "batch"}),
        ("dtypes", kernel.dtypes, roles),
        ("layouts", kernel.layouts, {*roles, *JOINED}),
        ("pack", kernel.pack, set(operator.roles)),
    ):
        for key in keys:
            if key not in allowed and not _is_known(key, allowed, operator):
                raise LibraryError(f"{what}: {field} of unknown {key!r}{_close(key, allowed)}")
    _check_steps(kernel, what)
    _check_layouts(kernel, what)
    _check_pairs(kernel, what)


def _known(kernel: Kernel, operator: Operator) -> set[str]:
    names = {*operator.roles, *operator.results, *operator.facts.names, *kernel.epilogue}
    names |= {"scratch", "state", "size", "epilogue"}
    steps = [step for step in kernel.epilogue if parameters_of(step)] + ["activation"]
    names |= {f"{step}.{parameter}" for step in steps for parameter in ("alpha", "beta")}
    names |= {f"attr.{attribute}" for attribute in operator.attributes}
    return names | ({"params"} if operator.facts.place else set())


def _is_known(name: str, known: Iterable[str], operator: Operator) -> bool:
    """Whether a name is known, or is one element of a list, or an extent of a tensor."""
    if name in known or operator.is_role(name):
        return True
    stem, _, index = name.rpartition(".")
    if not index.isdecimal():
        return False
    extents = operator.is_role(stem) or stem in (*operator.results, *STEP_OPERANDS)
    return (extents or stem.startswith("attr.")) and (stem in known or operator.is_role(stem))


def _close(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, sorted(known), 1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(known))}"


def _check_steps(kernel: Kernel, what: str) -> None:
    allowed = operator_of(kernel.op).epilogue
    names = told(kernel)
    for step in kernel.epilogue:
        kind = "activation" if step in ACTIVATIONS else step
        if kind not in allowed:
            need = ", ".join(dict.fromkeys(allowed)) or "none"
            raise LibraryError(f"{what}: epilogue step {step!r}; {kernel.op} has {need}")
        if "epilogue" in names:
            continue
        if kernel.epilogue.count(step) > 1 or (kind == "activation" and _two_activations(kernel)):
            raise LibraryError(f"{what}: two activations; take the argument 'epilogue'")
        wanted = [step, *(f"{step}.{parameter}" for parameter in parameters_of(step))]
        for name in wanted:
            if name not in names and not (kind == "activation" and "activation" in names):
                raise LibraryError(
                    f"{what}: epilogue step {step!r}, but no argument {name!r} (or 'epilogue');"
                    " the kernel could not know of it"
                )


def _two_activations(kernel: Kernel) -> bool:
    """Whether ``activation`` could mean either of two steps."""
    steps = [step for step in kernel.epilogue if step not in STEP_OPERANDS]
    return len(steps) > 1 and "activation" in (*told(kernel), *steps)


def _check_layouts(kernel: Kernel, what: str) -> None:
    operator = operator_of(kernel.op)
    for role, layout in kernel.layouts.items():
        if layout == ANY_ORDER and operator.elementwise:
            continue
        if order_of(operator, role, layout) is None:
            raise LibraryError(
                f"{what}: layout {layout!r} of {role}; need the letters of"
                f" {operator.weight_layout if role == 'weight' else 'NCHW, NCW or NCDHW'} in some"
                " order"
            )
        if role in kernel.pack:
            raise LibraryError(f"{what}: {role} has a layout and is packed; give one of them")
    if ANY_ORDER in kernel.layouts.values():
        others = {*operator.roles, *operator.results} - {
            role for role, layout in kernel.layouts.items() if layout == ANY_ORDER
        }
        if others:
            raise LibraryError(
                f"{what}: layout 'any' needs all operands and the output to have it, and"
                f" {', '.join(sorted(others))} has not"
            )
    strided = told(kernel) & {"params", "x_stride", "y_stride"}
    through = ["epilogue"] if "epilogue" in told(kernel) and {*JOINED} & {*kernel.epilogue} else []
    for name in (*sorted(strided), *through):
        sides = [kernel.layouts.get(role) for role in ("input", operator.results[0])]
        if operator.layout is Layout.IMAGE and sides != ["NHWC", "NHWC"]:
            raise LibraryError(
                f"{what}: argument {name!r} describes channels-last images; give input and output"
                " the layout NHWC"
            )


def _check_pairs(kernel: Kernel, what: str) -> None:
    """Fields that mean something only together with an argument, and the other way round."""
    names = told(kernel)
    results = operator_of(kernel.op).results
    for name in results:
        if name not in kernel.arguments:
            raise LibraryError(f"{what}: no argument {name!r}; the result could not be written")
    if ("state" in names) != (kernel.state is not None):
        raise LibraryError(f"{what}: field and argument 'state' need each other")
    if ("scratch" in kernel.arguments) != (kernel.scratch != 0):
        raise LibraryError(f"{what}: field and argument 'scratch' need each other")
    computed = {*results, "scratch", "params", "epilogue", *JOINED}
    if kernel.prepare and (late := computed & set(map(str, kernel.prepare_arguments))):
        raise LibraryError(
            f"{what}: {kernel.prepare} is called before there is {', '.join(sorted(late))};"
            " give it constants and sizes"
        )


# ---------------------------------------------------------------- one call


class TableCall:
    """The operands of a node where a kernel of a table wants them, and the call itself."""

    def __init__(self, kernel: Kernel, node: RegionNode, builder: PlanBuilder) -> None:
        self.kernel, self.node, self.builder = kernel, node, builder
        self.descriptor: Node = node.node
        self.operator = operator_of(kernel.op)
        self.numbers = self.operator.facts.numbers(node.node)
        self._operands: dict[str, Tensor] = {}
        self._order = self._common_order()
        self.placed = self._placed() if "params" in told(kernel) else None
        self.results = self._spaces()
        self.state = builder.state(kernel.state) if kernel.state else None

    def record(self) -> None:
        """Record the preparation, if there is one, and the call; place the results."""
        kernel, shapes = self.kernel, [list(o.shape) for o in self.descriptor.operands]
        comment = f"{self.descriptor.composite}: {', '.join(map(str, shapes))} -> "
        comment += ", ".join(str(list(result.shape)) for result in self.descriptor.results)
        results = list(self.results.values())
        if kernel.prepare:
            given = [self._argument(name) for name in kernel.prepare_arguments]
            once = self.builder.state("ext_once")
            arguments = [once, kernel.prepare, *given]
            self.builder.call("EXT_ONCE", arguments, results, f"{comment}, once")
        arguments = [self._argument(name) for name in kernel.arguments]
        self.builder.call(kernel.function, arguments, results, comment, kernel.returns)
        for value, tensor in zip(self.node.outputs, results, strict=True):
            self.builder.place(value, tensor)

    def _argument(self, name: str | int | float) -> call.Argument:
        if not isinstance(name, str):
            return int(name) if isinstance(name, bool) else name
        if self.node.role(name) is not None:
            return self._operand(name)
        if name in self.results:
            return self.results[name]
        special = {
            "state": lambda: self.state,
            "scratch": self._scratch,
            "params": lambda: self.placed.params,
            "epilogue": self._epilogue,
            "size": lambda: product(self.descriptor.shape),
        }
        if name in special:
            return special[name]()
        if self.operator.is_role(name) or name in STEP_OPERANDS:
            return None  # an operand that this node has not
        if name in self.numbers:
            return self.numbers[name]
        return self._step(name) if self._is_step(name) else indexed(self.descriptor, name)

    # ------------------------------------------------------------ operands

    def _placed(self) -> Placement:
        """The operator's block; one side of a product may be in the kernel's own format."""
        if "rhs" not in self.kernel.pack:
            return self.operator.facts.place(self.node, self.builder)
        shape = self.node.role("rhs").shape
        strides = strides_for(shape, tuple(range(len(shape))))[:-2]
        steps = tuple(0 if e == 1 else s for e, s in zip(shape[:-2], strides, strict=True))
        return place_matmul(self.node, self.builder, (self._operand("rhs"), steps))

    def _operand(self, role: str) -> Tensor:
        if role not in self._operands:
            self._operands[role] = self._place(role)
        return self._operands[role]

    def _place(self, role: str) -> Tensor:
        value = self.node.role(role)
        if role in self.kernel.pack:
            return self._packed(role, value.data)
        if self.placed is not None and role in self.placed.inputs:
            return self.placed.inputs[role]
        if role == "bias":
            return self.builder.constant(value.data.reshape(-1))
        order = self._order_for(role)
        if value.data is not None and order is not None:  # turned here, not at each run
            return self.builder.constant(np.ascontiguousarray(value.data.transpose(order)))
        return self.builder.dense(self.builder.tensor(value), order)

    def _packed(self, role: str, data: np.ndarray) -> Tensor:
        packed = self.kernel.pack[role](data, self.descriptor)
        if not isinstance(packed, np.ndarray):
            raise TypeError(f"pack of {role} gave {type(packed).__name__}; need an array")
        packed = np.ascontiguousarray(packed)
        if str(packed.dtype) not in KERNEL_DTYPES:  # bytes, for a format of the kernel's own
            packed = packed.reshape(-1).view(np.bool_)
        return self.builder.constant(packed)

    def _order_for(self, role: str) -> tuple[int, ...] | None:
        layout = self.kernel.layouts.get(role)
        if layout is None and role in JOINED:
            return self._order_for(self.operator.results[0])
        if layout == ANY_ORDER:
            return self._order
        return None if layout is None else order_of(self.operator, role, layout)

    def _common_order(self) -> tuple[int, ...] | None:
        """The order of the first computed operand, for kernels that take any."""
        if ANY_ORDER not in self.kernel.layouts.values():
            return None
        computed = next(value for value in self.node.inputs if value.data is None)
        return self.builder.tensor(computed).order()

    def _spaces(self) -> dict[str, Tensor]:
        """Where the results go, by name; a parameter block describes the first one."""
        found = {}
        for name, result in self.descriptor.named_results.items():
            if self.placed is not None and not found:
                found[name] = self.placed.output
            else:
                order = self._order_for(name)
                found[name] = self.builder.space(result.shape, result.dtype, order)
        return found

    def _scratch(self) -> Tensor | None:
        wanted = self.kernel.scratch
        nbytes = wanted(self.descriptor) if callable(wanted) else wanted
        if isinstance(nbytes, float) and nbytes.is_integer():
            nbytes = int(nbytes)
        if (
            nbytes is None
            or isinstance(nbytes, float | str)
            or (is_static([nbytes]) and nbytes < 0)
        ):
            raise ValueError(f"scratch gave {nbytes!r}; need a number of bytes")
        return None if is_static([nbytes]) and nbytes == 0 else self.builder.scratch(nbytes)

    # ------------------------------------------------------------ epilogue

    def _epilogue(self) -> call.Argument:
        if self.placed is not None:
            return self.placed.epilogue
        if not self.descriptor.epilogue:
            return None
        residual, stride = None, 0
        role = joined_role(self.node)
        if role is not None:
            residual = self._operand(role)
            shape = self.descriptor.shape
            stride = shape[self.operator.channel_axis]
        return epilogue_struct(self.node, self.builder, residual, stride)

    def _is_step(self, name: str) -> bool:
        return name.partition(".")[0] in (*self.kernel.epilogue, "activation")

    def _step(self, name: str) -> call.Argument:
        """``relu``: 1 or 0; ``activation``: its kind; ``clip.alpha``: a parameter."""
        kind, _, parameter = name.partition(".")
        steps = [step for step in self.descriptor.epilogue if step.kind in ACTIVATIONS]
        found = next((step for step in steps if kind in (step.kind, "activation")), None)
        if parameter:
            return float(getattr(found, parameter)) if found else 0.0
        if kind == "activation":
            return f"EXT_{found.kind.upper()}" if found else "EXT_IDENTITY"
        return int(found is not None)


def indexed(node: Node, name: str) -> Dim | float:
    """``input.0``: an extent; ``attr.axis``, ``attr.strides.0``: an attribute.

    Raises ``LookupError`` with the reason where the node has none.
    """
    if name.startswith("attr."):
        _, attribute, *index = name.split(".")
        if attribute not in node.attrs:
            raise LookupError(f"no attribute {attribute}")
        value = node.attrs[attribute]
        if index:
            if not isinstance(value, list | tuple) or int(index[0]) >= len(value):
                raise LookupError(f"{attribute} is {value}, without element {index[0]}")
            value = value[int(index[0])]
        if isinstance(value, str | list | tuple):
            raise LookupError(f"{attribute} is {value!r}; a kernel is given numbers")
        return int(value) if isinstance(value, bool) else value
    role, _, axis = name.partition(".")
    tensor = node.named_results.get(role) or node.operand(role)
    if tensor is None:
        raise LookupError(f"no operand {role}")
    shape = tensor.shape
    if not axis or int(axis) >= len(shape):
        raise LookupError(f"{role} has rank {len(shape)}, without axis {axis or '?'}")
    return shape[int(axis)]
