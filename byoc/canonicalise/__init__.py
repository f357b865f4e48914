"""Bring what TVM's importer spreads over several operators back into one canonical form.

``RULES`` is the pipeline, to be read from top to bottom. A rule is a function that rewrites one
open ``Block``; it keeps values (up to the rounding that its docstring states), shapes and dtypes.
Calls on tensors without elements are offered to no rule but ``values_of_nothing``.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
import tvm_ffi
from tvm import relax

from byoc.canonicalise.affine_before import affine_before, affine_before_unless
from byoc.canonicalise.any_of_booleans import any_of_booleans, scalar_from_full
from byoc.canonicalise.attention import attention_from_pieces, attention_in_pieces
from byoc.canonicalise.batch_norm import decompose_batch_norm
from byoc.canonicalise.block_weight import block_weights
from byoc.canonicalise.broadcast_from_full import broadcast_from_full
from byoc.canonicalise.byte_functions import byte_functions
from byoc.canonicalise.cast_that_wraps import cast_that_wraps
from byoc.canonicalise.clip_from_call_tir import clip_from_call_tir, one_clip
from byoc.canonicalise.column_scales import column_scales
from byoc.canonicalise.computed_filters import (
    computed_filters,
    computed_filters_unless,
    nobody_computes,
)
from byoc.canonicalise.dequantised_weights import dequantised_weights
from byoc.canonicalise.division_by_zero import no_division_by_zero
from byoc.canonicalise.elementwise_from_stack import elementwise_from_stack
from byoc.canonicalise.fold_affine import fold_affine, merge_affine
from byoc.canonicalise.fold_constants import fold_constants
from byoc.canonicalise.fold_leftover_constants import fold_leftover_constants
from byoc.canonicalise.gelu import gelu_from_pieces
from byoc.canonicalise.global_pool import mean_from_global_pool
from byoc.canonicalise.group_norm import group_norm_from_pieces, norms_with_variable_scale
from byoc.canonicalise.index_out_of_bounds import no_index_out_of_bounds
from byoc.canonicalise.inline_tuples import inline_tuples
from byoc.canonicalise.known_sizes import known_sizes
from byoc.canonicalise.layer_norm import layer_norm_from_pieces
from byoc.canonicalise.lines_to_images import lines_to_images
from byoc.canonicalise.log_sum_exp import finite_shift_of_log_sum_exp
from byoc.canonicalise.mask_over_reshape import mask_over_reshape
from byoc.canonicalise.matmul_of_rows import matmul_of_rows
from byoc.canonicalise.matmul_of_vectors import matmul_of_vectors
from byoc.canonicalise.matmul_over_reshape import matmul_over_reshape
from byoc.canonicalise.movement_from_call_tir import movement_from_call_tir
from byoc.canonicalise.permute_around_elementwise import permute_around_elementwise
from byoc.canonicalise.pool2d_from_pool3d import pool2d_from_pool3d
from byoc.canonicalise.prelu import where_from_prelu
from byoc.canonicalise.quantised_movement import dequantised_rows, quantised_movement
from byoc.canonicalise.remove_no_ops import remove_no_ops
from byoc.canonicalise.repeated_places import (
    repeated_activations,
    repeated_places,
    repeated_steps,
)
from byoc.canonicalise.reshape_family import one_reshape
from byoc.canonicalise.resize_to_broadcast import pixels_before_enlarging, resize_to_broadcast
from byoc.canonicalise.rms_norm import rms_norm_from_pieces
from byoc.canonicalise.rounded_to_16_bits import rounded_to_16_bits
from byoc.canonicalise.silu import silu_from_pieces
from byoc.canonicalise.simple_operators import simple_operators
from byoc.canonicalise.slice_from_take import slice_from_take
from byoc.canonicalise.split_to_slices import split_to_slices
from byoc.canonicalise.stack_to_concat import stack_to_concat
from byoc.canonicalise.statistics import mean_from_variance
from byoc.canonicalise.summed_branches import summed_branches, summed_branches_unless
from byoc.canonicalise.take_from_the_end import take_from_the_end
from byoc.canonicalise.take_of_constants import take_of_constants
from byoc.canonicalise.taps_in_padding import without_taps_in_padding
from byoc.canonicalise.tile_to_broadcast import tile_to_broadcast
from byoc.canonicalise.transposed_conv_to_conv import transposed_conv_to_conv
from byoc.canonicalise.transposed_volumes import convolved_volumes
from byoc.canonicalise.values_of_nothing import values_of_nothing
from byoc.ir.dataflow import Block, map_blocks
from byoc.ir.walk import expressions_of

Rule = Callable[[Block], None]

RULES: tuple[Rule, ...] = (
    # The importer's own noise first, so that later rules see variables and constants alone.
    inline_tuples,
    values_of_nothing,
    dequantised_weights,
    column_scales,
    block_weights,
    known_sizes,
    fold_constants,
    clip_from_call_tir,
    one_clip,
    movement_from_call_tir,
    elementwise_from_stack,
    stack_to_concat,
    tile_to_broadcast,
    take_of_constants,
    take_from_the_end,
    simple_operators,
    cast_that_wraps,
    any_of_booleans,
    scalar_from_full,
    matmul_of_vectors,
    split_to_slices,
    slice_from_take,
    mean_from_global_pool,
    pool2d_from_pool3d,
    resize_to_broadcast,
    where_from_prelu,
    one_reshape,
    remove_no_ops,
    repeated_places,
    fold_constants,
    matmul_over_reshape,
    remove_no_ops,
    quantised_movement,
    dequantised_rows,
    rounded_to_16_bits,
    byte_functions,
    permute_around_elementwise,
    # Functions that arrive in pieces, before the affine rules could take a piece away.
    attention_in_pieces,
    layer_norm_from_pieces,
    rms_norm_from_pieces,
    group_norm_from_pieces,
    norms_with_variable_scale,
    finite_shift_of_log_sum_exp,
    mean_from_variance,
    gelu_from_pieces,
    silu_from_pieces,
    pixels_before_enlarging,
    # Per-channel arithmetic goes into weights and biases, the rest becomes scale and shift.
    decompose_batch_norm,
    matmul_of_rows,
    lines_to_images,
    fold_affine,  # before results of a transposed convolution are put in their places
    transposed_conv_to_conv,
    convolved_volumes,
    computed_filters,
    without_taps_in_padding,
    fold_affine,
    summed_branches,
    fold_affine,  # what follows a sum that is one convolution now
    summed_branches,  # which may be a branch itself, scaled (FastViT)
    affine_before,
    merge_affine,
    repeated_steps,
    repeated_activations,
    matmul_over_reshape,
    remove_no_ops,
    mask_over_reshape,
    broadcast_from_full,
    # Last, because it writes transposes of transposes that the one before would join.
    attention_from_pieces,
    fold_constants,
)


def apply_rule(mod: tvm.IRModule, rule: Rule) -> tvm.IRModule:
    """Run one rule over every dataflow block."""
    return apply_rules(mod, (rule,))


def apply_rules(mod: tvm.IRModule, rules: tuple[Rule, ...]) -> tvm.IRModule:
    """Run rules over every dataflow block, which is opened and put together once."""

    def rewrite(block: relax.DataflowBlock) -> relax.DataflowBlock:
        open_block = Block(block, mod, skip_empty=True)
        for rule in rules:
            rule(open_block)
            open_block.remove_unused()
        return open_block.finish()

    return map_blocks(mod, rewrite)


def canonicalise(
    mod: tvm.IRModule,
    observe: Callable[[str, tvm.IRModule], None] | None = None,
    computed: Callable[[relax.Call], bool] = nobody_computes,
    exact: bool = False,
    narrow: bool = False,
) -> tvm.IRModule:
    """Bring every dataflow block of a module into canonical form.

    ``observe(name, module)`` is called after each rule if given. ``computed`` says of calls that
    would be written as others, for the kernels of the package, whether a user's library computes
    them. ``exact`` keeps sums in which NaN, infinities and overflows would meet others; ``narrow``
    says that weights may be rounded to fewer bits than fp32 has. Fp32 only: operators of other
    dtypes pass through unchanged, but for constant folding (``widen_halves`` comes before).
    """
    mod = apply_rules(harmless(mod, computed), (fold_constants, fold_leftover_constants))
    asked = {
        affine_before: affine_before_unless(narrow),
        computed_filters: computed_filters_unless(computed),
        summed_branches: summed_branches_unless(exact, narrow),
    }
    rules = tuple(asked.get(rule, rule) for rule in RULES)
    if observe is None:
        return drop_unused_primitives(apply_rules(mod, rules))
    for rule in rules:
        mod = apply_rule(mod, rule)
        observe(rule.__name__, mod)
    return drop_unused_primitives(mod)


def harmless(mod: tvm.IRModule, computed: Callable[[relax.Call], bool]) -> tvm.IRModule:
    """Keep operands that end the process or leave a tensor's memory from all of TVM's code.

    To be run before TVM computes anything, be it while folding. Computed indices are left to
    kernels that check them, which those of users' libraries are not known to do.
    """

    def rewrite(block: relax.DataflowBlock) -> relax.DataflowBlock:
        open_block = Block(block, mod)
        no_division_by_zero(open_block)
        no_index_out_of_bounds(open_block, checked=lambda call: not computed(call))
        return open_block.finish()

    return map_blocks(mod, rewrite, nested=True)


def _called(mod: tvm.IRModule) -> set[tvm.ir.GlobalVar]:
    """The functions of a module that its Relax functions refer to."""
    functions = [func for func in mod.functions.values() if isinstance(func, relax.Function)]
    return {
        expr
        for func in functions
        for expr in expressions_of(func)
        if isinstance(expr, tvm.ir.GlobalVar)
    }


def _named_in_primitive(func: tvm.tirx.PrimFunc) -> list[tvm.ir.GlobalVar]:
    """The functions that a PrimFunc calls as subroutines."""
    named: list[tvm.ir.GlobalVar] = []
    tvm_ffi.structural_walk(func.body, (tvm.ir.GlobalVar, named.append))
    return named


def drop_unused_primitives(mod: tvm.IRModule) -> tvm.IRModule:
    """Remove the private PrimFuncs that no function calls any more."""
    called = _called(mod)
    unused = [
        gvar
        for gvar, func in mod.functions.items()
        if isinstance(func, tvm.tirx.PrimFunc)
        and gvar not in called
        and not (func.attrs and "global_symbol" in func.attrs)
    ]
    if not unused:
        return mod
    called = {
        gvar
        for func in mod.functions.values()
        if isinstance(func, tvm.tirx.PrimFunc)
        for gvar in _named_in_primitive(func)
    }
    out = mod.clone()
    for gvar in unused:
        if gvar not in called:
            del out[gvar]
    return out
