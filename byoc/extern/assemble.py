"""A prototype and its annotation become a signature, or a reason why they cannot."""

from __future__ import annotations

from dataclasses import replace

from byoc.errors import ExternError
from byoc.extern.attributes import attributes_of
from byoc.extern.expression import Expression
from byoc.extern.header import Parameter, Prototype
from byoc.extern.operators import OPERATORS, Operator
from byoc.extern.reference_check import check_reference
from byoc.extern.roles import (
    INPUT,
    OUTPUT,
    WEIGHT,
    Annotation,
    AttributeRole,
    AxisRole,
    OfTensorRole,
    Role,
    SizeRole,
    TensorRole,
    ValueRole,
)
from byoc.extern.signature import Argument, Attribute, Binding, Signature, Tensor
from byoc.extern.spelling import python_name
from codegen_cc.plan.tensors import MAX_AXES


def assemble(prototype: Prototype, annotation: Annotation, header: str) -> Signature:
    """The signature of a function of the file ``header``.

    Raises ``ExternError``, one line that begins with file and line, for what cannot be served.
    """
    return _Assembly(prototype, annotation, header).signature()


class _Assembly:
    def __init__(self, prototype: Prototype, annotation: Annotation, header: str) -> None:
        self.prototype = prototype
        self.annotation = annotation
        self.roles = dict(annotation.roles)
        self.header = header
        self.op: Operator | None = None
        self.relax: str | None = None

    def fail(self, message: str, name: str | None = None) -> ExternError:
        """The error about an argument, at its entry, or about the function, at its prototype."""
        place = f"{self.header}:{self.prototype.line}"
        if name in self.annotation.lines:
            place = self.annotation.place(name)
        return ExternError(f"{place}: {self.prototype.name}: {message}")

    def signature(self) -> Signature:
        """Check one thing after another; later checks rely on earlier ones."""
        self._operator()
        self._roles()
        self._aliases()
        inputs, outputs = self._tensors()
        attributes = attributes_of(self.prototype, self.roles, self.op, self.fail)
        bindings = self._bindings(inputs, attributes)
        known = {b.name for b in bindings} | {a.name for a in attributes}
        lets = self._lets(known, {tensor.name for tensor in (*inputs, *outputs)})
        known |= {name for name, _ in lets}
        self._spellings((*inputs, *outputs), attributes, known)
        self._runs((*inputs, *outputs), attributes, known)
        for tensor in (*inputs, *outputs):
            for axis in tensor.shape:
                self._check_names(axis.expression, known, tensor.name)
        arguments = tuple(self._argument(p, known, lets) for p in self.prototype.parameters)
        attributes = self._divisors(attributes, lets, (*inputs, *outputs))
        signature = Signature(
            self.prototype,
            self.header,
            inputs,
            outputs,
            attributes,
            bindings,
            lets,
            arguments,
            self.op,
            self.relax,
            self.annotation.reference,
        )
        self._reference(signature)
        return signature

    def _reference(self, signature: Signature) -> None:
        """There is something to test against, and it is harmless."""
        if signature.reference is None:
            if self.op is None:
                raise self.fail(
                    'no reference to test against; add reference="..." with a NumPy expression, or '
                    f"op= with one of {', '.join(OPERATORS)}"
                )
            return
        names = [tensor.name for tensor in signature.inputs] + list(signature.keywords())
        names = [python_name(name) for name in names]
        problem = check_reference(signature.reference, names, len(signature.outputs))
        if problem is not None:
            raise self.fail(f"reference: {problem}")

    def _operator(self) -> None:
        op = self.annotation.op
        if op is None:
            return
        if op.startswith("relax."):
            self.relax = op
        elif op in OPERATORS:
            self.op = OPERATORS[op]
            self.relax = self.op.relax
        else:
            raise self.fail(
                f"op={op} is not known; known are {', '.join(OPERATORS)}, and any Relax operator"
                " by its full name, such as relax.nn.relu"
            )

    def _roles(self) -> None:
        """Every argument has a role that its C type can carry, and nothing else has one."""
        parameters = {parameter.name: parameter for parameter in self.prototype.parameters}
        for parameter in parameters.values():
            if parameter.name in ("op", "reference"):
                raise self.fail(
                    f"an argument is called {parameter.name}, a word of the annotation; "
                    "call it something else in the prototype"
                )
            role = self.roles.get(parameter.name)
            if role is None:
                raise self.fail(
                    f"argument {parameter.name} ({parameter.text}) has no role; "
                    f"add {parameter.name}=... to the annotation"
                )
            self._fits(parameter, role)
        for name, role in self.roles.items():
            free = isinstance(role, AttributeRole | AxisRole | ValueRole)
            if name not in parameters and not free:
                raise self.fail(
                    f"the annotation names {name}, which the prototype does not have; "
                    f"it has {', '.join(parameters) or 'no arguments'}",
                    name,
                )

    def _fits(self, parameter: Parameter, role: Role) -> None:
        name, scalar, text = parameter.name, parameter.scalar, parameter.text
        if isinstance(role, TensorRole):
            if not parameter.pointer:
                raise self.fail(f"{text} is no pointer, but {name} is {role.role}", name)
            if scalar.dtype is None:
                raise self.fail(f"{text}: its element type {scalar.why}", name)
            if role.role == OUTPUT and parameter.const:
                raise self.fail(f"{text} is const, but {name} is an output; drop const", name)
            if role.role != OUTPUT and not parameter.const:
                raise self.fail(
                    f"{text} may be written, but {name} is an input, which TVM may share; "
                    "declare it const, or make it an output",
                    name,
                )
        elif isinstance(role, OfTensorRole) and role.what == "shape":
            if not (parameter.pointer and parameter.const and scalar.dtype == "int64"):
                raise self.fail(f"{text} cannot take a shape; need const int64_t*", name)
        elif parameter.pointer:
            raise self.fail(f"{text} is a pointer, but its role is that of a number", name)
        elif isinstance(role, SizeRole | OfTensorRole | AxisRole) and scalar.kind != "int":
            raise self.fail(f"{text} cannot take a size; need an integer", name)

    def _aliases(self) -> None:
        """Where two arguments take one attribute, the second becomes an expression of the first."""
        first: dict[AttributeRole, str] = {}
        kinds = {p.name: p.scalar.kind for p in self.prototype.parameters}
        for name, role in self.roles.items():
            if not isinstance(role, AttributeRole) or role.name is None:
                continue
            other = first.setdefault(replace(role, values=()), name)
            if kinds.get(other, "int") != kinds.get(name, "int"):
                raise self.fail(f"{other} and {name} are one attribute of two C types", name)
            if other != name:
                self.roles[name] = ValueRole(Expression.parse(other))

    def _tensors(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        found = [
            (parameter, role)
            for parameter in self.prototype.parameters
            if isinstance(role := self.roles[parameter.name], TensorRole)
        ]
        given = [pair for pair in found if pair[1].role != OUTPUT]
        results = [pair for pair in found if pair[1].role == OUTPUT]
        if not results:
            raise self.fail("no output: no argument is output[...]; a kernel fills its results")
        if not given:
            raise self.fail("no input: no argument is input[...], and sizes come from inputs")
        names = self._operand_roles([(p.name, role.role) for p, role in given], len(results))
        names += [OUTPUT] * len(results)
        tensors = [
            Tensor(p.name, p.scalar.dtype, name, self._layout(p, role, name), role.shape, index)
            for index, ((p, role), name) in enumerate(zip(given + results, names, strict=True))
        ]
        return tuple(tensors[: len(given)]), tuple(tensors[len(given) :])

    def _operand_roles(self, given: list[tuple[str, str]], results: int) -> list[str]:
        """The operand of the operator that each input is: as named, or in the order left."""
        if self.op is None:
            for name, role in given:
                if role not in (INPUT, WEIGHT):
                    raise self.fail(f"{name} has the unknown role {role}", name)
            return [role for _, role in given]
        roles = self.op.roles
        if len(given) != len(roles) or results != 1:
            raise self.fail(
                f"op {self.op.name} has the operands {', '.join(roles)} and one result; the"
                f" annotation has {len(given)} inputs and {results} outputs"
            )
        named = [role for _, role in given if role in roles]
        # "input" and "weight" are operands of some operators and general words for others.
        left = [role for role in roles if role not in named]
        assigned = []
        for name, role in given:
            if role in roles and role not in assigned:
                assigned.append(role)
            elif role in (INPUT, WEIGHT) and left:
                assigned.append(left.pop(0))
            else:
                raise self.fail(
                    f"{name} is {role}; op {self.op.name} has {', '.join(roles)}, each once", name
                )
        return assigned

    def _layout(self, parameter: Parameter, role: TensorRole, operand: str) -> str | None:
        usual = self.op.layouts.get(operand) if self.op is not None else None
        layout = role.layout or usual
        if role.layout is not None and (usual is None or sorted(usual) != sorted(role.layout)):
            need = f"an order of {usual}" if usual else "none here"
            raise self.fail(
                f"layout {role.layout} of {parameter.name}; need {need}", parameter.name
            )
        runs = any(axis.run for axis in role.shape)
        if layout is not None and (runs or len(role.shape) != len(layout)):
            raise self.fail(
                f"{parameter.name} has the layout {layout}; its shape needs {len(layout)} entries",
                parameter.name,
            )
        return layout

    def _bindings(
        self, inputs: tuple[Tensor, ...], attributes: tuple[Attribute, ...]
    ) -> tuple[Binding, ...]:
        """The first place of each name in the shapes of the inputs."""
        taken = {attribute.name for attribute in attributes}
        taken |= {n for n, r in self.roles.items() if isinstance(r, ValueRole)}
        found: dict[str, Binding] = {}
        for tensor in inputs:
            for position, axis in enumerate(tensor.shape):
                name = axis.expression.name
                if isinstance(self.roles.get(name or ""), TensorRole):
                    raise self.fail(f"{name} is a tensor; call a size something else", tensor.name)
                if name is None or name in found or (name in taken and not axis.run):
                    continue
                found[name] = Binding(name, tensor, position)
        return tuple(found.values())

    def _lets(self, known: set[str], tensors: set[str]) -> tuple[tuple[str, Expression], ...]:
        """Sizes that follow from others, each after those that it needs."""
        waiting = {
            name: role.expression
            for name, role in self.roles.items()
            if isinstance(role, ValueRole)
        }
        for name, expression in waiting.items():
            for used in expression.names():
                if used in tensors:
                    raise self.fail(f"{used} is a tensor, not a size", name)
        ready: list[tuple[str, Expression]] = []
        known = set(known)
        while waiting:
            able = [n for n, e in waiting.items() if known.issuperset(e.names())]
            if not able:
                name, expression = next(iter(waiting.items()))
                missing = [n for n in expression.names() if n not in known]
                raise self._unknown(missing[0], name)
            for name in able:
                ready.append((name, waiting.pop(name)))
                known.add(name)
        return tuple(ready)

    def _unknown(self, size: str, name: str) -> ExternError:
        return self.fail(
            f"nothing determines the size {size}: no input's shape has it alone; "
            f"say how it follows from others, as in {size}=(h-kh)//stride+1",
            name,
        )

    def _check_names(self, expression: Expression, known: set[str], name: str) -> None:
        for used in expression.names():
            if used not in known:
                raise self._unknown(used, name)

    def _spellings(
        self, tensors: tuple[Tensor, ...], attributes: tuple[Attribute, ...], known: set[str]
    ) -> None:
        """What Python users write differs from every other name."""
        sizes = known - {attribute.name for attribute in attributes}
        sizes |= {tensor.name for tensor in tensors}
        for attribute in attributes:
            if attribute.keyword in sizes:
                raise self.fail(
                    f"attribute {attribute.keyword} has the name of a size or tensor; rename that",
                    attribute.name,
                )
        words = {*sizes, *(a.name for a in attributes), *(a.keyword for a in attributes)}
        spelled = [python_name(word) for word in sorted(words)]
        for word in spelled:
            if spelled.count(word) > 1:
                raise self.fail(f"two names are both {word} in Python; rename one")

    def _runs(
        self, tensors: tuple[Tensor, ...], attributes: tuple[Attribute, ...], known: set[str]
    ) -> None:
        runs = {name for tensor in tensors for name in tensor.runs}
        split = False
        for tensor in tensors:
            if tensor.fixed > MAX_AXES:
                raise self.fail(f"{tensor} has more than {MAX_AXES} axes", tensor.name)
            for axis in tensor.shape:
                if not axis.run and axis.expression.name in runs:
                    raise self.fail(
                        f"{axis} is a run of axes elsewhere; write *{axis} in {tensor}", tensor.name
                    )
                if axis.run and axis.expression.text not in known:
                    raise self._unknown(str(axis), tensor.name)
            if len(tensor.runs) == 2:
                split = True
                if not (tensor.shape[0].run and tensor.shape[-1].run):
                    raise self.fail(
                        f"{tensor}: two runs of axes must stand first and last", tensor.name
                    )
        axis = next((attribute for attribute in attributes if attribute.axis), None)
        if split and axis is None:
            raise self.fail("a shape has two runs of axes, but no argument has the role axis")
        if axis is not None and not split:
            raise self.fail("axis splits no shape; need a shape such as [*outer, n, *inner]")

    def _argument(
        self, parameter: Parameter, known: set[str], lets: tuple[tuple[str, Expression], ...]
    ) -> Argument:
        name, role = parameter.name, self.roles[parameter.name]
        low, high = parameter.scalar.low, parameter.scalar.high
        if isinstance(role, TensorRole):
            return Argument("tensor", name, parameter.text)
        if isinstance(role, AttributeRole | AxisRole):
            return Argument("attribute", name, parameter.text)
        if isinstance(role, ValueRole):
            if parameter.scalar.kind != "int":
                low = high = ""
            return Argument("value", name, parameter.text, dict(lets)[name], low, high)
        if isinstance(role, SizeRole):
            if name not in known:
                raise self._unknown(name, name)
            return Argument("size", name, parameter.text, None, low, high)
        if not isinstance(self.roles.get(role.tensor), TensorRole):
            raise self.fail(f"{role.what}({role.tensor}): {role.tensor} is no tensor", name)
        return Argument(role.what, role.tensor, parameter.text)

    def _divisors(
        self,
        attributes: tuple[Attribute, ...],
        lets: tuple[tuple[str, Expression], ...],
        tensors: tuple[Tensor, ...],
    ) -> tuple[Attribute, ...]:
        """Only numbers and attributes are divided by, and those attributes are 1 at least."""
        expressions = [axis.expression for tensor in tensors for axis in tensor.shape]
        expressions += [value for _, value in lets if value.name is None]
        names = {attribute.name for attribute in attributes if attribute.kind == "int"}
        others = {attribute.name for attribute in attributes} - names
        for expression in expressions:
            for name in others & set(expression.names()):
                raise self.fail(f"{name} is no whole number, but {expression.text} needs one", name)
        found = set()
        for divisor in (d for expression in expressions for d in expression.divisors()):
            if divisor.name in names:
                found.add(divisor.name)
            elif not divisor.number:
                raise self.fail(f"division by {divisor.text}; divide by a number or an attribute")
        return tuple(
            replace(attribute, least=max(attribute.least or 1, 1))
            if attribute.name in found
            else attribute
            for attribute in attributes
        )
