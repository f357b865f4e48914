"""Functions of PyTorch, each with inputs: what the converters are tested on, a family at a time.

Every entry is a function of tensors and the shapes, or the tensors, that it is called with.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from tests.torch.case import Case
from tests.torch.complex_operators import COMPLEX
from tests.torch.counted_operators import COUNTED
from tests.torch.image_operators import IMAGE
from tests.torch.linear_operators import BAGS, LINEAR
from tests.torch.odd_operators import ODD
from tests.torch.order_operators import ORDERED
from tests.torch.rotation_operators import ROTATIONS
from tests.torch.special_operators import SPECIAL
from tests.torch.taken_apart import TAKEN_APART

_X = (3, 8, 6, 6)
_INTEGERS = torch.tensor([[-7, -1, 0], [3, 8, 100]])
_NUMBERS = torch.tensor([-3.7, -0.5, -0.0, 0.3, 2.5, 7.0])
_BORDERS = torch.tensor([-0.5, 0.3, 2.0])
_MASK = torch.tensor([[True, False, True], [False, False, True]])

#: One query has no key.
_ROWS = torch.tensor([[True, False, True, True], [False] * 4, [True] * 4])
#: Another one has no number.
_QUERIES = torch.linspace(-1, 1, 48).reshape(1, 2, 3, 8).index_fill(2, torch.tensor(2), torch.nan)


def _part(
    module: nn.Module, pick: Callable[[tuple[torch.Tensor, ...]], torch.Tensor]
) -> Callable[..., torch.Tensor]:
    module.eval()
    return lambda *inputs: pick(module(*inputs))


def _from_states(module: nn.Module) -> Callable[..., torch.Tensor]:
    """All results of a layer that is given its states, as one tensor."""
    module.eval()

    def call(x: torch.Tensor, *states: torch.Tensor) -> torch.Tensor:
        y, last = module(x, states)
        return torch.cat([result.flatten() for result in (y, *last)])

    return call


ELEMENTWISE: dict[str, Case] = {
    **{
        name: (getattr(torch, name), ((4, 5),))
        for name in (
            *("abs", "atan", "asinh", "cos", "sin", "tan", "tanh", "cosh", "sinh", "exp", "expm1"),
            *("ceil", "floor", "trunc", "round", "neg", "sign", "square", "sigmoid", "erf"),
            *("exp2", "isnan", "isinf", "isfinite", "reciprocal", "relu"),
        )
    },
    **{
        name: (lambda x, name=name: getattr(torch, name)(x.abs() * 0.4 + 0.1), ((4, 5),))
        for name in ("log", "log1p", "log2", "log10", "sqrt", "rsqrt", "acos", "asin", "atanh")
    },
    **{
        name: (getattr(F, name), ((4, 5),))
        for name in (
            *("silu", "gelu", "hardsigmoid", "hardswish", "relu6", "elu", "selu", "mish"),
            *("softplus", "softsign", "logsigmoid", "tanhshrink", "hardshrink", "softshrink"),
        )
    },
    "acosh": (lambda x: torch.acosh(x.abs() + 1.5), ((4, 5),)),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), ((4, 5),)),
    "celu": (lambda x: F.celu(x, 1.7), ((4, 5),)),
    "elu_alpha": (lambda x: F.elu(x, 0.7), ((4, 5),)),
    "softplus_beta": (lambda x: F.softplus(10 * x, 2.0, 5.0), ((4, 5),)),
    "hardtanh": (lambda x: F.hardtanh(x, -0.2, 0.9), ((4, 5),)),
    "rrelu": (nn.RReLU(0.1, 0.4), ((3, 7),)),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.2), ((4, 5),)),
    "prelu": (lambda x, w: F.prelu(x, w), ((2, 4, 3), (4,))),
    "glu": (lambda x: F.glu(x, 1), ((3, 8),)),
    "threshold": (lambda x: F.threshold(x, 0.1, -2.0), ((4, 5),)),
    "add": (lambda x, y: torch.add(x, y, alpha=2), ((4, 5), (5,))),
    "add_dtypes": (lambda x, y: x + y, (_INTEGERS, (3,))),
    "add_number": (lambda x: x + 1, (_INTEGERS,)),
    "add_booleans": (lambda x: x + x.flip(0), (_MASK,)),
    "sub": (lambda x, y: torch.sub(x, y, alpha=3), ((4, 5), (4, 1))),
    "rsub": (lambda x: 3 - x, ((4, 5),)),
    "mul": (lambda x, y: x * y, ((4, 5), (4, 5))),
    "mul_booleans": (lambda x: x * x.flip(0), (_MASK,)),
    "div": (lambda x, y: x / y, ((4, 5), (5,))),
    "div_integers": (lambda x: x / 3, (_INTEGERS,)),
    "div_floor": (lambda x: torch.div(x, 0.3, rounding_mode="floor"), (_NUMBERS,)),
    "div_trunc": (lambda x: torch.div(x, 0.3, rounding_mode="trunc"), (_NUMBERS,)),
    "div_floor_integers": (lambda x: torch.div(x, 4, rounding_mode="floor"), (_INTEGERS,)),
    "div_trunc_integers": (lambda x: torch.div(x, 4, rounding_mode="trunc"), (_INTEGERS,)),
    "floor_divide": (lambda x: x // 0.1, (torch.tensor([1.0, -1.0, 0.35]),)),
    "remainder": (lambda x: x % 1.5, (_NUMBERS,)),
    "remainder_negative": (lambda x: x % -1.5, (_NUMBERS,)),
    "remainder_integers": (lambda x: x % 5, (_INTEGERS,)),
    "fmod": (lambda x: torch.fmod(x, 1.5), (_NUMBERS,)),
    "pow_2": (lambda x: x**2, ((4, 5),)),
    "pow_3_integers": (lambda x: x**3, (_INTEGERS,)),
    "pow_half": (lambda x: (x * x) ** 0.5, ((4, 5),)),
    "pow": (lambda x, y: (x.abs() + 0.1) ** y, ((4, 5), (4, 5))),
    "pow_of_number": (lambda x: 1.5**x, ((4, 5),)),
    "maximum": (torch.maximum, ((4, 5), (4, 5))),
    "minimum": (lambda x: torch.min(x, -x), ((4, 5),)),
    "atan2": (torch.atan2, ((4, 5), (4, 5))),
    **{
        name: (getattr(torch, name), (_INTEGERS, torch.tensor([[3.0, -1, 0]])))
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
    },
    "eq_number": (lambda x: x == 3, (_INTEGERS,)),
    "logical": (lambda x, y: (x & y) | ~x ^ y, (_MASK, _MASK.flip(0))),
    "logical_not": (torch.logical_not, (_INTEGERS,)),
    "logical_and": (torch.logical_and, (_INTEGERS, _MASK)),
    "bitwise": (lambda x: (x & 6) | (~x ^ 5), (_INTEGERS,)),
    "where": (lambda m, x, y: torch.where(m, x, y), (_MASK, (2, 3), (3,))),
    "where_number": (lambda m, x: torch.where(m, x, -1e9), (_MASK, (2, 3))),
    "masked_fill": (lambda m, x: x.masked_fill(m, float("-inf")), (_MASK, (2, 3))),
    "clamp": (lambda x: x.clamp(-0.3, 0.5), ((4, 5),)),
    "clamp_min": (lambda x: x.clamp(min=-0.3), ((4, 5),)),
    "clamp_max_integers": (lambda x: x.clamp(max=5), (_INTEGERS,)),
    "to_float": (lambda x: x.float(), (_INTEGERS,)),
    "to_integers": (lambda x: x.to(torch.int32), (_NUMBERS,)),
    "to_boolean": (lambda x: x.bool(), (_INTEGERS,)),
    "dropout": (lambda x: F.dropout(x, 0.5, training=False), ((4, 5),)),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3), ((4, 5), (4, 5))),
    "addcmul": (lambda x, y, z: torch.addcmul(x, y, z, value=0.5), ((4, 5),) * 3),
    "nan_to_num": (lambda x: torch.nan_to_num(x / x.round()), ((4, 5),)),
}

CONTRACTION: dict[str, Case] = {
    "matmul": (torch.matmul, ((2, 3, 4, 5), (5, 6))),
    "matmul_vector": (torch.matmul, ((3, 4), (4,))),
    "bmm": (torch.bmm, ((2, 3, 4), (2, 4, 5))),
    "addmm": (lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), ((6,), (3, 4), (4, 6))),
    "baddbmm": (torch.baddbmm, ((2, 3, 5), (2, 3, 4), (2, 4, 5))),
    "einsum": (lambda x, y: torch.einsum("bhqd,bkhd->bhqk", x, y), ((2, 3, 4, 5), (2, 6, 3, 5))),
    "linear": (nn.Linear(4, 6), ((2, 3, 4),)),
    "linear_plain": (nn.Linear(4, 6, bias=False), ((4,),)),
    "conv1d": (nn.Conv1d(8, 6, 3, padding=1, stride=2), ((2, 8, 11),)),
    "conv2d": (nn.Conv2d(8, 6, 3, padding=(1, 0), dilation=2), (_X,)),
    "conv2d_groups": (nn.Conv2d(8, 8, 3, groups=8, bias=False), (_X,)),
    "conv2d_same": (nn.Conv2d(8, 6, 4, padding="same"), (_X,)),
    "conv2d_alone": (nn.Conv2d(8, 6, 3), ((8, 6, 6),)),
    "conv3d": (nn.Conv3d(2, 3, 2), ((1, 2, 4, 5, 6),)),
    "conv_transpose1d": (nn.ConvTranspose1d(8, 6, 3, stride=2), ((2, 8, 5),)),
    "conv_transpose2d": (
        nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1),
        (_X,),
    ),
    "conv_transpose2d_groups": (nn.ConvTranspose2d(8, 4, 2, stride=2, groups=2), (_X,)),
    "conv_transpose3d": (nn.ConvTranspose3d(2, 3, 3, 2, 1, 1), ((2, 2, 3, 4, 5),)),
    "conv_transpose3d_apart": (nn.ConvTranspose3d(2, 3, (1, 2, 2), (1, 2, 2)), ((2, 2, 3, 4, 5),)),
    "attention": (F.scaled_dot_product_attention, ((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 3))),
    "attention_scale": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k, scale=0.11),
        ((2, 4, 5, 8), (2, 4, 7, 8)),
    ),
    "attention_causal": (
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        ((2, 4, 5, 8),),
    ),
    "attention_mask": (
        F.scaled_dot_product_attention,
        ((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8), (2, 1, 5, 7)),
    ),
    "attention_booleans": (
        F.scaled_dot_product_attention,
        (
            (1, 2, 3, 8),
            (1, 2, 4, 8),
            (1, 2, 4, 8),
            _ROWS,
        ),
    ),
    "attention_no_number": (
        F.scaled_dot_product_attention,
        (_QUERIES, (1, 2, 4, 8), (1, 2, 4, 8), _ROWS),
    ),
    "attention_groups": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        ((2, 6, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8)),
    ),
    "attention_rank_3": (F.scaled_dot_product_attention, ((4, 5, 8), (4, 7, 8), (4, 7, 8))),
    "multi_head": (
        _part(nn.MultiheadAttention(8, 2, batch_first=True), lambda r: r[0]),
        ((2, 5, 8),) * 3,
    ),
}

_WINDOW = torch.hann_window(16)


def _spectrum(x: torch.Tensor) -> torch.Tensor:
    return torch.stft(x, 16, 4, window=_WINDOW, return_complex=True)


def _rotated(x: torch.Tensor) -> torch.Tensor:
    turns = torch.polar(torch.ones(4, 4), torch.arange(16.0).view(4, 4))
    return torch.view_as_real(torch.view_as_complex(x.view(2, 4, 4, 2)) * turns).flatten(2)


CONTRACTION |= {
    "addmv": (torch.addmv, ((3,), (3, 5), (5,))),
    "bilinear": (nn.Bilinear(3, 4, 5), ((2, 3), (2, 4))),
    "fft": (lambda x: torch.view_as_real(torch.fft.rfft(x, norm="ortho")), ((3, 16),)),
    "fft_angles": (lambda x: torch.fft.rfft(x).angle(), ((40, 16),)),
    "fft_2": (lambda x: torch.fft.fft2(x).real, ((3, 8, 6),)),
    "fft_of_complex": (lambda x: torch.fft.fft(x.to(torch.complex64)).imag, ((3, 8),)),
    "fft_inner": (lambda x: torch.fft.fft(torch.fft.fft(x, dim=1), dim=0).imag, ((5, 6, 2),)),
    "fft_back": (
        lambda x, w: torch.fft.irfft2(
            torch.fft.rfft2(x, dim=(1, 2)) * torch.view_as_complex(w), s=(8, 7), dim=(1, 2)
        ),
        ((2, 8, 7, 3), (8, 4, 3, 2)),
    ),
    "fft_arithmetic": (
        lambda x, y: (torch.fft.fft(x) + torch.fft.fft(y) * y - torch.fft.fft(x).conj() / 2).abs(),
        ((3, 6), (3, 6)),
    ),
    "complex_rotation": (_rotated, ((2, 4, 8),)),
    "stft": (lambda x: _spectrum(x).abs() ** 2, ((2, 64),)),
    "stft_of_one": (
        lambda x: torch.view_as_real(
            torch.stft(x, 20, 7, 12, torch.ones(12), normalized=True, return_complex=True)
        ),
        ((64,),),
    ),
    "stft_of_complex": (
        lambda x: torch.stft(torch.complex(x, -x), 16, center=False, return_complex=True).imag,
        ((2, 40),),
    ),
    "stft_and_back": (
        lambda x: torch.istft(_spectrum(x) * 1.5, 16, 4, window=_WINDOW, length=64),
        ((2, 64),),
    ),
    "fft_long": (lambda x: torch.view_as_real(torch.fft.rfft(x)), ((2, 6000),)),
    "fft_prime": (lambda x: torch.view_as_real(torch.fft.fft(x)), ((2, 101),)),
    "fft_cut": (lambda x: torch.fft.irfft(torch.fft.rfft(x, n=48), n=35), ((3, 60),)),
    "fft_hermitian": (lambda x: torch.fft.hfft(torch.fft.ihfft(x), n=25), ((3, 24),)),
    "fft_of_three": (lambda x: torch.fft.irfftn(torch.fft.rfftn(x)), ((18, 20, 16),)),
}

NORMALISATION: dict[str, Case] = {
    "batch_norm": (nn.BatchNorm2d(8).eval(), (_X,)),
    "batch_norm_1d": (nn.BatchNorm1d(8).eval(), ((3, 8),)),
    "batch_norm_plain": (nn.BatchNorm2d(8, affine=False).eval(), (_X,)),
    "batch_norm_of_batch": (nn.BatchNorm2d(8, track_running_stats=False).eval(), (_X,)),
    "layer_norm": (nn.LayerNorm(6, eps=1e-3), ((3, 4, 6),)),
    "layer_norm_2": (nn.LayerNorm((4, 6), elementwise_affine=False), ((3, 4, 6),)),
    "layer_norm_no_bias": (nn.LayerNorm(6, bias=False), ((3, 4, 6),)),
    "rms_norm": (nn.RMSNorm(6), ((3, 4, 6),)),
    "rms_norm_epsilon": (nn.RMSNorm(6, eps=1e-2), ((3, 4, 6),)),
    "group_norm": (nn.GroupNorm(2, 8, eps=1e-3), (_X,)),
    "group_norm_plain": (nn.GroupNorm(4, 8, affine=False), ((3, 8),)),
    "instance_norm": (nn.InstanceNorm2d(8, affine=True).eval(), (_X,)),
    "instance_norm_kept": (nn.InstanceNorm2d(8, track_running_stats=True).eval(), (_X,)),
    "local_response": (nn.LocalResponseNorm(3), (_X,)),
    "normalize": (lambda x: F.normalize(x, dim=-1), ((3, 4),)),
    "softmax": (lambda x: x.softmax(1), (_X,)),
    "log_softmax": (lambda x: x.log_softmax(-1), (_X,)),
    "softmax_dtype": (lambda x: x.softmax(1, dtype=torch.float32), (_INTEGERS,)),
    "logsumexp": (lambda x: x.logsumexp(1), ((3, 4),)),
    "sum": (lambda x: x.sum((1, 3)), (_X,)),
    "sum_all": (lambda x: x.sum(), (_X,)),
    "sum_integers": (lambda x: x.sum(1, keepdim=True), (_INTEGERS.int(),)),
    "sum_booleans": (lambda x: x.sum(0), (_MASK,)),
    "mean": (lambda x: x.mean(-1, keepdim=True), (_X,)),
    "prod": (lambda x: x.prod(1), ((3, 4),)),
    "amax": (lambda x: x.amax((0, 2)), (_X,)),
    "amin": (lambda x: x.amin(1, keepdim=True), (_X,)),
    "max_all": (lambda x: x.max(), (_X,)),
    "max_along": (lambda x: torch.cat([t.float() for t in x.max(1)]), ((3, 4),)),
    "min_along": (lambda x: x.min(0, keepdim=True)[0], ((3, 4),)),
    "argmax": (lambda x: x.argmax(1), (_X,)),
    "argmin_all": (lambda x: x.argmin(), (_X,)),
    "any": (lambda x: x.any(1), (_MASK,)),
    "all": (lambda x: x.all(), (_MASK,)),
    "any_of_numbers": (lambda x: (x > 0).any(0, keepdim=True), ((3, 4),)),
    "var": (lambda x: x.var(1), (_X,)),
    "std": (lambda x: x.std((2, 3), correction=0, keepdim=True), (_X,)),
    "var_mean": (lambda x: torch.cat(torch.var_mean(x, 1)), ((3, 4),)),
    "cumsum": (lambda x: x.cumsum(1), ((3, 4),)),
    "cumsum_booleans": (lambda x: x.cumsum(0), (_MASK,)),
    "norm": (lambda x: x.norm(dim=1), ((3, 4),)),
    "norm_1": (lambda x: torch.linalg.vector_norm(x, 1), ((3, 4),)),
    "norm_3": (lambda x: x.norm(3, dim=1), ((3, 4),)),
    "norm_0": (lambda x: torch.linalg.vector_norm(x.round(), 0, dim=1), ((3, 4),)),
    "norm_least": (lambda x: torch.linalg.vector_norm(x, -float("inf"), dim=1), ((3, 4),)),
    "cdist": (torch.cdist, ((3, 4), (5, 4))),
    "cdist_1": (lambda x, y: torch.cdist(x, y, 1), ((3, 4), (5, 4))),
    "cdist_3": (lambda x, y: torch.cdist(x, y, 3), ((2, 3, 4), (1, 5, 4))),
    "cdist_greatest": (lambda x, y: torch.cdist(x, y, float("inf")), ((3, 4), (5, 4))),
    "lstm": (_part(nn.LSTM(4, 5), lambda r: r[0]), ((7, 2, 4),)),
    "lstm_states": (
        _part(nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True), lambda r: torch.cat(r[1])),
        ((2, 7, 4),),
    ),
    "lstm_projected": (
        _part(nn.LSTM(4, 6, proj_size=3), lambda r: torch.cat([r[0], r[1][0]])),
        ((7, 2, 4),),
    ),
    "lstm_projected_states": (
        _from_states(nn.LSTM(4, 6, 2, bidirectional=True, batch_first=True, proj_size=3)),
        ((2, 7, 4), (4, 2, 3), (4, 2, 6)),
    ),
    "gru": (_part(nn.GRU(4, 5, 2, batch_first=True), lambda r: r[0]), ((2, 7, 4), (2, 2, 5))),
    "gru_state": (
        _part(nn.GRU(4, 5, 1, False, bidirectional=True), lambda r: r[1]),
        ((7, 2, 4),),
    ),
    "rnn": (_part(nn.RNN(4, 5, nonlinearity="relu"), lambda r: r[0]), ((7, 2, 4),)),
}

MOVEMENT: dict[str, Case] = {
    "view": (lambda x: x.view(3, -1), (_X,)),
    "flatten": (lambda x: x.flatten(1), (_X,)),
    "unflatten": (lambda x: x.unflatten(1, (2, 4)), (_X,)),
    "squeeze": (lambda x: x.unsqueeze(1).unsqueeze(-1).squeeze(), (_X,)),
    "permute": (lambda x: x.permute(0, 2, -1, 1), (_X,)),
    "transpose": (lambda x: x.transpose(1, -1), (_X,)),
    "t": (lambda x: x.t(), ((3, 4),)),
    "movedim": (lambda x: x.movedim(1, -1), (_X,)),
    "expand": (lambda x: x.expand(5, 3, -1) + 0, ((3, 1),)),
    "cat": (lambda x, y: torch.cat([x, y], -1), ((3, 4), (3, 2))),
    "cat_dtypes": (lambda x, y: torch.cat([x, y]), (_INTEGERS, (1, 3))),
    "stack": (lambda x, y: torch.stack([x, y], 1), ((3, 4), (3, 4))),
    "split": (lambda x: x.split(3, 1)[2], (_X,)),
    "split_sizes": (lambda x: torch.cat(x.split([1, 5, 2], 1)[::-1], 1), (_X,)),
    "chunk": (lambda x: x.chunk(3, 1)[1] * 2, (_X,)),
    "unbind": (lambda x: x.unbind(1)[3], (_X,)),
    "slice": (lambda x: x[:, 1:-2:2, :, -3:], (_X,)),
    "select": (lambda x: x[1, -1], (_X,)),
    "assign": (lambda x, y: _assigned(x, y), ((3, 4), (3, 2))),
    "assign_steps": (lambda x, y: torch.slice_scatter(x, y, 1, 1, 6, 2), ((3, 7), (3, 3))),
    "flip": (lambda x: x.flip(0, -1), (_X,)),
    "roll": (lambda x: x.roll((2, -1), (2, 3)), (_X,)),
    "roll_all": (lambda x: x.roll(5), ((3, 4),)),
    "repeat": (lambda x: x.repeat(2, 3, 1), ((2, 3),)),
    "repeat_grid": (lambda x: x[None].repeat(2, 1, 1, 1, 3), ((2, 3, 4, 5),)),
    "tile": (lambda x: x.tile(2), ((2, 3),)),
    "repeat_interleave": (lambda x: x.repeat_interleave(2, 1), ((2, 3),)),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 3), value=0.5), (_X,)),
    "pad_negative": (lambda x: F.pad(x, (-1, 2, 0, -3)), (_X,)),
    "pad_reflect": (lambda x: F.pad(x, (1, 2, 3, 4), "reflect"), (_X,)),
    "pad_replicate": (lambda x: F.pad(x, (1, 2, 3, 4), "replicate"), (_X,)),
    "pad_circular": (lambda x: F.pad(x, (1, 2, 3, 0), "circular"), (_X,)),
    "pad_reflect_1d": (nn.ReflectionPad1d((2, 1)), ((2, 3, 5),)),
    "pixel_shuffle": (nn.PixelShuffle(2), (_X,)),
    "pixel_unshuffle": (nn.PixelUnshuffle(3), (_X,)),
    "channel_shuffle": (nn.ChannelShuffle(4), (_X,)),
    "zeros": (lambda x: torch.cat([x, torch.zeros_like(x), x.new_ones(1, 4)]), ((3, 4),)),
    "full": (lambda x: torch.full((2, 2), 1.5) + x, ((2, 2),)),
    "arange": (lambda x: x + torch.arange(4), ((3, 4),)),
    "tril": (lambda x: x.tril(-1) + 2 * x.triu(1), ((5, 4),)),
    "unfold_axis": (lambda x: x.unfold(1, 3, 2), ((3, 9),)),
    "index_select": (lambda x, i: x.index_select(1, i), (_X, torch.tensor([5, 0, 0]))),
    "embedding": (nn.Embedding(10, 4), (torch.tensor([[1, 9], [0, 3]]),)),
    "gather": (lambda x, i: x.gather(1, i), ((2, 3), torch.tensor([[2, 2], [0, 1]]))),
    "index": (lambda x, i: x[:, i], (_X, torch.tensor([[1, -1], [0, 3]]))),
    "index_two": (lambda x, i, j: x[i, j], (_X, torch.tensor([[2], [-1]]), torch.tensor([1, 7]))),
    "index_apart": (lambda x, i: x[i, :, i], (_X, torch.tensor([2, 1]))),
    "scatter": (
        lambda x, i, s: x.scatter(1, i, s),
        ((2, 3), torch.tensor([[2, 0], [1, 0]]), (2, 3)),
    ),
    "scatter_number": (lambda x, i: x.scatter(1, i, 7.0), ((2, 3), torch.tensor([[2], [1]]))),
    "gather_outer": (lambda x, i: x.gather(0, i), ((3, 4, 2), torch.tensor([[[2, 0], [1, 1]]]))),
    "scatter_add": (
        lambda x, i, s: x.scatter_add(1, i, s),
        ((2, 3), torch.tensor([[2, 2], [1, 0]]), (2, 3)),
    ),
    **{
        f"scatter_{reduce}": (
            lambda x, i, s, reduce=reduce: x.scatter_reduce(0, i, s, reduce),
            ((3, 2), torch.tensor([[2, 0], [2, 1]]), (2, 2)),
        )
        for reduce in ("prod", "amax", "amin")
    },
    "index_add": (lambda x, i, s: x.index_add(1, i, s), ((2, 3), torch.tensor([2, 2]), (2, 2))),
    "index_put": (
        lambda x, i, j, s: x.index_put((i, j), s),
        ((4, 5, 2), torch.tensor([[0], [-1]]), torch.tensor([1, 3, 0]), (3, 2)),
    ),
    "index_put_inner": (lambda x, i, s: _put(x, i, s), (_X, torch.tensor([5, 0]), (8, 2))),
    "index_put_cache": (
        lambda x, i, s: torch.ops.aten.index_put(x, [None, None, i], s),
        ((2, 3, 16, 8), torch.tensor([5, -1, 0]), (2, 3, 3, 8)),
    ),
    "index_put_added": (
        lambda x, i, s: torch.ops.aten.index_put(x, [None, None, i], s, True),
        ((2, 3, 16, 8), torch.tensor([[5], [5]]), (2, 3, 2, 1, 8)),
    ),
    "index_put_mask_added": (
        lambda x, m, v: x.index_put((m,), v, accumulate=True),
        ((2, 3, 2), _MASK, (2,)),
    ),
    "index_put_mask": (lambda x, m: x.index_put((m,), torch.tensor(7.0)), ((2, 3, 2), _MASK)),
    "fold": (nn.Fold((4, 4), 3, padding=1), ((1, 18, 16),)),
    "embedding_bag": (nn.EmbeddingBag(10, 4, mode="sum"), (torch.tensor([[1, 9], [0, 3]]),)),
    "embedding_bags": (
        lambda i, w: F.embedding_bag(i, w, torch.tensor([0, 3, 3]), mode="mean"),
        (torch.tensor([1, 9, 0, 3]), (10, 4)),
    ),
    "bucketize": (lambda x: torch.bucketize(x, _BORDERS), (_NUMBERS,)),
    "bucketize_right": (lambda x: torch.bucketize(x, _BORDERS, right=True), (_NUMBERS,)),
    "searchsorted": (lambda x: torch.searchsorted(_BORDERS, x, side="right"), (_NUMBERS,)),
    "topk": (lambda x: torch.cat([t.float() for t in x.topk(2, 1)], 1), ((3, 7),)),
    "sort": (lambda x: torch.cat([t.float() for t in x.sort(1, descending=True)]), ((3, 7),)),
    "argsort": (lambda x: x.argsort(-1), ((3, 7),)),
    "meshgrid": (lambda x, y: torch.stack(torch.meshgrid(x, y, indexing="ij")), ((3,), (4,))),
    "diagonal": (lambda x: x.diagonal(0, 1, 2), ((2, 4, 4),)),
}


def _put(x: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[:, :, places, 1] = values
    return x


def _assigned(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[:, 1:3] = y
    x[0] = 0.0
    return x


FAMILIES = {
    "elementwise": ELEMENTWISE,
    "contraction": CONTRACTION,
    "normalisation": NORMALISATION,
    "movement": MOVEMENT,
    "image": IMAGE,
    "odd": ODD,
    "order": ORDERED,
    "special": SPECIAL,
    "linear": LINEAR,
    "bags": BAGS,
    "taken_apart": TAKEN_APART,
    "rotations": ROTATIONS,
    "complex": COMPLEX,
    "counted": COUNTED,
}
