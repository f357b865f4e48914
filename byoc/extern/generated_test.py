"""The generated test: every way into the function, against NumPy."""

from __future__ import annotations

from byoc.extern.cases import Case
from byoc.extern.python_operator import assumed
from byoc.extern.reference_check import reference_text
from byoc.extern.signature import Signature, Tensor
from byoc.extern.spelling import python_name
from byoc.extern.text import python_list, render


def check_source(signature: Signature, cases: list[Case], row: bool) -> str:
    """Python text of the test; ``row`` tells whether there is a library file."""
    layouts = _layouts(signature)
    words = [python_name(word) for word in signature.keywords()]
    names = [python_name(tensor.name) for tensor in signature.inputs]
    dtypes = [f'"{name}": "{t.dtype}"' for name, t in zip(names, signature.inputs, strict=True)]
    return render(
        "test.py.j2",
        signature=signature,
        cases=[_case(signature, case) for case in cases],
        parameters=", ".join([*names, *words]),
        reference=_reference(signature),
        references=signature.reference is None,
        inputs=f"{{{', '.join(dtypes)}}}",
        outputs=f"[{', '.join(_quoted(t.dtype) for t in signature.outputs)}]",
        function=python_name(signature.name),
        relax_call=_relax_call(signature) if signature.relax else "",
        row=row,
        layouts={name: pair for name, pair in layouts.items() if name in names},
        result_layout=layouts.get(python_name(signature.outputs[0].name)),
        region=_call_of(signature, {}) if row else "",
    )


def _quoted(text: str) -> str:
    return f'"{text}"'


def _case(signature: Signature, case: Case) -> str:
    shapes = ", ".join(
        f'"{python_name(t.name)}": {tuple(case.shapes[t.name])}' for t in signature.inputs
    )
    given = ", ".join(f'"{python_name(k)}": {v!r}' for k, v in case.attributes.items())
    return python_list([f"{{{shapes}}}", f"{{{given}}}"], "(", ")", 4)


def _reference(signature: Signature) -> str:
    """The statements of the reference that the test trusts."""
    if signature.reference is not None:
        return f"    return {reference_text(signature.reference)}"
    items = [f"{t.role}={_logical(signature, t)}" for t in signature.inputs]
    for keyword, entries in signature.keywords().items():
        known = signature.op.attribute(keyword)
        value = python_name(keyword)
        if known.count is not None and entries[0].index is None:
            value = f"[{value}] * {known.count}"
        items.append(f"{keyword}={value}")
    (output,) = signature.outputs
    usual = signature.op.layouts.get(output.role)
    function = f"references.{signature.op.name}("
    if usual == output.layout:
        return python_list(items, f"return {function}", ")", 4)
    call = python_list(items, f"result = {function}", ")", 4)
    return f'{call}\n    return references.relayout(result, "{usual}", "{output.layout}")'


def _logical(signature: Signature, tensor: Tensor) -> str:
    """An input with its axes as the vocabulary has them."""
    name, usual = python_name(tensor.name), signature.op.layouts.get(tensor.role)
    if usual == tensor.layout:
        return name
    return f'references.relayout({name}, "{tensor.layout}", "{usual}")'


def _layouts(signature: Signature) -> dict[str, tuple[str, str]]:
    """Tensors whose axes are in another order than the vocabulary's: theirs and that one."""
    if signature.op is None:
        return {}
    return {
        python_name(t.name): (t.layout, signature.op.layouts[t.role])
        for t in signature.tensors
        if t.layout != signature.op.layouts.get(t.role)
    }


def _relax_call(signature: Signature) -> str:
    """The operator that the function stands for, as the function has its operands."""
    extra = {name: value for name, value in assumed(signature).items() if name.endswith("_layout")}
    return _call_of(signature, extra)


def _call_of(signature: Signature, extra: dict[str, object]) -> str:
    given = signature.inputs
    if signature.op is not None:
        given = sorted(given, key=lambda t: signature.op.roles.index(t.role))
    names = [f'operands["{python_name(tensor.name)}"]' for tensor in given]
    items = [f"[{', '.join(names)}]"] if signature.relax == "relax.concat" else names
    items += [f'{word}=attributes["{python_name(word)}"]' for word in signature.keywords()]
    items += [f'{name}="{value}"' for name, value in extra.items()]
    return python_list(
        items, f"relax.op.{signature.relax.removeprefix('relax.')}(", ")", 8
    ).lstrip()
