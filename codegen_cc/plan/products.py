"""Products that an addition computes as it reads their factors.

    f(a * b + c)

is what a batch norm that no convolution takes becomes, and a shift behind a scale of any kind.  In
passes of their own the product is written and read once more; the numbers are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from codegen_cc.dim import same
from codegen_cc.dtypes import SINGLE
from codegen_cc.region.graph import Region, RegionNode, Value


def find_products(
    region: Region,
    private: Mapping[Value, RegionNode],
    stored_dtype: Callable[[Value], str],
    is_ours: Callable[[RegionNode], bool],
    taken: Collection[RegionNode],
) -> dict[RegionNode, RegionNode]:
    """The product of each addition that computes one, both of float32 wherever they are stored.

    ``private`` are the region's ``private_producers``. ``is_ours`` says whose kernels compute a
    node; those that are ``taken`` are computed by others. A product that is repeated to the sum's
    shape is computed once, before.
    """

    def fits(node: RegionNode, kind: str) -> bool:
        one = node.node
        if one.op != "binary" or one.attrs["kind"] != kind or node in taken:
            return False
        values = (*node.inputs, node.output)
        return is_ours(node) and all(stored_dtype(value) == SINGLE for value in values)

    def product_in(node: RegionNode) -> RegionNode | None:
        for value in (node.role("lhs"), node.role("rhs")):
            found = private.get(value)
            if found is None or found.node.epilogue or not fits(found, "mul"):
                continue
            if all(map(same, value.shape, node.node.shape)):
                return found
        return None

    sums = (node for node in region.nodes if fits(node, "add"))
    pairs = ((node, product_in(node)) for node in sums)
    return {node: product for node, product in pairs if product is not None}
