"""Operators of ONNX Runtime that optimisers of exported networks write."""

from __future__ import annotations

import numpy as np

from tests.fuzz.draft import Draft
from tests.fuzz.steps import require, source, step

DOMAIN = "com.microsoft"


@step(1, since=13)
def activated(draft: Draft, x: str) -> str:
    """Forms of Gelu, with a bias in front."""
    x = source(draft, x, ("float32",), range(1, 5))
    kind = draft.pick(("Gelu", "FastGelu", "QuickGelu", "BiasGelu"))
    operands = [x]
    if kind == "BiasGelu" or (kind == "FastGelu" and draft.chance(0.5)):
        require(draft.is_fixed(x, -1), "symbolic width")
        operands.append(draft.weight((draft.shape(x)[-1],)))
    alpha = draft.pick((None, 1.0, 1.702)) if kind == "QuickGelu" else None
    return draft.op(kind, operands, domain=DOMAIN, alpha=alpha)


@step(1, since=13)
def normalised_sum(draft: Draft, x: str) -> str:
    """SkipLayerNormalization and its kin."""
    x = source(draft, x, ("float32",), (3,))
    require(draft.is_fixed(x, -1) and draft.shape(x)[-1] > 0, "symbolic width")
    width = (draft.shape(x)[-1],)
    kind = draft.pick(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"))
    skip = draft.op("Tanh", [x])
    operands = [x, skip, draft.weight(width)]
    if kind == "SkipLayerNormalization" and draft.chance(0.7):
        operands.append(draft.weight(width))
        if draft.chance(0.5):
            operands.append(draft.weight(width))
    return draft.op(kind, operands, domain=DOMAIN, epsilon=draft.pick((None, 1e-5)))


@step(1, since=13)
def fused_product(draft: Draft, x: str) -> str:
    """FusedMatMul, with transposed operands and a factor."""
    x = source(draft, x, ("float32",), (2, 3))
    turned = draft.chance(0.3)
    inner = draft.shape(x)[-2 if turned else -1]
    require(draft.is_fixed(x, -2 if turned else -1), "symbolic inner extent")
    columns = draft.between(1, 8)
    other = draft.chance(0.4)
    right = draft.weight((columns, inner) if other else (inner, columns), 0.5)
    form = {"transA": int(turned), "transB": int(other), "alpha": draft.pick((None, 0.5))}
    return draft.op("FusedMatMul", [x, right], domain=DOMAIN, **form)


@step(1, since=13)
def heads(draft: Draft, x: str) -> str:
    """MultiHeadAttention of three projections, with a bias or a mask of the keys at times."""
    x = source(draft, x, ("float32",), (3,))
    batch, length, width = draft.shape(x)
    require(draft.is_fixed(x) and width > 0 and batch * length > 0, "symbolic sizes")
    number = draft.pick([h for h in (1, 2, 3, 4) if width % h == 0])
    q, k, v = (draft.op("MatMul", [x, draft.weight((width, width), 0.5)]) for _ in range(3))
    operands = [q, k, v]
    if draft.chance(0.4):
        operands.append(draft.weight((3 * width,)))
        if draft.chance(0.5):
            kept = np.ones((batch, length), "int32")
            kept[:, max(1, length - 1) :] = 0
            operands.append(draft.constant(kept, fixed=False))
    form = {"num_heads": number, "scale": draft.pick((None, 0.3))}
    form["unidirectional"] = draft.pick((None, 0, 1))
    return draft.op("MultiHeadAttention", operands, domain=DOMAIN, **form)


@step(1, since=13)
def dynamic_product(draft: Draft, x: str) -> str:
    """Weights of bytes or blocks: DynamicQuantizeMatMul, MatMulIntegerToFloat, MatMulNBits."""
    x = source(draft, x, ("float32",), (2, 3))
    require(draft.is_fixed(x, -1) and 0 not in draft.shape(x), "symbolic inner extent")
    require(not draft.special, "scales of what is not finite")
    inner, columns = draft.shape(x)[-1], draft.between(1, 9)
    if draft.chance(0.5):
        block = 16
        x = draft.op("MatMul", [x, draft.weight((inner, 2 * block), 0.5)])
        packed = draft.rng.integers(0, 256, (columns, 2, block // 2))
        scales = draft.rng.random((columns, 2)) * 0.1 + 0.01
        operands = [x, draft.constant(packed, "uint8"), draft.constant(scales, "float32")]
        if draft.chance(0.3):
            operands.append(draft.constant(draft.rng.integers(0, 256, (columns, 1)), "uint8"))
        form = {"K": 2 * block, "N": columns, "bits": 4, "block_size": block}
        return draft.op("MatMulNBits", operands, domain=DOMAIN, **form)
    dtype = str(draft.pick(("uint8", "int8")))
    weight = draft.constant(draft.array((inner, columns), dtype))
    size = (columns,) if draft.chance(0.5) else (1,)
    scales = draft.constant((draft.rng.random(size) * 0.1 + 0.01).astype("float32"))
    zeros = draft.constant(np.zeros(size, dtype))
    return draft.op("DynamicQuantizeMatMul", [x, weight, scales, zeros], domain=DOMAIN)
