"""Steps per second of the training cell and of compiled programs, each on the device."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mindspore as ms

import boost_compile as bc
from tests.networks import CASES, build

from ..programs import Job, compiled
from .table import Row, Table

WARM_UP = 4


def table(
    device: str, networks: Sequence[str], pipelines: Sequence[str], source: Callable[[str], Path], steps: int
) -> Table:
    """Over `steps` micro-batches, after some others."""
    head = ("network", "batch", "native", *(f"`{pipeline}`" for pipeline in pipelines))
    rows = (_row(network, device, pipelines, source, steps) for network in networks)
    return Table("Micro-batches per second", head, rows)


def _row(network: str, device: str, pipelines: Sequence[str], source: Callable[[str], Path], steps: int) -> Row:
    batch = CASES[network].batches(1)[0]
    cells, problems = [network, str(CASES[network].batch_size)], []
    for what in ("native", *pipelines):
        try:
            step = _native(network, device) if what == "native" else _compiled(network, what, device, source(network))
            cells.append(f"{_per_second(step, batch, steps):.1f}")
        except Exception as error:  # whatever the device says: the others are tried, too
            cells.append("failed")
            problems.append(f"speed of {network} {what}: {error}")
    return Row(tuple(cells), tuple(problems))


def _native(network: str, device: str) -> Callable[..., Any]:
    cell = build(CASES[network], device).train_step
    return lambda *batch: cell(*map(ms.Tensor, batch)).asnumpy()


def _compiled(network: str, pipeline: str, device: str, source: Path) -> Callable[..., Any]:
    program = compiled(Job(network, pipeline), bc.load(str(source)), device.lower(), source.parent)
    session = bc.Session(program, device=device)
    return lambda *batch: float(session.step(*batch).loss)


def _per_second(step: Callable[..., Any], batch: Sequence[Any], steps: int) -> float:
    """Each step's loss is read, so what was begun has ended."""
    for _ in range(WARM_UP):
        step(*batch)
    began = time.perf_counter()
    for _ in range(steps):
        step(*batch)
    return steps / (time.perf_counter() - began)
