"""Values that are stored in fewer bytes than their dtype says, because all who touch them may.

A node's ``storage`` allows it for the values that it touches, and the record of its operator tells
for which of them its kernels have a form (``codegen_cc.operator.Narrow``).  A value that such a
kernel gives, and only such kernels read, is stored so: half the memory traffic, and convolutions
and products round nothing as they read it. A region that multiplies in full does not round at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from codegen_cc.operator import Narrow, operator_of
from codegen_cc.region.graph import Region, RegionNode, Value

#: The role of a node's result.
RESULT = "output"


def narrow_storage(
    region: Region, consumers: Mapping[Value, Sequence[RegionNode]]
) -> dict[Value, str]:
    """The dtypes of values that are not stored in their own."""
    forms = {node: _forms(node) for node in region.nodes}
    outside = set(region.outputs)
    multiplied = {node.node.compute for node in region.nodes}
    narrow = {
        node.output: node.node.storage
        for node in region.nodes
        if node.node.storage in multiplied
        and RESULT in forms[node].roles
        and len(node.outputs) == 1
        and node.output.is_float
        and node.output not in outside
        and all(_reads(reader, node, forms[reader]) for reader in consumers.get(node.output, ()))
    }
    # What falls away takes others with it.
    while wrong := list(_contradictions(region, forms, narrow)):
        for value in wrong:
            narrow.pop(value, None)
    return narrow


def _forms(node: RegionNode) -> Narrow:
    kernels = operator_of(node.node.op).kernels if node.node.storage else None
    return kernels.narrow(node.node) if kernels is not None else Narrow()


def _reads(reader: RegionNode, writer: RegionNode, forms: Narrow) -> bool:
    """Whether a node may read what another one gives in the dtype that this one stores."""
    value = writer.output
    roles = zip(reader.node.operands, reader.inputs, strict=True)
    fits = all(operand.role in forms.roles for operand, read in roles if read is value)
    return fits and reader.node.storage == writer.node.storage


def _contradictions(
    region: Region, forms: Mapping[RegionNode, Narrow], narrow: Mapping[Value, str]
) -> Iterator[Value]:
    """Values that cannot be stored so, as others are not."""
    for node in region.nodes:
        alike = [*node.inputs, node.output] if forms[node].alike else []
        if alike and not all(value in narrow for value in alike):
            yield from (value for value in alike if value in narrow)
        if forms[node].follows and node.role(forms[node].follows) not in narrow:
            yield from (value for value in (node.output,) if value in narrow)
