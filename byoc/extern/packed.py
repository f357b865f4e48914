"""The packed function: C that TVM calls, around one call of the user's function."""

from __future__ import annotations

import textwrap

from byoc.extern.signature import Argument, Attribute, Binding, Signature, Tensor
from byoc.extern.text import WIDTH, c_list, render
from codegen_cc import dtypes

#: Names that the generated function uses itself.
LOCALS = ("self", "args", "n_args", "result", "function", "specs", "data", "status")


def packed_source(signature: Signature, include: str) -> str:
    """C text of ``__tvm_ffi_<name>``: inputs, attributes, outputs; ``include`` is the header."""
    writer = _Writer(signature)
    order = [t.name for t in signature.inputs]
    order += [a.name for a in signature.attributes]
    order += [t.name for t in signature.outputs]
    return render(
        "packed.c.j2",
        signature=signature,
        include=include,
        names=", ".join(order),
        count=writer.count(order),
        ranks=writer.ranks(),
        attributes=writer.attributes(),
        sizes=writer.sizes(),
        specs=[writer.spec(tensor) for tensor in signature.tensors],
        expectations=writer.expectations(),
        ranges=writer.ranges(),
        positions=[writer.position(tensor) for tensor in signature.tensors],
        call=writer.call(),
    )


class _Writer:
    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.attribute_names = {attribute.name for attribute in signature.attributes}
        self.run_names = signature.runs()
        self.shared = signature.shared()

    def count(self, order: list[str]) -> str:
        """The check of the number of arguments, which names them."""
        before = f"EXT_CHECK(ext_check_count(function, n_args, {len(order)},"
        lines = textwrap.wrap(", ".join(order), 60)
        if len(lines) == 1:
            return f'{before} "{lines[0]}"));'
        words = [f'"{line} "' for line in lines[:-1]] + [f'"{lines[-1]}"']
        margin = " " * len("  EXT_CHECK(ext_check_count(")
        return f"\n{margin}".join([before, *words]) + "));"

    def position(self, tensor: Tensor) -> int:
        """Place among the arguments: attributes come between inputs and outputs."""
        output = tensor in self.signature.outputs
        return tensor.index + (len(self.signature.attributes) if output else 0)

    def name(self, name: str) -> str:
        """The C expression of a size or attribute."""
        if name in self.attribute_names:
            return f"attr_{name}"
        return f"ext_elements(run_{name})" if name in self.run_names else f"size_{name}"

    def ranks(self) -> list[str]:
        """Checks of the inputs whose rank is not fixed, before anything is read from them."""
        return [
            f'EXT_CHECK(ext_check_rank(function, "{t.name}", &args[{t.index}], {t.fixed}));'
            for t in self.signature.inputs
            if t.runs
        ]

    def attributes(self) -> list[str]:
        """A variable for each attribute, read and checked."""
        lines = []
        for offset, attribute in enumerate(self.signature.attributes):
            argument = f"&args[{len(self.signature.inputs) + offset}]"
            variable = f"attr_{attribute.name}"
            if attribute.kind == "float":
                lines.append(f"double {variable} = 0;")
                items = ["function", f'"{attribute.name}"', argument, f"&{variable}"]
                check = c_list(items, "EXT_CHECK(ext_read_float(", "));", 2)
            else:
                low, high = self._range(attribute)
                lines.append(f"int64_t {variable} = 0;")
                items = ["function", f'"{attribute.name}"', argument, low, high, f"&{variable}"]
                check = c_list(items, "EXT_CHECK(ext_read_int(", "));", 2)
            lines.append(check.lstrip())
        return lines

    def _range(self, attribute: Attribute) -> tuple[str, str]:
        if attribute.kind == "bool":
            return "0", "1"
        if attribute.axis:
            split = next(t for t in self.signature.inputs if len(t.runs) == 2)
            return "0", f"ext_rank(&args[{split.index}]) - {split.fixed}"
        low = attribute.low if attribute.least is None else str(attribute.least)
        return low, attribute.high

    def sizes(self) -> list[str]:
        """A variable for each extent that an input has, then for each that follows from them."""
        lines = [self._binding(binding) for binding in self.signature.bindings]
        for name, value in self.signature.lets:
            if name in self.shared:
                lines.append(_assigned(f"const int64_t size_{name} =", value.c(self.name)))
        return lines

    def _binding(self, binding: Binding) -> str:
        tensor, argument = binding.tensor, f"&args[{binding.tensor.index}]"
        if binding.run:
            first: str | int = binding.before
            after: str | int = binding.after
            if len(tensor.runs) == 2:
                axis = f"attr_{self.signature.axis.name}"
                is_first = binding.position == 0
                first = 0 if is_first else f"{axis} + {tensor.fixed}"
                after = f"ext_rank({argument}) - {axis}" if is_first else 0
            return f"const ext_run run_{binding.name} = ext_run_of({argument}, {first}, {after});"
        place = str(self._place(binding))
        return f"const int64_t size_{binding.name} = ext_axis({argument}, {place});"

    def _place(self, binding: Binding) -> str | int:
        """The axis of a single extent; negative behind a run, counted from the run's end."""
        if not binding.from_end:
            return binding.before
        if len(binding.tensor.runs) == 2:
            axis = f"attr_{self.signature.axis.name}"
            return f"{axis} + {binding.before}" if binding.before else axis
        return -(binding.after + 1)

    def spec(self, tensor: Tensor) -> str:
        """What one tensor must be; shapes with runs are filled in by ``expectations``."""
        dtype = dtypes.of(tensor.dtype)
        extents = [axis.expression.c(self.name) for axis in tensor.shape]
        rank, shape = len(extents), ", ".join(extents) or "0"
        if tensor.runs:
            rank, shape = 0, "0"
        items = [
            f'"{tensor.name}"',
            f'"{dtype.name}"',
            dtype.dl_code,
            str(dtype.bits),
            str(rank),
            f"{{{shape}}}",
        ]
        one_line = f"{{{', '.join(items)}}},"
        # Six columns of margin, as in the template.
        return one_line if len(one_line) <= WIDTH - 6 else "{" + ",\n       ".join(items) + "},"

    def expectations(self) -> list[str]:
        """Shapes with runs, axis by axis, and a check that no axis was too many."""
        lines = []
        for tensor in self.signature.tensors:
            for axis in tensor.shape if tensor.runs else ():
                target = f"&specs[{tensor.index}]"
                if axis.run:
                    lines.append(f"ext_expect_run({target}, run_{axis.expression.text});")
                else:
                    lines.append(f"ext_expect({target}, {axis.expression.c(self.name)});")
            if tensor.runs:
                lines.append(f"EXT_CHECK(ext_check_expected(function, {target}));")
        return lines

    def ranges(self) -> list[str]:
        """Checks that a size fits into the C type that takes it."""
        lines = []
        for argument in self.signature.arguments:
            constant = argument.value is not None and argument.value.number is not None
            whole = (argument.low, argument.high) in (("", ""), ("INT64_MIN", "INT64_MAX"))
            if argument.kind not in ("size", "value") or constant or whole:
                continue
            items = ["function", f'"{argument.name}"', self._value(argument)]
            items += ["0" if argument.kind == "size" else argument.low, argument.high]
            check = c_list(items, "EXT_CHECK(ext_check_range(", "));", 2)
            lines.append(check.lstrip())
        return lines

    def _value(self, argument: Argument) -> str:
        if argument.value is not None and argument.name not in self.shared:
            return argument.value.c(self.name)
        return self.name(argument.name)

    def call(self) -> str:
        """The call of the user's function."""
        items = [self._argument(argument) for argument in self.signature.arguments]
        returns = self.signature.prototype.returns == "status"
        before = "const long long status =" if returns else ""
        call = f"{self.signature.name}({', '.join(items)})"
        if len(before) + len(call) + 4 > WIDTH:
            indent = 6 if returns else 2
            call = c_list(items, f"{self.signature.name}(", ")", indent)
            return f"{before}\n{call};" if returns else f"{call.lstrip()};"
        return f"{before} {call};".lstrip()

    def _argument(self, argument: Argument) -> str:
        by_name = {tensor.name: tensor for tensor in self.signature.tensors}
        if argument.kind == "tensor":
            return f"data[{by_name[argument.name].index}]"
        if argument.kind == "rank":
            return f"ext_rank(&args[{self.position(by_name[argument.name])}])"
        if argument.kind == "shape":
            return f"ext_tensor_of(&args[{self.position(by_name[argument.name])}])->shape"
        if argument.kind == "attribute":
            return f"attr_{argument.name}"
        return self._value(argument)


def _assigned(before: str, value: str) -> str:
    """An assignment, on two lines where one is too long."""
    return (
        f"{before} {value};"
        if len(before) + len(value) + 4 <= WIDTH
        else f"{before}\n      {value};"
    )
