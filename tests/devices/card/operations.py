"""Single operations on the device, and their gradients, against numpy in float64.

The error of a sum is told by the sum of the absolute values of its terms: that is what rounding is in proportion to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from .table import Row, Table

ALLOWED = 5e-6
"""Float32 keeps 24 bits, so sums of the 32 terms that stand here are off by 2e-6 at most. TF32 keeps 11 bits, and is
off by 1e-4."""
EPSILON, MOMENTUM = 1e-5, 0.9
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Outcome:
    """What the device computed, what it should be, and what its error is in proportion to."""

    what: str
    computed: Array
    exact: Array
    scale: Array

    @property
    def error(self) -> float:
        return float(np.max(np.abs(self.computed - self.exact) / self.scale, initial=0.0))


def table() -> Table:
    return Table("Operations against numpy in float64", ("operation", "largest error", "allowed"), _rows())


def _rows() -> Iterator[Row]:
    for operation in (addition, product, convolution, batch_norm):
        try:
            outcomes = [*operation(np.random.default_rng(0))]
        except Exception as error:  # whatever the device says: the other operations are tried, too
            yield Row((operation.__name__, "failed", ""), (f"{operation.__name__}: {error}",))
            continue
        for outcome in outcomes:
            wrong = not outcome.error <= ALLOWED
            told = f"{outcome.what}: the largest error is {outcome.error:.2g}, and {ALLOWED:.0e} is allowed"
            yield Row((outcome.what, f"{outcome.error:.1e}", f"{ALLOWED:.0e}"), (told,) if wrong else ())


def addition(rng: np.random.Generator) -> Iterator[Outcome]:
    a, b = _numbers(rng, 64, 32), _numbers(rng, 64, 32)
    computed = ops.add(ms.Tensor(a), ms.Tensor(b)).asnumpy()
    yield Outcome("addition", computed, _wide(a) + b, np.abs(_wide(a)) + np.abs(b))


def product(rng: np.random.Generator) -> Iterator[Outcome]:
    a, b = _numbers(rng, 64, 32), _numbers(rng, 32, 48)
    computed = ops.matmul(ms.Tensor(a), ms.Tensor(b)).asnumpy()
    yield Outcome("matrix product", computed, *_sums(np.matmul, a, b))


def convolution(rng: np.random.Generator) -> Iterator[Outcome]:
    """Of 3×3 elements without padding; its gradients are those of the sum of its results times `seed`."""
    x, w = _numbers(rng, 2, 3, 6, 6), _numbers(rng, 4, 3, 3, 3)
    seed = _numbers(rng, 2, 4, 4, 4)
    y, (dx, dw) = _with_gradients(ops.conv2d, seed, x, w)
    yield Outcome("convolution", y, *_sums(_convolved, x, w))
    around = np.pad(seed, ((0, 0), (0, 0), (2, 2), (2, 2)))
    turned = w[:, :, ::-1, ::-1].swapaxes(0, 1)
    yield Outcome("convolution, gradient of its input", dx, *_sums(_convolved, around, turned))
    yield Outcome("convolution, gradient of its weight", dw, *_sums(_correlated, x, seed))


def batch_norm(rng: np.random.Generator) -> Iterator[Outcome]:
    """In training, over 32 values of each channel."""
    x, seed = _numbers(rng, 2, 3, 4, 4), _numbers(rng, 2, 3, 4, 4)
    gamma, beta = _numbers(rng, 3), _numbers(rng, 3)
    layer = nn.BatchNorm2d(3, eps=EPSILON, momentum=MOMENTUM, gamma_init=ms.Tensor(gamma), beta_init=ms.Tensor(beta))
    layer.set_train()

    def weighted(x: Any) -> Any:
        return (layer(x) * ms.Tensor(seed)).sum()

    weights = ms.ParameterTuple([layer.gamma, layer.beta])
    _, (dx, (dgamma, dbeta)) = ms.value_and_grad(weighted, 0, weights)(ms.Tensor(x))
    axes, column = (0, 2, 3), (1, 3, 1, 1)
    wide, dy = _wide(x), _wide(seed)
    mean, deviation = wide.mean(axes, keepdims=True), np.sqrt(wide.var(axes, keepdims=True) + EPSILON)
    normal = (wide - mean) / deviation
    own = dy - dy.mean(axes, keepdims=True) - normal * (dy * normal).mean(axes, keepdims=True)
    exact = {
        "BatchNorm": (layer(ms.Tensor(x)), normal * gamma.reshape(column) + beta.reshape(column)),
        "BatchNorm, gradient of its input": (dx, gamma.reshape(column) / deviation * own),
        "BatchNorm, gradient of its scale": (dgamma, (dy * normal).sum(axes)),
        "BatchNorm, gradient of its offset": (dbeta, dy.sum(axes)),
        # Two batches were seen, the same twice.
        "BatchNorm, its mean over time": (layer.moving_mean, (1 - MOMENTUM**2) * mean.reshape(3)),
    }
    for what, (computed, expected) in exact.items():
        yield Outcome(what, computed.asnumpy(), expected, np.full_like(expected, np.abs(expected).max()))


def _numbers(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(size=shape).astype(np.float32)


def _wide(array: Array) -> Array:
    return array.astype(np.float64)


def _sums(operation: Callable[[Array, Array], Array], a: Array, b: Array) -> tuple[Array, Array]:
    """What sums of products should be, and the sums of their absolute values."""
    return operation(_wide(a), _wide(b)), operation(np.abs(_wide(a)), np.abs(_wide(b)))


def _with_gradients(operation: Callable[..., Any], seed: Array, *operands: Array) -> tuple[Array, list[Array]]:
    """The result, and the gradients of the operands of the sum of result times `seed`."""
    tensors = [*map(ms.Tensor, operands)]

    def weighted(*given: Any) -> Any:
        return (operation(*given) * ms.Tensor(seed)).sum()

    gradients = ms.grad(weighted, tuple(range(len(operands))))(*tensors)
    return operation(*tensors).asnumpy(), [gradient.asnumpy() for gradient in gradients]


def _convolved(x: Array, w: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    return np.einsum("nchwij,kcij->nkhw", windows, w)


def _correlated(x: Array, seed: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(x, seed.shape[2:], (2, 3))
    return np.einsum("ncijhw,nkhw->kcij", windows, seed)
