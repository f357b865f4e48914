"""Give regions back to TVM that are not worth a call, judged by work and not by node count."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import tvm
from tvm import relax

from byoc.ir.dataflow import is_candidate, is_region, substitute, with_blocks
from byoc.ir.define_symbols import without_definitions
from byoc.ir.walk import bindings_of, composites_of
from byoc.partition.sizes_of_nothing import may_reduce_nothing
from byoc.report.coverage import Pruned
from byoc.report.reasons import Chosen, Reasons
from codegen_cc.dim import at_one_window, at_unit
from codegen_cc.node import Node
from codegen_cc.operator import operator_of
from codegen_cc.operators.pad import PAD, is_pad_as_tvm
from codegen_cc.operators.resize2d import RESIZE2D, is_as_tvm

#: Least bytes that the computing nodes of a region without a contraction must read and write.
#: ``python -m benchmarks.prune`` (one thread of an AVX-512 server): a region costs 0.03 to 0.1
#: microseconds more than TVM's own fused code, for the check of its arguments and for every kernel
#: call after the first. Regions of 32 and 128 bytes lose by 5 to 25 %; from 512 bytes on those of
#: transcendental functions win and plain additions draw within 0.05 microseconds.
#: Regions that only move data lose by 10 to 30 % up to 1 KB, win with large permutations alone, and
#: TVM reshapes without a copy where a region has to write its result.
MIN_COMPUTE_BYTES = 512
#: Least bytes that concatenations to a symbolic extent must read and write, of one item, for a
#: region of data movement: TVM asks for each element which part it is from, a region copies parts.
#: Such join what the rounds of a loop give; from there on neither costs the loop any time, and the
#: copies of more are cheaper. So are those of as many bytes that repeat elements side by side, as
#: where an image is enlarged: TVM divides for the place of each.
MIN_JOINED_BYTES = 4096


def nodes_of(region: relax.Function) -> Iterator[Node]:
    """The nodes of a region function, in order."""
    return (node for _, _, node in composites_of(region))


def operators_of(region: relax.Function) -> int:
    """How many operators the composites of a region stand for."""
    return sum(len(bindings_of(composite)) for _, composite, _ in composites_of(region))


def computed_bytes(nodes: list[Node]) -> int:
    """Bytes that the nodes which compute read and write, of one item and one window of it."""
    return sum(at_one_window(node.bytes_moved) for node in nodes if not operator_of(node.op).moves)


def _copied_bytes(nodes: list[Node]) -> int:
    """Bytes that concatenations to a symbolic extent, and repetitions of elements, read and write,
    of one item."""
    joins = [n for n in nodes if n.op == "concat" and not isinstance(n.shape[n.attrs["axis"]], int)]
    repeats = [n for n in nodes if operator_of(n.op).moves and _repeats_elements(n)]
    return sum(at_one_window(node.bytes_moved) for node in (*joins, *repeats))


def _repeats_elements(node: Node) -> bool:
    """Whether each element stands several times side by side, of some that adjoin."""
    source = node.operands[0].shape if node.operands else ()
    return len(source) == len(node.shape) > 0 and source[-1] == 1 != node.shape[-1]


def _is_as_tvm(node: Node) -> bool:
    """Whether TVM picks the elements that the model's own engine picks."""
    judge = {RESIZE2D.name: is_as_tvm, PAD.name: is_pad_as_tvm}.get(node.op)
    return judge is None or judge(node)


def too_little_work(nodes: list[Node], min_bytes: int = MIN_COMPUTE_BYTES) -> str | None:
    """None if the nodes are worth a call, or TVM would not compute them right, else the reason."""
    if any(may_reduce_nothing(node) or not _is_as_tvm(node) for node in nodes):
        return None
    if any(operator_of(node.op).custom is not None for node in nodes):
        return None
    macs = sum(at_unit(node.macs) for node in nodes)
    computed = computed_bytes(nodes)
    if macs > 0 or computed >= min_bytes:
        return None
    if computed == 0 and _copied_bytes(nodes) >= MIN_JOINED_BYTES:
        return None
    if computed == 0:
        count = f"{len(nodes)} node{'' if len(nodes) == 1 else 's'}"
        return f"region of data movement alone ({count}); need one that computes"
    return f"region of 0 MACs and {computed} bytes; need {min_bytes} bytes to be worth a call"


def whole_network(mod: tvm.IRModule) -> set[str]:
    """The name of the region that is all that the one function of a module calls, if one is.

    It needs no virtual machine, whose call of TVM's own code takes three times as long.
    """
    networks = [func for func in mod.functions.values() if is_candidate(func)]
    if len(networks) != 1:
        return set()
    values = [binding.value for binding in bindings_of(without_definitions(networks[0]))]
    calls = [v for v in values if not isinstance(v, relax.Var | relax.Tuple | relax.TupleGetItem)]
    callee = calls[0].op if len(calls) == 1 and isinstance(calls[0], relax.Call) else None
    return {callee.name_hint} if isinstance(callee, tvm.ir.GlobalVar) else set()


def prune(
    mod: tvm.IRModule,
    reasons: Reasons | None = None,
    verdict: Callable[[list[Node]], str | None] = too_little_work,
    pruned: list[Pruned] | None = None,
    keep: Collection[str] = (),
) -> tvm.IRModule:
    """Replace calls of regions with too little work by the operators that they stand for.

    ``verdict`` says why a region of these nodes is not worth a call, or None. Reasons are added to
    ``reasons``, and what went back to ``pruned``. Regions named in ``keep`` are not judged.
    """
    dropped: dict[tvm.ir.GlobalVar, str] = {}
    for gvar, func in mod.functions.items():
        if is_region(func) and gvar.name_hint not in keep:
            nodes = list(nodes_of(func))
            reason = verdict(nodes)
            if reason is not None:
                dropped[gvar] = Chosen(reason)
                if pruned is not None:
                    operators = operators_of(func)
                    pruned.append(Pruned(operators, computed_bytes(nodes)))
    if not dropped:
        return mod
    out = mod.clone()
    collected: Reasons = {} if reasons is None else reasons
    for gvar, func in mod.functions.items():
        if is_candidate(func):
            out[gvar] = _inline(func, mod, dropped, collected)
    for gvar in dropped:
        del out[gvar]
    return out


def _inline(
    func: relax.Function,
    mod: tvm.IRModule,
    dropped: dict[tvm.ir.GlobalVar, str],
    reasons: Reasons,
) -> relax.Function:
    blocks: list[relax.BindingBlock] = []
    for block in func.body.blocks:
        if not isinstance(block, relax.DataflowBlock):
            blocks.append(block)
            continue
        bindings: list[relax.Binding] = []
        tuples: dict[relax.Var, list[relax.Expr]] = {}
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call) and value.op in dropped:
                restored, results = inline_region(mod[value.op], list(value.args), binding.var)
                bindings += restored
                tuples[binding.var] = results
                for original in restored:
                    if isinstance(original.value, relax.Call):
                        reasons[original.var] = dropped[value.op]
            elif isinstance(value, relax.TupleGetItem) and value.tuple_value in tuples:
                item = tuples[value.tuple_value][value.index]
                bindings.append(relax.VarBinding(binding.var, item))
            else:
                bindings.append(binding)
        blocks.append(relax.DataflowBlock(bindings))
    return with_blocks(func, blocks)


def inline_region(
    region: relax.Function, arguments: list[relax.Expr], var: relax.Var
) -> tuple[list[relax.Binding], list[relax.Expr]]:
    """The plain bindings that a call of a region stands for, and the values of its results.

    A single result is bound to ``var``; several get variables of their own.
    """
    mapping: dict[relax.Expr, relax.Expr] = dict(zip(region.params, arguments, strict=True))
    (block,) = region.body.blocks
    result = region.body.body
    several = isinstance(result.ty, relax.TupleType)
    if not several:
        mapping[result] = var
    functions: dict[relax.Var, relax.Function] = {}
    bindings: list[relax.Binding] = []
    results: list[relax.Expr] = [var]
    for binding in block.bindings:
        value = binding.value
        if isinstance(value, relax.Function):
            functions[binding.var] = value
        elif isinstance(value, relax.Tuple) and binding.var == result:
            results = [mapping.get(item, item) for item in value.fields]
        elif isinstance(value, relax.TupleGetItem):
            target = mapping.get(binding.var, binding.var)
            bindings.append(relax.VarBinding(target, substitute(value, mapping)))
        else:
            call = substitute(value, mapping)
            target = mapping.get(binding.var, binding.var)
            bindings += _inline_composite(functions[value.op], call, target)
    return bindings, results


def _inline_composite(
    func: relax.Function, call: relax.Call, var: relax.Var
) -> list[relax.Binding]:
    mapping: dict[relax.Expr, relax.Expr] = dict(zip(func.params, call.args, strict=True))
    mapping[func.body.body] = var
    (block,) = func.body.blocks
    return [
        relax.VarBinding(mapping.get(b.var, b.var), substitute(b.value, mapping))
        for b in block.bindings
    ]
