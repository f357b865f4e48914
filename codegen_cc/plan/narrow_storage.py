"""Values that are stored in fewer bytes than their dtype says, because all who touch them may.

A node that is computed in bfloat16 (``Node.compute``) writes its result in it or in fp32, and
reads its operands in either.  A value that such a node gives, and only such nodes read, is stored
as bfloat16: half the memory traffic, and the readers round nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codegen_cc.dtypes import KERNEL_HALVES
from codegen_cc.region.graph import Region, RegionNode, Value


def narrow_storage(
    region: Region, consumers: Mapping[Value, Sequence[RegionNode]]
) -> dict[Value, str]:
    """The dtypes of values that are not stored in their own."""
    outside = set(region.outputs)
    return {
        node.output: node.node.compute
        for node in region.nodes
        if node.node.compute in KERNEL_HALVES
        and node.output not in outside
        and all(_reads(reader, node) for reader in consumers.get(node.output, ()))
    }


def _reads(reader: RegionNode, writer: RegionNode) -> bool:
    return reader.node.compute == writer.node.compute
