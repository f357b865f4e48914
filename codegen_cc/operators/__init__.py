"""Records of all operators, with the rules and calls of the built-in kernels beside them.

A family of operators is a file with a tuple ``OPERATORS``.  They are registered here, in the order
in which tables list them.
"""

from codegen_cc.operator import register
from codegen_cc.operators import (
    adaptive_pool,
    along_axis,
    arange,
    attention,
    conv2d,
    conv2d_transpose,
    conv3d,
    conv3d_transpose,
    coupling,
    distances,
    elementwise,
    fourier,
    grid_sample,
    group_norm,
    grouped_matmul,
    indexing,
    logic,
    matmul,
    movement,
    normalisation,
    pad,
    pooling,
    quantise,
    recurrent,
    resize2d,
    roi_align,
    rotary,
    trees,
)

FAMILIES = (
    *(
        conv2d,
        conv2d_transpose,
        conv3d,
        conv3d_transpose,
        matmul,
        attention,
        pooling,
        adaptive_pool,
        resize2d,
        pad,
        normalisation,
    ),
    *(group_norm, along_axis, elementwise, logic, indexing, arange, movement, quantise),
    *(recurrent, rotary, grouped_matmul, distances, grid_sample, trees, fourier, roi_align),
    coupling,
)

for family in FAMILIES:
    for operator in family.OPERATORS:
        register(operator)
