"""Counts of n-grams: TfIdfVectorizer of integers.

    y[index of g] = sum over skips s and places l of [x[l + i (s + 1)] = g[i] for every i]

A gram of one word is not skipped in.
"""

from __future__ import annotations

from functools import reduce
from operator import mul
from typing import Any

import numpy as np
import tvm
from tvm import relax

from byoc.frontends.onnx.converters.node import Node
from codegen_cc.dim import is_static


def tf_idf(node: Node) -> relax.Expr:
    """Counts, whether there are any (IDF), or counts (TFIDF), times weights; [C] or [B, C]."""
    shape, attrs = node.shape(), node.attrs
    pool = attrs.get("pool_int64s")
    if shape is None or pool is None or attrs.get("pool_strings"):
        raise ValueError("strings, or a tensor of unknown shape; need integers of known shape")
    begins, columns = list(attrs["ngram_counts"]), list(attrs["ngram_indexes"])
    mode, skips, weights = attrs["mode"].decode(), attrs["max_skip_count"], attrs.get("weights")
    dtype = node.dtype()
    *outside, width = node.inputs[0].ty.shape.values
    rows = reduce(mul, outside, 1)
    words = node.emit(relax.op.reshape(node.inputs[0], [rows, width]))
    places: list[int] = []
    counts: list[relax.Expr] = []
    taken = 0
    for n, begin in enumerate(begins, 1):
        end = begins[n] if n < len(begins) else len(pool)
        grams = np.array(pool[begin:end], dtype).reshape(-1, n)
        own, taken = columns[taken : taken + len(grams)], taken + len(grams)
        if not len(grams) or not attrs["min_gram_length"] <= n <= attrs["max_gram_length"]:
            continue
        total: relax.Expr | None = None
        for step in range(1, (skips if n > 1 else 0) + 2):
            length = width - (n - 1) * step
            if not is_static(shape[-1:]):
                length = tvm.tirx.max(length, 0) if n > 1 else width
            if not is_static(shape[-1:]) or int(length) > 0:
                found = _matches(node, words, grams, step, length)
                total = found if total is None else node.emit(relax.op.add(total, found))
        if total is not None:
            places += own
            counts.append(total)
    size = max(columns) + 1
    result = relax.op.zeros([rows, size], "float32")
    if counts:
        joined = relax.op.concat(counts, 1)
        if mode == "IDF":
            joined = relax.op.minimum(joined, relax.const(1, "float32"))
        spread = np.zeros((len(places), size), np.float32)
        factors = [1.0] * len(columns) if mode == "TF" or weights is None else weights
        given = dict(zip(columns, factors, strict=True))
        for row, place in enumerate(places):
            spread[row, place] = given[place]
        result = relax.op.matmul(node.emit(joined), relax.const(spread))
    return relax.op.reshape(node.emit(result), [*outside, size])


def _matches(
    node: Node, words: relax.Expr, grams: np.ndarray, step: int, length: Any
) -> relax.Expr:
    """How often each gram is there, its words ``step`` apart: float32 [rows, grams]."""
    every: relax.Expr | None = None
    for place in range(grams.shape[1]):
        begin = place * step
        part = relax.op.strided_slice(words, [1], [begin], [begin + length], assume_inbound=True)
        word = relax.const(np.ascontiguousarray(grams[None, None, :, place]), node.dtype())
        same = node.emit(relax.op.equal(relax.op.expand_dims(part, 2), word))
        every = same if every is None else node.emit(relax.op.logical_and(every, same))
    return node.emit(relax.op.sum(relax.op.astype(every, "float32"), 1))
