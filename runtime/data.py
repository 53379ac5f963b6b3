"""Sources of micro-batches for `fit`: arrays, .npz files, mindspore.dataset."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..ir.errors import RuntimeFailure
from ..ir.graph import Graph
from ..ir.types import TensorType
from .checkpoint import read_npz

Batch = tuple[Any, ...]


class Source(Protocol):
    """``batches`` is how many micro-batches an epoch has, None if not known; ``dropped`` how many samples at the end of
    the last epoch did not fill one and were left out."""

    batches: int | None
    dropped: int

    def epoch(self, number: int) -> Iterator[Batch]:
        """The micro-batches of epoch ``number``, counted from 0."""


def open_source(data: Any, graph: Graph, batch_size: int | None, shuffle: bool, seed: int) -> Source:
    """The source for a tuple of arrays, a mapping of them by name, an ``.npz`` path, or a ``mindspore.dataset``."""
    size = micro_batch_size(graph)
    if size is not None and batch_size not in (None, size):
        raise RuntimeFailure(
            f"graph '{graph.name}' was exported for micro-batches of {size}, batch_size={batch_size} was asked for. "
            f"Leave batch_size out, or export with Tensor(shape=[None, …]) for any size."
        )
    if batch_size is not None and batch_size < 1:
        raise RuntimeFailure(f"batch_size={batch_size}: give at least 1.")
    from mindspore.dataset.engine.datasets import Dataset

    if isinstance(data, Dataset):
        return DatasetSource(data, graph, size or batch_size, static=size is not None)
    if isinstance(data, (str, os.PathLike)):
        if Path(data).suffix != ".npz":
            raise RuntimeFailure(f"{data}: training data is read from .npz files (numpy.savez).")
        if not Path(data).is_file():
            raise RuntimeFailure(f"{data}: no such file.")
        arrays = _by_input(graph, read_npz(Path(data)), str(data))
    elif isinstance(data, Mapping):
        arrays = _by_input(graph, data, "the mapping")
    elif isinstance(data, (tuple, list)):
        arrays = list(data)
    else:
        raise RuntimeFailure(
            f"cannot train on a {type(data).__name__}: give a tuple of arrays, an .npz path or a mindspore.dataset."
        )
    if size is None and batch_size is None:
        raise RuntimeFailure(f"graph '{graph.name}' takes micro-batches of any size: say batch_size=….")
    return ArraySource(arrays, graph, size or batch_size or 1, static=size is not None, seed=seed if shuffle else None)


def micro_batch_size(graph: Graph) -> int | None:
    """The first dimension that all inputs share; None where it is open."""
    sizes = []
    for value in graph.inputs:
        if not isinstance(value.type, TensorType) or not value.type.shape:
            raise RuntimeFailure(
                f"input '{value.name}' ({value.type}) of graph '{graph.name}' has no batch dimension: use step()."
            )
        sizes.append(max(value.type.shape[0], -1))
    if len(set(sizes)) > 1:
        shapes = ", ".join(f"{v.name}: {v.type}" for v in graph.inputs)
        raise RuntimeFailure(
            f"the inputs of graph '{graph.name}' differ in their first dimension ({shapes}): use step()."
        )
    return None if sizes[0] == -1 else sizes[0]


def _by_input(graph: Graph, arrays: Mapping[str, Any], where: str) -> list[Any]:
    """The arrays by input name where the names agree, else in their own order."""
    names = [value.name for value in graph.inputs]
    if set(names) <= set(arrays):
        return [arrays[name] for name in names]
    if len(arrays) != len(names):
        raise RuntimeFailure(
            f"{where} holds {len(arrays)} arrays ({', '.join(arrays)}), graph '{graph.name}' takes {len(names)} "
            f"({', '.join(names)}). Keep exactly those, in this order or by these names."
        )
    return list(arrays.values())


class ArraySource:
    """Arrays with one row a sample. ``seed`` shuffles the rows, differently in each epoch; None keeps their order."""

    def __init__(self, arrays: Sequence[Any], graph: Graph, size: int, static: bool, seed: int | None):
        import numpy as np

        if len(arrays) != len(graph.inputs):
            raise RuntimeFailure(f"graph '{graph.name}' takes {len(graph.inputs)} inputs, got {len(arrays)} arrays.")
        self.arrays = [np.asarray(a) for a in arrays]
        lengths = [len(a) if a.ndim else 0 for a in self.arrays]
        if len(set(lengths)) > 1:
            raise RuntimeFailure(f"the arrays differ in their number of samples: {', '.join(map(str, lengths))}.")
        self.samples, self.size, self.seed = lengths[0], size, seed
        self.dropped = self.samples % size if static else 0
        self.batches: int | None = self.samples // size if static else -(-self.samples // size)
        if not self.batches:
            raise RuntimeFailure(f"{self.samples} samples do not fill one micro-batch of {size}.")

    def epoch(self, number: int) -> Iterator[Batch]:
        import numpy as np

        order = None if self.seed is None else np.random.default_rng((self.seed, number)).permutation(self.samples)
        for start in range(0, self.samples - self.dropped, self.size):
            rows: Any = slice(start, start + self.size) if order is None else order[start : start + self.size]
            yield tuple(array[rows] for array in self.arrays)


class DatasetSource:
    """A ``mindspore.dataset``, batched or not, in the order that it gives itself."""

    def __init__(self, dataset: Any, graph: Graph, size: int | None, static: bool):
        shapes = dataset.output_shapes()
        if len(shapes) != len(graph.inputs):
            raise RuntimeFailure(
                f"the dataset has {len(shapes)} columns ({', '.join(dataset.get_col_names())}), "
                f"graph '{graph.name}' takes {len(graph.inputs)} inputs."
            )
        first = graph.inputs[0].type
        if isinstance(first, TensorType) and len(shapes[0]) == len(first.shape) - 1:
            if size is None:
                raise RuntimeFailure(f"graph '{graph.name}' takes micro-batches of any size: say batch_size=….")
            dataset = dataset.batch(size)
        self.dataset, self.size, self.static = dataset, size, static
        self.batches: int | None = None
        self.dropped = 0

    def epoch(self, number: int) -> Iterator[Batch]:
        held: Batch | None = None
        for batch in self.dataset.create_tuple_iterator(num_epochs=1, output_numpy=True):
            if held is not None:
                # It was not the last one after all: the step says what is wrong with its shape.
                yield held
                held = None
            if self.static and self.size is not None and len(batch[0]) < self.size:
                held = tuple(batch)
            else:
                yield tuple(batch)
        self.dropped = 0 if held is None else len(held[0])
