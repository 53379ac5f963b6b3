"""Micro-batches to verify with: the user's, or random ones that fit the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from ...ir.core.errors import RuntimeFailure
from ...ir.core.graph import Graph, Input, tensor_type
from ...ir.core.types import DType, TensorType
from .ranges import upper_bound
from .reference import Batch

GIVE_DATA = "give real micro-batches as data (boost-verify --data FILE.npz)"
OPEN = 4
"""The size of a dimension that the export left open."""


def random_batches(graph: Graph, count: int, seed: int, positive: Sequence[str] = ()) -> tuple[list[Batch], list[str]]:
    """Batches for the inputs of a graph, and notes on what had to be assumed.

    Floats are drawn from a normal distribution (those named in ``positive``, which weigh micro-batches, between 0.5 and
    1.5); integers stay below what their consumers allow (an embedding's rows, a loss's classes), 0 or 1 where nobody
    says.
    """
    rng = np.random.default_rng(seed)
    bounds: dict[str, int] = {}
    notes = []
    for value in graph.inputs:
        type_ = value.type
        if not isinstance(type_, TensorType):
            raise RuntimeFailure(f"input '{value.name}' is {type_}: {GIVE_DATA}")
        if type_.dtype.is_float or type_.dtype is DType.BOOL:
            continue
        bound = upper_bound(graph, value)
        if bound is None:
            notes.append(f"input '{value.name}' ({type_}): nothing says which integers it takes, 0 and 1 were drawn")
        bounds[value.name] = bound or 2

    def draw(value: Input) -> np.ndarray:
        type_ = tensor_type(value)
        shape = tuple(OPEN if d < 0 else d for d in type_.shape)
        if type_.dtype is DType.BOOL:
            return np.asarray(rng.random(shape) < 0.5)
        if not type_.dtype.is_float:
            return np.asarray(rng.integers(0, bounds[value.name], shape)).astype(type_.dtype.value)
        drawn = rng.uniform(0.5, 1.5, shape) if value.name in positive else rng.standard_normal(shape)
        return np.asarray(drawn).astype("float32" if type_.dtype is DType.BFLOAT16 else type_.dtype.value)

    return [tuple(map(draw, graph.inputs)) for _ in range(count)], notes


def file_batches(path: str, graph: Graph, count: int) -> list[Batch]:
    """The first micro-batches of an .npz file, from its start again where it holds fewer."""
    from ...runtime.data.sources import open_source

    source = open_source(path, graph, None if _is_static(graph) else OPEN, shuffle=False, seed=0)
    found: list[Batch] = [tuple(np.asarray(a) for a in batch) for batch in islice(source.epoch(0), count)]
    if len(found) < min(count, 2):
        raise RuntimeFailure(f"{path} holds {len(found)} micro-batch: different ones are needed, give more samples")
    return [found[i % len(found)] for i in range(count)]


def given_batches(data: Sequence[Batch], count: int) -> list[Batch]:
    """Micro-batches given in Python, from the start again where they are fewer."""
    if not data:
        raise RuntimeFailure("no micro-batches were given to verify with")
    return [tuple(np.asarray(a) for a in data[i % len(data)]) for i in range(count)]


def _is_static(graph: Graph) -> bool:
    return all(isinstance(v.type, TensorType) and v.type.shape and v.type.shape[0] >= 0 for v in graph.inputs)
