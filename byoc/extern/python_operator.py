"""The two operators in Python, of tensor expressions and of Relax, with their checks of shapes."""

from __future__ import annotations

from collections.abc import Iterator

from byoc.extern.signature import Attribute, Binding, Signature, Tensor
from byoc.extern.spelling import python_name
from byoc.extern.text import python_list, render

#: Names of ``byoc.extern.shapes`` that the module of tensor expressions may need.
_SHARED = ("axis_in", "immediates", "integer", "integers", "need_dtypes", "product")


def te_source(signature: Signature) -> str:
    """Python text of the ``te.extern`` operator, and of ``infer``, which works out shapes."""
    writer = _Writer(signature)
    body = writer.body()
    names = [python_name(tensor.name) for tensor in signature.inputs]
    keywords = [python_name(word) for word in signature.keywords()]
    given = [f"{word}={word}" for word in keywords]
    shared = [h for h in _SHARED if h in ("immediates", "need_dtypes") or f"{h}(" in body]
    return render(
        "te.py.j2",
        signature=signature,
        imported=["Inferred", "Shape", "Sizes", *shared],
        lists=any(attribute.index is not None for attribute in signature.attributes),
        infer=python_list(
            writer.parameters("Shape", defaults=False), "def infer(", ") -> Inferred:"
        ),
        body=body,
        function=python_list(
            writer.parameters("te.Tensor"),
            f"def {python_name(signature.name)}(",
            f") -> {'te.Tensor' if len(signature.outputs) == 1 else 'list[te.Tensor]'}:",
        ),
        dtypes=python_list(
            ["NAME", *(f'("{n}", {n}.dtype, "{t.dtype}")' for n, t in _named(signature.inputs))],
            "need_dtypes(",
            indent=4,
        ),
        inferred=python_list(
            [*(f"{name}.shape" for name in names), *given], "shapes, scalars = infer(", indent=4
        ),
        inputs=", ".join(names),
        results=[f'"{tensor.dtype}"' for tensor in signature.outputs],
    )


def relax_source(signature: Signature) -> str:
    """Python text of the call in destination-passing style, and of what it replaces."""
    writer = _Writer(signature)
    names = [python_name(tensor.name) for tensor in signature.inputs]
    keywords = [python_name(word) for word in signature.keywords()]
    types = [
        f'relax.TensorType(shapes[{index}], "{tensor.dtype}")'
        for index, tensor in enumerate(signature.outputs)
    ]
    return render(
        "relax.py.j2",
        signature=signature,
        lists=any(attribute.index is not None for attribute in signature.attributes),
        function=python_list(
            writer.parameters("relax.Expr"),
            f"def {python_name(signature.name)}(",
            ") -> relax.Call:",
        ),
        dtypes=python_list(
            [
                "NAME",
                *(f'("{n}", dtype_of({n}), "{t.dtype}")' for n, t in _named(signature.inputs)),
            ],
            "need_dtypes(",
            indent=4,
        ),
        inferred=python_list(
            [
                *(f'shape_of(NAME, "{name}", {name})' for name in names),
                *(f"{word}={word}" for word in keywords),
            ],
            "shapes, scalars = infer(",
            indent=4,
        ),
        arguments=f"[{', '.join(names)}, *immediates(scalars)]",
        types=types[0] if len(types) == 1 else f"[{', '.join(types)}]",
        stand_in=writer.stand_in() if signature.relax else "",
        equal="equal(" in writer.stand_in() if signature.relax else False,
    )


def _named(tensors: tuple[Tensor, ...]) -> Iterator[tuple[str, Tensor]]:
    for tensor in tensors:
        yield python_name(tensor.name), tensor


class _Writer:
    def __init__(self, signature: Signature) -> None:
        self.signature = signature

    def parameters(self, kind: str, defaults: bool = True) -> list[str]:
        """Parameters of a function: tensors, then attributes by keyword."""
        found = [f"{name}: {kind}" for name, _ in _named(self.signature.inputs)]
        words = self.signature.keywords()
        if words:
            found.append("*")
        for word, entries in words.items():
            default = _default(entries) if defaults else ""
            found.append(f"{python_name(word)}: {_annotation(entries)}{default}")
        return found

    def body(self) -> str:
        """The statements of ``infer``: attributes, extents, sizes that follow, results."""
        lines = [*self._attributes(), "sizes = Sizes(NAME)"]
        lines += [self._bind(tensor) for tensor in self.signature.inputs]
        needed = self.signature.needed()
        bound = [b.name for b in self.signature.bindings if b.name in needed]
        if bound:
            targets = ", ".join(map(python_name, bound))
            keys = ", ".join(f'"{name}"' for name in bound)
            lines.append(f"{targets} = sizes[{keys}]")
        lines += [
            f"{python_name(name)} = {value.python(self._name)}"
            for name, value in self.signature.lets
            if name in needed
        ]
        lines += [line for tensor in self.signature.inputs for line in self._checks(tensor)]
        results = [
            f'sizes.result("{python_name(t.name)}", {self._shape(t)})'
            for t in self.signature.outputs
        ]
        scalars = ", ".join(python_name(a.name) for a in self.signature.attributes)
        lines.append(python_list(results, "shapes = [", "]", 4)[4:])
        lines.append(f"return shapes, [{scalars}]")
        return "\n".join(f"    {line}" for line in lines)

    def _name(self, name: str) -> str:
        spelled = python_name(name)
        return f"product({spelled})" if name in self.signature.runs() else spelled

    def _attributes(self) -> Iterator[str]:
        for word, entries in self.signature.keywords().items():
            spelled = python_name(word)
            first = entries[0]
            if first.index is not None:
                targets = ", ".join(python_name(a.name) for a in entries)
                targets = f"({targets},)" if len(entries) == 1 else targets
                leasts = {a.least for a in entries}
                least = f", {first.least}" if len(leasts) == 1 and first.least is not None else ""
                call = f'integers(NAME, "{spelled}", {spelled}, {len(entries)}{least})'
                yield f"{targets} = {call}"
                if len(leasts) > 1:
                    for a in entries:
                        if a.least is not None:
                            yield f'integer(NAME, "{a.name}", {python_name(a.name)}, {a.least})'
            else:
                yield f"{python_name(first.name)} = {self._number(first, spelled)}"

    def _number(self, attribute: Attribute, spelled: str) -> str:
        if attribute.axis:
            split = next(t for t in self.signature.inputs if len(t.runs) == 2)
            return f"axis_in(NAME, {spelled}, len({python_name(split.name)}), {split.fixed})"
        if attribute.kind != "int":
            return f"{attribute.kind}({spelled})"
        least = "" if attribute.least is None else f", {attribute.least}"
        return f'integer(NAME, "{spelled}", {spelled}{least})'

    def _bind(self, tensor: Tensor) -> str:
        bound = {binding.name for binding in self.signature.bindings}
        items = [f'"{python_name(tensor.name)}"', python_name(tensor.name)]
        for axis in tensor.shape:
            if axis.run or axis.expression.name in bound:
                items.append(f'"{axis}"')
            else:
                items.append(str(axis.expression.number))
        if len(tensor.runs) == 2:
            items.append(f"split={python_name(self.signature.axis.name)}")
        return python_list(items, "sizes.bind(", indent=4)[4:]

    def _checks(self, tensor: Tensor) -> Iterator[str]:
        """Axes of an input whose extent is an expression, or a size that follows from others."""
        bound = {binding.name for binding in self.signature.bindings}
        name = python_name(tensor.name)
        for position, axis in enumerate(tensor.shape):
            expression = axis.expression
            if axis.run or expression.name in bound or expression.number is not None:
                continue
            place = Binding("", tensor, position)
            index = str(place.before)
            if place.from_end:
                index = str(-(place.after + 1))
                if len(tensor.runs) == 2:
                    index = f"{python_name(self.signature.axis.name)} + {place.before}"
            value = expression.python(self._name)
            yield f'sizes.need("{name}", {name}[{index}], {value}, "{expression.text}")'

    def _shape(self, tensor: Tensor) -> str:
        parts = [
            f"*{python_name(axis.expression.text)}"
            if axis.run
            else axis.expression.python(self._name)
            for axis in tensor.shape
        ]
        return f"[{', '.join(parts)}]"

    def stand_in(self) -> str:
        """The statements that read one call of the operator that the function stands for."""
        signature = self.signature
        given = signature.inputs
        if signature.op is not None:
            given = sorted(given, key=lambda t: signature.op.roles.index(t.role))
        targets = ", ".join(python_name(tensor.name) for tensor in given)
        targets = f"({targets},)" if len(given) == 1 else targets
        lines = [f"{targets} = operands(NAME, call, {len(given)})"]
        words = signature.keywords()
        items = ["NAME", "call", f"({', '.join(repr(w) for w in words)}{',' * (len(words) == 1)})"]
        items += [f"{name}={value!r}" for name, value in assumed(signature).items()]
        told = "told = " if words else ""
        lines.append(python_list(items, f"{told}attributes(", indent=4)[4:].replace("'", '"'))
        items = [python_name(tensor.name) for tensor in signature.inputs]
        for word, entries in words.items():
            value = f'told["{word}"]'
            known = signature.op.attribute(word) if signature.op is not None else None
            if known is not None and known.count is not None and entries[0].index is None:
                value = f'equal(NAME, "{word}", {value})'
            items.append(f"{python_name(word)}={value}")
        lines.append(python_list(items, f"return {python_name(signature.name)}(", indent=4)[4:])
        return "\n".join(f"    {line}" for line in lines)


def assumed(signature: Signature) -> dict[str, object]:
    """Attributes that the function is not told, and the only values that it can compute."""
    if signature.op is None:
        return {}
    words = signature.keywords()
    found: dict[str, object] = {
        item.name: item.neutral if item.count is None else [item.neutral] * item.count
        for item in signature.op.attributes
        if item.name not in words
    }
    if signature.op.layouts:
        by_role = {tensor.role: tensor.layout for tensor in signature.tensors}
        found["data_layout"] = by_role["input"]
        found["kernel_layout"] = by_role["weight"]
        found["out_layout"] = by_role["output"]
    return found


def _annotation(entries: list[Attribute]) -> str:
    return "Sequence[int]" if entries[0].index is not None else entries[0].kind


def _default(entries: list[Attribute]) -> str:
    values = [entry.default for entry in entries]
    if any(value is None for value in values):
        return ""
    if entries[0].index is None:
        return f" = {values[0]!r}"
    return f" = ({', '.join(map(repr, values))}{',' * (len(values) == 1)})"
