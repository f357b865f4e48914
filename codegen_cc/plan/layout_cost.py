"""What an order of a value in memory costs later: the elements that its readers would copy.

Where a value has to be moved anyhow, it may lie in any order afterwards.  The planner asks here
which one is best: each candidate is followed through the nodes that only change the view, or that
keep the order of their operand, up to the kernels that want one order (images channels-last,
results of a region plain).  An element that would be moved again on the way counts once for each
time.  Only so many nodes are followed, so that the answer comes quickly; what lies behind them
counts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from codegen_cc.dim import estimate
from codegen_cc.operator import Layout, operator_of
from codegen_cc.plan.tensors import CHANNELS_LAST, Buffer, Tensor, strides_for
from codegen_cc.region.graph import Region, RegionNode, Value

Order = tuple[int, ...]

#: Nodes that are followed one after another.
DEPTH = 6

#: Layouts of operators whose results lie as their operands do.
_FOLLOWING = (Layout.KEEP, Layout.KEEP_GAPS, Layout.LOOP)


class LayoutCost:
    """The readers of a region's values, and where values lie that have been placed already."""

    def __init__(
        self,
        region: Region,
        consumers: Mapping[Value, Sequence[RegionNode]],
        placed: Mapping[Value, Tensor],
    ) -> None:
        self._consumers = consumers
        self._placed = placed
        self._outputs = set(region.outputs)
        self._producers = {value: node for node in region.nodes for value in node.outputs}

    def best(
        self, value: Value, orders: Sequence[Order], paid: Callable[[Order], int] = lambda _: 0
    ) -> Order:
        """The order in which the fewest elements are moved, the first of equally good ones.

        ``paid`` counts the elements that are moved, in an order, before the value is computed.
        """
        return min(orders, key=lambda order: paid(order) + self.moved(value, order))

    def moved(self, value: Value, order: Order) -> int:
        """Elements that are copied because a value lies dense in an order."""
        return self._moved(value, _dense(value, order), DEPTH)

    def likely_order(self, value: Value, depth: int = DEPTH) -> Order | None:
        """The order in which a value lies or, by its operator, will lie; None if it is open."""
        if value in self._placed:
            return self._placed[value].walk()
        node = self._producers.get(value)
        if node is None or depth == 0:
            return None
        layout = operator_of(node.node.op).layout
        if layout is Layout.IMAGE:
            return CHANNELS_LAST if len(value.shape) == 4 else (0, *range(2, len(value.shape)), 1)
        if layout in _FOLLOWING:
            full = [v for v in node.inputs if v.shape == value.shape and v.data is None]
            return self.likely_order(full[0], depth - 1) if full else None
        return None

    def _moved(self, value: Value, tensor: Tensor, depth: int) -> int:
        size = estimate(tensor.size)
        total = size if value in self._outputs and not tensor.is_dense() else 0
        if depth:
            readers = dict.fromkeys(self._consumers.get(value, ()))
            total += sum(self._moved_by(node, value, tensor, depth) for node in readers)
        return total

    def _moved_by(self, node: RegionNode, value: Value, tensor: Tensor, depth: int) -> int:
        operator, size = operator_of(node.node.op), estimate(tensor.size)
        layout = operator.layout
        if layout is Layout.IMAGE:
            # A scale that is computed is no image, and lies as it lies.
            image = len(tensor.shape) == 4
            return size if image and tensor.pixel_stride() is None else 0
        if layout is Layout.VIEW:
            view = operator.view(node.node, tensor)
            return size if view is None else self._moved(node.output, view, depth - 1)
        if layout is Layout.LOOP:
            return self._moved_by_loop(node, value, tensor, depth)
        if layout in (Layout.KEEP, Layout.KEEP_GAPS):
            order = tensor.walk()
            kept = Tensor(tensor.buffer, node.output.shape, strides_for(node.output.shape, order))
            again = size if layout is Layout.KEEP and tensor.order() is None else 0
            return again + self._moved(node.output, kept, depth - 1)
        if layout in (Layout.AXES, Layout.LAST_AXES):
            last = layout is Layout.LAST_AXES
            return 0 if _beside(tensor, node.node.attrs["axes"], last) else size
        if layout is Layout.FREE:
            return 0
        return 0 if tensor.is_dense() else size

    def _moved_by_loop(self, node: RegionNode, value: Value, tensor: Tensor, depth: int) -> int:
        if tensor.shape != node.output.shape:
            return 0
        others = [
            order
            for other in node.inputs
            if other is not value and other.shape == tensor.shape and other.data is None
            if (order := self.likely_order(other)) is not None
        ]
        order = tensor.walk()
        for other in others:
            if same_order(order, other, tensor) is False:
                return estimate(tensor.size)
        return self._moved(node.output, _dense(node.output, order), depth - 1)


def same_order(one: Order, other: Order, tensor: Tensor) -> bool:
    """Whether two orders agree on the axes of a tensor that have more than one element."""
    wide = [axis for axis in one if tensor.shape[axis] != 1]
    return wide == [axis for axis in other if tensor.shape[axis] != 1]


def _dense(value: Value, order: Order) -> Tensor:
    buffer = Buffer("arena", "", 0, value.dtype)
    return Tensor(buffer, value.shape, strides_for(value.shape, order))


def _beside(tensor: Tensor, axes: Sequence[int], last: bool) -> bool:
    """Whether the axes lie side by side in memory, or in their order as the last ones."""
    order = tensor.order()
    if order is None:
        return False
    wide = [axis for axis in order if tensor.shape[axis] != 1]
    found = [i for i, axis in enumerate(wide) if axis in axes]
    if not found:
        return True
    side_by_side = found[-1] - found[0] + 1 == len(found)
    if not last:
        return side_by_side
    chosen = [wide[i] for i in found]
    return side_by_side and found[-1] + 1 == len(wide) and chosen == sorted(chosen)
