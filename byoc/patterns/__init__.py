"""The pattern table: which Relax operator becomes which node, and what may follow it.

``ROWS`` is data; the matcher in ``annotate``, the documentation and the tests read the same rows.
A row's builder reads operands and attributes of one call into a ``codegen_cc.node.Node``, or
raises ``Unfit`` with the reason. Whether a kernel runs the node is for ``codegen_cc.supports``.
"""

from __future__ import annotations

from byoc.patterns.composites import Group, find_groups
from byoc.patterns.contraction import CONTRACTION_ROWS
from byoc.patterns.coupling import COUPLING_ROWS
from byoc.patterns.custom import CUSTOM_ROWS
from byoc.patterns.elementwise import BINARY_ROWS
from byoc.patterns.fourier import FOURIER_ROWS
from byoc.patterns.idioms import IDIOM_KINDS, Idiom, find_idioms
from byoc.patterns.image import IMAGE_ROWS
from byoc.patterns.indexing import INDEXING_ROWS
from byoc.patterns.movement import MOVEMENT_ROWS
from byoc.patterns.pooling import POOLING_ROWS
from byoc.patterns.quantisation import QUANTISATION_ROWS
from byoc.patterns.recurrent import RECURRENT_ROWS
from byoc.patterns.reduction import REDUCTION_ROWS
from byoc.patterns.row import (
    ACTIVATION,
    BIAS,
    FACTOR,
    REQUANTISE,
    RESIDUAL,
    Candidate,
    Row,
    Unfit,
)
from byoc.patterns.trees import TREES_ROWS

#: All rows by family. Unary functions have no rows: ``idioms`` recognises them, in one operator
#: or in several.
ROWS: tuple[Row, ...] = (
    *CONTRACTION_ROWS,
    *POOLING_ROWS,
    *REDUCTION_ROWS,
    *BINARY_ROWS,
    *INDEXING_ROWS,
    *IMAGE_ROWS,
    *MOVEMENT_ROWS,
    *QUANTISATION_ROWS,
    *RECURRENT_ROWS,
    *TREES_ROWS,
    *FOURIER_ROWS,
    *COUPLING_ROWS,
    *CUSTOM_ROWS,
)

TABLE: dict[str, Row] = {row.root: row for row in ROWS}

__all__ = [
    "ACTIVATION",
    "BIAS",
    "FACTOR",
    "IDIOM_KINDS",
    "REQUANTISE",
    "RESIDUAL",
    "ROWS",
    "TABLE",
    "Candidate",
    "Group",
    "Idiom",
    "Row",
    "Unfit",
    "find_groups",
    "find_idioms",
]
