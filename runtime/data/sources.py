"""Sources of micro-batches for `fit`: arrays, .npz files, mindspore.dataset."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...ir.core.errors import RuntimeFailure
from ...ir.core.graph import Graph
from ...ir.core.types import TensorType
from ...ir.core.walk import walk
from ...ir.core.wording import agreed, counted
from ..engine.environment import numpy_mismatch
from ..state.checkpoint import read_npz
from .data_check import Column, check_columns
from .data_position import Order

Batch = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of the data that this process takes.

    With N ranks and micro-batches of B, step k consumes rows kNB to (k+1)NB of the order that all ranks share, and rank
    r takes the r-th B of them: together they do the work of one process with micro-batches of NB. The rows that remain
    at the end are dropped. Where graphs take any number of rows, they are divided evenly and fewer than N rows are
    dropped.
    """

    rank: int = 0
    ranks: int = 1


class Source(Protocol):
    """``columns`` are the arrays that it takes rows of, or none where they are not known beforehand; ``names`` those of
    its inputs; ``batches`` is how many micro-batches an epoch has, None if not known; ``dropped`` how many samples at
    the end of the last epoch did not fill one (on all ranks) and were left out; ``order`` what decides which samples a
    micro-batch holds; ``reads_ahead`` says whether a thread beside the one that trains had better read an epoch."""

    columns: Sequence[Column]
    names: Sequence[str]
    batches: int | None
    dropped: int
    order: Order
    reads_ahead: bool

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The micro-batches of epoch ``number``, counted from 0, without the first ``start``: arrays that nobody else
        has."""


FEED_BY_HAND = {
    "python": "Feed such inputs with session.step().",
    "command": "Export a cell that returns its loss, and whose inputs all have a row a sample.",
}


@dataclass(frozen=True, slots=True)
class NamedArrays:
    """Arrays by name, a row a sample, and where they come from, for messages."""

    arrays: Mapping[str, Any]
    where: str
    looked_at: bool = False
    """Whether :func:`.data_check.check_finite` has said what is to be said of them."""


def read_data(path: str | os.PathLike[str]) -> NamedArrays:
    """The arrays of an ``.npz`` file, in its order."""
    if Path(path).suffix != ".npz":
        raise RuntimeFailure(f"{path}: data is read from .npz files (numpy.savez).")
    if not Path(path).is_file():
        raise RuntimeFailure(f"{path}: no such file.")
    return NamedArrays(read_npz(Path(path)), str(path))


def named_arrays(data: Any) -> NamedArrays:
    """A mapping, a tuple, or an ``.npz`` file, as arrays by name."""
    if isinstance(data, NamedArrays):
        return data
    if isinstance(data, (str, os.PathLike)):
        return read_data(data)
    if isinstance(data, Mapping):
        return NamedArrays(data, "the mapping")
    if isinstance(data, (tuple, list)):
        return NamedArrays({f"#{i}": array for i, array in enumerate(data, 1)}, "the data")
    raise RuntimeFailure(f"cannot read arrays from a {type(data).__name__}: give a tuple, a mapping or an .npz path.")


def open_source(
    data: Any, graph: Graph, batch_size: int | None, shuffle: bool, seed: int, shard: Shard = Shard()
) -> Source:
    """The source for a tuple of arrays, a mapping of them by name, an ``.npz`` path or what was read from one, or a
    ``mindspore.dataset``. RuntimeFailure where it is not what ``graph`` takes."""
    size = micro_batch_size(graph)
    if size is not None and batch_size not in (None, size):
        raise RuntimeFailure(
            f"graph '{graph.name}' is made for micro-batches of {size}, not of {batch_size}. Export or capture the "
            f"cell with Tensor(shape=[None, …]) for any size,",
            python="or leave out batch_size.",
            command="or leave out boost-run --batch-size.",
        )
    if batch_size is not None and batch_size < 1:
        raise RuntimeFailure(f"micro-batches of {counted(batch_size, 'sample')}: give at least 1.")
    if isinstance(data, (str, os.PathLike, NamedArrays, Mapping)):
        columns = columns_by_input(graph, named_arrays(data))
    elif isinstance(data, (tuple, list)):
        columns = [column_of(array, f"array {i} of {len(data)}") for i, array in enumerate(data, 1)]
    else:
        from mindspore.dataset.engine.datasets import Dataset

        if isinstance(data, Dataset):
            return DatasetSource(data, graph, size or batch_size, static=size is not None, seed=seed, shard=shard)
        raise RuntimeFailure(
            f"cannot train on a {type(data).__name__}: give a tuple of arrays, an .npz path or a mindspore.dataset."
        )
    if size is None and batch_size is None:
        raise _size_missing(graph)
    order_seed = seed if shuffle else None
    return ArraySource(columns, graph, size or batch_size or 1, static=size is not None, seed=order_seed, shard=shard)


def _size_missing(graph: Graph) -> RuntimeFailure:
    return RuntimeFailure(
        f"graph '{graph.name}' takes micro-batches of any size.",
        python="Say how many samples one has: batch_size=….",
        command="Say how many samples one has: boost-run --batch-size B.",
    )


def micro_batch_size(graph: Graph) -> int | None:
    """The first dimension that all inputs share; None where it is open."""
    sizes = []
    for value in graph.inputs:
        if not isinstance(value.type, TensorType) or not value.type.shape:
            raise RuntimeFailure(
                f"input '{value.name}' ({value.type}) of graph '{graph.name}' has no batch dimension, by which data is "
                f"divided into micro-batches.",
                **FEED_BY_HAND,
            )
        sizes.append(max(value.type.shape[0], -1))
    if len(set(sizes)) > 1:
        shapes = ", ".join(f"{v.name}: {v.type}" for v in graph.inputs)
        raise RuntimeFailure(
            f"the inputs of graph '{graph.name}' differ in their first dimension ({shapes}), by which data is divided "
            f"into micro-batches.",
            **FEED_BY_HAND,
        )
    return None if sizes[0] == -1 else sizes[0]


def columns_by_input(graph: Graph, data: NamedArrays) -> list[Column]:
    """The arrays by input name, or in their own order where none has the name of an input. RuntimeFailure where only
    some have: nobody knows then which array is meant for which input."""
    arrays = data.arrays
    names = [value.name for value in graph.inputs]
    named = [name for name in names if name in arrays]
    taken = named or list(arrays)
    sides = (
        f"{data.where} holds {counted(len(arrays), 'array')} ({', '.join(map(str, arrays))}), graph '{graph.name}' "
        f"takes {len(names)} ({', '.join(names)})"
    )
    if named and len(named) < len(names):
        raise RuntimeFailure(
            f"{sides}: only {' and '.join(map(repr, named))} {agreed(len(named), 'has', 'have')} the name of an input. "
            f"Name every array as its input; or none of them, then their order counts."
        )
    if len(taken) != len(names):
        raise RuntimeFailure(f"{sides}. Keep exactly those, in this order or by these names.")
    return [column_of(arrays[name], f"{data.where}: array '{name}'") for name in taken]


def column_of(values: Any, name: str) -> Column:
    """The rows of one input, called ``name``. RuntimeFailure for what is no array, such as a micro-batch."""
    try:
        return Column(np.asarray(values), name)
    except ValueError as error:
        raise RuntimeFailure(
            f"{name}, a {type(values).__name__}, is no array: its rows differ in their shapes. Give one array for "
            f"each input, with the rows of all samples.",
            python="Micro-batches go to session.step one by one.",
        ) from error


AT_ONCE = 2**18
"""Bytes up to which a micro-batch is read when it is asked for: rows of 131 KB take 0.09 ms. A thread that reads them
beside a step takes 0.2 ms from it, on two cores that both compute."""


class ArraySource:
    """Arrays with one row a sample. ``seed`` shuffles the rows, differently in each epoch; None keeps their order."""

    def __init__(
        self, columns: Sequence[Column], graph: Graph, size: int, static: bool, seed: int | None, shard: Shard
    ):
        if len(columns) != len(graph.inputs):
            raise RuntimeFailure(
                f"graph '{graph.name}' takes {counted(len(graph.inputs), 'input')}, got "
                f"{counted(len(columns), 'array')}."
            )
        check_columns(graph, columns)
        self.columns = columns
        self.names: Sequence[str] = [column.name for column in columns]
        self.arrays = [column.array for column in columns]
        lengths = [len(a) for a in self.arrays]
        if len(set(lengths)) > 1:
            counts = ", ".join(f"{column.name} has {n:,}" for column, n in zip(columns, lengths, strict=True))
            raise RuntimeFailure(f"the arrays differ in their number of samples: {counts}.")
        self.samples, self.seed, self.shard = lengths[0], seed, shard
        row = sum(a.nbytes for a in self.arrays) // max(1, self.samples)
        self.reads_ahead = row * size > AT_ONCE or any(map(_is_file, self.arrays))
        self.step = size * shard.ranks
        rest = self.samples % self.step
        self.dropped = rest if static else rest % shard.ranks
        self.batches: int | None = -(-(self.samples - self.dropped) // self.step)
        self.order: Order = {"samples": self.samples, "batch": self.step, "seed": seed}
        if not self.batches:
            where = f" on each of {counted(shard.ranks, 'rank')}" if shard.ranks > 1 else ""
            needed = self.step if static else shard.ranks
            raise RuntimeFailure(
                f"{counted(self.samples, 'sample')} {agreed(self.samples, 'does', 'do')} not fill one "
                f"micro-batch of {size}{where}" + (f": that takes {needed}." if shard.ranks > 1 else ".")
            )

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        order = np.arange(self.samples)
        if self.seed is not None:
            order = np.random.default_rng((self.seed, number)).permutation(self.samples)
        used = self.samples - self.dropped
        for first in range(start * self.step, used, self.step):
            share = min(self.step, used - first) // self.shard.ranks
            begin = first + self.shard.rank * share
            rows = order[begin : begin + share]
            yield tuple(array[rows] for array in self.arrays)


def _is_file(array: Any) -> bool:
    """Whether the memory of an array is that of a file, whose rows take as long as the disk does."""
    return array is not None and (isinstance(array, np.memmap) or _is_file(getattr(array, "base", None)))


UNSEEDED = 5489
"""The seed of ``mindspore.dataset.config`` that stands for a different order in each process and run."""


class DatasetSource:
    """A ``mindspore.dataset``, batched or not, in the order that it gives itself.

    Every rank reads all of it and takes its share; a dataset that is divided by itself (``num_shards``, or a
    DistributedSampler) is taken as it is. Where ranks share a dataset whose order has no seed, it gets one.
    """

    reads_ahead = False
    """It reads ahead by threads of its own. An error in them, say of a user's function, ends the process where another
    thread reads it than the first that read any dataset."""

    def __init__(self, dataset: Any, graph: Graph, size: int | None, static: bool, seed: int, shard: Shard):
        with _told_of_numpy():
            shapes = dataset.output_shapes()
        if len(shapes) != len(graph.inputs):
            raise RuntimeFailure(
                f"the dataset has {counted(len(shapes), 'column')} ({', '.join(dataset.get_col_names())}), "
                f"graph '{graph.name}' takes {counted(len(graph.inputs), 'input')}."
            )
        first = graph.inputs[0].type
        if isinstance(first, TensorType) and len(shapes[0]) == len(first.shape) - 1:
            if size is None:
                raise _size_missing(graph)
            dataset = dataset.batch(size)
        self.columns: Sequence[Column] = ()
        self.names: Sequence[str] = [f"column '{name}'" for name in dataset.get_col_names()]
        self.dataset, self.size, self.static, self.seed = dataset, size, static, seed
        self.shard = Shard() if _is_divided(dataset) else shard
        self.batches: int | None = None
        self.dropped = 0
        from mindspore.dataset import config

        given = config.get_seed()
        ordered_by = given if given != UNSEEDED else seed if self.shard.ranks > 1 else None
        self.order: Order = {"batch": None if size is None else size * shard.ranks, "seed": ordered_by}

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        return islice(self._batches(number), start, None)

    def _batches(self, number: int) -> Iterator[Batch]:
        """This rank's batch of each group of as many batches as there are ranks."""
        self.dropped = 0
        size = self.size
        group: list[Batch] = []
        with self._seeded(number):
            batches = self.dataset.create_tuple_iterator(num_epochs=1, output_numpy=True)
        for batch in _read(batches):
            size = size or len(batch[0])
            if len(group) == self.shard.ranks:
                # Its short batch was not the last one after all: the step says what is wrong with its shape.
                yield group[self.shard.rank]
                group = []
            group.append(tuple(batch))
            if len(group) == self.shard.ranks and len(batch[0]) >= size:
                yield group[self.shard.rank]
                group = []
        if group:
            yield from self._rest(group)

    def _rest(self, group: list[Batch]) -> Iterator[Batch]:
        """This rank's share of the batches at the end, which do not fill a micro-batch on all ranks."""
        rows = sum(len(batch[0]) for batch in group)
        share = 0 if self.static else rows // self.shard.ranks
        self.dropped = rows - share * self.shard.ranks
        if share:
            begin = self.shard.rank * share
            columns = (np.concatenate(column) for column in zip(*group, strict=True))
            yield tuple(column[begin : begin + share] for column in columns)

    @contextmanager
    def _seeded(self, number: int) -> Iterator[None]:
        from mindspore.dataset import config

        before = config.get_seed()
        given = before != UNSEEDED
        if (given and number == 0) or (not given and self.shard.ranks == 1):
            yield
            return
        # Each epoch has an iterator of its own, which would begin the same order again.
        digest = hashlib.sha256(repr((before if given else self.seed, number)).encode()).digest()
        config.set_seed(int.from_bytes(digest[:4], "little") % (2**31 - 1))
        try:
            yield
        finally:
            config.set_seed(before)


def _read(batches: Iterator[Any]) -> Iterator[Any]:
    """The same batches. RuntimeFailure where numpy 2 keeps MindSpore from reading one."""
    while True:
        with _told_of_numpy():
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


@contextmanager
def _told_of_numpy() -> Iterator[None]:
    """MindSpore's GeneratorDataset and NumpySlicesDataset ask numpy for an array of each value without a copy, which
    numpy 2 refuses for anything that is no array yet (a Python number, a numpy scalar)."""
    try:
        yield
    except RuntimeError as error:
        mismatch = numpy_mismatch()
        if mismatch is None or "Unable to avoid copy" not in str(error):
            raise
        raise RuntimeFailure(
            f"the dataset cannot be read. {mismatch}; or let the dataset give arrays alone: numpy.asarray(label)"
        ) from error


def _is_divided(dataset: Any) -> bool:
    """Whether a dataset, or one that it is made of, gives each rank its own part already."""
    made_of = list(walk([dataset], lambda node: node.children))
    places = (place for node in made_of for place in (node, getattr(node, "sampler", None)))
    return any((getattr(place, "num_shards", None) or 1) > 1 for place in places)
