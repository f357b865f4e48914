"""Functions between the layers of networks."""

from __future__ import annotations

from tvm import relax

from byoc.frontends.torch.converters.comparison import rectified
from byoc.frontends.torch.converters.elementwise import clamp
from byoc.frontends.torch.values import Graph, Value

op = relax.op


def hardtanh(g: Graph, x: Value, min_val: float, max_val: float) -> relax.Expr:
    """``x`` within bounds."""
    return clamp(g, x, min_val, max_val)


def gelu(g: Graph, x: Value, approximate: str) -> relax.Expr:
    """GELU, by the error function or by tanh."""
    kinds = {"none": op.nn.gelu, "tanh": op.nn.gelu_tanh}
    return kinds[approximate](g.tensor(x))


def hardsigmoid(g: Graph, x: Value) -> relax.Expr:
    """``clip(x / 6 + 1 / 2, 0, 1)``."""
    scaled = op.multiply(g.tensor(x), g.tensor(1 / 6))
    return clamp(g, op.add(scaled, g.tensor(0.5)), 0, 1)


def hardswish(g: Graph, x: Value) -> relax.Expr:
    """``x hardsigmoid(x)``."""
    return op.multiply(g.tensor(x), hardsigmoid(g, x))


def leaky_relu(g: Graph, x: Value, negative_slope: float) -> relax.Expr:
    """``x`` above 0, else the slope times ``x``."""
    return op.nn.leakyrelu(g.tensor(x), float(negative_slope))


def random_relu(
    g: Graph, x: Value, noise: Value, lower: float, upper: float, training: bool, **_: object
) -> list[relax.Expr | None]:
    """``leaky_relu`` with the mean of the slopes that training draws from."""
    if training:
        raise ValueError("a module in training mode; call .eval() before exporting it")
    return [leaky_relu(g, x, (lower + upper) / 2), None]


def elu(g: Graph, x: Value, alpha: float, scale: float = 1, input_scale: float = 1) -> relax.Expr:
    """``scale (relu(x) - alpha relu(1 - exp(input_scale x)))``."""
    tensor = g.tensor(x)
    inner = tensor if input_scale == 1 else op.multiply(tensor, g.tensor(float(input_scale)))
    below = rectified(g, op.subtract(g.tensor(1.0), op.exp(inner)))
    whole = op.add(op.multiply(g.tensor(-float(alpha)), below), rectified(g, tensor))
    return whole if scale == 1 else op.multiply(whole, g.tensor(float(scale)))


def celu(g: Graph, x: Value, alpha: float = 1) -> relax.Expr:
    """``relu(x) - alpha relu(1 - exp(x / alpha))``."""
    if alpha <= 0:
        raise ValueError(f"celu with alpha {alpha}; need one above 0")
    return elu(g, x, alpha, 1, 1 / alpha)


def softplus(g: Graph, x: Value, beta: float, threshold: float) -> relax.Expr:
    """``log(1 + exp(beta x)) / beta``, and ``x`` where ``beta x`` is above the threshold."""
    tensor = g.tensor(x)
    if beta == 1 and threshold >= 17:  # x is the logarithm there, in float32
        return op.nn.softplus(tensor, 1.0, float(threshold))
    scaled = op.multiply(tensor, g.tensor(float(beta)))
    below = op.divide(op.nn.softplus(scaled), g.tensor(float(beta)))
    return op.where(op.greater(scaled, g.tensor(float(threshold))), tensor, below)


def silu_backward(g: Graph, grad_output: Value, x: Value) -> relax.Expr:
    """``grad_output`` times the derivative of ``x sigmoid(x)``: PyTorch does not take it apart."""
    wide = g.tensor(x)
    share, one = g.emit(op.sigmoid(wide)), g.tensor(1.0)
    slope = op.add(one, op.multiply(wide, op.subtract(one, share)))
    return op.multiply(op.multiply(g.tensor(grad_output), share), slope)


def mish(g: Graph, x: Value) -> relax.Expr:
    """``x tanh(softplus(x))``."""
    tensor = g.tensor(x)
    return op.multiply(tensor, op.tanh(op.nn.softplus(tensor)))


def prelu(g: Graph, x: Value, weight: Value) -> relax.Expr:
    """``x`` above 0, else the weight of its channel, along axis 1, times ``x``."""
    tensor, slope = g.tensor(x), g.tensor(weight)
    count, rank = slope.ty.shape.values[0] if slope.ty.ndim else 1, tensor.ty.ndim
    shape = [1] * rank
    if rank > 1:
        shape[1] = count
    return _prelu(g, tensor, op.reshape(slope, shape))


def prelu_kernel(g: Graph, x: Value, weight: Value) -> relax.Expr:
    """The same of a weight that broadcasts."""
    return _prelu(g, g.tensor(x), g.tensor(weight))


def _prelu(g: Graph, x: relax.Expr, slope: relax.Expr) -> relax.Expr:
    return op.where(op.greater(x, g.tensor(0.0)), x, op.multiply(slope, x))


ACTIVATIONS = {
    "relu6": lambda g, x: clamp(g, x, 0, 6),
    "gelu": gelu,
    "hardsigmoid": hardsigmoid,
    "hardswish": hardswish,
    "hardtanh": hardtanh,
    "leaky_relu": leaky_relu,
    "rrelu_with_noise_functional": random_relu,
    "elu": elu,
    "celu": celu,
    "silu_backward": silu_backward,
    "softplus": softplus,
    "mish": mish,
    "prelu": prelu,
    "_prelu_kernel": prelu_kernel,
}
