"""A Loop over bags of rows that are equally many, as one reduction of all bags.

    Loop(number of bags) {
        begin, end = offsets[i], offsets[i + 1]      rows = Gather(table, words [bags, size])
        rows = Gather(table, words[begin:end])       y = ReduceSum<axes = 1>(rows)
        give ReduceSum<axes = 0>(rows)
    }

where the offsets are 0, size, 2 size and so on up to the number of the words: what exporters of
PyTorch write of an EmbeddingBag of words [bags, size]. Rows may be gathered before the loop, and a
branch may look for empty bags, of which there are none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from byoc.frontends.onnx.around_loop import Around
from byoc.frontends.onnx.graph_names import makers as makers_of
from byoc.frontends.onnx.loop_states import goes_on
from byoc.frontends.onnx.unroll import Nodes, Round

#: From this opset on slices have bounds as inputs.
_OLDEST = 11

#: Reductions, and the opset from which their axes are an input.
_REDUCTIONS = {"ReduceSum": 13, "ReduceMean": 18, "ReduceMax": 18, "ReduceMin": 18}

#: What gives the elements of its first input in another shape, or as another integer.
_SAME = ("Identity", "Reshape", "Squeeze", "Unsqueeze")


def bags_at_once(node: onnx.NodeProto, around: Around, write: Round) -> Nodes | None:
    """The reduction that such a Loop is; None for others."""
    body = next(a.g for a in node.attribute if a.name == "body")
    if write.opset < _OLDEST or not node.input[0] or len(body.output) != len(node.input):
        return None
    reader = _Reader(node, body, around)
    flag, going = node.input[1], body.output[0].name
    if not (reader.is_true(flag) and (goes_on(body) or reader.is_true(going))):
        return None
    if any(place not in reader.counters for place in range(len(node.input) - 2)):
        return None
    made = reader.reduction(body.output[-1].name)
    if made is None:
        return None
    reduction, rows = made
    found = reader.bags(rows)
    if found is None or not reader.counts(node.input[0], found.offsets):
        return None
    return _written(node, reduction, found, reader, write)


@dataclass(frozen=True)
class _Bags:
    """Bags of ``size`` words [bags, size], or of ``rows`` that are gathered before."""

    offsets: str
    size: int
    words: str
    table: str = ""
    rows: str = ""


class _Reader:
    """Reads a body, and the branch in it that is taken."""

    def __init__(self, node: onnx.NodeProto, body: onnx.GraphProto, around: Around) -> None:
        self.node, self.body, self.around = node, body, around
        self.made: dict[str, onnx.NodeProto] = dict(makers_of(body))
        self.tensors = {tensor.name: tensor for tensor in body.initializer}
        self.numbers = {body.input[0].name}
        self.counters = []
        for place, state in enumerate(body.input[2:]):
            begin = around.constant(node.input[2 + place])
            from_0 = begin is not None and begin.size == 1 and not begin.any()
            if from_0 and self._behind(body.output[1 + place].name, state.name) == 1:
                self.counters.append(place)
                self.numbers.add(state.name)

    def constant(self, name: str) -> np.ndarray | None:
        """The value of a constant of any of the graphs, whatever integer it is cast to."""
        if name in self.tensors:
            return numpy_helper.to_array(self.tensors[name])
        made = self.made.get(name)
        if made is None:
            return self.around.constant(name)
        if made.op_type in ("Cast", "CastLike", "Identity"):
            return self.constant(made.input[0])
        if made.op_type == "Constant" and made.attribute[0].name == "value":
            return numpy_helper.to_array(made.attribute[0].t)
        return None

    def is_true(self, name: str) -> bool:
        """Whether a flag is known to be set, or left out."""
        known = self.constant(name) if name else np.array(True)
        return known is not None and known.size == 1 and bool(known.item())

    def _is(self, name: str, numbers: Sequence[int]) -> bool:
        known = self.constant(name)
        return known is not None and known.ravel().tolist() == list(numbers)

    def _origin(self, name: str, makers: Mapping[str, onnx.NodeProto]) -> str:
        while name in makers and makers[name].op_type in _SAME:
            name = makers[name].input[0]
        return name

    def _behind(self, name: str, base: str) -> int | None:
        """How much more than another value one is."""
        name = self._origin(name, self.made)
        if name == base:
            return 0
        made = self.made.get(name)
        if made is None or made.op_type != "Add":
            return None
        known = [self.constant(other) for other in made.input]
        rest = [other for other, array in zip(made.input, known, strict=True) if array is None]
        numbers = [array.item() for array in known if array is not None and array.size == 1]
        if len(rest) != 1 or len(numbers) != 1 or self._behind(rest[0], base) != 0:
            return None
        return int(numbers[0])

    def _offset(self, name: str) -> tuple[str, int] | None:
        """The list, and how far behind the number of the round, of which a value is the element."""
        made = self.made.get(self._origin(name, self.made))
        if made is None or made.op_type != "Gather" or any(a.i for a in made.attribute):
            return None
        found = [self._behind(made.input[1], number) for number in self.numbers]
        place = next((n for n in found if n is not None), None)
        source = self.around.makers.get(made.input[0])
        if place is None:
            return None
        if source is not None and source.op_type == "Slice" and self._drops_first(source):
            return source.input[0], place + 1
        return made.input[0], place

    def _drops_first(self, node: onnx.NodeProto) -> bool:
        bounds = [self.around.constant(name) for name in node.input[1:]]
        if any(bound is None or bound.size != 1 for bound in bounds) or len(bounds) < 2:
            return False
        begin, end, axis, step = [*(int(bound.item()) for bound in bounds), 0, 1][:4]
        return (begin, axis, step) == (1, 0, 1) and end >= 2**31 - 1

    def reduction(self, name: str) -> tuple[onnx.NodeProto, str] | None:
        """The reduction over all rows that gives a value, and the rows."""
        made = self.made.get(self._origin_of_given(name))
        if made is not None and made.op_type == "If":
            made = self._of_some(made)
        if made is None or made.op_type not in _REDUCTIONS:
            return None
        axes = [list(a.ints) for a in made.attribute if a.name == "axes"]
        if len(made.input) > 1:
            known = self.constant(made.input[1])
            axes = [] if known is None else [known.tolist()]
        return (made, made.input[0]) if axes == [[0]] else None

    def _origin_of_given(self, name: str) -> str:
        while name in self.made and self.made[name].op_type == "Identity":
            name = self.made[name].input[0]
        return name

    def _of_some(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        """What is given of a bag that is not empty, where a branch asks whether it is."""
        asked = self.made.get(node.input[0])
        if asked is None or asked.op_type != "Equal" or len(node.output) != 1:
            return None
        bounds = [self._offset(name) for name in asked.input]
        if None in bounds or {place for _, place in bounds} != {0, 1}:
            return None
        if bounds[0][0] != bounds[1][0]:
            return None
        branch = next(a.g for a in node.attribute if a.name == "else_branch")
        self.made |= makers_of(branch)
        self.tensors |= {tensor.name: tensor for tensor in branch.initializer}
        return self.made.get(self._origin_of_given(branch.output[0].name))

    def bags(self, rows: str) -> _Bags | None:
        """The bags whose rows are a value of a round."""
        made, table = self.made.get(rows), ""
        if made is not None and made.op_type == "Gather":
            if any(a.i for a in made.attribute) or made.input[0] in self.made:
                return None
            table, made = made.input[0], self.made.get(made.input[1])
        if made is None or made.op_type != "Slice" or made.input[0] in self.made:
            return None
        if len(made.input) > 3 and not self._is(made.input[3], [0]):
            return None
        if len(made.input) > 4 and not self._is(made.input[4], [1]):
            return None
        begin, end = (self._offset(name) for name in made.input[1:3])
        if begin is None or end is None or begin[0] != end[0] or (begin[1], end[1]) != (0, 1):
            return None
        words = made.input[0] if table else self._words_of(made.input[0])
        found = None if words is None else self._equal_bags(begin[0], words)
        if found is None:
            return None
        return _Bags(begin[0], found[1], found[0], table, "" if table else made.input[0])

    def _words_of(self, rows: str) -> str | None:
        """The words, one for each row, whose rows a value holds, perhaps times a factor each."""
        made = self.around.makers.get(rows)
        if made is not None and made.op_type == "Mul":
            found = [self._words_of(name) for name in made.input]
            return next(filter(None, found), None)
        if made is None or made.op_type != "Gather" or any(a.i for a in made.attribute):
            return None
        return made.input[1] if len(self.around.shape(made.input[0]) or ()) == 2 else None

    def _equal_bags(self, offsets: str, words: str) -> tuple[str, int] | None:
        """Words [bags, size] of which a line is all, and the size, where offsets part them so."""
        makers = self.around.makers
        joined = makers.get(offsets)
        whole = self._origin(words, makers)
        shape = self.around.shape(whole)
        if len(self.around.shape(words) or ()) != 1 or shape is None or len(shape) != 2:
            return None
        size = shape[1]
        if joined is None or joined.op_type != "Concat" or len(joined.input) != 2 or not size:
            return None
        first, last = joined.input
        counted, total = makers.get(first), makers.get(self._origin(last, makers))
        if counted is None or counted.op_type != "Range" or total is None:
            return None
        if total.op_type == "Gather" and self._is(total.input[1], [0]):
            total = makers.get(total.input[0])
        if total is None or total.op_type != "Shape" or total.attribute:
            return None
        if self._origin(total.input[0], makers) != whole:
            return None
        if len(self.around.shape(total.input[0]) or ()) != 1:
            return None
        begin, limit, step = counted.input
        if not self._is(begin, [0]) or not self._is(step, [size]):
            return None
        return (whole, size) if self.around.is_count(limit, whole) else None

    def counts(self, number: str, offsets: str) -> bool:
        """Whether a number is how many bags there are."""
        makers = self.around.makers
        made = makers.get(number)
        while made is not None and made.op_type in ("Cast", *_SAME):
            made = makers.get(made.input[0])
        bags = makers[offsets].input[0]
        if made is not None and made.op_type == "Gather" and self._is(made.input[1], [0]):
            made = makers.get(made.input[0])
            source = None if made is None else makers.get(made.input[0])
            if made is None or made.op_type != "Shape" or made.attribute or source is None:
                return False
            without_first = source.op_type == "Slice" and self._drops_first(source)
            return without_first and source.input[0] == offsets
        return made is not None and made.op_type == "Size" and made.input[0] == bags


def _written(
    node: onnx.NodeProto, reduction: onnx.NodeProto, bags: _Bags, reader: _Reader, write: Round
) -> Nodes | None:
    """All bags reduced at once, and what the loop counts."""
    if bags.table:
        rows = write.op("Gather", [bags.table, bags.words], "rows", axis=0)
    else:
        shape = reader.around.shape(bags.rows)
        if shape is None or len(shape) != 2 or not shape[1]:
            return None
        apart = write.constant([-1, bags.size, shape[1]], "int64", "bags")
        rows = write.op("Reshape", [bags.rows, apart], "rows")
    given = {a.name: a.i for a in reduction.attribute if a.name == "keepdims"}
    output = node.output[-1]
    if write.opset >= _REDUCTIONS[reduction.op_type]:
        axes = write.constant([1], "int64", "axes")
        made = helper.make_node(reduction.op_type, [rows, axes], [output], node.name, **given)
    else:
        made = helper.make_node(reduction.op_type, [rows], [output], node.name, axes=[1], **given)
    write.nodes.append(made)
    for place, name in enumerate(node.output[:-1]):
        if name:
            kind = reader.around.types[node.input[2 + place]].tensor_type.elem_type
            write.nodes.append(helper.make_node("Cast", [node.input[0]], [name], to=kind))
    return write.nodes
