"""What ONNX's backend tests say of the table of wrong forms (``wrong_forms.json``).

A row of the conformance table that an entry refused has the entry's reason, and what comes out
without it. An entry's evidence counts these rows. An entry that is not shown wrong by any test
refuses what is right; a wrong result without an entry needs one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import onnx
from tvm.relax.frontend.onnx.onnx_frontend import get_type

from byoc.frontends.onnx.checked_import import inferred_types
from byoc.frontends.onnx.honoured import schema_of
from byoc.frontends.onnx.wrong_forms import FILE
from tests.conformance.engines import PASSED, WRONG
from tests.conformance.table import IF_ALLOWED, REFUSED_BY_NAME, Entry

Stated = dict[str, Any]


def stated_entries() -> list[Stated]:
    """The table as it stands in the file."""
    return json.loads(FILE.read_text())


def evidence_of(rows: Iterable[Entry]) -> Iterator[tuple[Stated, dict[str, int]]]:
    """Each entry of the table, and what the rows say of it."""
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        refusal, mark, result = row.detail.partition(IF_ALLOWED)
        if row.outcome == REFUSED_BY_NAME and mark:
            status = result.partition(";")[0].partition(":")[0]
            kind = status if status in (PASSED, WRONG) else "failed"
            counts.setdefault(refusal, Counter())[kind] += 1
    for stated in stated_entries():
        found: Counter[str] = Counter()
        for refusal, count in counts.items():
            operator, _, reason = refusal.partition(": ")
            if reason == stated["reason"] and stated["operator"] in ("*", operator):
                found += count
        yield (
            stated,
            {"refused": found.total(), "wrong": found[WRONG], "failed": found["failed"]},
        )


def with_evidence(rows: Iterable[Entry]) -> list[Stated]:
    """The table with the evidence of the rows."""
    entries = []
    for stated, found in evidence_of(rows):
        rest = {name: stated[name] for name in ("shown_by",) if name in stated}
        kept = {n: v for n, v in stated.items() if n not in ("evidence", *rest)}
        entries.append(kept | {"evidence": found} | rest)
    return entries


def table_text(entries: Iterable[Stated]) -> str:
    """The file's text: a line for each entry."""
    lines = ",\n".join(f"  {json.dumps(entry)}" for entry in entries)
    return f"[\n{lines}\n]\n"


def unshown(entries: Iterable[Stated]) -> list[Stated]:
    """Entries that no test shows wrong."""
    return [
        entry
        for entry in entries
        if not (entry["evidence"]["wrong"] or entry["evidence"]["failed"] or "shown_by" in entry)
    ]


def proposals(model: onnx.ModelProto, reason: str) -> list[Stated]:
    """An entry for each kind of node of a model whose result is wrong.

    Of several nodes one will do; which one is for a reader to find out.
    """
    opset = next(item.version for item in model.opset_import if item.domain in ("", "ai.onnx"))
    types = {value.name: value.type for value in model.graph.input} | inferred_types(model)
    dtypes = {
        name: get_type(type_.tensor_type.elem_type)
        for name, type_ in types.items()
        if type_.tensor_type.elem_type
    }
    for tensor in model.graph.initializer:
        dtypes[tensor.name] = get_type(tensor.data_type)
    found: list[Stated] = []
    for node in model.graph.node:
        schema = schema_of(node.op_type, opset, node.domain)
        values = {a.name: _in_json(onnx.helper.get_attribute_value(a)) for a in node.attribute}
        proposal = {
            "operator": node.op_type,
            "opsets": [schema.since_version if schema else opset, None],
            "attributes": {name: [value] for name, value in values.items() if value is not None},
            "dtypes": {str(i): [dtypes[n]] for i, n in enumerate(node.input) if n in dtypes},
            "reason": reason,
        }
        if proposal not in found:
            found.append(proposal)
    return found


def _in_json(value: Any) -> Any:
    """An attribute's value as the table has it; None for tensors and graphs, which it cannot."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list):
        items = [_in_json(item) for item in value]
        return None if None in items else items
    return value if isinstance(value, int | float) else None
